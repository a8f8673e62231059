"""What is read off one trace: sites, plates, parents, layouts, levels; and models that are
refused."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.stats import norm

import cases
import probml
from cases import nan
from probml.jaxpr.levels import Level
from probml.structure.trace import trace


@probml.model
def layered(k: int, d: int):
    """A plate outside rows, a plate inside rows, a vector, a global class."""
    era = sample("era", dist.Categorical(jnp.array([0.5, 0.5])))
    weights = sample("weights", dist.Dirichlet(jnp.ones((2, k))))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
        variance = sample("variance", dist.InverseGamma(2.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights[era]))
        sample("x", dist.Normal(mean[z], jnp.sqrt(variance[z])[..., None]).to_event(1))
        with plate("item", 4):
            sample("answer", dist.Bernoulli(logits=mean[z, 0]))


def test_the_graph_has_the_sites_inside_rows_and_the_structure_all():
    model = layered(k=3, d=2)
    assert isinstance(model.graph, nx.DiGraph)
    assert set(model.graph) == {"z", "x", "answer"} and set(model.graph.edges) == {("z", "x"),
                                                                                   ("z", "answer")}
    whole = model.structure
    assert nx.is_directed_acyclic_graph(whole)
    edges = {("era", "z"), ("weights", "z"), ("mean", "x"), ("variance", "x"), ("z", "x"),
             ("z", "answer"), ("mean", "answer")}
    assert set(whole.edges) == edges
    assert whole.nodes["x"]["rows"] and not whole.nodes["mean"]["rows"]
    assert set(whole.nodes["answer"]["plates"]) == {"item", "rows"}


def test_families_states_and_shapes_of_sites():
    sites = trace(layered(k=3, d=2)).sites
    assert [sites[name].states for name in ("era", "z", "x", "answer")] == [2, 3, None, 2]
    assert (sites["x"].cells == (2,) and sites["answer"].cells == (4,)
            and sites["mean"].shape == (3, 2) and sites["z"].cells == ())
    assert [sites[name].kind for name in ("weights", "variance", "z", "x")] == [
        "Dirichlet", "InverseGamma", "Categorical", "Normal"
    ]


def test_levels_of_arguments_are_read_off_the_program():
    sites = trace(layered(k=3, d=2)).sites
    assert sites["x"].uses["loc"]["mean"].level == Level.MOVED
    assert sites["x"].uses["scale"]["variance"] == (Level.MOVED, (("power", 0.5),))
    assert sites["z"].uses["probs"]["weights"].level == Level.MOVED


def test_building_a_model_twice_traces_once():
    assert trace(layered(k=3, d=2)) is trace(layered(3, 2))


def test_a_row_of_data_in_the_users_layout_goes_to_numpyros_and_back():
    site = trace(nested()).sites["cells"]
    assert site.cells == (3, 4, 2)
    cells = np.arange(5 * 24.0).reshape(5, 3, 4, 2)
    placed = site.spread(jnp.asarray(cells))
    assert placed.shape == (3, 4, 5, 2)
    np.testing.assert_array_equal(site.collect(placed, 5), cells)


# Plates inside rows, rows inside a plate


@probml.model
def nested():
    """Two plates inside rows; their axes come after the rows, outermost first."""
    with plate("outer_mean", 3, dim=-2), plate("inner_mean", 4, dim=-1):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    with probml.rows(), plate("outer", 3, dim=-3), plate("inner", 4, dim=-2):
        sample("cells", dist.Normal(mean[:, :, None], 2.0).to_event(1))


@probml.model
def sensors(m: int):
    """Rows nested inside a plate: one series a sensor."""
    with plate("sensor", m, dim=-2):
        mean = sample("mean", dist.Normal(0.0, 10.0).expand([m, 1]))
        with probml.rows():
            sample("reading", dist.Normal(mean, 2.0))


def conjugate(x, s0=10.0, s=2.0):
    n = np.sum(~np.isnan(x), 0)
    return np.nansum(x, 0) / s**2 / (1 / s0**2 + n / s**2)


def test_plates_inside_rows_keep_the_users_layout_in_every_answer():
    x = np.array(nested().simulate(6, seed=0)["cells"])
    assert x.shape == (6, 3, 4, 2)
    x[0, 1] = nan
    fit = nested().fit({"cells": x})
    np.testing.assert_allclose(fit.params["mean"], conjugate(x), rtol=1e-9)
    filled = fit.impute({"cells": x})["cells"]
    np.testing.assert_allclose(filled[0, 1], fit.params["mean"][1], rtol=1e-9)
    np.testing.assert_array_equal(filled[1:], x[1:])
    assert fit.simulate(5)["cells"].shape == (5, 3, 4, 2)


def test_rows_may_lie_inside_a_plate():
    x = sensors(m=3).simulate(6, seed=0)["reading"]
    assert x.shape == (6, 3)
    fit = sensors(m=3).fit({"reading": x})
    np.testing.assert_allclose(fit.params["mean"][:, 0], conjugate(x), rtol=1e-9)


# Models that are refused, before any compile


def refused(function, *words, data=None):
    model = probml.model(function)()
    with pytest.raises(probml.ModelError) as error:
        model.fit(data or {"x": np.zeros(3)})
    for word in (function.__name__, *words):
        assert word in str(error.value), str(error.value)


def test_obs_inside_the_function_is_refused():
    def observed():
        with probml.rows():
            sample("x", dist.Normal(0.0, 1.0), obs=jnp.zeros(3))

    refused(observed, "'x'", "obs=", "data")


def test_a_name_used_twice_is_refused():
    def twice():
        with probml.rows():
            sample("x", dist.Normal(0.0, 1.0))
            sample("x", dist.Normal(0.0, 1.0))

    refused(twice, "'x'", "name")


def test_a_batch_axis_without_a_plate_is_refused():
    def loose():
        with probml.rows():
            sample("x", dist.Normal(jnp.zeros(3)[:, None], 1.0))

    refused(loose, "'x'", "to_event(1)", "plate")


def test_a_batch_axis_in_the_place_of_rows_is_refused():
    def clash():
        with probml.rows():
            sample("x", dist.Normal(jnp.zeros(3), 1.0))

    refused(clash, "'x'")


def test_a_subsampled_plate_is_refused():
    def subsampled():
        with plate("component", 10, subsample_size=5):
            mean = sample("mean", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("x", dist.Normal(mean.sum(), 1.0))

    refused(subsampled, "component", "subsample")


def test_numpyro_param_is_refused():
    def param():
        mean = numpyro.param("mean", 0.0)
        with probml.rows():
            sample("x", dist.Normal(mean, 1.0))

    refused(param, "'mean'", "prior")


def test_a_parameter_below_a_row_site_is_refused():
    def backwards():
        with probml.rows():
            x = sample("x", dist.Normal(0.0, 1.0))
        sample("late", dist.Normal(x.sum(), 1.0))

    refused(backwards, "'late'", "'x'")


def test_a_model_without_sites_is_refused():
    def empty():
        pass

    refused(empty, "no sample site")


def test_an_input_with_the_name_of_a_site_is_refused():
    @probml.model
    def both(x):
        with probml.rows():
            sample("x", dist.Normal(x, 1.0))

    with pytest.raises(probml.ModelError, match="'x'"):
        both().fit({"x": np.zeros(3)})


def test_rows_that_look_at_each_other_are_refused():
    def chained():
        with probml.rows():
            x = sample("x", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(x - x.mean(), 1.0))

    refused(chained, "'y'", data={"x": np.zeros(3), "y": np.zeros(3)})


def reading(look):
    """A model whose site y reads an input x (n, 4) as `look` says."""

    @probml.model
    def read(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(b * look(x), 1.0))

    return read()


LOOKS = {
    "on other rows, by the JAX operation 'fft'": lambda x: jnp.abs(jnp.fft.fft(x[:, 0])),
    "on other rows, by the JAX operation 'triangular_solve'": lambda x: jnp.linalg.solve(
        jnp.eye(x.shape[0]) + 0.1, x[:, 0]
    ),
    "on other rows, by the JAX operation 'scan'": lambda x: jax.lax.scan(lambda c, v: (0.5 * c + v, c), 0.0,
                                                           x[:, 0])[1],
    "on other rows, by the JAX operation 'pure_callback'": lambda x: jax.pure_callback(np.sort, x[:, 0], x[:, 0]),
    "on the row number": lambda x: x[:, 0] * jnp.arange(x.shape[0]),
    "on the number of rows": lambda x: x[:, 0] / x.shape[0],
}


@pytest.mark.parametrize("words", LOOKS)
def test_a_look_at_other_rows_is_refused_by_name(words):
    with pytest.raises(probml.ModelError,
                       match=f"the value of 'y' in a row depends {words}, but rows must be independent"):
        trace(reading(LOOKS[words]), {"x": ((4,), "f")})


OWN = {
    "fourier": lambda x: jnp.abs(jnp.fft.fft(x))[:, 1],
    "recursion": lambda x: jax.lax.scan(lambda c, v: (0.5 * c + v, None), x[:, 0], x.T)[0],
    "recursion under vmap": lambda x: jax.vmap(
        lambda r: jax.lax.scan(lambda c, v: (0.5 * c + v, c), 0.0, r)[1].sum()
    )(x),
    "own matrix": lambda x: jnp.linalg.solve(x.reshape(-1, 2, 2) + 9 * jnp.eye(2),
                                             x[:, :2, None])[:, 1, 0],
    "own entry": lambda x: x[jnp.arange(x.shape[0]), (x[:, 0] > 0).astype(int)],
    "mean of its own": lambda x: x.mean(-1) + x.sum(1) / x.shape[1],
}


@pytest.mark.parametrize("name", OWN)
def test_what_a_row_does_with_itself_is_let_through(name):
    assert trace(reading(OWN[name]), {"x": ((4,), "f")}).sites["y"].inputs == ("x",)


# Plans that are refused


@probml.model
def factor():
    with probml.rows():
        f = sample("f", dist.Normal(0.0, 1.0))
        sample("x", dist.Normal(2.0 * f, 1.0))
        sample("y", dist.Normal(-f, 1.0))


def test_an_unseen_continuous_site_that_feeds_another_is_integrated_out():
    x = np.array([0.0, 1.0])
    fit = factor().fit({"x": x}, probml.EM())
    np.testing.assert_allclose(fit.log_prob({"x": x}), norm.logpdf(x, 0.0, np.sqrt(5.0)),
                               atol=1e-12)
    holes = fit.log_prob({"x": x, "f": [0.0, nan]})
    np.testing.assert_allclose(holes, [norm.logpdf(0.0) + norm.logpdf(0.0),
                                       norm.logpdf(1.0, 0.0, np.sqrt(5.0))], atol=1e-12)


def test_an_unseen_continuous_site_that_feeds_nothing_seen_is_fine():
    fit = factor().at({})
    np.testing.assert_allclose(fit.log_prob({"f": [0.0, nan], "x": [1.0, nan]})[1], 0.0, atol=1e-12)


@probml.model
def crowd(n: int):
    """A child of too many hidden parents."""
    with probml.rows():
        causes = [sample(f"cause{i}", dist.Bernoulli(0.5)) for i in range(n)]
        sample("effect", dist.Normal(sum((i + 1.0) * c for i, c in enumerate(causes)), 1.0))


def test_a_table_above_the_memory_budget_is_refused_with_its_clique_and_bytes():
    with pytest.raises(probml.Refusal) as refusal:
        crowd(30).fit({"effect": [1.0, 2.0]}, probml.EM())
    assert "'cause0'" in str(refusal.value) and "bytes" in str(refusal.value)


@probml.model
def hidden_count():
    with probml.rows():
        n = sample("n", dist.Poisson(3.0))
        sample("x", dist.Normal(n, 1.0))


def test_an_unseen_count_is_refused_by_name():
    with pytest.raises(probml.Refusal, match="'n'.*Poisson"):
        hidden_count().fit({"x": [1.0, 2.0]}, probml.EM())


# explain


def test_explain_tells_roles_updates_and_refusals():
    model, data, _, _ = cases.mixture("scale")
    text = str(model.explain(data))
    assert ("latent, summed out" in text and "Dirichlet–Categorical, closed form" in text
            and "on sufficient statistics" in text)
    assert "Exact" in text and "refuses" in text and "'z'" in text
    assert "chosen" in text
    labelled = str(model.explain({**data, "z": np.zeros(cases.ROWS)}))
    assert "summed out" not in labelled.split("updates")[0].replace("summing out", "")


def test_explain_says_in_which_coordinate_a_concentration_below_one_is_maximised():
    assert "softmax" in str(cases.dice(a=(0.5, 1.0, 1.0)).explain({"face": [0, 1]}))
    assert "logit" in str(cases.coin(a=0.5).explain({"toss": [0, 1]}))


def test_explain_names_least_squares():
    model, data, _, _ = cases.mixture("regression")
    assert "weighted least squares" in str(model.explain(data))


def test_a_long_error_of_the_function_is_shown_shortened():
    @probml.model
    def broken(d: int = 2):
        mean = sample("mean", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
        with probml.rows():
            sample("x", dist.Normal(mean, 1.0).to_event(1))
        raise ValueError("0.0 " * 5_000)

    with pytest.raises(probml.ModelError, match="failed at line .* raise ValueError") as caught:
        broken().fit({"x": np.zeros((3, 2))})
    assert len(str(caught.value)) < 1_000
