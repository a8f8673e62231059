"""Models with chains against enumeration: every path of everything hidden, its density by plain
NumPyro."""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample

import probml
from plain_numpyro import met
from probml.dataset.read import read as read_data
from probml.language.language import chain_length_scope
from probml.structure.recorder import peel

nan = np.nan


def normal(key, *shape):
    return np.random.default_rng(key).normal(size=shape)


def table(key, *shape):
    return np.random.default_rng(key).dirichlet(np.ones(shape[-1]), shape[:-1])


def parameters(**shapes):
    """Parameter sites of these shapes, probabilities where the name says so; the prior is never
    looked at."""
    out = {}
    for name, shape in shapes.items():
        simplex = name.startswith(("initial", "transition", "weights", "probs"))
        base = (dist.Dirichlet(jnp.ones(shape[-1])).expand(shape[:-1])
                if simplex else dist.Normal(0.0, 1.0).expand(shape))
        out[name] = sample(name, base.to_event(base.batch_shape.__len__()))
    return out


@probml.model
def plain():
    p = parameters(initial=(3,), transition=(3, 3), mean=(3, 2))
    with probml.rows():
        z = sample("z", probml.MarkovChain(p["initial"], p["transition"]))
        sample("y", dist.Normal(p["mean"][z], 0.7).to_event(2))


@probml.model
def mixed_emissions():
    p = parameters(initial=(2,), transition=(2, 2), mean=(2, 2), probs=(2, 3), log_rate=(2,))
    with probml.rows():
        z = sample("z", probml.MarkovChain(p["initial"], p["transition"]))
        sample("x", dist.MultivariateNormal(p["mean"][z],
                                            jnp.array([[1.0, 0.4], [0.4, 0.8]])).to_event(1))
        sample("symbol", dist.Categorical(p["probs"][z]).to_event(1))
        sample("count", dist.Poisson(jnp.exp(p["log_rate"][z])).to_event(1))


@probml.model
def two_chains():
    p = parameters(initial_a=(2,), transition_a=(2, 2), initial_b=(3,), transition_b=(2, 3, 3),
                   mean=(2, 3))
    with probml.rows():
        a = sample("a", probml.MarkovChain(p["initial_a"], p["transition_a"]))
        b = sample("b",
                   probml.MarkovChain(p["initial_b"], p["transition_b"][a], inhomogeneous=True))
        sample("y", dist.Normal(p["mean"][a, b], 1.0).to_event(1))


@probml.model
def mixture_of_chains():
    p = parameters(weights=(2,), initial=(2, 2), transition=(2, 2, 2), mean=(2, 2), level=(2,))
    with probml.rows():
        c = sample("c", dist.Categorical(p["weights"]))
        z = sample("z", probml.MarkovChain(p["initial"][c], p["transition"][c]))
        sample("y", dist.Normal(p["mean"][c[..., None], z], 1.0).to_event(1))
        sample("x", dist.Normal(p["level"][c], 1.0))


@probml.model
def mixture_emissions():
    p = parameters(initial=(2,), transition=(2, 2), weights=(2, 2), mean=(2, 2))
    with probml.rows():
        z = sample("z", probml.MarkovChain(p["initial"], p["transition"]))
        c = sample("c", dist.Categorical(p["weights"][z]).to_event(1))
        sample("y", dist.Normal(p["mean"][z, c], 1.0).to_event(1))


@probml.model
def driven(x, lagged):
    p = parameters(initial=(2,), slope=(2, 2), bias=(2, 2), beta=(2,), mean=(2,))
    with probml.rows():
        logits = p["bias"] + p["slope"] * x[..., None, None]
        z = sample("z",
                   probml.MarkovChain(p["initial"], jax.nn.softmax(logits, -1), inhomogeneous=True))
        sample("y", dist.Normal(p["mean"][z] + p["beta"][z] * lagged, 1.0).to_event(1))


@probml.model
def sensors():
    p = parameters(initial=(2,), transition=(2, 2), mean=(2,), bias=(3,))
    with probml.rows():
        z = sample("z", probml.MarkovChain(p["initial"], p["transition"]))
        with plate("sensor", 3):
            sample("y", dist.Normal(p["mean"][z] + p["bias"][:, None, None], 1.0).to_event(1))


@probml.model
def regimes_outside():
    p = parameters(initial=(2,), transition=(2, 2, 2), mean=(2,))
    g = sample("g", dist.Categorical(jnp.array([0.3, 0.7])))
    with probml.rows():
        z = sample("z", probml.MarkovChain(p["initial"], p["transition"][g]))
        sample("y", dist.Normal(p["mean"][z], 1.0).to_event(1))


def holed(array, key, share=0.3):
    array = np.array(array, float)
    array[np.random.default_rng(key).random(array.shape) < share] = nan
    return array


STEPS, ROWS = 4, 2
PARTLY = np.array([[nan, 0.0, nan, 1.0], [nan] * 4])
CASES = {
    "complete": (plain(), {"y": normal(1, ROWS, STEPS, 2)}),
    "holes": (plain(), {"y": holed(normal(2, ROWS, STEPS, 2), 3)}),
    "one step": (plain(), {"y": normal(4, 3, 1, 2)}),
    "states seen in part": (plain(), {"y": holed(normal(5, ROWS, STEPS, 2), 6), "z": PARTLY}),
    "ragged": (plain(), {"y": [normal(7, 4, 2), normal(8, 2, 2), normal(9, 1, 2)]}),
    "mixed emissions": (
        mixed_emissions(),
        {
            "x": np.where(np.array([0, 1, 0, 0])[None, :, None], nan, normal(10, ROWS, STEPS, 2)),
            "symbol": holed(np.arange(8).reshape(2, 4) % 3, 11),
            "count": holed(np.arange(8).reshape(2, 4), 12),
        },
    ),
    "two chains": (two_chains(), {"y": holed(normal(13, ROWS, STEPS), 14)}),
    "one of two chains seen": (two_chains(), {"y": normal(15, ROWS, STEPS),
                                              "a": np.array([[0, 1, 1, 0], [1, 1, 0, 0]])}),
    "mixture of chains": (mixture_of_chains(),
                          {"y": holed(normal(16, ROWS, STEPS), 17), "x": normal(18, ROWS)}),
    "class seen": (mixture_of_chains(),
                   {"y": holed(normal(19, ROWS, STEPS), 20), "c": np.array([1, 0])}),
    "mixture emissions": (mixture_emissions(), {"y": holed(normal(21, ROWS, STEPS), 22)}),
    "driven": (driven(), {"y": normal(23, ROWS, STEPS), "x": normal(24, ROWS, STEPS),
                          "lagged": normal(25, ROWS, STEPS)}),
    "sensors": (sensors(), {"y": holed(normal(26, ROWS, 3, STEPS), 27)}),
}


def values(model, data):
    sites = model_sites(model, data)
    out = {}
    for i, (name, node) in enumerate(sites.items()):
        if not node["rows"] and name != "g":
            simplex = name.startswith(("initial", "transition", "weights", "probs"))
            out[name] = table(100 + i, *node["shape"]) if simplex else normal(100 + i,
                                                                              *node["shape"])
    return out


def model_sites(model, data):
    return dict(read_data(model, data).structure.graph().nodes(data=True))


class Kind(NamedTuple):
    """What a site is: its states (None: not finitely many), whether its cells are one event."""

    states: int | None
    event: bool
    chain: bool
    discrete: bool


def kind(site):
    base, _ = peel(site["fn"])
    states = getattr(base, "states", None) or (
        base.probs.shape[-1] if isinstance(base, dist.CategoricalProbs) else None
    )
    return Kind(states, bool(site["fn"].event_shape), isinstance(base, probml.MarkovChain),
                site["fn"].support.is_discrete)


@functools.cache
def weights(model, steps, hidden, discrete):
    """A program for all rows of which the same sites (name, shape) are hidden: joint states,
    parameters, inputs, what is seen and where → the log weight of each joint state."""
    ends = np.cumsum([math.prod(shape) for _, shape in hidden])[:-1]

    def weight(states, given, inputs, data, here):
        values = {name: part.reshape(shape) for (name, shape), part
                  in zip(hidden, jnp.split(states, ends), strict=True)}
        values |= {n: v.astype(int) if n in discrete else v for n, v in data.items()}
        with handlers.seed(rng_seed=0), handlers.substitute(data={**given, **values}):
            with chain_length_scope(steps), handlers.trace() as trace:
                model(rows=1, **inputs)
        total = 0.0
        for name in values:
            base, _ = peel(trace[name]["fn"])
            log = base.log_prob(trace[name]["value"])
            if name in data:
                seen = here[name].all(-1) if here[name].ndim > log.ndim else here[name]
                log = jnp.where(seen, jnp.broadcast_to(log, seen.shape), 0.0)
            total += log.sum()
        return total

    return jax.jit(jax.vmap(weight, (0, None, None, None, None)))


class Enumerated:
    """One row: every joint state of what is hidden, and its weight."""

    def __init__(self, model, params, row, steps, fixed=None):
        given = {name: jnp.asarray(value) for name, value in {**params, **(fixed or {})}.items()}
        inputs = {name: np.asarray(row[name])[None] for name in model.inputs}
        seen = {name: np.asarray(value, float) for name, value in row.items()
                if name not in model.inputs}

        def run():
            with chain_length_scope(steps):
                model(rows=1, **inputs)

        sites = met(handlers.substitute(run, data=given), ask=kind, draw=False)
        found = {n: site for n, site in sites.items() if n not in given}
        self.names, columns, hidden = [], [], []
        for name, site in found.items():
            k, shape = site.told.states, site.value.shape
            if k is None or name in seen and not np.isnan(seen[name]).any():
                continue
            cells = seen.get(name, np.full(shape, nan)).reshape(-1)
            if name not in seen and not any(name in str(a) for a in ("z", "a", "b", "c", "g")):
                continue  # an unseen leaf
            if site.told.event and name in seen and not site.told.chain:
                continue  # unseen cells of a leaf sum to one
            hidden.append((name, shape))
            for cell, value in enumerate(cells):
                self.names.append((name, cell))
                columns.append(range(k) if np.isnan(value) else [int(value)])
        self.states = np.array(list(itertools.product(*columns))).reshape(-1, len(columns))
        data = {n: np.nan_to_num(v).reshape(found[n].value.shape) for n, v in seen.items()
                if n not in dict(hidden)}
        here = {n: ~np.isnan(seen[n]).reshape(v.shape) for n, v in data.items()}
        discrete = frozenset(n for n in data if found[n].told.discrete)
        self.log = np.asarray(weights(model, steps, tuple(hidden), discrete)(
            self.states, given, inputs, data, here))
        self.total = np.logaddexp.reduce(self.log)
        self.q = np.exp(self.log - self.total)

    def marginal(self, name, k):
        """(cells, k)."""
        where = [i for i, (n, _) in enumerate(self.names) if n == name]
        return np.stack([(self.q[:, None] * (self.states[:, [i]] == np.arange(k))).sum(0)
                         for i in where])

    def best(self, names):
        """The most probable states of these sites, the others summed out."""
        where = [i for i, (n, _) in enumerate(self.names) if n in names]
        found, group = np.unique(self.states[:, where], axis=0, return_inverse=True)
        best = found[np.bincount(group.reshape(-1), self.q).argmax()]
        return {name: best[[self.names[i][0] == name for i in where]] for name in names}


@pytest.mark.parametrize("case", CASES)
def test_evidence_marginals_pairs_and_paths_equal_enumeration(case):
    model, data = CASES[case]
    params = values(model, data)
    fit = model.at(params)
    log = fit.log_prob(data)
    hidden = {}
    sizes = {"z": 3 if model.name == "plain" else 2, "a": 2, "b": 3, "c": 2}
    names = [n for n, node in model_sites(model, data).items() if node["rows"] and n in sizes
             and n not in data or n == "z"]
    names = [n for n in names if n in model_sites(model, data)]
    proba = fit.predict_proba(data, names)
    path = fit.decode(data, sites=[n for n in names])
    chain = next(n for n in ("z", "b") if n in names)
    pairs = fit.pairs(data, chain)
    rows = len(next(iter(data.values())))
    for i in range(rows):
        row = {name: value[i] for name, value in data.items()}
        steps = max(np.shape(row[n])[-1] if model.name == "sensors" else len(row[n]) for n in row
                    if np.ndim(row[n]))
        brute = Enumerated(model, params, row, steps)
        np.testing.assert_allclose(log[i], brute.total, atol=1e-10)
        best = brute.best(names)
        for name in names:
            want = brute.marginal(name, sizes[name])
            got = proba[name][i].reshape(-1, sizes[name])[: len(want)]
            np.testing.assert_allclose(got, want, atol=1e-10)
            np.testing.assert_array_equal(np.ravel(path[name][i])[: len(want)], best[name])
        where = [c for c, (n, _) in enumerate(brute.names) if n == chain]
        for t, (now, then) in enumerate(itertools.pairwise(where)):
            hot = [brute.states[:, [c]] == np.arange(sizes[chain]) for c in (now, then)]
            np.testing.assert_allclose(pairs[i, t], np.einsum("p,pi,pj->ij", brute.q, *hot),
                                       atol=1e-10)
        hidden[i] = brute


def test_a_site_outside_rows_that_moves_the_chains_is_summed_out_over_all_rows():
    model, data = regimes_outside(), {"y": holed(normal(28, ROWS, STEPS), 29)}
    params = values(model, data)
    total = []
    for g in range(2):
        rows = [Enumerated(model, params, {"y": y}, STEPS, {"g": jnp.asarray(g)}).total
                for y in data["y"]]
        total.append(np.log([0.3, 0.7][g]) + sum(rows))
    prior = sum(
        (dist.Dirichlet(jnp.ones(v.shape[-1])) if np.allclose(v.sum(-1), 1)
         and n != "mean" else dist.Normal(0.0, 1.0)).log_prob(v).sum()
        for n, v in params.items()
    )
    np.testing.assert_allclose(model.log_density(data, params) - prior, np.logaddexp.reduce(total),
                               atol=1e-10)


@pytest.mark.parametrize("case", ["holes", "mixture of chains", "mixture emissions", "driven"])
def test_filtered_and_predicted_states_are_those_of_the_data_cut_short(case):
    model, data = CASES[case]
    fit = model.at(values(model, data))
    filtered, predicted = (fit.predict_proba(data, "z", given=view)
                           for view in ("filtered", "predicted"))
    ahead = fit.predict(data, "y", given="predicted")
    for t in range(STEPS):
        early = {n: np.array(v, float) if n == "y" else v for n, v in data.items()}
        early["y"][:, t + 1 :] = nan
        np.testing.assert_allclose(filtered[:, t], fit.predict_proba(early, "z")[:, t], atol=1e-10)
        early["y"][:, t:] = nan
        if np.isnan(early["y"]).all():
            continue
        np.testing.assert_allclose(predicted[:, t], fit.predict_proba(early, "z")[:, t], atol=1e-10)
        np.testing.assert_allclose(ahead[:, t], fit.impute(early)["y"][:, t], atol=1e-10)


def test_draws_given_data_have_the_posterior_marginals():
    model, data = CASES["mixture emissions"]
    fit = model.at(values(model, data))
    many = {"y": np.repeat(data["y"][:1], 4000, 0)}
    drawn = fit.simulate(given=many, seed=3)
    for name in ("z", "c"):
        share = (drawn[name][..., None] == np.arange(2)).mean(0)
        np.testing.assert_allclose(share, fit.predict_proba(data, name)[0], atol=0.035)
    seen = ~np.isnan(data["y"][0])
    np.testing.assert_array_equal(drawn["y"][:, seen], many["y"][:, seen])


@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
def test_padding_changes_nothing_and_halves_differ_by_their_link():
    model, params = plain(), values(*CASES["complete"])
    y = normal(30, 1, 6, 2)
    padded = np.concatenate([y, np.full((1, 5, 2), nan)], 1)
    fits = [model.fit({"y": d}, probml.EM(max_iterations=4, accelerate=False, tolerance=0.0),
                      start=params) for d in (y, padded)]
    for name in params:
        np.testing.assert_allclose(fits[0].params[name], fits[1].params[name], atol=1e-10)
    fit = model.at(params)
    np.testing.assert_allclose(fit.log_prob({"y": padded}), fit.log_prob({"y": y}), atol=1e-10)
    last = fit.predict_proba({"y": y[:, :3]}, "z")[0, -1]
    whole, first = fit.log_prob({"y": y})[0], fit.log_prob({"y": y[:, :3]})[0]
    ahead = {**params, "initial": last @ params["transition"]}
    np.testing.assert_allclose(whole - first, model.at(ahead).log_prob({"y": y[:, 3:]})[0],
                               atol=1e-10)


def test_the_table_of_a_chain_is_its_labelled_transition():
    model, params = mixture_of_chains(), values(*CASES["mixture of chains"])
    table = model.at(params, labels={"c": ("calm", "wild"), "z": ("low", "high")}).table("z")
    assert (table.loc[("wild", "low"), "high"] == params["transition"][1, 0, 1]
            and table.index.names == ["c", "z before"])


@pytest.mark.parametrize("case", ["mixture of chains", "mixture emissions"])
def test_everything_unseen_is_decoded_together(case):
    model, data = CASES[case]
    params = values(model, data)
    path = model.at(params).decode(data)
    for i in range(ROWS):
        best = Enumerated(model, params, {name: value[i] for name, value in data.items()},
                          STEPS).best(["c", "z"])
        for name in ("c", "z"):
            np.testing.assert_array_equal(np.ravel(path[name][i]), best[name])


def test_unseen_symbols_are_decoded_with_the_states():
    initial, moves, table = (np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]]),
                             np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))

    @probml.model
    def symbols():
        with probml.rows():
            z = sample("z", probml.MarkovChain(jnp.array(initial), jnp.array(moves)))
            sample("y", dist.Categorical(jnp.array(table)[z]).to_event(1))

    y = np.array([[0.0, nan, 2.0, nan]])

    def weight(path, shown):
        emitted = np.prod([table[s, c] for s, c in zip(path, shown, strict=True)])
        return (
            initial[path[0]] * np.prod([moves[a, b] for a, b in itertools.pairwise(path)]) * emitted
        )

    every = itertools.product(itertools.product(range(2), repeat=4),
                              itertools.product((0,), range(3), (2,), range(3)))
    best = max((weight(path, shown), path, shown) for path, shown in every)
    found = symbols().at({}).decode({"y": y})
    assert tuple(found["z"][0]) == best[1] and tuple(found["y"][0]) == best[2]


def test_the_best_path_of_a_sequence_does_not_depend_on_longer_ones_beside_it():
    # the best path of three steps begins in state 1, that of one step is state 0
    initial, moves = jnp.array([0.5, 0.3, 0.2]), jnp.array([[0.6, 0.3, 0.1], [0.1, 0.9, 0.0],
                                                            [0.3, 0.3, 0.4]])

    @probml.model
    def symbols():
        with probml.rows():
            z = sample("z", probml.MarkovChain(initial, moves))
            sample("y", dist.Normal(jnp.arange(3.0)[z], 1.0).to_event(1))

    fit, parts = symbols().at({}), [np.array([nan]), np.array([nan, nan, nan]), np.array([nan, 2])]
    together = fit.decode({"y": parts})["z"]
    for row, part in zip(together, parts, strict=True):
        alone = fit.decode({"y": part[None]})["z"][0]
        np.testing.assert_array_equal(row[: len(part)], alone)
        assert (row[len(part) :] == alone[-1]).all()
    assert together[0, 0] == 0 and together[1, 0] == 1
