"""`probml.extend`: names and signatures are held, and what tests here add is made of them alone."""

import ast
import enum
import inspect
from pathlib import Path

import pytest

from probml import extend

HERE = Path(__file__).parent
NAMES = sorted(name for name in vars(extend) if not name.startswith("_"))
MINE = ("folder_source.py", "mean_latent.py", "test_metropolis.py", "test_variational_em.py", "von_mises.py")


def signature(name: str) -> str:
    """As it is written down: of a class what it is made of and its methods without underscore."""
    value = getattr(extend, name)
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return "\n    ".join([f"class {name}", *value.__members__])
    if inspect.isclass(value):
        own = [f"{method}{_arguments(member)}" for method, member in sorted(vars(value).items())
               if inspect.isfunction(member) and not method.startswith("_")]
        return f"class {name}{_arguments(value)}" + "".join(f"\n    {each}" for each in own)
    return f"{name}{_arguments(value)}" if callable(value) else name


def _arguments(value) -> str:
    try:
        return f"({', '.join(inspect.signature(value).parameters)})"
    except ValueError:
        return ""


def test_names_and_signatures_are_those_written_down():
    """A change here is a change for everybody who adds something: it wants a warning, and a line in
    CHANGELOG.md. `python tests/extensions/test_extend.py` writes them down anew."""
    written = (HERE / "extend.txt").read_text()
    assert written == "\n".join(map(signature, NAMES)) + "\n", (
        "if this is meant, run: python tests/extensions/test_extend.py")


def test_what_is_shipped_uses_the_names_of_these():
    """An engine that moves from a user's file into the library keeps its code; but for the three
    functions `register`, each named by its room, a name here is that of its room."""
    for node in ast.walk(ast.parse(Path(extend.__file__).read_text())):
        if isinstance(node, ast.ImportFrom):
            assert [alias.name for alias in node.names if alias.asname and alias.name != "register"
                    and not alias.asname.startswith("_")] == [], node.module


@pytest.mark.parametrize("file", MINE)
def test_what_is_added_is_made_of_these_names_alone(file):
    for node in ast.walk(ast.parse((HERE / file).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("probml"):
            assert node.module in ("probml.extend", "probml.models"), ast.unparse(node)


if __name__ == "__main__":
    (HERE / "extend.txt").write_text("\n".join(map(signature, NAMES)) + "\n")
