"""The tests of scikit-learn and hmmlearn, from their installed packages, run against our classes:
what fails is in the list of differences, each with its reason, and nothing in the list passes."""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
from differences import DIFFERENCES, OTHERS, VERSIONS

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.slow
SEEDS = {"SKLEARN_SEED": "0", "SKLEARN_TESTS_GLOBAL_RANDOM_SEED": "42", "HMMLEARN_SEED": "0"}


def run(module: str, folder: Path) -> dict[str, str]:
    """Test → how it ended: passed, skipped, or the message of what failed."""
    page = folder / "results.xml"
    environment = {**os.environ, **SEEDS, "JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))}
    environment.pop("PYTEST_XDIST_WORKER", None)
    words = ["-p", "swapped", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}",
             "-q", "--tb=line", "-W", "ignore", "-k", OTHERS.get(module, ""),
             f"--junitxml={page}", "--pyargs", module]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=folder, env=environment,
                          capture_output=True, text=True)
    assert page.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    found = {}
    for case in ElementTree.parse(page).getroot().iter("testcase"):
        owner = case.get("classname", "").removeprefix(module).rpartition(".")[2]
        name = "::".join(part for part in (owner, case.get("name")) if part)
        bad = next((case.find(kind) for kind in ("failure", "error")
                    if case.find(kind) is not None), None)
        found[name] = ("passed" if bad is None else bad.get("message", "failed"))
        if case.find("skipped") is not None:
            found[name] = "skipped"
    return found


@pytest.mark.parametrize("module", DIFFERENCES)
def test_what_fails_of_a_peers_suite_is_documented(module, tmp_path):
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    version = importlib.metadata.version({"sklearn": "scikit-learn"}.get(package, package))
    if not version.startswith(VERSIONS[package] + "."):
        pytest.skip(f"the differences are those of {package} {VERSIONS[package]}, not {version}")
    found = run(module, tmp_path)
    listed = Counter(name for names in DIFFERENCES[module].values() for name in names)
    assert max(listed.values(), default=0) <= 1, "a test has two reasons"
    # one name stands for all parameters of a test, where all of them differ
    bare = {name: re.sub(r"\[.*", "", name) for name in found}
    failed = {name for name, how in found.items() if how not in ("passed", "skipped")}
    new = {name: found[name][:200] for name in failed
           if name not in listed and bare[name] not in listed}
    assert not new, f"not documented: {new}"
    stale = {name for name in listed if not any(name in (each, bare[each]) for each in failed)}
    agree = {name for name, how in found.items() if how == "passed"
             and (name in listed or bare[name] in listed)}
    assert not stale and not agree, f"documented, but they pass or are gone: {stale | agree}"
