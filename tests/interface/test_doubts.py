"""What was answered silently and wrongly, or in somebody else's words, is refused by name."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from numpyro.distributions import constraints

import probml
from coded import codes

nan = np.nan
WIDTH = 1.0
RUNS = 0
Y = np.array([1.0, 2.0, 0.5])


def doubled(x):
    return 2 * x


@probml.model
def around():
    b = sample("b", dist.Normal(0.0, WIDTH))
    with probml.rows():
        sample("y", dist.Normal(doubled(b), 1.0))


@probml.model
def counted():
    global RUNS
    RUNS += 1
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(b, 1.0))


@probml.model
def slope(x):
    b = sample("b", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(b * x, 1.0).to_event(1))


@probml.model
def flat(x, sd: float = 0.0):
    w = sample("w", dist.Normal(0.0, sd) if sd else dist.ImproperUniform(constraints.real, (), ()))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=w * x))


def test_a_bound_model_whose_surroundings_have_changed_says_what_has(monkeypatch):
    model = around()
    first = model.fit({"y": Y}).params["b"]
    monkeypatch.setitem(globals(), "WIDTH", 10.0)
    for ask in (lambda: model.fit({"y": Y}), lambda: model.simulate(3), lambda: model(rows=3),
                lambda: model.at({"b": 0.0})):
        with pytest.raises(probml.ModelError, match=r"'WIDTH'.* was 1.0 .* is 10.0 now.*Build it again"):
            ask()
    assert abs(around().fit({"y": Y}).params["b"] - 2 * Y.sum() / (12 + 0.01)) < 1e-9
    monkeypatch.setitem(globals(), "WIDTH", 1.0)
    assert model.fit({"y": Y}).params["b"] == first  # nothing of the other was kept under its name
    monkeypatch.setitem(globals(), "doubled", lambda x: 3 * x)
    with pytest.raises(probml.ModelError, match="function 'doubled'.* has changed"):
        model.fit({"y": Y})


def test_what_a_function_writes_itself_is_no_change_of_its_surroundings():
    model = counted()
    model.fit({"y": Y})
    assert abs(model.fit({"y": Y[:2]}).params["b"] - 1.0) < 1e-9


def test_rows_declared_as_a_vector_in_each_row_are_refused():
    with pytest.raises(probml.ModelError, match=r"'y'.*made the rows a part of the event"):
        slope().fit({"x": Y, "y": Y})


def test_one_value_a_row_as_a_vector_of_one_is_a_vector_of_one():
    @probml.model
    def single(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(b * x[:, None], 1.0).to_event(1))

    fit = single().fit({"x": Y, "y": Y[:, None]})
    assert abs(fit.params["b"] - (Y @ Y) / (1 + Y @ Y)) < 1e-9


@pytest.mark.parametrize("seed", [1.5, -1, "a", None, True, 2**63])
def test_a_seed_that_is_none_is_refused(seed):
    fit = around().at({"b": 1.0})
    for ask in (lambda: around().fit({"y": Y}, seed=seed), lambda: around().simulate(3, seed=seed),
                lambda: fit.simulate(3, seed=seed)):
        with pytest.raises(probml.ModelError, match="expected an integer of at least 0"):
            ask()


def test_laplace_refuses_a_density_that_rises_for_ever():
    x = np.array([-2.0, -1.0, 1.0, 2.0])
    data = {"x": x, "y": (x > 0).astype(int)}
    with pytest.raises(probml.Refusal, match="improper .*The prior of 'w' is flat"):
        flat().fit(data, probml.Laplace())
    for sd in (2.0, 20.0):  # proper, and skewed
        held = flat(sd=sd).fit(data, probml.Laplace())
        assert "weights-pass" in codes(held) and held.params["w"] > 0


def test_laplace_of_a_normal_says_nothing():
    @probml.model
    def plain(x):
        b = sample("b", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(x @ b, 1.0))

    x = jnp.array([[1.0, 1.0], [1.0, 1.0001], [2.0, 2.0]])
    fit = plain().fit({"x": x, "y": Y}, probml.Laplace())
    assert fit.status.startswith("Posterior by Laplace's approximation; the posterior is approximated by a normal distribution")
