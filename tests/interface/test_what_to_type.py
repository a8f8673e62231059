"""What a message tells a newcomer to type does work, and questions about parameters, which are the
same in all rows, are not answered by rows."""

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml.models import gaussian_mixture, screen


@probml.model
def weight(age):
    base = sample("base", dist.Normal(0.0, 20.0))
    noise = sample("noise", dist.HalfNormal(10.0))
    with probml.rows():
        sample("kg", dist.Normal(base + age, noise))


PETS = {"age": [1, 2, 3, 4], "kg": [3.1, 3.9, 5.2, 6.0]}


@pytest.fixture(scope="module")
def fit():
    return weight().fit(PETS, probml.EM())


def test_a_parameter_is_no_prediction_of_rows(fit):
    with pytest.raises(probml.ModelError, match=r"outside rows.*Use fit.params\['base'\]"):
        fit.predict({"age": [7]}, "base")
    with pytest.raises(probml.ModelError, match=r"no finite list.*use fit.params\['base'\]"):
        fit.table("base")


def test_an_argument_without_use_is_refused(fit):
    with pytest.raises(probml.ModelError, match=r"simulate\(steps=3, given=...\).*Omit steps=3"):
        fit.simulate(given=PETS, steps=3)
    with pytest.raises(probml.ModelError, match=r"Pass summary\(data, weights=...\)"):
        fit.summary(weights=[1.0, 1.0, 1.0, 2.0])
    with pytest.raises(probml.ModelError, match="names= is only for an array"):
        screen(pd.DataFrame(PETS), PETS["kg"], names=["a", "b"])


def test_engines_that_messages_name_do_not_refuse(fit):
    with pytest.raises(probml.Refusal, match=r"^posterior\('base'\): EM\(\) has no.*such as Laplace\(\)$"):
        fit.posterior("base")
    with pytest.raises(probml.Refusal, match=r"^EM\(\) gives point.*such as NUTS\(\) or Laplace\(\)$"):
        fit.draws(3)
    told = weight().fit(PETS, probml.Laplace())
    assert 1.0 < float(told.posterior("base").mean) < 3.0
    assert told.draws(3)["base"].shape == (3,)


def test_simulating_says_how_an_input_is_given():
    with pytest.raises(probml.ModelError, match=r"or here as an input with one value per row, age=\[...\]"):
        weight().simulate(5)
    with pytest.raises(probml.ModelError, match=r"no input 'given'. Use its inputs, 'age'"):
        weight().simulate(given=PETS)
    assert weight().simulate(age=[1.0, 2.0])["kg"].shape == (2,)


@pytest.mark.parametrize("text, says", [("3.9", r"pandas.to_numeric"), ("3,9", r"decimal=','"),
                                        ("heavy", "with NaN")])
def test_text_in_the_place_of_numbers(text, says):
    with pytest.raises(probml.DataError, match=f"got '{text}' in row 0.*{says}"):
        weight().fit({**PETS, "kg": [text] * 4})
    if text == "3.9":
        assert pd.to_numeric(pd.Series([text]))[0] == 3.9


@pytest.mark.parametrize("data, says", [
    ("pets.csv", r"got str. Pass {'age': ..., ...}. Read a file first: pandas.read_csv"),
    ([[1, 2]], r"got list. Pass {'age': ..., ...}"),
    (np.ones((3, 2)), r"got ndarray. Pass {'age': ..., ...}"),
], ids=["path", "list", "matrix"])
def test_what_is_no_table_is_told_by_the_models_own_names(data, says):
    with pytest.raises(probml.DataError, match=says):
        weight().fit(data)


def test_numbers_have_no_calibration_of_states(fit):
    with pytest.raises(probml.ModelError, match="observed values of a discrete site of model 'weight'"):
        fit.calibration(PETS)


def test_an_unseen_cell_of_a_function_without_rows_says_where_rows_stand():
    @probml.model
    def heights():
        mean = sample("mean", dist.Normal(170.0, 20.0))
        sample("height", dist.Normal(mean, 10.0))

    @probml.model
    def told():
        mean = sample("mean", dist.Normal(170.0, 20.0))
        with probml.rows():
            sample("height", dist.Normal(mean, 10.0))

    data = {"height": [162.0, 181.0, None, 175.0]}
    with pytest.raises(probml.DataError, match=r"missing value \(None\) at position 2, .*probml.rows"):
        heights().fit(data)
    assert 160.0 < float(told().fit(data).params["mean"]) < 185.0


def test_new_rows_of_a_function_without_rows_are_refused_with_the_reason():
    def fixed(x, y=None):
        slope = sample("slope", dist.Normal(0.0, 2.0))
        with plate("n", 4):
            sample("y", dist.Normal(slope * x, 1.0), obs=y)

    def mended(x, y=None):
        slope = sample("slope", dist.Normal(0.0, 2.0))
        with plate("n", len(x)):
            sample("y", dist.Normal(slope * x, 1.0), obs=y)

    data, new = {"x": np.arange(4.0), "y": 2.0 * np.arange(4)}, {"x": [5.0]}
    with pytest.raises(probml.Refusal, match="fixed size 4.*Write its size as the length of an "
                                             "argument"):
        probml.model(fixed)().fit(data, seed=0).predict(new)
    mean = 28 / (14 + 1 / 4)  # of the slope: conjugate
    np.testing.assert_allclose(probml.model(mended)().fit(data, seed=0).predict(new), [5 * mean],
                               rtol=0.02)


@pytest.mark.parametrize("k", ["3", 3.0, 0])
def test_a_number_of_components_is_asked_for_by_name(k):
    with pytest.raises(probml.ModelError, match=rf"gaussian_mixture\(k={k!r}\): expected an integer"):
        gaussian_mixture(k=k, d=1).fit({"x": np.ones((3, 1))})
