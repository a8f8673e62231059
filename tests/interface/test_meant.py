"""Words of other libraries, and words misspelt, are answered with the word that is meant here."""

import dataclasses
import pickle

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

import probml
from probml import models
from probml.engines.engine import ELSEWHERE
from probml.engines.ladder import KINDS
from probml.interface.other_libraries import OF_FITS, OF_MODELS


@probml.model
def level():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


@pytest.mark.parametrize(("ask", "said"), [
    (lambda: probml.NUTS(tune=500), "NUTS.tune=....: NUTS has no such setting.*. In probml use warmup"),
    (lambda: probml.EM(toleranse=1.0), "Did you mean tolerance"),
    (lambda: level().at({"mean": 0.0}).sample(3), "In probml use draws.n. for draws of the parameters"),
    (lambda: level().at({"mean": 0.0}).summry, "Did you mean summary"),
    (lambda: level().sample(), "In probml use fit.data, probml.NUTS"),
    (lambda: models.KMeans, "In probml use GaussianMixture"),
    (lambda: models.gausian_mixture, "Did you mean .*gaussian_mixture"),
    (lambda: models.Prophet, "dir.probml.models. lists its [0-9]+ names"),
    (lambda: probml.Nuts, "Did you mean NUTS"),
    (lambda: probml.GaussianMixture, "classes are in probml.models"),
])
def test_a_word_that_is_not_there_is_answered_with_the_one_that_is(ask, said):
    with pytest.raises((AttributeError, TypeError), match=said):
        ask()


def test_what_is_said_to_be_here_is_here():
    settings = {field.name for kind in KINDS for field in dataclasses.fields(kind)}
    assert {word.split()[0].rstrip(",") for word in ELSEWHERE.values() if "=" not in word} <= settings
    for words, kind in ((OF_FITS, probml.Fit), (OF_MODELS, probml.Model)):
        for said in words.values():
            own = said.partition("(")[0].partition(",")[0]
            assert hasattr(kind, own) or own in ("params", "probml.compare"), said
    for said in models._ELSEWHERE.values():
        assert said.partition("(")[0].partition(",")[0] in models.__all__, said


def test_what_fails_within_a_property_says_so_itself(monkeypatch):
    def broken(self):
        raise AttributeError("the real reason")

    monkeypatch.setattr(probml.Fit, "status", property(broken))
    with pytest.raises(AttributeError, match="the real reason"):
        level().at({"mean": 0.0}).status  # noqa: B018


def test_fits_and_engines_still_travel():
    fit = pickle.loads(pickle.dumps(level().at({"mean": 0.0})))
    assert not hasattr(fit, "nothing") and fit.params["mean"] == 0.0
    assert pickle.loads(pickle.dumps(probml.NUTS(draws=5))) == probml.NUTS(draws=5)


def test_data_given_as_if_to_an_estimator_are_told_how_to_be_given():
    x = pd.Series(np.arange(3.0))
    with pytest.raises(probml.ModelError, match="Give all observations as one mapping") as error:
        level().fit(x, x)
    assert "\n" not in str(error.value)
    with pytest.raises(probml.ModelError, match=r"Call the class, NUTS\(\)"):
        level().fit({"y": x}, probml.NUTS)
    with pytest.raises(probml.DataError, match="Pass {'y': ...}"):
        level().fit(x.to_numpy())
