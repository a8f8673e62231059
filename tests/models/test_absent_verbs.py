"""An estimator has p(class | row) where it has classes or components, and says what to take instead where it has none."""

import inspect

import pytest

pytest.importorskip("sklearn")
from probml import models
from probml.estimators.estimator import Estimator

WITH = {"GaussianMixture", "LatentClass", "MixedMixture", "PoissonMixture", "GaussianDiscriminant",
        "MixtureDiscriminant", "NaiveBayes", "MixtureOfExpertsClassifier", "ParzenClassifier", "FisherDiscriminant"}
OTHER = {name: kind for name in models.__all__ if inspect.isclass(kind := getattr(models, name))
         and issubclass(kind, Estimator)}


def test_only_estimators_with_a_hidden_class_have_the_probabilities_of_every_estimator():
    own = {name for name, kind in OTHER.items() if kind.predict_proba is Estimator.predict_proba}
    assert own == WITH


def test_what_an_estimator_lacks_is_told_with_what_to_take_instead():
    lacking = [kind for kind in OTHER.values() if isinstance(inspect.getattr_static(kind, "predict_proba"), property)]
    assert len(lacking) > 10
    for kind in lacking:
        estimator = kind.__new__(kind)
        assert not hasattr(estimator, "predict_proba")
        with pytest.raises(AttributeError, match=rf"{kind.__name__} has no predict_proba: \w+"):
            estimator.predict_proba  # noqa: B018
