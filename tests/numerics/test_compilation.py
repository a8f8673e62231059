"""Compiled once; the same in float32; nothing heavy at import."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import cases
import probml
from cases import fitted, mixture
from compilations import counted

ENGINES = {
    "EM": probml.EM(max_iterations=7, accelerate=False),
    "EM, restarts": probml.EM(max_iterations=7, restarts=3),
    "MAP": probml.MAP(steps=7),
}


@pytest.mark.parametrize("name", ENGINES)
def test_a_second_fit_of_the_same_shapes_compiles_nothing(name):
    model, data, start, _ = mixture("scale")
    fitted(model, data, ENGINES[name], seed=0)
    again = cases.diagonal_mixture(k=3, d=2, scatter="scale")  # built anew
    with counted() as found:
        fitted(again, {"x": data["x"] + 0.1}, ENGINES[name], seed=1)
    assert found == []


def test_a_second_exact_fit_compiles_nothing():
    cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0, 1, 0, 0]}).predict_proba({"toss": [1, 0]}, "toss")
    with counted() as found:
        cases.coin(a=2.0, b=3.0).fit({"toss": [0, 0, 1, 0, 1]}).predict_proba({"toss": [0, 0]},
                                                                              "toss")
    assert found == []


def test_a_few_rows_more_compile_nothing():
    model, data, start, _ = mixture("scale")
    engine = probml.EM(max_iterations=3, accelerate=False)
    fit = fitted(model, data, engine, start=start)
    fit.predict_proba(data, "z"), fit.log_prob(data)
    with counted() as found:
        less = {"x": data["x"][:-1]}
        fit = fitted(model, less, engine, start=start)
        assert fit.predict_proba(less, "z").shape == (109, 3) and fit.log_prob(less).shape == (109,)
    assert found == []


def test_other_limits_and_tolerances_compile_nothing():
    model, data, start, _ = mixture("scale")
    fitted(model, data, probml.EM(max_iterations=3, accelerate=False), start=start)
    with counted() as found:
        fitted(model, data, probml.EM(max_iterations=40, tolerance=1e-3, accelerate=False),
               start=start, weights=np.full(cases.ROWS, 2.0))
    assert found == []


def test_answers_are_compiled_once():
    model, data, start, _ = mixture("mixed")
    one, other = (model.at({**start, "share": share}) for share in (0.4, 0.7))
    for fit, compiled in ((one, None), (other, [])):
        with counted() as found:
            fit.log_prob(
                data
            ), fit.predict_proba(data, "z"), fit.decode(data), fit.impute(data), fit.simulate(5)
        assert compiled is None or found == compiled


# float32

ML = probml.EM(max_iterations=25, accelerate=False, prior=False)
FAR = 1e6  # a million standard deviations away, as an unkind table of time stamps would be


def mixture_here(name):
    model, data, start, _ = mixture(name)
    fit = fitted(model, data, ML, start=start)
    return {**fit.params, "score": fit.score(data), "objective": fit.history[-1]}


def mixture_far(name):
    model, data, start, _ = mixture(name)
    data = {"x": data["x"] + FAR}
    fit = fitted(model, data, ML, start={**start, "mean": start["mean"] + FAR})
    there = {"weights": fit.params["weights"], name: fit.params[name], "score": fit.score(data),
             "objective": fit.history[-1]}
    return {**there, "location": fit.params["mean"] - FAR}


def exact_far():
    x = FAR + np.array([0.3, -1.2, 0.8, 1.9, -0.4])
    fit = cases.known_variance(m0=FAR, s0=2.0, s=1.0).fit({"x": x}, probml.Exact())
    there = {"evidence": fit.log_evidence, "sd": fit.posterior("mean").scale,
             "score": fit.score({"x": x})}
    return {**there, "location": fit.params["mean"] - FAR}


def candy():
    fit = cases.candy_bags().fit({"cherry": np.ones(10)})
    return {"bag": fit.posterior("bag").probs, "evidence": fit.log_evidence}


def coin():
    fit = cases.coin(a=2.0, b=3.0).fit({"toss": np.arange(1000) % 3 == 0})
    return {"heads": fit.params["heads"], "evidence": fit.log_evidence,
            "a": fit.posterior("heads").concentration1}


CASES = {
    "scale": lambda: mixture_here("scale"),
    "covariance": lambda: mixture_here("covariance"),
    "mixed": lambda: mixture_here("mixed"),
    "regression": lambda: mixture_here("regression"),
    "scale, far": lambda: mixture_far("scale"),
    "covariance, far": lambda: mixture_far("covariance"),
    "exact, far": exact_far,
    "candy": candy,
    "coin": coin,
}


def single(case):
    """The answers of a case in float32."""
    with jax.enable_x64(False):
        return {key: np.asarray(value, float) for key, value in CASES[case]().items()}


@pytest.mark.parametrize("case", CASES)
# of far data, which are meant
@pytest.mark.filterwarnings("ignore:model .* the prior of:UserWarning")
def test_float32_agrees_with_float64(case):
    got = single(case)
    for key, value in CASES[case]().items():
        # two float32 numbers about a million are 1/16 apart: a location there is right to its own
        # spacing
        absolute = 0.07 if key == "location" else 1e-3 * np.abs(value).max()
        np.testing.assert_allclose(got[key], value, rtol=1e-3, atol=absolute, err_msg=key)


# Import


def test_importing_probml_is_light(tmp_path):
    """No engine, plotting or table library beyond what NumPyro imports itself."""
    # compiled modules are kept, as they are where the environment does not forbid it
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if len(kept) < len(os.environ):  # else they lie beside their modules, and are not made anew
        kept["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    code = (
        "import sys, time, numpyro; before = set(sys.modules); t = time.process_time(); import "
        "probml; t = time.process_time() - t;"
        "print(t, [m for m in ('pandas', 'pyarrow', 'sklearn', 'matplotlib') if m in "
        "set(sys.modules) - before])"
    )
    # seconds of processor; the first process compiles modules, one may have waited for the disk
    for left in (3, 2, 1, 0):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept,
                             check=True)
        seconds, heavy = run.stdout.split(" ", 1)
        assert heavy.strip() == "[]"
        if float(seconds) < 0.3:
            break
        assert left, f"{seconds} s of processor, four times"


LARGE = """
import warnings
import jax
import numpy as np
import probml
from probml.models import gaussian_mixture

warnings.simplefilter("ignore")
x = np.random.default_rng(0).normal(size=(1000, 40))
print(gaussian_mixture(10, 40).fit({"x": x}, probml.EM(max_iterations=10, tolerance=0.0)).iterations)
"""


def test_many_large_matrices_do_not_block_each_other():
    """Two batched LAPACK calls at once wait for each other for ever on two cores (jaxlib 0.10): see
    compiling.py."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True,
                          timeout=150)
    assert done.stdout.strip() == "10", done.stderr
