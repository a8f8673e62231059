"""The published numbers, and random discrete networks against brute-force enumeration."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import cases
import oracles
import probml
from cases import fitted, nan
from plain_numpyro import log_density

EXACT = 1e-10  # sums of a few hundred terms in float64

# The published examples


def test_candy_bags_after_one_cherry():
    fit = cases.candy_bags().fit({"cherry": [1]}, probml.Exact())
    np.testing.assert_allclose(fit.posterior("bag").probs, [0.2, 0.3, 0.4, 0.1, 0.0], atol=EXACT)
    np.testing.assert_allclose(fit.log_evidence, np.log(0.5), atol=EXACT)
    assert int(np.argmax(fit.posterior("bag").probs)) == 2


def test_the_next_candy_is_cherry_with_065_and_with_05_under_the_most_probable_bag():
    fit = cases.candy_bags().fit({"cherry": [1]})
    unseen = {"cherry": [nan]}
    np.testing.assert_allclose(fit.predict_proba(unseen, "cherry"), [[0.35, 0.65]], atol=EXACT)
    np.testing.assert_allclose(fit.predict_proba(unseen, "cherry", plug_in=True), [[0.5, 0.5]],
                               atol=EXACT)
    np.testing.assert_allclose(fit.log_prob({"cherry": [1]}), [np.log(0.65)], atol=EXACT)
    np.testing.assert_allclose(fit.log_prob({"cherry": [1]}, plug_in=True), [np.log(0.5)],
                               atol=EXACT)


def test_ten_lime_candies_leave_little_doubt_of_the_bag():
    fit = cases.candy_bags().fit({"cherry": np.zeros(10)})
    joint = np.array([0.1, 0.2, 0.4, 0.2, 0.1]) * np.array([0.0, 0.25, 0.5, 0.75, 1.0]) ** 10
    np.testing.assert_allclose(fit.posterior("bag").probs, joint / joint.sum(), atol=EXACT)
    np.testing.assert_allclose(fit.log_evidence, np.log(joint.sum()), atol=EXACT)


def test_a_positive_lab_test_means_two_thirds():
    fit = cases.lab_test().at({})
    np.testing.assert_allclose(fit.predict_proba({"positive": [1, 0, nan]}, "ill")[:2, 1],
                               [2 / 3, 0.0001 / 0.98515], rtol=1e-12)
    np.testing.assert_allclose(fit.predict_proba({"positive": [1, 0, nan]}, "ill")[2], [0.99, 0.01],
                               rtol=1e-12)


COUNTS = {(1, 1, 1): 273, (1, 1, 0): 93, (1, 0, 1): 104, (1, 0, 0): 90, (0, 1, 1): 79,
          (0, 1, 0): 100, (0, 0, 1): 94, (0, 0, 0): 167}
START = {"theta": 0.6, "p_flavour": [0.6, 0.4], "p_wrapper": [0.6, 0.4], "p_hole": [0.6, 0.4]}
CANDIES = {name: np.array(list(COUNTS))[:, i] for i, name in enumerate(("cherry", "red", "hole"))}
WEIGHTS = np.array(list(COUNTS.values()), float)


def test_two_bags_first_em_iteration():
    engine = probml.EM(max_iterations=1, accelerate=False, prior=False)
    p = fitted(cases.two_bags(), CANDIES, engine, weights=WEIGHTS, start=START).params
    got = [p["theta"], *p["p_flavour"], *p["p_wrapper"], *p["p_hole"]]
    printed = [0.6124, 0.6684, 0.3887, 0.6483, 0.3817, 0.6558, 0.3827]  # four digits
    np.testing.assert_allclose(got, printed, atol=5e-5)


def test_weight_equals_repetition_of_a_row():
    engine = probml.EM(max_iterations=10, accelerate=False, prior=False)
    whole = {name: np.repeat(value, WEIGHTS.astype(int)) for name, value in CANDIES.items()}
    one = fitted(cases.two_bags(), CANDIES, engine, weights=WEIGHTS, start=START)
    other = fitted(cases.two_bags(), whole, engine, start=START)
    np.testing.assert_allclose(one.history, other.history, rtol=1e-12)
    for name in one.params:
        np.testing.assert_allclose(one.params[name], other.params[name], atol=EXACT)


def test_a_die_heard_over_a_noisy_telephone_is_fair_when_the_mechanism_is_in_the_model():
    weights = np.array([7 / 48, 1 / 8, 1 / 8, 7 / 48, 7 / 48, 7 / 48, 1 / 6]) * 4800
    face = np.array([0, 1, 2, 3, 4, 5, nan])
    engine = probml.EM(max_iterations=2000, tolerance=1e-14, prior=False)
    fair = cases.telephone_die().fit({"face": face, "heard": [1, 1, 1, 1, 1, 1, 0]}, engine,
                                     weights=weights)
    # EM stops at its tolerance
    np.testing.assert_allclose(fair.params["theta"], np.full(6, 1 / 6), atol=1e-5)
    dropped = cases.telephone_die().fit({"face": face}, engine, weights=weights)
    np.testing.assert_allclose(dropped.params["theta"], np.array([7, 6, 6, 7, 7, 7]) / 40,
                               atol=1e-6)


def test_the_maximum_likelihood_map_and_bayes_answers_of_a_coin_and_a_die():
    toss, face = [1, 0, 1, 1], [0, 0, 1, 0]
    n, a = np.array([3, 1, 0]), np.array([2.0, 3.0, 4.0])
    coin, die = cases.coin(a=2.0, b=3.0), cases.dice(a=tuple(a))
    for engine in (probml.EM(), probml.MAP()):
        # L-BFGS
        np.testing.assert_allclose(die.fit({"face": face}, engine).params["theta"],
                                   (n + a - 1) / (n + a - 1).sum(), rtol=1e-6)
        np.testing.assert_allclose(coin.fit({"toss": toss}, engine).params["heads"],
                                   (3 + 1) / (4 + 3), rtol=1e-6)
    ml = probml.EM(prior=False)
    np.testing.assert_allclose(die.fit({"face": face}, ml).params["theta"], n / n.sum(), atol=EXACT)
    np.testing.assert_allclose(coin.fit({"toss": toss}, ml).params["heads"], 3 / 4, atol=EXACT)
    np.testing.assert_allclose(die.fit({"face": face}).params["theta"], (n + a) / (n + a).sum(),
                               atol=EXACT)
    np.testing.assert_allclose(coin.fit({"toss": toss}).params["heads"], (3 + 2) / (4 + 5),
                               atol=EXACT)


# Random networks


def brute(nodes, sizes, data, rows, outer=None):
    """The joint log table of every row, (rows, *sizes); `outer` replaces the tables of the sites
    outside rows."""
    with np.errstate(divide="ignore"):
        factors = [(np.log(table)[None], (*parents, name)) for name, _, parents, table in nodes
                   if outer is None or name not in outer[1]]
        for name, value in data.items():
            value = np.asarray(value, float)
            if value.ndim == 2:
                factors.append((np.log(value), (name,)))
            else:
                hot = (value[:, None] == np.arange(sizes[name])) | np.isnan(value)[:, None]
                factors.append((np.where(hot, 0.0, -np.inf), (name,)))
    factors.append((np.zeros((rows, 1)) if not sizes
                    else np.zeros((rows, next(iter(sizes.values())))), (next(iter(sizes)),)))
    return oracles.enumerate_factors(factors if outer is None else [*factors, outer], sizes)


class Network:
    """A random network with data drawn from it, some cells hidden, some sites wholly unseen, one
    perhaps as likelihoods."""

    def __init__(self, seed, globals_=0, zeros=0.0, likelihood=False, rows=6):
        self.model, self.nodes, self.sizes = cases.random_network(seed, globals_, zeros)
        rng = np.random.default_rng([seed, 1])
        names = list(self.sizes)
        self.outer, inner = names[:globals_], names[globals_:]
        joint = np.exp(brute(self.nodes, self.sizes, {}, 1)[0])
        glob = joint.sum(tuple(range(globals_, joint.ndim)))
        g = np.unravel_index(rng.choice(glob.size, p=glob.reshape(-1) / glob.sum()),
                             glob.shape) if globals_ else ()
        local = joint[g] / joint[g].sum()
        drawn = np.unravel_index(rng.choice(local.size, rows, p=local.reshape(-1)), local.shape)
        seen = rng.permutation(inner)[: max(1, len(inner) // 2 + 1 - (len(inner) == 2))]
        self.data = {}
        for name in sorted(seen):
            cells = drawn[inner.index(name)].astype(float)
            self.data[str(name)] = np.where(rng.random(rows) < 0.3, nan, cells)
            self.data[str(name)][0] = cells[0]
        if likelihood:
            name = next(n for n in inner if n not in self.data)
            self.data[name] = rng.random((rows, self.sizes[name])) + 0.05
        self.rows, self.inner = rows, inner
        self.unseen = [name for name in inner if name not in self.data or self.data[name].ndim == 2]
        self.part = [name for name in inner if name in self.data
                     and np.isnan(self.data[name]).any()]

    @functools.cached_property
    def joint(self):
        return brute(self.nodes, self.sizes, self.data, self.rows)

    @functools.cached_property
    def global_log(self):
        """log p(globals, all rows), (*sizes of the globals)."""
        inner = [node for node in self.nodes if node[0] not in self.outer]
        rows = brute(inner, self.sizes, self.data, self.rows)
        each = oracles.log_sum(rows, tuple(range(1 + len(self.outer), rows.ndim)))
        sizes = {name: self.sizes[name] for name in self.outer}
        prior = brute([node for node in self.nodes if node[0] in self.outer], sizes, {}, 1)[0]
        return each.sum(0) + prior


NETWORKS = {
    "small": {"seed": 0},
    "wide": {"seed": 3},
    "likelihoods": {"seed": 5, "likelihood": True},
    "zeros": {"seed": 11, "zeros": 0.3},
    "one global": {"seed": 1, "globals_": 1},
    "two globals": {"seed": 4, "globals_": 2},
    "globals, likelihoods": {"seed": 8, "globals_": 2, "likelihood": True},
}
every = pytest.mark.parametrize("case", NETWORKS)
with_globals = pytest.mark.parametrize("case", [name for name in NETWORKS if "global" in name])


@functools.lru_cache
def net(case):
    return Network(**NETWORKS[case])


@every
def test_log_prob_of_a_row_equals_enumeration(case):
    n = net(case)
    np.testing.assert_allclose(n.model.at({}).log_prob(n.data), oracles.evidence(n.joint),
                               atol=EXACT)


@every
def test_every_marginal_equals_enumeration(case):
    n = net(case)
    names = n.unseen + n.part
    got = n.model.at({}).predict_proba(n.data, names)
    for name in names:
        np.testing.assert_allclose(got[name], oracles.posterior(n.joint, n.sizes, [name]),
                                   atol=EXACT, err_msg=name)


@every
def test_decoding_reaches_the_maximum_of_the_joint(case):
    n = net(case)
    sizes = {name: n.sizes[name] for name in n.inner}
    joint = oracles.log_marginal(n.joint, n.sizes, n.inner)
    seen = {name: value for name, value in n.data.items() if value.ndim == 1
            and not np.isnan(value).any()}
    got = {**seen, **n.model.at({}).decode(n.data)}
    reached = oracles.at(joint, sizes, {name: value.astype(int) for name, value in got.items()})
    np.testing.assert_allclose(reached, oracles.most_probable(joint, sizes)[0], atol=EXACT)
    for name in n.part:
        cells = ~np.isnan(n.data[name])
        np.testing.assert_array_equal(got[name][cells], n.data[name][cells])


@pytest.mark.parametrize("case", ["wide", "two globals"])
def test_decoding_some_sites_sums_out_the_others_first(case):
    n = net(case)
    wanted = n.unseen[:1]
    joint = oracles.log_marginal(n.joint, n.sizes, wanted)
    got = n.model.at({}).decode(n.data, wanted)
    assert list(got) == wanted
    sizes = {name: n.sizes[name] for name in wanted}
    np.testing.assert_allclose(oracles.at(joint, sizes, got),
                               oracles.most_probable(joint, sizes)[0], atol=EXACT)


@every
def test_log_density_of_all_rows_equals_enumeration(case):
    n = net(case)
    expected = (oracles.log_sum(n.global_log, tuple(range(n.global_log.ndim)))
                if n.outer else oracles.evidence(n.joint).sum())
    np.testing.assert_allclose(n.model.log_density(n.data, {}), expected, atol=EXACT)


@with_globals
def test_exact_enumerates_what_lies_outside_rows(case):
    n = net(case)
    fit = n.model.fit(n.data, probml.Exact())
    total = oracles.log_sum(n.global_log, tuple(range(n.global_log.ndim)))
    np.testing.assert_allclose(fit.log_evidence, total, atol=EXACT)
    table = np.exp(n.global_log - total)
    for i, name in enumerate(n.outer):
        others = tuple(j for j in range(len(n.outer)) if j != i)
        np.testing.assert_allclose(fit.posterior(name).probs, table.sum(others), atol=EXACT)


@with_globals
def test_a_new_row_is_judged_by_the_joint_posterior_of_what_lies_outside_rows(case):
    n = net(case)
    fit = n.model.fit(n.data, probml.Exact())
    total = oracles.log_sum(n.global_log, tuple(range(n.global_log.ndim)))
    after = brute(n.nodes, n.sizes, n.data, n.rows, ((n.global_log - total)[None], tuple(n.outer)))
    np.testing.assert_allclose(fit.log_prob(n.data), oracles.evidence(after), atol=EXACT)
    got = fit.predict_proba(n.data, n.unseen)
    for name in n.unseen:
        np.testing.assert_allclose(got[name], oracles.posterior(after, n.sizes, [name]), atol=EXACT)


def test_log_density_of_complete_data_is_that_of_numpyro():
    n = net("small")
    rng = np.random.default_rng(0)
    data = {name: rng.integers(size, size=n.rows) for name, size in n.sizes.items()}
    with_numpyro = log_density(n.model, (), {"rows": n.rows},
                                             {k: jnp.asarray(v) for k, v in data.items()})
    np.testing.assert_allclose(n.model.log_density(data, {}), with_numpyro, atol=EXACT)


def test_an_impossible_row_is_minus_infinity_and_leaves_the_others_alone():
    half, copy = np.array([0.5, 0.5]), np.eye(2)
    model = cases.network(outer=(("g", "categorical", (), half),),
                          inner=(("a", "categorical", (), half), ("b", "bernoulli", ("a",), copy)))
    # b is a copy of a: the second row cannot be
    data = {"a": [0, 0, 1, nan], "b": [0, 1, nan, nan]}
    fit = model.at({})
    np.testing.assert_allclose(fit.log_prob(data), [np.log(0.5), -np.inf, np.log(0.5), 0.0],
                               atol=EXACT)
    with pytest.warns(RuntimeWarning, match="1 of 4 rows have probability 0 .* rows 1"):
        got = fit.predict_proba(data, ["a", "b"])
    np.testing.assert_allclose(got["b"][[0, 2, 3]], [[1, 0], [0, 1], [0.5, 0.5]], atol=EXACT)
    assert all(np.isfinite(value).all() for value in got.values())
    assert np.isneginf(model.log_density(data, {}))


# A plate inside rows


@probml.model
def switches(p, q, d: int):
    """A class, d switches that it turns, a reading of each: axes of plates inside rows follow the
    rows."""
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        with plate("part", d):
            s = sample("s", dist.Bernoulli(jnp.asarray(p)[c]))
            sample("reading", dist.Categorical(jnp.asarray(q)[s]))


@functools.lru_cache
def circuit():
    rng = np.random.default_rng(0)
    d, rows = 3, 5
    p, q = rng.random(3), rng.dirichlet(np.ones(3), 2)
    s, reading = (rng.integers(2, size=(rows, d)).astype(float),
                  rng.integers(3, size=(rows, d)).astype(float))
    s[rng.random(s.shape) < 0.6] = nan
    reading[rng.random(s.shape) < 0.3] = nan
    nodes = [("c", "", (), np.array([0.5, 0.3, 0.2]))]
    flat = {}
    for j in range(d):
        nodes += [(f"s{j}", "", ("c",), np.stack([1 - p, p], -1)), (f"r{j}", "", (f"s{j}",), q)]
        flat |= {f"s{j}": s[:, j], f"r{j}": reading[:, j]}
    sizes = {name: table.shape[-1] for name, _, _, table in nodes}
    return (switches(p, q, d).at({}), {"s": s, "reading": reading}, brute(nodes, sizes, flat, rows),
            sizes)


def test_cells_of_a_plate_inside_rows_equal_enumeration():
    fit, data, joint, sizes = circuit()
    np.testing.assert_allclose(fit.log_prob(data), oracles.evidence(joint), atol=EXACT)
    got = fit.predict_proba(data, ["c", "s", "reading"])
    np.testing.assert_allclose(got["c"], oracles.posterior(joint, sizes, ["c"]), atol=EXACT)
    for j in range(3):
        np.testing.assert_allclose(got["s"][:, j], oracles.posterior(joint, sizes, [f"s{j}"]),
                                   atol=EXACT)
        np.testing.assert_allclose(got["reading"][:, j], oracles.posterior(joint, sizes, [f"r{j}"]),
                                   atol=EXACT)


def test_cells_of_a_plate_inside_rows_are_decoded_jointly():
    fit, data, joint, sizes = circuit()
    got = fit.decode(data)
    states = {"c": got["c"], **{f"s{j}": got["s"][:, j] for j in range(3)},
              **{f"r{j}": got["reading"][:, j] for j in range(3)}}
    np.testing.assert_allclose(oracles.at(joint, sizes, states),
                               oracles.most_probable(joint, sizes)[0], atol=EXACT)


@probml.model
def vague_or_sure():
    """The first class is likelier, its two flags are a toss-up; the second says no to both."""
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.array([0.55, 0.45])))
        sample("flags", dist.Bernoulli(jnp.array([[0.51, 0.51], [0.01, 0.01]])[z]).to_event(1))
        sample("hint", dist.Bernoulli(0.5))


def test_an_unseen_vector_is_decoded_jointly_with_its_class():
    got = vague_or_sure().at({}).decode({"hint": [0, 1]})
    np.testing.assert_array_equal(got["z"], [1, 1])  # 0.45 · 0.99² is above 0.55 · 0.51²
    np.testing.assert_array_equal(got["flags"], [[0, 0], [0, 0]])


def test_an_unseen_vector_has_its_marginals_cell_by_cell():
    got = vague_or_sure().at({}).predict_proba({"hint": [0, 1]}, "flags")
    np.testing.assert_allclose(got[..., 1], np.full((2, 2), 0.55 * 0.51 + 0.45 * 0.01), atol=EXACT)


# What is given outside rows


def test_a_given_value_outside_rows_counts_in_the_density_and_in_the_evidence():
    data = {"bag": 2, "cherry": [1, 0, 1]}
    joint = np.log(0.4) + 3 * np.log(0.5)
    np.testing.assert_allclose(cases.candy_bags().log_density(data, {}), joint, atol=EXACT)
    np.testing.assert_allclose(cases.candy_bags().fit(data, probml.Exact()).log_evidence, joint,
                               atol=EXACT)
    coin = cases.coin(a=2.0, b=3.0).fit({"heads": 0.3, "toss": [1, 0]}, probml.Exact())
    np.testing.assert_allclose(
        coin.log_evidence, np.log(0.3 * 0.7) + float(dist.Beta(2.0, 3.0).log_prob(0.3)), atol=EXACT
    )
