"""The generator of models and its oracle: answers hold to claims, and a wrong one is found."""

import json
from pathlib import Path

import numpy as np
import pytest
import random_models as testing
from hypothesis import HealthCheck, given, settings
from random_models import claims, fuzz
from scipy import stats

from probml.interface.fit import Fit

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
MIXTURE = {"seed": 3, "sites": [
    {"name": "a", "kind": "categorical", "states": 3, "learn": ["probs"]},
    {"name": "b", "kind": "normal", "parents": ["a"], "layout": "event", "size": 2,
     "learn": ["loc"], "prior": "normal"}]}  # fmt: skip
HIDDEN = testing.Case(MIXTURE, 6, 0, {"a": "absent", "b": "part"})


# a few, of the kind of which `make fuzz` tries many
@pytest.mark.slow
@settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(testing.cases())
def test_random_models_hold_to_all_claims(case):
    testing.check(case)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_stays_mended(path):
    said = json.loads(path.read_text())
    some = tuple(claim for claim in testing.CLAIMS if claim.__name__ in said["claims"])
    assert len(some) == len(said["claims"])
    testing.check(testing.Case(**said["case"]), some)


@pytest.mark.parametrize("some", [
    testing.CLAIMS[:10], pytest.param(testing.CLAIMS[10:], marks=pytest.mark.slow)], ids=len)
def test_a_mixture_with_holes_holds_to_all_claims(some):
    assert testing.check(HIDDEN, some) == len(some)


def test_a_wrong_answer_is_found(monkeypatch):
    right = Fit.log_prob
    monkeypatch.setattr(Fit, "log_prob", lambda *args, **more: right(*args, **more) + 1e-6)
    with pytest.raises(AssertionError, match="log_prob: off by"):
        claims.density(HIDDEN)


def test_a_case_is_made_again_of_its_text():
    assert testing.Case.of(str(HIDDEN)) == HIDDEN
    np.testing.assert_array_equal(testing.Case.of(str(HIDDEN)).data["b"], HIDDEN.data["b"])


def test_the_oracle_gives_the_density_of_a_linear_gaussian_pair():
    """x ~ N(m, s), y ~ N(l + c x, t), x unseen: y ~ N(l + c m, √(t² + c² s²))."""
    case = testing.Case({"seed": 1, "sites": [
        {"name": "a", "kind": "normal", "learn": ["loc", "scale"]},
        {"name": "b", "kind": "normal", "learn": ["loc", "scale"], "adds": ["a"]}]},
        6, 0, {"a": "absent"})  # fmt: skip
    _, data, found = claims.fit_at_truth(case)
    params = case.drawn[0]
    rng = np.random.default_rng([1, 1])  # as the recipe draws its numbers
    rng.normal(0.0, 1.5, ()), rng.uniform(0.4, 2.0, ())
    c = rng.normal(0.0, 1.0)
    middle = params["b_loc"] + c * params["a_loc"]
    spread = np.hypot(params["b_scale"], c * params["a_scale"])
    np.testing.assert_allclose(found.evidence, stats.norm.logpdf(data["b"], middle, spread),
                               rtol=1e-10)


def test_the_oracle_integrates_a_rate_over_its_grid():
    """a ~ Gamma(k, r) unseen, b ~ Poisson(c a): b is negative binomial, of success r / (r + c)."""
    case = testing.Case({"seed": 2, "sites": [
        {"name": "a", "kind": "gamma"}, {"name": "b", "kind": "poisson", "takes": "a"}]},
        6, 0, {"a": "absent"})  # fmt: skip
    _, data, found = claims.fit_at_truth(case)
    rng, other = np.random.default_rng([2, 0]), np.random.default_rng([2, 1])
    k, r, c = rng.uniform(0.4, 2.0), rng.uniform(0.4, 2.0), other.uniform(0.4, 2.0)
    np.testing.assert_allclose(found.evidence, stats.nbinom.logpmf(data["b"], k, r / (r + c)), rtol=1e-8)
    np.testing.assert_allclose(found.mean("a"), (k + data["b"]) / (r + c), rtol=1e-6)


def test_what_fails_once_and_then_holds_is_told(monkeypatch, capsys, tmp_path):
    failed = []

    def check(case, claims):
        if not failed:
            failed.append(case)
            raise AssertionError("off by 1")
        return 1

    monkeypatch.setattr(fuzz, "check", check)
    monkeypatch.setattr(fuzz.time, "monotonic", lambda: 1e9 * len(failed))  # the time is up then
    assert fuzz.main(["--seconds", "20", "--seed", "5", "--keep", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "FOUND" in out and "(not each time)" in out and len(list(tmp_path.iterdir())) == 1
