"""`make dist`: a wheel and a source archive, and whether the wheel works where nothing else is: an
empty environment without extras, away from the checkout, of every Python that the project supports
and that is at hand.

Not named wheel.py: setuptools imports `wheel`, and a script's folder comes first."""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from setuptools import build_meta

from versions import PYTHONS, python_of

ROOT = Path(__file__).resolve().parent.parent
SMOKE = """
import numpy as np, numpyro, numpyro.distributions as dist, probml
from importlib.resources import files
from probml.models import read_bif

@probml.model
def coin():
    bias = numpyro.sample("bias", dist.Beta(1.0, 1.0))
    with probml.rows():
        numpyro.sample("toss", dist.Bernoulli(bias))

fit = coin().fit({"toss": np.array([1, 1, 0])})
assert abs(float(fit.posterior("bias").mean) - 0.6) < 1e-6
asia = read_bif(files("probml.data") / "asia.bif")
asia.save("asia.probml")
assert probml.load("asia.probml").predict({"smoke": ["yes"]}, "lung")[0] == "no"
asia.report("asia.html")
try:
    from probml.models import NaiveBayes
except ImportError as error:
    assert "probml[sklearn]" in str(error)
else:
    raise AssertionError("scikit-learn is here: the environment is not empty")
probml.show_versions()
"""


def main() -> None:
    os.chdir(ROOT)
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    wheel = dist / build_meta.build_wheel(str(dist))
    source = dist / build_meta.build_sdist(str(dist))
    check(wheel, source)
    tried = []
    for base in (sys.executable, *filter(None, map(python_of, PYTHONS))):
        tried.append(installed(base, wheel, source, packed=not tried))
    print(f"{wheel.name} and {source.name} work, without extras, on Python {', '.join(tried)}")


def installed(base: str, wheel: Path, source: Path, packed: bool) -> str:
    """The version of an interpreter in whose empty environment the wheel works.

    Args:
        packed: whether twine looks at both files, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([base, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        quiet = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        # else pip finds this checkout installed already
        run = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*quiet, str(wheel)], check=True, cwd=folder, env=run)
        subprocess.run([python, "-W", "error::RuntimeWarning", "-c", SMOKE], check=True, cwd=folder,
                       env=run)
        said = subprocess.run([str(Path(folder) / "bin" / "probml")], capture_output=True,
                              text=True, cwd=folder, env=run)
        assert "probml[cli]" in said.stderr, said.stderr
        if packed:  # last, so that nothing of it was there before; the index shows what it passes
            subprocess.run([*quiet, "twine"], check=True, cwd=folder, env=run)
            subprocess.run([python, "-m", "twine", "check", "--strict", str(wheel), str(source)],
                           check=True, cwd=folder, env=run)
        return subprocess.run([python, "-c", "import sys; print(sys.version.split()[0])"],
                              check=True, capture_output=True, text=True).stdout.strip()


def check(wheel: Path, source: Path) -> None:
    """Hold what is packed against the checkout: every module is there, and what a page needs."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    for top, place in (("probml", "probml"), ("models", "probml/models")):
        for path in sorted((ROOT / top).rglob("*.py")):
            inside = path.relative_to(ROOT / top).as_posix()
            if inside.split("/")[0] in ("models", "data"):  # links of a checkout
                continue
            assert f"{place}/{inside}" in packed, f"{place}/{inside} is not in the wheel"
    assert {"probml/py.typed", "probml/data/asia.bif"} <= packed
    text = next(name for name in packed if name.endswith(".dist-info/METADATA"))
    head = zipfile.ZipFile(wheel).read(text).decode()
    assert "Description-Content-Type: text/markdown" in head and "License-Expression" in head
    names = {name.partition("/")[2] for name in tarfile.open(source).getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "probml/__init__.py"} <= names


if __name__ == "__main__":
    main()
