"""Bayesian networks: p(x) = Π_i p(x_i | parents of i), a generative function written from a
networkx DAG.

A discrete node has a table of probabilities for each configuration j of its parents, with the prior

    θ_ij ~ Dirichlet(a, …, a),  a = strength / (configurations × states) (BDeu) or 1 (strength=None)

so that complete data give the posterior mean (n_ijk + a) / Σ_k (n_ijk + a), and the log evidence is
the BDeu score. A continuous node is Gaussian, linear in its continuous parents, with coefficients
and a precision of its own for each configuration of the discrete ones (conditional linear
Gaussian):

    x_i ~ N(intercept_j + slope_j · x_continuous, 1 / precision_j)
    precision_j ~ Gamma(3/2, s²/2),   slope_j ~ N(0, c² / (u² precision_j)),
    intercept_j ~ N(m, (1 + Σ (m_p/u_p)²) c² / precision_j)

where m is the mean of the column of x_i, and m_p and u_p are the means and the standard deviations
of those of its continuous parents: a level at their means with a standard deviation of c, and
slopes a standard deviation of theirs with the same. No unit and no zero of measurement matters.

Sources: Heckerman, Geiger & Chickering (1995), "Learning Bayesian networks: the combination of
knowledge and statistical data", for BDeu; Lauritzen (1992), "Propagation of probabilities, means
and variances in mixed graphical association models".

Tables of Bayesian networks: a conditional probability table, or the coefficients, of each
node.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.errors import listed, type_of
from probml.estimators.rules import hold, number, optional
from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.language.language import Bound
from probml.models.bayesian_networks.variables import items, read
from probml.models.frames.measured import SHARE, centre_of, scale_of
from probml.numerics.process.libraries import pd
from probml.typing import PyTree

if TYPE_CHECKING:
    import networkx as nx


def network_tables(estimates: Estimates) -> list[Table]:
    """P(node | parents) of a discrete node; node ~ parents, intercept, slopes and standard
    deviation, of a Gaussian node, a row for each configuration of its discrete parents."""
    nodes = estimates.settings["nodes"]
    sizes = {name: states if isinstance(states, int) else len(states)
             for name, _, states, *_ in nodes if states is not None and states is not float}
    out = []
    for name, parents, states, *_ in nodes:
        if states is None:
            continue
        discrete = [parent for parent in parents if parent in sizes]
        rows = _configurations(estimates, discrete, sizes)
        if states is not float:
            out.append(estimates.across(
                f"P({name}{' | ' if parents else ''}{', '.join(parents)})", rows,
                estimates.labels(name, sizes[name], name),
                estimates.of(f"{name}.table").map(partial(_reshape_rows, sizes[name]))))
            continue
        numbers = [parent for parent in parents if parent not in sizes]
        columns = [estimates.of(f"{name}.intercept").map(partial(_reshape_rows, 1))]
        if numbers:
            columns.append(estimates.of(f"{name}.slope").map(
                partial(_reshape_rows, len(numbers))))
        columns.append(estimates.function(lambda precision: precision**-0.5,
                                          f"{name}.precision").map(partial(_reshape_rows, 1)))
        joined = Quantity.concatenated(columns, 1)
        heading = f"{name} ~ {' + '.join(parents)}" if parents else f"{name} ~ 1"
        out.append(estimates.across(heading, rows, ["Intercept", *numbers, "residual sd"], joined))
    return out


def _reshape_rows(width: int, array: np.ndarray) -> np.ndarray:
    return np.reshape(array, (-1, width))


def _configurations(estimates: Estimates, parents: list, sizes: dict) -> "pd.Index":
    if not parents:
        return pd.Index([""])
    levels = [estimates.labels(parent, sizes[parent], parent) for parent in parents]
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_product(levels, names=parents)


def bayesian_network(
    dag: "nx.DiGraph",
    states: Mapping[str, Sequence | int | type] | None = None,
    strength: float | None = 1.0,
    mean_scale: float = 1000.0,
    scale: float | None = None,
    data=None,
    kinds: Mapping[str, str] | None = None,
) -> probml.Model:
    """A directed acyclic graph as a Model: every node a site in every row.

    Parameter sites: `"<node>.table"` (*states of the parents, states) of a discrete node;
    `"<node>.intercept"`, `"<node>.precision"` (*states of the discrete parents) and
    `"<node>.slope"` (*the same, continuous parents) of a Gaussian one. Parents are in the order
    of `dag.predecessors(node)`.

    Args:
        dag: nodes are strings. A node may carry a distribution of its own, `dag.add_node("n",
            distribution=f)`: f(parents) is given a dict of the parents' values and returns a
            NumPyro distribution; with `parameters=g` as well, g() samples whatever f needs outside
            rows, and f(parents, parameters) is given what it returned.
        states: node → labels of its states, or their number, or `float` for a Gaussian node; nodes
            with a distribution of their own need none. By default the node attribute "states"
            (learn_structure sets it), and what `data` shows.
        strength: equivalent sample size of the BDeu prior, pseudo-rows standard deviation over a
            node's whole table; None puts one pseudo-row into every cell (Laplace). With prior=False
            an engine takes maximum likelihood.
        mean_scale: c, prior standard deviation of levels, and of slopes a standard deviation of a
            parent, in standard deviations of the node given its parents.
        scale: s > 0, prior guess of that standard deviation, in the node's units, worth one or two
            rows; None: a tenth of the standard deviation of its column. This, m, m_p and u_p are
            measured on the rows that are fitted, as sites `"<node>.prior_scale"` and
            `"<node>.prior_centre"`.
        data: a DataFrame, pyarrow Table or mapping name → column, missing cells NaN or None, from
            which the states of the other nodes are read: text, booleans, categories and whole
            numbers of few values are labels, other numbers Gaussian (probml.models.kinds). To the
            labels that a node has as an attribute those that the data show besides are added.
        kinds: node → "categorical" or "normal", for nodes that are not so; their states are read
            from the data.

    Raises:
        DataError: data that cannot be read, such as dates. ModelError: a cycle (named), a node
        without states, a discrete node with a continuous parent, a name that is no string.

    Cost: of a fit to complete data, one pass; of a query, exponential in the treewidth; `explain`
        says.
    """
    import networkx as nx  # late: 0.2 s that `import probml.models` need not take

    _check(dag)
    for what, item in (("states", states), ("kinds", kinds)):
        if item is not None and not isinstance(item, Mapping):
            raise probml.ModelError(f"bayesian_network({what}={item!r:.200}): expected a dict from "
                                    f"nodes to {what}, such as {what}={{'smoker': "
                                    f"{'categorical' if what == 'kinds' else ['no', 'yes']!r}}}")
    rule = number(0.0, above=True)
    hold("bayesian_network", strength=(strength, optional(rule)), mean_scale=(mean_scale, rule),
         scale=(scale, optional(rule)))
    known = {**nx.get_node_attributes(dag, "states"), **(states or {})}
    if kinds and data is None:
        raise probml.ModelError("bayesian_network(kinds=...): kinds= describes the columns of "
                                "data=, but data= is missing. Give data=, or give states= instead "
                                "of kinds=")
    if data is not None:
        known = _read(dag, data, known, states or {}, kinds or {})
    stray = [name for name in known if name not in dag]
    if stray:
        raise probml.ModelError(f"bayesian_network(states=...): {stray[0]!r} is not a node of the "
                                f"graph. Use one of its nodes, {listed(dag)}")
    nodes = tuple(_node(dag, name, known)
                  for name in nx.lexicographical_topological_sort(dag, list(dag).index))
    _check_parents(nodes)
    return network(nodes=nodes, strength=strength, mean_scale=mean_scale, scale=scale)


@probml.model
def network(nodes, strength, mean_scale, scale):
    """The generative function: parameters of every node, then rows in topological order. Made by
    `bayesian_network`."""
    sizes = {name: _size(states) for name, _, states, _, _ in nodes}
    parameters: dict[str, PyTree] = {}
    units = {}
    for name, parents, states, _, dist_fn in nodes:
        table = tuple(sizes[p] for p in parents if sizes[p])
        if states is None:
            parameters[name] = dist_fn() if dist_fn else None
        elif states is float:
            above = [units[p] for p in parents if not sizes[p]]
            parameters[name], units[name] = _linear_gaussian(name, table, above, mean_scale, scale)
        else:
            a = 1.0 if strength is None else strength / (math.prod(table) * sizes[name])
            parameters[name] = sample(f"{name}.table", dist.Dirichlet(
                jnp.full((*table, sizes[name]), a)
            ).to_event(len(table)))
    with probml.rows():
        values = {}
        for name, parents, states, dist_fn, with_parameters in nodes:
            inputs, params = {p: values[p] for p in parents}, parameters[name]
            labels = None
            if states is None:
                fn = dist_fn(inputs, params) if with_parameters else dist_fn(inputs)
            elif states is float:
                index, continuous = (tuple(values[p] for p in parents if sizes[p]),
                                     [values[p] for p in parents if not sizes[p]])
                intercept, slope, precision = params
                mean = _row(intercept, index)
                if continuous:
                    mean = mean + (_row(slope, index) * jnp.stack(continuous, -1)).sum(-1)
                fn = dist.Normal(mean, _row(precision, index) ** -0.5)
            else:
                fn = dist.Categorical(_row(params, inputs.values()))
                labels = states if isinstance(states, tuple) else None
            values[name] = sample(name, fn, infer={"labels": labels} if labels else None)


network.summarized(network_tables)


def _linear_gaussian(name: str, table: tuple[int, ...], parents: list[tuple], mean_scale, scale):
    """(intercept, slope, precision) of a Gaussian node, sampled, and (centre, unit) of its column.

    Args:
        table: states of its discrete parents. parents: (centre, unit) of its continuous ones.
    """
    centre = centre_of(f"{name}.prior_centre", None, 1, name)[0]
    tenth = scale_of(f"{name}.prior_scale", None, 1, name)[0]
    guess = tenth if scale is None else scale
    precision = sample(f"{name}.precision",
                       dist.Gamma(1.5, guess**2 / 2).expand(table).to_event(len(table)))
    sd, shape = mean_scale * precision**-0.5, (*table, len(parents))
    offset_sq = sum((mean / unit) ** 2 for mean, unit in parents)
    intercept = sample(f"{name}.intercept", dist.Normal(
        centre, sd * (1 + offset_sq) ** 0.5).to_event(len(table)))
    slope = shape[-1] and sample(f"{name}.slope", dist.Normal(
        0.0, sd[..., None] / jnp.stack([unit for _, unit in parents])
    ).expand(shape).to_event(len(shape)))
    return (intercept, slope, precision), (centre, tenth / SHARE)


def _row(table, states):
    """table[states], states being what they are: none is negative or too large, and nothing is
    compiled for the case."""
    states = tuple(states)
    return table.at[states].get(mode="promise_in_bounds",
                                wrap_negative_indices=False) if states else table


def parents_of(model: Bound) -> dict[str, tuple[str, ...]]:
    """Node → its parents, in the order of the axes of its table."""
    return {name: tuple(parents) for name, parents, *_ in model.bound["nodes"]}


def _size(states) -> int:
    """How many states a node has; 0 where its values are numbers."""
    return len(states) if isinstance(states, tuple) else states if isinstance(states, int) else 0


def _check(dag) -> None:
    import networkx as nx

    if not isinstance(dag, nx.DiGraph) or dag.is_multigraph():
        raise probml.ModelError("bayesian_network: expected a networkx.DiGraph, such as "
                                f"networkx.DiGraph([('parent', 'child')]), got {type_of(dag)}")
    if not len(dag):
        raise probml.ModelError("bayesian_network: the graph has no node. Add at least one node")
    bad = next((name for name in dag if not isinstance(name, str) or name == "rows"), None)
    if bad is not None:
        raise probml.ModelError(
            f"bayesian_network: the names of nodes must be strings other than 'rows', got {bad!r}. "
            f"Rename nodes by networkx.relabel_nodes(dag, ...)"
        )
    try:
        cycle = [edge[0] for edge in nx.find_cycle(dag)]
    except nx.NetworkXNoCycle:
        return
    raise probml.ModelError(
        f"bayesian_network: the graph has the cycle {' → '.join([*cycle, cycle[0]])}, but the "
        f"graph must not have cycles. Drop one of these edges"
    )


def _node(dag, name: str, known: Mapping) -> tuple:
    """(name, parents, states: tuple of labels, number, float or None, distribution, parameters)."""
    dist_fn, parameters = dag.nodes[name].get("distribution"), dag.nodes[name].get("parameters")
    states, where = known.get(name), f"bayesian_network: node '{name}'"
    if dist_fn is not None or parameters is not None:
        if states is not None:
            raise probml.ModelError(f"{where} has both states and the attribute 'distribution', "
                                    f"but needs only one. Drop the states or the attribute")
        if not callable(dist_fn):
            raise probml.ModelError(f"{where}: its attribute 'distribution' is {dist_fn!r:.60}, "
                                    "expected a function that returns a NumPyro distribution, such "
                                    "as lambda parents: dist.Poisson(3.0). Its argument is a dict "
                                    "of the values of the parents")
        return name, tuple(dag.predecessors(name)), None, dist_fn, parameters
    if states is None:
        raise probml.ModelError(
            f"{where} has no states. Give data=, from which the states are read, or give the "
            f"labels, states={{'{name}': ['no', 'yes']}}, or, if the node is Gaussian, "
            f"states={{'{name}': float}}"
        )
    if hasattr(states, "__index__") and not isinstance(states, bool):
        states = int(states)
    if isinstance(states, str | bool | Mapping) or not (states is float or isinstance(states, int)
                                                        or hasattr(states, "__iter__")):
        raise probml.ModelError(f"{where} has the states {states!r}, expected a list of labels, "
                                "such as ['no', 'yes'], the number of states, or float for a "
                                "Gaussian node")
    if states is not float and not isinstance(states, int):
        states = tuple(states)
        if any(label is None or label != label for label in states):
            raise probml.ModelError(f"{where} has None or NaN among its states {states!r}, but "
                                    f"these mean a missing value. Use a label, such as 'none'")
        repeated = next((label for label in states if states.count(label) > 1), None)
        if repeated is not None:
            raise probml.ModelError(f"{where} has the state {repeated!r} twice. Give every state a "
                                    f"different name")
    if states is not float and _size(states) < 1:
        raise probml.ModelError(f"{where} has the states {states!r}. Give at least one state, such "
                                f"as states={{'{name}': ['no', 'yes']}}")
    return name, tuple(dag.predecessors(name)), states, None, None


def _read(dag, data, known: Mapping, stated: Mapping, kinds: Mapping) -> dict:
    """Node → states: those that are said, and of the other nodes what the data show."""
    if stray := [name for name in kinds if name not in dag]:
        raise probml.ModelError(f"bayesian_network(kinds=...): {stray[0]!r} is not a node of the "
                                f"graph. Use one of its nodes, {listed(dag)}")
    if repeated := [name for name in kinds if name in stated]:
        raise probml.ModelError(f"bayesian_network: node '{repeated[0]}' is in both states= and "
                                f"kinds=. Drop the node from one of the two")
    # attributes of the nodes
    learnt = {name: states for name, states in known.items() if name not in {**stated, **kinds}}
    unlabelled = {name for name, states in learnt.items() if states is not float
                  and not isinstance(states, tuple)}
    custom = {name for name in dag if dag.nodes[name].get("distribution") is not None}
    needed = [name for name in dag if name not in {*stated, *custom, *unlabelled}]
    columns = {name: column for name, column in items(data) if name in needed}
    if missing := [name for name in needed if name not in {**columns, **learnt}]:
        raise probml.DataError(f"bayesian_network: node '{missing[0]}' is not a column of data=. "
                               f"Rename the node or the column, or, if it is never observed, give "
                               f"states={{'{missing[0]}': ['no', 'yes']}}")
    as_learnt = {name: "normal" if states is float else "categorical"
                 for name, states in learnt.items() if name in columns}
    inferred = read(columns, None, {**as_learnt, **kinds}, complete=False).states if columns else {}
    # its labels in their order, then what these data show besides
    for name, states in learnt.items():
        if isinstance(states, tuple) and isinstance(labels := inferred.get(name), tuple):
            inferred[name] = (*states, *(label for label in labels if label not in states))
    return {**known, **inferred}


def _check_parents(nodes) -> None:
    states = {name: kind for name, _, kind, _, _ in nodes}
    for name, parents, kind, dist_fn, _ in nodes:
        wrong = next((p for p in parents if dist_fn is None and kind is not float
                      and not _size(states[p])), None)
        if wrong is not None:
            raise probml.ModelError(
                f"bayesian_network: node '{name}' is discrete, but its parent '{wrong}' is not, "
                f"so '{name}' has no conditional probability table. Cut '{wrong}' into classes "
                f"(pandas.cut), reverse the edge, or replace the states of '{name}' by a function, "
                f"dag.nodes['{name}']['distribution'] = "
                f"lambda parents: dist.Bernoulli(logits=parents['{wrong}'])"
            )
        for parent in parents:
            if kind is float and states[parent] is None:
                raise probml.ModelError(
                    f"bayesian_network: node '{name}' is Gaussian, but its parent '{parent}' has a "
                    f"function as its attribute 'distribution'. Replace "
                    f"the states of '{name}' by a function, too, dag.nodes['{name}']"
                    f"['distribution'] = lambda parents: dist.Normal(parents['{parent}'], 1.0)"
                )
