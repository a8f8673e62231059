"""What a process has one of: whether something changes it. `python tests/faults/global_state.py`, in a process of its
own, prints what the import of probml, then of its zoo, then fits of each engine and of estimators, changed of it; nothing,
as it should be."""

import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings

import numpy as np


def state() -> dict[str, str]:
    """Name → value, as text."""
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from numpyro.distributions import Distribution
    from threadpoolctl import threadpool_info

    numbers = np.random.get_state()
    held = {
        "filters of warnings": warnings.filters, "showwarning": warnings.showwarning, "numpy's errors": np.geterr(),
        "numpy's printing": np.get_printoptions(), "numpy's numbers": (numbers[1].tobytes(), numbers[2:]),
        "random": random.getstate(), "locale": locale.setlocale(locale.LC_ALL),
        "signals": [(one, signal.getsignal(one)) for one in sorted(signal.valid_signals())],
        "folder": os.getcwd(), "path": sys.path, "excepthook": sys.excepthook, "unraisablehook": sys.unraisablehook,
        "displayhook": sys.displayhook, "recursion": sys.getrecursionlimit(), "trace": sys.gettrace(),
        "digits": sys.get_int_max_str_digits(), "gc": (gc.get_threshold(), gc.isenabled()),
        "timer": signal.getitimer(signal.ITIMER_REAL), "root logger": (logging.root.level, logging.root.handlers),
        "threads of ours": [one.name for one in threading.enumerate() if "probml" in one.name],
        "threads of linear algebra": {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"},
        "numpyro's checks": Distribution._validate_args, "jax's options of XLA": id(compiler.get_compile_options),
        "jax's lowerings": sorted(map(id, mlir._platform_specific_lowerings["cpu"].values())),
    }  # fmt: skip
    if hasattr(os, "umask"):
        held["umask"] = os.umask(0o22)
        os.umask(held["umask"])
    return ({name: repr(value) for name, value in held.items()}
            | {f"jax's {name}": repr(value) for name, value in jax.config.values.items()}
            | {f"environment: {name}": value for name, value in os.environ.items()})


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [f"{name}: {before.get(name, 'nothing')[:200]} became {after.get(name, 'nothing')[:200]}"
            for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def fits() -> None:
    """Of each engine, and of estimators; with answers."""
    from faults import ENGINES, X, clusters
    from probml import Exact, models

    for engine in ENGINES.values():
        fit = clusters().fit({"x": X}, engine)
        fit.predict_proba({"x": X}), fit.summary(), fit.simulate(3), fit.draws(2) if fit.belief.varies else None
    models.ridge().fit({"x": X, "y": X[:, 0]}, Exact()).log_prob({"x": X, "y": X[:, 0]})
    models.GaussianMixture(2).fit(X).predict(X)
    models.LogisticRegression().fit(X, X[:, 0] > 2).predict(X)


def main() -> int:
    import jax
    import numpyro  # noqa: F401
    import sklearn  # noqa: F401 - its own import sets words of the environment

    jax.devices()
    found, last = [], state()
    for what, work in (("import probml", lambda: __import__("probml")),
                       ("import probml.models", lambda: __import__("probml.models")), ("fits", fits)):
        with warnings.catch_warnings():
            if what == "fits":
                warnings.simplefilter("ignore")
            work()
        now = state()
        found += [f"{what}: {words}" for words in differences(last, now)]
        last = now
    print(*found, sep="\n", end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
