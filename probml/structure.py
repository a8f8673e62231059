"""A model → its structure: one abstract trace gives the sites, their plates and parents, and the program of every argument.

The function is traced once, for a single row, with every site's value as an input. All else is read off that jaxpr:
who depends on whom, how arguments depend on parameters (levels.py), and the small program that computes one site's
arguments, to be vmapped over rows and over the states of discrete parents.

A model with chains is traced for chains of one step: the program of a site along time is that of one step, to be run for
every step. Two more traces find the axis of time and prove that a step looks at no other.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.distribution import validation_enabled
from numpyro.primitives import Messenger

from probml import deterministics, exchange, families, finite, indices, levels
from probml.language import ROWS, Bound, ModelError, Refusal, chains_of, freeze, thaw
from probml.markov_chain import MarkovChain, distributions
from probml.site import Site
from probml.switches import SETTING
from probml.walk import ClosedJaxpr, Literal, evaluate

if TYPE_CHECKING:
    import networkx


def peel(fn: dist.Distribution) -> tuple[dist.Distribution, int]:
    """The distribution under Independent and Expanded wrappers, and how many event axes are only independent copies."""
    independent = 0
    while isinstance(fn, dist.Independent | dist.ExpandedDistribution):
        if isinstance(fn, dist.Independent):
            independent += fn.reinterpreted_batch_ndims
        fn = fn.base_dist
    return fn, independent


class _Recorder(Messenger):
    """Gives every site its value from `values` (or zeros), codes moved by `lows` (finite.py), and keeps the messages, those of
    deterministics apart."""

    def __init__(
        self, model: Bound, values: Mapping[str, jax.Array], index: jax.Array | None = None, lows: Mapping[str, int] | None = None
    ):
        super().__init__()
        self.model, self.values, self.index, self.lows, self.messages, self.computed = model, values, index, lows or {}, {}, {}

    def process_message(self, msg: dict) -> None:
        name, where = msg.get("name"), f"model '{self.model.name}', site '{msg.get('name')}'"
        if msg["type"] == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            raise ModelError(
                f"{where}: a plate with subsample_size is not supported; give the whole plate, engines take batch_rows= instead"
            )
        if msg["type"] == "param":
            raise ModelError(f'{where}: numpyro.param has no prior here; write sample("{name}", dist.ImproperUniform(...)) or any prior')
        if msg["type"] == "control_flow":
            raise ModelError(f"{where}: numpyro scan and cond are not supported inside a model")
        if msg["type"] == "plate" and self.index is not None and msg["args"][0] == len(self.index):  # whatever a scope has named it
            msg["value"] = self.index
        if msg["type"] == "prng_key":
            raise ModelError(
                f"model '{self.model.name}': numpyro.prng_key() draws numbers beside the sites, of which no engine can learn: sample a "
                'site, sample("name", ...), or pass fixed numbers as an input'
            )
        computed = msg["type"] == deterministics.KIND and name not in dict(self.model.interventions)
        if not computed and msg["type"] != "sample":
            return
        if name in self.messages or name in self.computed:
            raise ModelError(f"{where}: two sites have this name; give each its own")
        if name in self.model.inputs:
            raise ModelError(f"{where}: an input has the same name; rename one of them")
        if computed and {f"{name}_observed", f"{name}_unobserved"} <= set(self.messages):
            raise ModelError(
                f"{where}: obs_mask= is not needed here: leave it out, and pass the values as data with NaN where they are unseen, "
                f'fit({{"{name}": jnp.where(mask, values, jnp.nan)}})'
            )
        if computed:
            if not isinstance(msg["value"], jax.Array | np.ndarray | np.generic | int | float):
                got = type(msg["value"]).__name__
                raise ModelError(f"{where} ({deterministics.KIND}): expected one array, got {got}; give each array its own name")
            self.computed[name] = msg
            return
        if msg.get("scale") is not None:
            raise ModelError(f"{where}: handlers.scale is not supported inside a model; weigh rows by fit(..., weights=...)")
        if msg["kwargs"].get("sample_shape"):
            raise ModelError(
                f"{where}: sample_shape= is not supported; write dist.expand({list(msg['kwargs']['sample_shape'])}), or a plate"
            )
        if msg["is_observed"] and not isinstance(msg["fn"], dist.Unit):
            raise ModelError(
                f'{where}: obs= is given inside the function; leave it out and pass the values as data: fit({{"{name}": values}})'
            )
        fn = msg["fn"]
        if isinstance(peel(fn)[0], dist.Delta):
            raise ModelError(
                f"{where} (Delta): a value that follows from others is no random site: write numpyro.deterministic(\"{name}\", value), "
                "which is an answer like any other"
            )
        if isinstance(getattr(peel(fn)[0], "total_count", None), list | tuple) and families.likelihood(peel(fn)[0]) is None:
            raise ModelError(f"{where} ({type(peel(fn)[0]).__name__}): total_count is a list, expected an array: jnp.array([...])")
        dtype = int if fn.support is not None and fn.support.is_discrete else float
        shape = fn.batch_shape + (() if isinstance(fn, dist.Unit) else fn.event_shape)
        msg["value"] = self.values[name] if name in self.values else jnp.zeros(shape, jnp.result_type(dtype))
        if name in self.lows:
            msg["value"] = msg["value"] + self.lows[name]
        self.messages[name] = msg


SEVERAL = (
    "It works for one row, and not for {rows} (a number tried instead of the data's). rows() is the last batch axis, so an input of one "
    "value a row has the shape (rows,). A vector in each row needs an axis of its own, loc = mu + x[:, None], and .to_event(1); "
    ".expand([3]) of a distribution with rows names their axis, and .expand([n, 3]) their number, which nobody knows here: leave it out."
)


def _failed(model: Bound, inputs: Mapping, error: Exception, more: str = "") -> ModelError:
    """The user's own function failed under the trace: say where, and with which inputs."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name == model.generative.__name__]
    where = f" at line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
    given = ", ".join(f"'{name}': {spec.dtype} ({', '.join(map(str, ('rows', *spec.shape[1:])))})" for name, spec in inputs.items())
    hint = f" Check the shapes and dtypes of the inputs {given}." if given else ""
    held = {name: value for name, value in _arrays(model).items() if name not in dict(model.context)}
    if hint == "" and held:
        hint = f" {_as_input(model, next(iter(held)))}."
    rows = next((spec.shape[0] for spec in inputs.values()), "several")
    return ModelError(f"model '{model.name}' failed{where}\n{type(error).__name__}: {error}\n{more.format(rows=rows)}{hint}")


def _run(
    model: Bound, inputs: Mapping[str, jax.Array], values: Mapping[str, jax.Array], index=None, rows: int = 1, steps: int = 1, lows=None
) -> tuple[dict[str, dict], dict[str, dict]]:
    """The messages of the sites, and those of the deterministics."""
    recorder = _Recorder(model, values, index, lows)
    with validation_enabled(False), recorder, chains_of(steps, True):  # NumPyro's validation runs eagerly: dozens of small compilations
        model(rows=rows, **inputs)
    return recorder.messages, recorder.computed


def _site(model: Bound, name: str, msg: dict) -> tuple[Site, dict[str, jax.Array]]:
    fn = msg["fn"]
    base, independent = peel(fn)
    batch = tuple(fn.batch_shape)
    factor = isinstance(base, dist.Unit)  # numpyro.factor: a log weight, whose value holds nothing
    own = () if factor else tuple(fn.event_shape)
    event = len(own) - independent
    frames = list(reversed(msg["cond_indep_stack"]))
    inside = next((i for i, frame in enumerate(frames) if frame.name == "rows" or frame.dim == msg.get(ROWS)), None)
    if inside is not None:
        frames[inside] = frames[inside]._replace(name="rows")  # a scope names plates too
    where = f"model '{model.name}', site '{name}'"
    row_axis, axes = None, ()
    if inside is not None:
        row_axis = len(batch) + frames[inside].dim
        axes = tuple(len(batch) + frame.dim for frame in frames if frame.name != "rows")
        loose = [axis for axis in range(len(batch)) if axis not in (row_axis, *axes) and batch[axis] != 1]
        if batch[row_axis] != 1 or loose:
            wide = batch[row_axis] if batch[row_axis] != 1 else batch[loose[0]]
            raise ModelError(
                f"{where}: its {'value' if factor else 'distribution'} has batch shape {batch} for a single row, so an axis of it is "
                f"neither rows() nor a plate. {_loose(model, name, wide, batch[row_axis] != 1, frames, factor)}"
            )
    discrete = fn.support is not None and bool(fn.support.is_discrete)
    family = families.likelihood(base)
    if family is not None:
        arguments = family.arguments(base)
        treedef, states = None, family.states(arguments)
        locations = ("loc",) if "loc" in arguments else ()
    else:
        leaves, treedef = jax.tree.flatten(base)
        arguments, states = {f"argument{i}": jnp.asarray(leaf) for i, leaf in enumerate(leaves)}, None
        loc = getattr(base, "loc", None) if base.support in (dist.constraints.real, dist.constraints.real_vector) else None
        locations = tuple(f"argument{i}" for i, leaf in enumerate(leaves) if leaf is loc)
    site = Site(
        name,
        inside is not None,
        discrete,
        family,
        family.name if family is not None else "factor" if factor else type(base).__name__,
        tuple(arguments),
        treedef,
        batch,
        own[:independent],
        own[independent:] if event else (),
        axes,
        row_axis,
        tuple((frame.name, frame.size) for frame in frames),
        states,
        fn.support,
        locations=locations,
        finite=states,
        count=discrete and not factor and finite.counts(base),
        labels=None if (labels := (msg.get("infer") or {}).get("labels")) is None else tuple(labels),
        chain=isinstance(base, MarkovChain),
    )
    return site, arguments


def _arrays(model: Bound) -> dict[str, np.ndarray]:
    """The arrays of numbers that a model holds: those around its function, and its settings."""
    held = {name: thaw(value) for name, value in (*model.context, *model.settings)}
    lists = {name: value for name, value in held.items() if isinstance(value, list | tuple | np.ndarray | jax.Array)}
    arrays = {}
    for name, value in lists.items():
        with contextlib.suppress(ValueError):  # ragged
            arrays[name] = np.asarray(value)
    return {name: value for name, value in arrays.items() if value.ndim and value.dtype.kind in "biuf"}


def _as_input(model: Bound, name: str) -> str:
    """What to do with an array that has rows and is no input."""
    kind = "setting" if name in dict(model.settings) else "value from around the function"
    return (
        f"The {kind} '{name}' has the shape {_arrays(model)[name].shape}: if it has one entry a row it is an input, an argument without "
        f"default that stays unbound, def {model.name}({name}): …, and is given with the data, fit({{'{name}': {name}, …}})"
    )


def _loose(model: Bound, name: str, size: int, in_rows: bool, frames: list, factor: bool) -> str:
    """What to do about an axis of that size in a single row that is neither rows() nor a plate."""
    long = next((name for name, value in _arrays(model).items() if len(value) == size), None)
    plate = next((frame for frame in frames if in_rows and frame.name != "rows" and frame.size == size), None)
    if plate is not None:
        return (
            f"rows() has the batch axis −1 and the plate '{plate.name}' inside it −{-plate.dim}: an array of one value a member of "
            f"'{plate.name}' needs the shape ({size}, {', '.join(['1'] * (-plate.dim - 1))}), as v[:, None]"
        )
    if in_rows and long is not None:
        return f"{_as_input(model, long)}. Else declare a vector with .to_event(1)"
    if factor:
        return f'Sum it, factor("{name}", value.sum(-1)), or put the site in a numpyro.plate inside rows()'
    return (
        "Declare a vector with .to_event(1), an array of one value a row made wider first, x[:, None], or put the site in a "
        "numpyro.plate inside rows(). If it is one value a row, pass the array as an input, an argument that stays unbound"
    )


def _labels(model: Bound, site: Site) -> tuple | None:
    """The labels of the states: those that the model declares in NumPyro's slot for such things, or the values themselves."""
    if site.labels is not None and len(site.labels) != site.states:
        where = f"model '{model.name}', site '{site.name}'"
        raise ModelError(f"{where}: infer={{'labels': ...}} has {len(site.labels)} labels for {site.states or 'no'} states")
    return tuple(range(site.low, site.low + site.finite)) if site.low and site.labels is None else site.labels


@dataclass(frozen=True, eq=False)
class Structure:
    """The sites of a model in order, and the traced programs of their arguments."""

    model: Bound
    sites: dict[str, Site]
    programs: dict[str, tuple[Any, tuple[str, ...]]]  # site -> (closed jaxpr of its arguments, names of what it takes)
    specs: tuple = ()  # of the inputs, as traced
    declared: int | None = None  # the length that its chains state
    deterministics: dict[str, Site] = dataclasses.field(default_factory=dict)  # what is computed; `programs` has that of each value

    def arguments(self, name: str, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The arguments of a site's base distribution for one row, in NumPyro's layout.

        Args:
            env: what the site depends on: parameters and sites in NumPyro's single-row layout, inputs with one row. Under SETTING it may
                hold a setting of the site's switches, in the place of the states that are seen through them.
        """
        program, takes = self.programs[name]
        if SETTING in env:
            outputs = env[SETTING](env)
        else:
            outputs = evaluate(
                program,
                *(jnp.asarray(env[key], aval.dtype) for key, aval in zip(takes, program.in_avals, strict=True))
            )
        return {key: jnp.asarray(value) for key, value in zip(self.sites[name].arguments, outputs, strict=True)}

    def computed(self, name: str, env: Mapping[str, jax.Array]) -> jax.Array:
        """The value of a deterministic; of one inside rows for one row, in NumPyro's layout."""
        program, takes = self.programs[name]
        held = (jnp.asarray(env[key], aval.dtype) for key, aval in zip(takes, program.in_avals, strict=True))
        return evaluate(program, *held)[0]

    @functools.cached_property
    def derived(self) -> tuple[str, ...]:
        """The deterministics outside rows."""
        return tuple(site.name for site in self.deterministics.values() if not site.rows)

    @functools.cached_property
    def named(self) -> dict[str, Site]:
        """All that has a name: the sites, then the deterministics."""
        return {**self.sites, **self.deterministics}

    def likeness(self, name: str) -> tuple | None:
        """What two sites share whose arguments are the same program of different parameters and discrete parents; None: like no other.

        Sites alike are evaluated as one, stacked: a network of 400 nodes is then no longer to compile than one of a few kinds.
        """
        if name not in self._likeness:
            (program, takes), site = self.programs[name], self.sites[name]
            plain = all(t in self.sites and (self.sites[t].discrete or not self.sites[t].rows) for t in takes)
            plain &= site.family is not None or not site.rows
            key = None
            if plain:
                kinds = tuple((self.sites[t].rows, self.sites[t].discrete, self.sites[t].states) for t in takes)
                consts = tuple(np.asarray(c).tobytes() for c in program.consts if not jnp.issubdtype(c.dtype, jax.dtypes.prng_key))
                kind = (site.kind, site.family, str(site.treedef), site.arguments, site.rows)
                layout = (*kind, site.batch, site.independent, site.event, site.axes, site.row_axis)
                order = tuple(takes.index(p) for p in site.parents)
                key = (str(program.jaxpr), consts, kinds, layout, order)
            self._likeness[name] = key
        return self._likeness[name]

    @functools.cached_property
    def _likeness(self) -> dict[str, tuple | None]:
        return {}

    def constant(self, name: str, argument: str | None) -> np.ndarray | None:
        """The value of an argument that the model states, where it depends on nothing; else None. Nothing is computed."""
        if argument not in self.sites[name].arguments:
            return None
        program, _ = self.programs[name]
        atom = program.jaxpr.outvars[self.sites[name].arguments.index(argument)]
        held = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        value = atom.val if isinstance(atom, Literal) else held.get(atom)
        return None if value is None else np.asarray(value)

    def check_chains(self, params: Mapping[str, Any]) -> None:
        """Refuse a chain whose tables, at these parameters, are no distributions, as far as they depend on nothing else."""
        for name in self.chains:
            if all(p in params for p in self.programs[name][1]):
                env = {p: jnp.reshape(jnp.asarray(v), self.sites[p].shape) for p, v in params.items() if p in self.sites}
                for argument, table in self.arguments(name, env).items():
                    distributions(f"model '{self.model.name}', site '{name}' (MarkovChain): {argument}", table)

    def cells(self, name: str, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The same for a site with a family, in the user's layout: argument → (lattice cells flattened, its own event axes)."""
        site = self.sites[name]
        return {key: site.layout(value, site.family.argument_event[key]) for key, value in self.arguments(name, env).items()}

    def distribution(self, name: str, env: Mapping[str, jax.Array]) -> dist.Distribution:
        """The site's base distribution for one row, in NumPyro's layout."""
        site, arguments = self.sites[name], self.arguments(name, env)
        if hasattr(site.family, "ancillary"):
            raise ModelError(
                f"site '{name}' ({site.kind}) has no mean here: its {site.family.ancillary} is not learnt from the rows. "
                "Ask simulate() for whole rows, or a Categorical site on the same probabilities for single draws"
            )
        if site.family is not None:
            return site.family.distribution(arguments)
        return jax.tree.unflatten(site.treedef, list(arguments.values()))

    def bounds(self, name: str) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """The ends of a site's support that are computed: attribute of the support → (program, names of what it takes)."""
        if name not in self._bounds:
            program, takes = self.programs[name]
            layout: list[str] = []

            def ends(*values):
                support = self.distribution(name, dict(zip(takes, values, strict=True))).support
                while hasattr(support, "base_constraint"):
                    support = support.base_constraint
                layout[:] = [end for end in ("lower_bound", "upper_bound") if hasattr(support, end)]
                return [jnp.asarray(getattr(support, end)) for end in layout]

            closed = jax.make_jaxpr(ends)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals))
            needs = levels.dependencies(closed)
            parts = [levels.restrict(closed, [i]) for i in range(len(layout))]
            found = {end: (part, tuple(takes[t] for t in at)) for end, (part, at), need in zip(layout, parts, needs, strict=True) if need}
            self._bounds[name] = found
        return self._bounds[name]

    @functools.cached_property
    def _bounds(self) -> dict[str, dict]:
        return {}

    def has_mean(self, name: str) -> bool:
        """Whether the distribution of a site knows its mean; true of what `distribution` refuses in words of its own."""
        if hasattr(self.sites[name].family, "ancillary"):
            return True
        if name not in self._means:
            site, (program, _) = self.sites[name], self.programs[name]

            def mean(*arguments):
                held = dict(zip(site.arguments, arguments, strict=True))
                fn = jax.tree.unflatten(site.treedef, list(arguments)) if site.family is None else site.family.distribution(held)
                return fn.mean

            try:
                jax.eval_shape(mean, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.out_avals))
            except (NotImplementedError, AttributeError):
                self._means[name] = False
            else:
                self._means[name] = True
        return self._means[name]

    @functools.cached_property
    def _means(self) -> dict[str, bool]:
        return {}

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites.values() if not site.rows and not site.discrete and not site.factor)

    @functools.cached_property
    def reaching(self) -> tuple[str, ...]:
        """The parameters that questions about rows need: those on which rows depend, by themselves or through discrete sites, whose
        probabilities may look at the priors of others."""
        stack = [p for site in self.named.values() if site.rows for p in site.parents]
        mixed = [n for n in self.parameters if any(self.sites[p].discrete for p in self.sites[n].parents)]
        stack += [p for name in (*mixed, *self.penalties, *self.derived) for p in (name, *self.named[name].parents)]
        found: set[str] = set()
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            stack += self.sites[name].parents if name in self.sites and self.sites[name].discrete else ()
        return tuple(name for name in self.parameters if name in found)

    @functools.cached_property
    def losses(self) -> tuple[str, ...]:
        """The factors inside rows, numpyro.factor: log weights of rows, of which nobody says that they sum to one."""
        return tuple(site.name for site in self.sites.values() if site.rows and site.factor)

    @functools.cached_property
    def penalties(self) -> tuple[str, ...]:
        """The factors outside rows: what they add to the log prior."""
        return tuple(site.name for site in self.sites.values() if not site.rows and site.factor)

    @functools.cached_property
    def labels(self) -> dict[str, tuple]:
        """Site → the labels of its states, where the model declares them."""
        return {name: site.labels for name, site in self.sites.items() if site.labels is not None}

    def need_likelihood(self, verb: str) -> None:
        """Refuse what losses have not: the probability of a row.

        Raises:
            Refusal: some factor stands inside rows().
        """
        if self.losses:
            raise Refusal(
                f"{verb} needs a likelihood, and site '{self.losses[0]}' of model '{self.model.name}' is a loss (numpyro.factor inside "
                "rows()): it weighs rows by exp(factor), of which nobody says that it sums to one. predict and decode need none; for "
                "probabilities write a distribution instead, such as dist.Bernoulli(logits=...)"
            )

    @functools.cached_property
    def chains(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites.values() if site.chain)

    @functools.cached_property
    def timed(self) -> tuple[str, ...]:
        """The inputs with an axis of time, which comes first in a row."""
        return tuple(name for name, shape, _ in self.specs if shape[:1] == (None,))

    @property
    def indexed(self) -> dict[str, indices.Index]:
        """The inputs, or their cells, that are indices: which axes of which parameters they pick from, and the codes that are allowed."""
        return self._indices.indexed

    @property
    def formulas(self) -> tuple[indices.Formula, ...]:
        """The indices that are computed from inputs by more than a shift, to be evaluated on data."""
        return self._indices.formulas

    @functools.cached_property
    def _indices(self) -> indices.Facts:
        return indices.facts(self)

    def unfolded(self, steps: int | None) -> dict[str, Site]:
        """The sites of rows with so many steps, for running the function itself."""
        if not self.chains:
            return self.named
        found, _, computed = _sites(self.model, self.specs, bool(jax.config.jax_enable_x64), steps)
        return {**found, **computed}

    @functools.cached_property
    def network(self) -> tuple[str, ...]:
        """The scalar sites inside rows with finitely many states, if two or more of them have children; else none.

        What is seen of them may differ from row to row in more ways than could each have a program of its own.
        """
        found = () if self.chains else tuple(s.name for s in self.sites.values() if s.rows and s.states and math.prod(s.cells) == 1)
        return found if sum(bool(self.children[name]) for name in found) > 1 else ()

    @functools.cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        below: dict[str, list[str]] = {name: [] for name in self.sites}
        for site in self.sites.values():
            for parent in site.parents:
                below[parent].append(site.name)
        return {name: tuple(children) for name, children in below.items()}

    def graph(self) -> "networkx.DiGraph":
        import networkx  # late: 0.2 s that `import probml` need not take

        graph = networkx.DiGraph()
        for site in self.sites.values():
            graph.add_node(site.name, rows=site.rows, family=site.kind, shape=site.cells, plates=tuple(n for n, _ in site.plates))
        graph.add_edges_from((parent, site.name) for site in self.sites.values() for parent in site.parents)
        return graph


def trace(model: Bound, inputs: Mapping[str, tuple[tuple[int, ...], str]] | None = None) -> Structure:
    """Trace a model once; cached.

    Args:
        inputs: name -> (trailing shape without the rows axis, NumPy dtype kind), None standing for the steps of chains; None guesses
            scalars.

    Raises:
        ModelError: obs= inside, a duplicate name, a batch axis that is no plate, a subsampled plate; a site that looks at other rows
            or steps.
    """
    if inputs is None:
        for guess in (((), "f"), ((), "i"), ((1,), "f"), ((None,), "f"), ((None, 1), "f")):
            try:
                return trace(model, dict.fromkeys(model.inputs, guess))
            except (TypeError, IndexError, ValueError) as error:
                failure = error
        raise ModelError(f"model '{model.name}' cannot be traced without its inputs {list(model.inputs)}: {failure}") from failure
    return _trace(model, tuple(sorted((name, *spec) for name, spec in inputs.items())), bool(jax.config.jax_enable_x64))


def structure_of(model: Bound, specs: Mapping[str, tuple]) -> Structure:
    """The model traced for its inputs: some of them, in a model with chains, have an axis of time, which is found by trying."""
    failure, plain = None, None
    try:
        plain = trace(model, specs)
        if not plain.chains:
            return plain
    except ModelError as error:
        failure = error
    long = [name for name, (shape, _) in specs.items() if shape and None not in shape]
    for size in range(len(long), 0, -1):
        for names in itertools.combinations(long, size):
            if len({specs[name][0][0] for name in names}) > 1:
                continue
            try:
                found = trace(model, {n: ((None, *s[1:]), kind) if n in names else (s, kind) for n, (s, kind) in specs.items()})
            except ModelError as error:
                failure = failure or error
                continue
            if found.chains:
                return found
    if plain is None:
        raise failure
    return plain


@functools.lru_cache(maxsize=256)
def _trace(model: Bound, specs: tuple, x64: bool) -> Structure:
    found, declared, computed = _sites(model, specs, x64, 1)
    if not found:
        raise ModelError(f"model '{model.name}' has no sample sites")
    inputs = _input_specs(specs, 1)
    if any(site.chain for site in found.values()):
        some, _, longer = _sites(model, specs, x64, SOME)
        found, computed = _timed(model, found, some), _timed(model, computed, longer)
    values = {name: jax.ShapeDtypeStruct(site.shape, _dtype(site)) for name, site in found.items()}
    layout: list[tuple[str, str]] = []
    ended: list[str] = []

    def outputs(values, inputs, lows):
        layout.clear()
        ended.clear()
        flat, tail = [], []
        messages, made = _run(model, inputs, values, lows=lows)
        for name, msg in messages.items():
            for key, value in _site(model, name, msg)[1].items():
                layout.append((name, key))
                flat.append(jnp.asarray(value))
            ends = finite.ends(peel(msg["fn"])[0]) if found[name].discrete and found[name].states is None else None
            if ends is not None:
                ended.append(name)
                tail += map(jnp.asarray, ends)
        for name, msg in made.items():
            layout.append((name, "value"))
            flat.append(jnp.asarray(msg["value"]))
        return flat + tail

    closed = jax.make_jaxpr(functools.partial(outputs, lows={}))(values, inputs)
    depends = levels.dependencies(closed)
    found = _listed(model, found, closed, depends, ended)
    lows = {name: site.low for name, site in found.items() if site.low}
    if lows:  # once more: from here on the function is given codes
        closed = jax.make_jaxpr(functools.partial(outputs, lows=lows))(values, inputs)
        depends = levels.dependencies(closed)
    # pytree order of dicts is by sorted key, sites before inputs
    names = [*sorted(values), *sorted(inputs)]
    tracked = {i: name for i, name in enumerate(names) if name in found and not found[name].rows and not found[name].discrete}
    uses = levels.classify(closed, tracked)
    sites, programs = {}, {}
    for name, site in {**found, **computed}.items():
        positions = [i for i, (owner, _) in enumerate(layout) if owner == name]
        program, takes = levels.restrict(closed, positions)
        needs = set().union(*(depends[i] for i in positions))
        needs = [i for i in _by_use(program, takes) if i in needs]
        programs[name] = (program, tuple(names[i] for i in takes))
        sites[name] = dataclasses.replace(
            site,
            parents=tuple(names[i] for i in needs if names[i] in found),
            inputs=tuple(names[i] for i in needs if names[i] not in found),
            uses={layout[i][1]: uses[i] for i in positions},
        )
    computed = {name: sites.pop(name) for name in computed}
    for site in sites.values():
        for parent in site.parents:
            if sites[parent].rows and not site.rows:
                raise ModelError(
                    f"model '{model.name}', site '{site.name}' lies outside rows() but depends on '{parent}' inside it: "
                    "move it inside rows()"
                )
    _check_rows(model, found, inputs, closed)
    if declared:
        _check_steps(model, sites, computed, specs, closed)
    found = Structure(model, sites, programs, specs, declared[0] if declared else None, computed)
    found.check_chains({})
    return found


def _listed(model: Bound, found: Mapping[str, Site], closed, depends: list, ended: list[str]) -> dict[str, Site]:
    """The sites, told how many values their supports have, as far as these depend on nothing: bounds are the last outputs of `closed`."""
    out, first = dict(found), len(closed.out_avals) - 2 * len(ended)
    for i, name in enumerate(ended):
        at = [first + 2 * i, first + 2 * i + 1]
        if any(depends[k] for k in at):
            continue
        with jax.ensure_compile_time_eval():  # numbers, also within somebody's trace
            low, high = evaluate(levels.restrict(closed, at)[0])
        values = finite.listed(np.asarray(low), np.asarray(high))
        if values is not None:
            states = None if found[name].count else values[1]
            out[name] = dataclasses.replace(found[name], states=states, low=values[0], finite=values[1])
    return {name: dataclasses.replace(site, labels=_labels(model, site)) for name, site in out.items()}


SOME = 3  # steps of the trace that tells which axis is time


def _input_specs(specs: tuple, steps: int, rows: int = 1) -> dict[str, jax.ShapeDtypeStruct]:
    kinds = {"f": float, "b": bool}
    return {
        name: jax.ShapeDtypeStruct((rows, *(steps if s is None else s for s in shape)), jnp.result_type(kinds.get(kind, int)))
        for name, shape, kind in specs
    }


@functools.lru_cache(maxsize=256)
def _sites(model: Bound, specs: tuple, x64: bool, steps: int) -> tuple[dict[str, Site], list[int | None], dict[str, Site]]:
    """The sites of one row whose chains have so many steps, the lengths that the chains state, and the deterministics."""
    found, declared, inputs, made = {}, [], _input_specs(specs, steps), {}

    def shapes(inputs):
        messages, computed = _run(model, inputs, {}, steps=steps)
        for name, msg in messages.items():
            found[name] = _site(model, name, msg)[0]
            if found[name].chain:
                declared.append(peel(msg["fn"])[0].declared)
        made.update({name: (msg, np.shape(msg["value"])) for name, msg in computed.items()})
        return 0

    def many(inputs):
        computed = _run(model, inputs, {}, None, deterministics.MANY, steps)[1]
        sizes.update({name: np.shape(msg["value"]) for name, msg in computed.items()})
        return 0

    sizes: dict[str, tuple[int, ...]] = {}
    try:
        jax.eval_shape(shapes, inputs)
        if made:  # whether one has rows, and where, tells a trace of more rows than one
            jax.eval_shape(many, _input_specs(specs, steps, deterministics.MANY))
    except ModelError:
        raise
    except Exception as error:
        raise _failed(model, inputs, error) from error
    if len(set(declared)) > 1:
        raise ModelError(f"model '{model.name}': its chains have the lengths {declared}; chains of one model have one length")
    placed = deterministics.placed
    return found, declared, {n: placed(f"model '{model.name}', site '{n}'", msg, shape, sizes[n]) for n, (msg, shape) in made.items()}


def _timed(model: Bound, one: Mapping[str, Site], some: Mapping[str, Site]) -> dict[str, Site]:
    """The sites of a single step, told where time runs: along the axis that has grown with the chains."""
    out = {}
    for name, site in one.items():
        where, grown = f"model '{model.name}', site '{name}'", some[name].shape
        axes = [i for i, pair in enumerate(zip(site.shape, grown, strict=False)) if pair[0] != pair[1]]
        if site.chain and (not site.rows or site.axes):
            raise ModelError(f"{where}: a MarkovChain stands inside rows() and in no other plate; write one site a chain")
        if len(site.shape) != len(grown) or len(axes) > 1 or (axes and (not site.rows or axes[0] != len(site.batch))):
            raise ModelError(
                f"{where}: its shape is {site.shape} for chains of one step and {grown} for {SOME}: time must be its first event axis, "
                "as in dist.Normal(mean[z], scale[z]).to_event(1); a value of the row beside a chain needs an axis for time, s[..., None]"
            )
        out[name] = dataclasses.replace(site, time=len(site.axes) if axes else None)
    return out


def intervened(model: Bound, values: Mapping[str, Any]) -> tuple:
    """What a model holds of an intervention: (site, frozen value in NumPyro's layout for a row), checked."""
    sites, out = trace(model.plain).sites, dict(model.interventions)
    for name, value in values.items():
        where = f"do({{'{name}': ...}})"
        if name not in sites or not sites[name].rows:
            inside = [site.name for site in sites.values() if site.rows]
            raise ModelError(f"{where}: model '{model.name}' has no such site inside rows(); it has {inside}")
        site, array = sites[name], np.asarray(value)
        if site.time is not None:
            raise ModelError(f"{where}: '{name}' runs along time, and do() sets one value in every row; give it as data, or as an input")
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise ModelError(f"{where}: expected a finite number, got {value!r}")
        if array.shape not in (site.cells, ()):
            raise ModelError(f"{where}: a row of '{name}' has shape {site.cells}, got {array.shape}")
        last = site.low + (site.states or 0) - 1
        if site.discrete and (array != np.floor(array)).any() or site.states and not ((array >= site.low) & (array <= last)).all():
            raise ModelError(f"{where}: expected a state, a whole number in {site.low}..{last}, got {value!r}")
        array = np.asarray(np.broadcast_to(array, site.cells), np.int32 if site.discrete else float)
        placed = np.asarray(site.place(array)) if array.ndim else array
        out[name] = freeze(placed, name)
    return tuple(sorted(out.items()))


def _by_use(program, takes: tuple[int, ...]) -> list[int]:
    """The inputs of a program in the order of their first use: parents stand as the user wrote them."""
    number = dict(zip(program.jaxpr.invars, takes, strict=True))
    used = [atom for eqn in program.jaxpr.eqns for atom in eqn.invars] + program.jaxpr.outvars
    return list(dict.fromkeys(number[atom] for atom in used if not isinstance(atom, Literal) and atom in number))


def _dtype(site: Site) -> np.dtype:
    return jnp.result_type(int) if site.discrete else jnp.result_type(float)


def _leaves(
    model: Bound, owners: list[str], values: Mapping, inputs: Mapping, index=None, rows: int = 1, steps: int = 1
) -> list[jax.Array]:
    """The arrays of all sites' distributions and the computed values, in order; `owners` is told whose they are."""
    flat = []
    owners.clear()
    messages, made = _run(model, inputs, values, index, rows, steps)
    for name, msg in (*messages.items(), *made.items()):
        leaves = jax.tree.leaves(peel(msg["fn"])[0]) if name in messages else [msg["value"]]
        owners.extend([name] * len(leaves))
        flat += [jnp.asarray(leaf) for leaf in leaves]
    return flat


def _check_steps(
    model: Bound, sites: Mapping[str, Site], computed: Mapping[str, Site], specs: tuple, single: ClosedJaxpr
) -> None:
    """A step looks at its own step alone: its arguments must not depend on other steps, or on the step's number.

    Traced once more, with a number of steps that the program of a single step has nowhere, and the axis of time followed.
    """
    for site in (*sites.values(), *computed.values()):
        whole = next((p for p in site.parents if sites[p].time is not None), None)
        if site.time is None and whole:
            raise ModelError(
                f"model '{model.name}', site '{site.name}' has no axis of time but depends on '{whole}' as a whole: a site depends on a "
                "chain at its own step only"
            )
    owners: list[str] = []

    def long(steps: int) -> ClosedJaxpr:
        unfolded = _sites(model, specs, bool(jax.config.jax_enable_x64), steps)[0]
        values = {n: jax.ShapeDtypeStruct(s.shape, _dtype(s)) for n, s in unfolded.items()}
        return jax.make_jaxpr(functools.partial(_leaves, model, owners, steps=steps))(values, _input_specs(specs, steps))

    timed = {name for name, shape, _ in specs if shape[:1] == (None,)}
    # time is the first event axis of a site, and comes after rows in an input
    axes = [len(sites[name].batch) if sites[name].time is not None else None for name in sorted(sites)]
    axes += [1 if name in timed else None for name in sorted(name for name, _, _ in specs)]
    for mixed, owner in zip(exchange.looks(single, long, axes), owners, strict=True):
        if mixed:
            whys = {exchange.NUMBER: "on the number of the step", exchange.COUNT: "on how many steps there are"}
            why = whys.get(mixed, f"on other steps through '{mixed}'")
            raise ModelError(
                f"model '{model.name}', site '{owner}': a step of it depends {why}, but a site depends on a chain and on inputs at its own "
                "step only. Shift, lag or number the inputs before fitting and pass the result as an input (n, steps, ...)"
            )


def _check_rows(
    model: Bound, found: Mapping[str, Site], inputs: Mapping[str, jax.ShapeDtypeStruct], single: ClosedJaxpr
) -> None:
    """Rows are exchangeable: what belongs to a row must not depend on other rows, on the row's number or on how many rows there are.

    Traced once more (not compiled) with a number of rows that the program of a single row has nowhere, and the row axis
    followed through the jaxpr (exchange.py).
    """
    if not any(site.rows for site in found.values()):
        return
    owners: list[str] = []

    def many(rows: int) -> ClosedJaxpr:
        shapes = {n: tuple(rows if axis == s.row_axis else size for axis, size in enumerate(s.shape)) for n, s in found.items()}
        values = {n: jax.ShapeDtypeStruct(shapes[n], _dtype(s)) for n, s in found.items()}
        given = {name: jax.ShapeDtypeStruct((rows, *spec.shape[1:]), spec.dtype) for name, spec in inputs.items()}
        index = jax.ShapeDtypeStruct((rows,), jnp.result_type(int))
        try:
            return jax.make_jaxpr(functools.partial(_leaves, model, owners, rows=rows))(values, given, index)
        except ModelError:
            raise
        except Exception as error:
            raise _failed(model, given, error, SEVERAL) from error

    axes = [*(found[name].row_axis for name in sorted(found)), *(0 for _ in inputs), 0]
    for mixed, owner in zip(exchange.looks(single, many, axes, numbers=[len(axes) - 1]), owners, strict=True):
        if mixed:
            whys = {exchange.NUMBER: "on its row's number", exchange.COUNT: "on how many rows there are"}
            why = whys.get(mixed, f"on other rows through '{mixed}'")
            advice = "Standardise, lag or index the inputs before fitting and pass the result as an input"
            if owner not in found:
                advice = "Leave the line out, and compute it from what the fit answers: fit.predict(data, ...), fit.draws(n)"
            raise ModelError(f"model '{model.name}', site '{owner}': a row of it depends {why}, but rows are exchangeable. {advice}")
