"""The house: rooms in one tower, arrows down, also inside functions; JAX's internals in two rooms, its
private parts in one file; files that are read at one sitting."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from numpyro import distributions

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (  # from the ground up: a room knows those below it
    "errors", "typing", "jaxpr", "numerics", "elimination", "language", "families", "structure", "latents",
    "plan",
    "dataset", "device", "factors", "evidence",
    "updates", "posteriors", "engines", "queries", "fits", "assessment", "interface", "comparison",
    "estimators",
)  # fmt: skip
ZOO = (
    "frames", "summaries", "latent_factors", "bayesian_networks", "experts", "kernels", "mixtures", "regression",
    "chains", "classifiers", "mixed_models",
    "neural_networks", "hypotheses", "trees", "pictures", "commandline",
)  # fmt: skip
DOORS = {  # imports inside functions, each for what few runs ask while all pay for `import probml`
    ("probml", "probml.comparison.compare"),
}
INTERNALS = {"jax._src", "jax.extend", "jax.interpreters", "jaxlib"}
KNOWING = {"jaxpr", "numerics"}
LONGEST = 500  # lines of a file


def modules() -> dict[str, Path]:
    found = {}
    for top, package in ((ROOT / "probml", "probml"), (ROOT / "models", "probml.models")):
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(top).with_suffix("").parts
            if parts[0] not in ("models", "data"):
                found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


MODULES = modules()


@functools.cache
def read(path: Path) -> tuple[list, str | None]:
    """(module, names, whether inside a function) of every import, those for annotations alone too;
    and the docstring. A file is read once for all that is asked of it."""
    tree, found = ast.parse(path.read_text()), []

    def look(node, late):
        if isinstance(node, ast.ImportFrom):
            found.append((node.module or "", [alias.name for alias in node.names], late))
        elif isinstance(node, ast.Import):
            found.extend((alias.name, [], late) for alias in node.names)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case | ast.Module):
            inside = late or isinstance(node, ast.FunctionDef)  # no expression holds an import
            for inner in ast.iter_child_nodes(node):
                look(inner, inside)

    look(tree, False)
    return found, ast.get_docstring(tree)


def imports(path: Path) -> list:
    return read(path)[0]


def room(name: str) -> str:
    """The room of a module: of the zoo by its folder there."""
    parts = name.split(".")
    return (parts[2] if parts[1:2] == ["models"] and len(parts) > 2 else parts[1] if len(parts) > 1
            else "")


def reached(module: str, names: list[str]):
    """The modules of ours that an import reads: a module, or those of its names that are
    modules."""
    inner = [f"{module}.{name}" for name in names if f"{module}.{name}" in MODULES]
    yield from inner
    if module in MODULES and (len(inner) < len(names) or not names):
        yield module


def test_every_folder_is_a_floor():
    ours = {room(name) for name, path in MODULES.items() if path.parent != ROOT / "probml"
            and not name.startswith("probml.models")}
    assert ours == {*FLOORS} - {"errors", "typing"}
    assert {room(name) for name in MODULES if name.startswith("probml.models.")} == {*ZOO}


def test_every_folder_is_packed():
    """One that pyproject.toml does not name works in a checkout, and is absent from a wheel."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert {*named} - {"probml.data"} == folders


def test_the_types_of_every_file_are_checked():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert not any(entry.get("ignore_errors") for entry in [tool, *tool["overrides"]])


@pytest.mark.parametrize("name", MODULES)
def test_arrows_point_down(name):
    here = room(name)
    for module, names, _ in imports(MODULES[name]):
        for target in reached(module, names):
            there = room(target)
            if (there == here or target in ("probml", "probml.models")
                or here in ("", "models", "extend")):
                continue
            if name.startswith("probml.models."):
                inside = target.startswith("probml.models.")
                assert there in (ZOO[: ZOO.index(here)] if inside
                                 else FLOORS), f"{name} imports {target}, which stands above it"
            else:
                assert there in FLOORS[: FLOORS.index(here)] or (name, target) in DOORS, (
                    f"{name} imports {target}, which stands above it"
                )


@pytest.mark.parametrize("name", MODULES)
def test_a_file_keeps_to_the_manners_of_the_house(name):
    path = MODULES[name]
    for module, names, late in imports(path):
        if module.split(".")[0] == "probml":
            door = any((name, target) in DOORS for target in reached(module, names))
            assert door or not late, f"{path.name} imports {module} in a function"
            assert not [n for n in names
                        if n.startswith("_")], f"{path.name} takes private names of {module}"
        if any(module == inner or module.startswith(inner + ".") for inner in INTERNALS):
            assert room(name) in KNOWING, (f"{path.name} reads {module}: only {KNOWING} know JAX's "
                                           f"internals")
        if module.startswith("jax._src"):
            assert name == "probml.jaxpr.compat", f"{path.name} reads {module} itself"
    assert len(path.read_text().splitlines()) <= LONGEST
    assert read(path)[1], (
        f"{path.name} does not say what it is for"
    )


def test_files_that_docstrings_name_are_there():
    """A reader who follows "factors/effects.py" is to find it."""
    there = ["/" + path.relative_to(ROOT).as_posix()
             for path in (*MODULES.values(), *(ROOT / "tests").rglob("*.py"))]
    for path in MODULES.values():
        for named in re.findall(r"(?<![\w.:/])[a-z_]+(?:/[a-z_]+)*\.py(?=[\s),;.\]])",
                                read(path)[1] or ""):
            assert any(each.endswith("/" + named) for each in there), (
                f"{path.relative_to(ROOT)} sends its reader to {named}, which is not there")


PROSE = re.compile(r'"{3}.*?"{3}|#[^\n]*', re.DOTALL)  # docstrings and comments
CLASS = re.compile(r"^class (\w+)(?:\(([^)]*)\))?:(.*?)(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
DEFINED = re.compile(r"(?:\bdef |\bclass |^ *|\bself\.)(\w+)(?= *[:=(,])", re.MULTILINE)
MENTIONED = re.compile(r"(?<![\w./({'\"])([A-Za-z_]\w{2,})\.([A-Za-z_]\w+)")


def test_names_that_comments_and_docstrings_mention_are_there():
    """A reader who searches for "Form.copied_posterior" or "decide.make" is to find it. Of a class
    its members, of a folder its files, of a file what it names; parsing would cost five seconds."""
    known, classes, prose = {}, {}, {}
    for path in MODULES.values():
        text = path.read_text()
        code, prose[path] = PROSE.sub("", text), PROSE.findall(text)
        own = path.parent if path.stem == "__init__" else path
        known.setdefault(own.stem, set()).update(DEFINED.findall(code), *(
            names for _, names, _ in imports(path)))
        known.setdefault(own.parent.name, set()).add(own.stem)
        for name, bases, body in CLASS.findall(code):
            inner = classes.setdefault(name, (set(), set()))
            inner[0].update(DEFINED.findall(body))
            inner[1].update(re.findall(r"\w+", bases))

    def members(name: str) -> set[str]:
        own, bases = classes.get(name, (set(), set()))
        return own.union(dir(getattr(distributions, name, object)), *map(members, bases - {name}))

    of_values = set().union(*(own for own, _ in classes.values()), ("csv", "npz", "py"))
    lost = [f"{path.relative_to(ROOT)}: {name}.{inner}" for path, texts in prose.items()
            for text in texts for name, inner in MENTIONED.findall(re.sub(r">>>.*", "", text))
            if name in {**classes, **known} and inner not in (
                members(name) if name in classes else known[name] | of_values)]
    assert lost == [], "comments and docstrings mention what is not there"


def test_no_room_bears_the_name_of_a_public_function():
    """A module that is imported becomes an attribute of its package, and would take the function's
    place."""
    import probml

    assert all(callable(getattr(probml, name)) for name in ("rows", "model", "load", "compare",
                                                            "calibration", "decide", "stationary"))
    assert not {*FLOORS} & {"rows", "model", "load", "compare", "calibration", "decide",
                            "stationary"}


FIT = """
import jax, numpy as np, numpyro, numpyro.distributions as dist, sys
before = {*sys.modules}
import probml

@probml.model
def line(x):
    slope, sd = numpyro.sample("slope", dist.Normal(0, 1)), numpyro.sample("sd", dist.HalfNormal(1))
    with probml.rows():
        numpyro.sample("y", dist.StudentT(4.0, slope * x, sd))

rows = {"x": np.arange(9.0), "y": np.arange(9.0) + [0, 1, 0, -1, 0, 1, -1, 0, 0]}
for engine in (probml.MAP(), None):
    line().fit(rows, engine).params
print({*map(str.strip, sys.argv[1].split(","))} & {*sys.modules} - before)
"""


def test_a_fit_of_arrays_loads_nothing_heavy():
    heavy = "scipy.optimize, pandas, networkx, sklearn, arviz, matplotlib, pyarrow, narwhals"
    found = subprocess.run([sys.executable, "-c", FIT, heavy], capture_output=True, text=True,
                           check=True)
    assert found.stdout.strip() == "set()"


def test_importing_loads_nothing_heavy_and_changes_nothing_that_a_process_has_one_of():
    """Each costs 0.1 to 0.7 s, which every script and every process would pay."""
    heavy = ("scipy.stats", "scipy.optimize", "pandas", "sklearn", "arviz", "matplotlib", "pyarrow")
    code = (f"import sys, jax, numpyro; jax.devices(); sys.path.append({str(ROOT / 'tests' / 'faults')!r});"
            f"import global_state as own; before = own.state(); import probml;"
            f"print(own.differences(before, own.state()), set({heavy}) & set(sys.modules))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] set()"
