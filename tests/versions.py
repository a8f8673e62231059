"""`make test-versions`: what reads JAX's programs and NumPyro's messages, and one engine, against the
oldest JAX and NumPyro that pyproject.toml allows, the locked ones and the newest it allows; and the
locked ones under every other Python that the project supports and that is at hand.

Each has an environment of its own under .cache/versions. The newest JAX may need a newer Python than
the oldest runs on: every Python on the way that the project supports is tried, newest first.

    python tests/versions.py [oldest] [locked] [newest] [python3.12] [python3.13]
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "versions"
FILES = ("jaxpr", "numerics", "structure/test_structure.py", "dataset/test_indices.py",
         "dataset/test_order_of_labels.py", "engines/test_exact.py",
         "interface/test_functions.py", "interface/test_functions_inside.py",
         "interface/test_python_loops.py", "interface/test_scan_starts.py",
         "interface/test_summed_sites.py")
PAIR = ("jax", "numpyro")
PYTHONS = ("python3.12", "python3.13")
SHOW = ("import sys, jax, jaxlib, numpyro; print('Python', sys.version.split()[0], 'jax', "
        "jax.__version__, 'jaxlib', jaxlib.__version__, 'numpyro', numpyro.__version__)")


# primitives of several devices, of references, and others that are left without a rule on purpose
WITHOUT = ("after_all all_gather all_to_all axis_index create_token custom_lin empty2 get pmax pmin "
           "ppermute psum ragged_all_to_all random_gamma rng_bit_generator rng_uniform "
           "select_and_gather_add select_and_scatter select_and_scatter_add swap")
PRIMITIVES = f"""
from jax.extend.core import Primitive, primitives
from probml.jaxpr.primitives import TABLE
names = {{each.name.replace("-", "_") for each in vars(primitives).values()
          if isinstance(each, Primitive)}}
print("primitives without a rule:", ", ".join(sorted(names - {{*TABLE}} - {{*"{WITHOUT}".split()}}))
      or "none that is new")
"""


def wanted() -> dict[str, list[str]]:
    """Name → the requirements of its environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = [*project["dependencies"], *(requirement for extra in ("test", "sklearn", "data", "arviz")
                                          for requirement in project["optional-dependencies"][extra])]
    ranges = {name: next(line for line in others if re.match(rf"{name}\b", line)) for name in PAIR}
    lock = (ROOT / "requirements.lock").read_text()
    pins = {
        "oldest": {name: re.search(r">=([\d.]+)", line)[1] for name, line in ranges.items()},
        "locked": {name: re.search(rf"^{name}==([\w.]+)", lock, re.M)[1] for name in PAIR},
        "newest": {},
    }
    pins |= dict.fromkeys(PYTHONS, pins["locked"])
    return {
        which: [*others, *(f"{name}=={version}" for name, version in found.items()),
                *(f"jaxlib=={version}" for name, version in found.items() if name == "jax")]
        for which, found in pins.items()
    }


def pythons() -> list[str]:
    """The interpreters to be had, the one that runs this last."""
    found = (python_of(f"python3.{minor}") for minor in (14, 13, 12))
    return [*filter(None, found), sys.executable]


def python_of(name: str) -> str | None:
    """The interpreter of that name on the way, or among those of pyenv, that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"*/bin/{name}"), reverse=True))]
    return next((python for python in found if python and runs(python)), None)


def runs(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


def bases(which: str) -> list[str]:
    """The interpreters to try for an environment, the best first."""
    if which in PYTHONS:
        return [*filter(None, [python_of(which)])]
    return pythons() if which == "newest" else [sys.executable]


def installed(which: str, requirements: list[str]) -> Path | None:
    """The Python of an environment with these, made if it is not there; None: it cannot be made."""
    home, stamp = HOME / which, "\n".join(requirements)
    done, python = home / "requirements.txt", home / "bin" / "python"
    if done.exists() and done.read_text() == stamp:
        return python
    for base in bases(which):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([base, "-m", "venv", home], check=True)
        more = ["--upgrade"] if which == "newest" else []
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *more]
        if subprocess.run([*pip, *requirements], stderr=subprocess.DEVNULL).returncode == 0:
            # models/ is installed as probml.models, which no path alone finds
            subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
            done.write_text(stamp)
            return python
    return None


def main() -> int:
    chosen, failed = sys.argv[1:] or ["oldest", "locked", "newest", *PYTHONS], []
    for which in chosen:
        if not bases(which):
            print(f"{which}: not at hand", flush=True)
            continue
        print(f"{which}: installing ...", flush=True)
        python = installed(which, wanted()[which])
        if python is None:
            print(f"{which}: cannot be installed", flush=True)
            failed.append(which)
            continue
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(HOME / "jax")}
        for said in (SHOW, PRIMITIVES):
            subprocess.run([python, "-c", said], env=environment, check=True)
        tests = [str(ROOT / "tests" / name) for name in FILES]
        pytest = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
        if subprocess.run(pytest, cwd=ROOT, env=environment).returncode:
            failed.append(which)
    print(f"failed with: {', '.join(failed)}" if failed else f"passed with: {', '.join(chosen)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
