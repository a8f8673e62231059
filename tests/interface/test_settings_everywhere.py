"""A setting of a model, an argument that has a default, that is given with the data or the inputs is
used or refused by every question, and never ignored."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml

X = np.linspace(-2, 2, 12)
Y = np.sin(X / 2) + 0.1 * np.cos(9 * X)
PARAMS = {"b": np.array(1.0), "s": np.array(0.5)}


def prior():
    return sample("b", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))


@probml.model
def with_rows(x, period=2.0):
    b, s = prior()
    with probml.rows():
        sample("y", dist.Normal(b * jnp.sin(x / period), s))


def pasted(x, y=None, period=2.0):
    b, s = prior()
    with plate("n", len(x)):
        sample("y", dist.Normal(b * jnp.sin(x / period), s), obs=y)


def joint(x, y=None, period=2.0):
    b, s = prior()
    sample("y", dist.MultivariateNormal(b * jnp.sin(x / period), s * jnp.eye(len(x))), obs=y)


MODELS = {"with_rows": with_rows, "pasted": probml.model(pasted), "joint": probml.model(joint)}
MAP = probml.MAP()
AT = {
    "log_prob": lambda fit, given: fit.log_prob({"x": X, "y": Y, **given}),
    "log_joint": lambda fit, given: fit.log_joint({"x": X, "y": Y, **given}),
    "predict": lambda fit, given: fit.predict({"x": X, **given}, "y"),
    "interval": lambda fit, given: fit.predict({"x": X, **given}, "y", interval=0.9).upper,
    "impute": lambda fit, given: fit.impute({"x": X, **given})["y"],
    "conditional": lambda fit, given: fit.conditional({"x": X, **given}, "y").mean,
    "simulate(given=)": lambda fit, given: fit.simulate(given={"x": X, **given})["y"],
    "simulate": lambda fit, given: fit.simulate(x=X, **given)["y"],
}
OF_MODEL = {
    "fit": lambda model, given: model.fit({"x": X, "y": Y, **given}, MAP).params["b"],
    "fit(table)": lambda model, given: model.fit(pd.DataFrame({"x": X, "y": Y, **given}),
                                                 MAP).params["b"],
    "log_density": lambda model, given: model.log_density({"x": X, "y": Y, **given}, PARAMS),
    "simulate": lambda model, given: model.simulate(x=X, **given)["y"],
}
QUESTIONS = (
    {name: (ask, lambda model: model) for name, ask in OF_MODEL.items()}
    | {f"at.{name}": (ask, lambda model: model.at(PARAMS)) for name, ask in AT.items()}
    | {f"fit.{name}": (ask, lambda model: model.fit({"x": X, "y": Y}, MAP))
       for name, ask in AT.items()})


@pytest.mark.parametrize("name", MODELS)
def test_a_setting_that_is_given_with_the_data_is_used_or_refused(name):
    ignored = []
    for question, (ask, made) in QUESTIONS.items():
        build = MODELS[name]
        try:
            default = ask(made(build()), {})
        except (probml.ModelError, probml.DataError):
            continue  # a question that this model refuses whatever is given
        try:
            found = ask(made(build()), {"period": 3.0})
        except (probml.ModelError, probml.DataError) as error:
            assert "period" in str(error) or "lengths, settings or columns" in str(error), str(error)
            continue
        if np.allclose(found, default):
            ignored.append(question)
    assert not ignored


@pytest.mark.parametrize("ask", [ask for question, ask in AT.items() if question != "log_joint"])
def test_every_question_takes_the_setting_that_was_fitted(ask):
    fit = MODELS["pasted"]().fit({"x": X, "y": Y}, MAP)
    np.testing.assert_allclose(ask(fit, {"period": 2.0}), ask(fit, {}))
    with pytest.raises(probml.DataError, match="2.0 in the model and 3.0 in the data"):
        ask(fit, {"period": 3.0})


def test_at_given_parameters_inputs_may_set_what_has_a_default():
    at, other = MODELS["pasted"]().at(PARAMS), MODELS["pasted"](period=3.0).at(PARAMS)
    np.testing.assert_allclose(at.simulate(x=X, period=3.0)["y"], other.simulate(x=X)["y"])


def test_a_column_of_a_table_with_the_name_of_a_setting_is_ignored_once_it_is_set():
    table = pd.DataFrame({"x": X, "y": Y, "period": 7.0})
    with pytest.raises(probml.DataError, match="'period' is a setting of the model, period=2.0"):
        with_rows().fit(table, MAP)
    assert with_rows(period=3.0).fit(table, MAP).converged


def test_a_list_of_tables_is_refused_in_words():
    table = pd.DataFrame({"x": X, "y": Y})
    with pytest.raises(probml.DataError, match="list"):
        with_rows().fit([table, table], MAP)
