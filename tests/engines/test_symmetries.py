"""Symmetries that a model declares: its optimum is one of many that are the same for the data, which
is no warning; every other flat direction is one."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from coded import codes
from probml.models import (
    FactorAnalysis,
    LogisticRegression,
    MultidimensionalScaling,
    factor_analysis,
)

RANDOM = np.random.default_rng(0)
X, CLASSES = RANDOM.normal(size=(150, 3)), RANDOM.integers(0, 3, 150)
FACTORS = (RANDOM.normal(size=(200, 2)) @ RANDOM.normal(size=(2, 6))
           + RANDOM.normal(size=(200, 6)) / 2)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def softmax(x):
    bias, beta = sample("bias", FLAT.expand([3])), sample("beta", FLAT.expand([3, 3]))
    with probml.rows():
        sample("y", dist.Categorical(logits=x @ beta + bias))


def test_coefficients_of_classes_are_determined_up_to_a_shift(recwarn):
    fit = LogisticRegression(C=np.inf).fit(X, CLASSES).fit_
    assert "symmetry" in codes(fit) and fit.converged and not fit.warnings and not recwarn.list
    (found,) = (each for each in fit.findings if each.code.value == "symmetry")
    assert "'beta'" in str(found) and "'intercept'" in str(found) and found.problem in fit.status


def test_a_collinear_column_is_told_beside_the_symmetry():
    with pytest.warns(probml.ReliabilityWarning, match="not-identified"):
        fit = LogisticRegression(C=np.inf).fit(np.c_[X, X[:, 0]], CLASSES).fit_
    assert {"symmetry", "not-identified"} <= codes(fit)
    (found,) = fit.warnings  # the columns that are the same, and no intercept
    assert "beta[0, " in str(found) and "beta[3, " in str(found) and "intercept" not in str(found)


def test_a_function_that_declares_nothing_is_warned_of():
    fit = probml.model(softmax)().fit({"x": X, "y": CLASSES}, probml.MAP())
    assert "not-identified" in codes(fit) and "symmetry" not in codes(fit)


@pytest.mark.parametrize("declared, found", [
    (lambda parameters: {"bias": parameters["bias"] - jnp.mean(parameters["bias"]),
                         "beta": parameters["beta"] - parameters["beta"][:, :1]}, "symmetry"),
    (lambda parameters: parameters, "not-identified")])
def test_a_function_declares_what_its_data_identify(declared, found):
    function = probml.model(softmax)
    function.identifies(declared)
    fit = function().fit({"x": X, "y": CLASSES}, probml.MAP())
    assert codes(fit) & {"symmetry", "not-identified"} == {found}


def test_loadings_are_determined_up_to_a_rotation():
    fit = FactorAnalysis(2, prior=False).fit(FACTORS).fit_
    assert "symmetry" in codes(fit) and not fit.warnings
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    loadings = np.asarray(fit.params["loadings"])
    declared = factor_analysis.identified_by(dict(fit.params))
    turned = factor_analysis.identified_by({**fit.params, "loadings": loadings @ turn})
    assert all(np.allclose(turned[name], value) for name, value in declared.items())


def test_one_factor_has_no_rotation():
    fit = FactorAnalysis(1, prior=False).fit(FACTORS).fit_
    assert not {"symmetry", "not-identified"} & codes(fit)


def test_points_are_determined_up_to_rotations_and_shifts(recwarn):
    points = RANDOM.normal(size=(12, 2))
    apart = np.linalg.norm(points[:, None] - points, axis=-1) * np.exp(
        RANDOM.normal(size=(12, 12)) / 50)
    fit = MultidimensionalScaling(2, prior=False).fit((apart + apart.T) / 2).fit_
    assert "symmetry" in codes(fit) and not fit.warnings and not recwarn.list
