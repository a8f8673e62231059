"""What every test stands on: float64, a compilation cache that outlives the run, and the shared
reference data."""

import contextlib
import gc
import os
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Through the environment, before JAX is imported: kernels and command lines that a test starts
# share the cache: the smallest program takes twice as long to compile as to read, and two workers
# ask for the same ones.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# of what tests jit themselves, and of what jnp does at once; programs of ours say their level and
# leave out the emitters (numerics/compiling.py), of which JAX 0.11 has no switch. In one piece
# a program takes a fifth less to compile than in pieces for several threads, which the workers have no cores
# for, and half the mappings
FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
# else a program tells of a hundred frames of pytest's where each of its operations was asked for
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "1")

import float32  # noqa: E402
from long_tests import long_tests  # noqa: E402
from one_in import checksum, left_out  # noqa: E402

TIMES = os.environ.get("TEST_TIMES")  # where to write how long every test takes
TENTH = os.environ.get("SLOW_TENTH")  # 0 … 9: only that tenth of the tests (make slow)
ENDS = time.monotonic() + float(os.environ.get("SLOW_SECONDS") or "inf")  # later ones are skipped


def pytest_configure(config):
    """JAX and all of ours are imported where tests run, and not where they are only dealt out: the
    workers are waiting for that process. Findings are read from the fit, where a test wants them."""
    config.addinivalue_line("filterwarnings", "ignore::probml.errors.ReliabilityWarning")
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        # its first import of a day warns and writes a file, and fails in one of two workers that do
        # so at once
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import arviz  # noqa: F401
        return
    import jax

    # In this process only: what a test starts chooses its own precision. JAX_ENABLE_X64=0 asks how
    # the tests do in float32 (float32.py).
    if "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)
    elif not jax.config.jax_enable_x64:
        float32.accept_its_digits()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The reference data beside the checkout (../shared/data); the test is skipped where they are
    absent."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the reference data are not there: {path}")
    return path


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
    """After a module, let go of compiled programs before the process runs out of memory mappings,
    of which a program holds several, and is killed; and before probml lets go of programs by
    itself, amid a test that counts them."""
    yield
    import jax

    from probml.numerics.kept import programs

    programs.MAX_GROWTH = 2**63  # programs that tests count stay amid a module
    if programs.mappings() > programs.MAX_MAPPINGS // 2:
        jax.clear_caches()
        programs.trim()


@pytest.fixture(autouse=True)
def close_figures():
    """pyplot keeps every figure until it is told, and warns from the twentieth on."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def pytest_collection_modifyitems(config, items):
    """The longest tests first, so that no worker is left with them at the end: what a newcomer types,
    and the slices of a minute, all of which one of two workers is given, one after the other. What
    takes long to compile is slow. Of a long list of slow cases a part is run (one_in.py)."""
    left = set() if TIMES else long_tests()
    for item in items:
        if item.nodeid in left:
            item.add_marker(pytest.mark.slow)
        if os.environ.get("JAX_ENABLE_X64") == "0" and (why := float32.reason_to_need_double(item.nodeid)):
            item.add_marker(pytest.mark.skip(reason=why))
    if TENTH:
        items[:] = [item for item in items if checksum(item) % 10 == int(TENTH)]
    elif not (config.option.keyword or any("::" in argument for argument in config.args)):
        beyond = left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in beyond])
        items[:] = [item for item in items if item.nodeid not in beyond]
    items.sort(key=lambda item: ("test_readme" not in item.nodeid, "test_minutes" not in item.nodeid))


def pytest_runtest_setup():
    if time.monotonic() > ENDS:
        pytest.skip("no seconds are left")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What is imported and collected stays: the collector of cycles need not look at it again and
    again, which took a fifteenth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_runtest_logreport(report):
    """For `make times`; with several workers the one that gathers their reports writes."""
    if TIMES and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(TIMES, "a") as file:
            file.write(f"{report.duration:.2f}\t{report.nodeid}\n")
