"""`make test-versions`: what reads JAX's programs and NumPyro's messages, and one engine, against the
oldest JAX and NumPyro that pyproject.toml allows, the locked ones and the newest it allows.

Each pair has an environment of its own under .cache/versions. The newest JAX may need a newer Python
than the oldest runs on: every Python on the way that the project supports is tried, newest first.

    python tests/versions.py [oldest] [locked] [newest]
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
FILES = ("jaxpr/test_levels.py", "jaxpr/test_exchange.py", "jaxpr/test_tapes.py",
         "structure/test_structure.py",
         "engines/test_exact.py", "numerics/test_programs.py")
PAIR = ("jax", "numpyro")
SHOW = ("import sys, jax, jaxlib, numpyro; print('Python', sys.version.split()[0], 'jax', "
        "jax.__version__, 'jaxlib', jaxlib.__version__, 'numpyro', numpyro.__version__)")


def wanted() -> dict[str, list[str]]:
    """Name → the requirements of its environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = [*project["dependencies"], *project["optional-dependencies"]["test"],
              *project["optional-dependencies"]["sklearn"]]
    ranges = {name: next(line for line in others if re.match(rf"{name}\b", line)) for name in PAIR}
    lock = (ROOT / "requirements.lock").read_text()
    pins = {
        "oldest": {name: re.search(r">=([\d.]+)", line)[1] for name, line in ranges.items()},
        "locked": {name: re.search(rf"^{name}==([\w.]+)", lock, re.M)[1] for name in PAIR},
        "newest": {},
    }
    return {
        which: [*others, *(f"{name}=={version}" for name, version in found.items()),
                *(f"jaxlib=={version}" for name, version in found.items() if name == "jax")]
        for which, found in pins.items()
    }


def pythons() -> list[str]:
    """The interpreters to be had, the one that runs this last."""
    found = (shutil.which(f"python3.{minor}") for minor in (14, 13, 12))
    return [*(python for python in found if python and runs(python)), sys.executable]


def runs(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0


def installed(which: str, requirements: list[str]) -> Path | None:
    """The Python of an environment with these, made if it is not there; None: it cannot be made."""
    home, stamp = HOME / which, "\n".join(requirements)
    done, python = home / "requirements.txt", home / "bin" / "python"
    if done.exists() and done.read_text() == stamp:
        return python
    for base in pythons() if which == "newest" else [sys.executable]:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([base, "-m", "venv", home], check=True)
        more = ["--upgrade"] if which == "newest" else []
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *more]
        if subprocess.run([*pip, *requirements], stderr=subprocess.DEVNULL).returncode == 0:
            done.write_text(stamp)
            return python
    return None


def main() -> int:
    chosen, failed = sys.argv[1:] or ["oldest", "locked", "newest"], []
    for which in chosen:
        print(f"{which}: installing ...", flush=True)
        python = installed(which, wanted()[which])
        if python is None:
            print(f"{which}: cannot be installed", flush=True)
            failed.append(which)
            continue
        environment = {**os.environ, "PYTHONPATH": str(ROOT),
                       "JAX_COMPILATION_CACHE_DIR": str(HOME / "jax")}
        subprocess.run([python, "-c", SHOW], env=environment, check=True)
        tests = [str(ROOT / "tests" / name) for name in FILES]
        pytest = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
        if subprocess.run(pytest, cwd=ROOT, env=environment).returncode:
            failed.append(which)
    print(f"failed with: {', '.join(failed)}" if failed else f"passed with: {', '.join(chosen)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
