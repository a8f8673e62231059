"""Every line of a shell that the pages show is run, on tables of the names that they have there."""

import re
import shlex
import warnings
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("click")
from click.testing import CliRunner  # noqa: E402

from probml.models.commandline.main import main  # noqa: E402

DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "how_to"
RANDOM = np.random.default_rng(0)
OWN = '''
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample
import probml

@probml.model
def model(k: int):
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("kinds", k):
        level = sample("level", dist.Normal(0.0, 5.0))
    with probml.rows():
        kind = sample("kind", dist.Categorical(weights))
        sample("pain", dist.Normal(level[kind], 1.0))
'''
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def lines(page: str) -> list[str]:
    """The commands of the page's blocks of bash, without what is said about them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("probml ")]


def run(line: str, codes: tuple[int, ...] = (0,)) -> None:
    words = shlex.split(line, comments=True)[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CliRunner().invoke(main, words)
    assert found.exit_code in codes, (line, found.output, found.exception)


def tables() -> dict[str, pd.DataFrame]:
    """Name of a file → the table that a line of the page means by it."""
    iris = pd.read_csv(files("probml.data") / "iris.csv")
    flowers, held_out = iris[::2], iris[1::2]
    patients = iris.drop(columns="Species").mask(RANDOM.random((150, 4)) < 0.1)
    pets = pd.DataFrame({"name": [f"pet {i}" for i in range(60)],
                         "born": pd.date_range("2020-01-01", periods=60).astype(str),
                         "kind": np.where(np.arange(60) % 3 == 0, "cat", "dog"),
                         "size": np.where(np.arange(60) % 3 + RANDOM.random(60) > 1, "big", "small")})
    days = np.arange(48)
    sales = pd.DataFrame({"sales": 20 + 3 * np.sin(days * np.pi / 6) + RANDOM.normal(size=48)})
    visits = pd.DataFrame({"day": days % 7, "pain": np.repeat([0.0, 4.0, 8.0], 16)
                           + RANDOM.normal(size=48)})
    x = RANDOM.normal(size=(40, 2))
    table = pd.DataFrame(x, columns=["a", "b"]).assign(y=x @ [1.0, -2.0] + RANDOM.normal(size=40))
    return {"flowers": flowers, "new": held_out.drop(columns="Species"), "held_out": held_out,
            "patients": patients, "pets": pets, "sales": sales, "visits": visits,
            "inputs": visits[["day"]], "table": table}


def test_the_lines_of_the_command_line_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, table in tables().items():
        table.to_csv(f"{name}.csv", index=False)
    Path("FILE.py").write_text(OWN)
    Path("asia.bif").write_text((files("probml.data") / "asia.bif").read_text())
    run("probml fit table.csv --model regression --target y -o a.probml")
    run("probml fit table.csv --model regression --target y --drop b -o b.probml")
    shown = lines("command_line.md")
    assert len(shown) > 10
    for line in shown:  # of a function with a setting; a check of few simulations may say no
        few = " --simulations 20" * (" check " in line)
        run(line + few + " --set k=3" * ("FILE.py" in line and "--set" not in line),
            (0, 1) if few else (0,))
    assert Path("report.html").exists() and not pd.read_parquet("filled.parquet").isna().any().any()


def test_the_lines_of_ten_minutes_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "ten_minutes.md").read_text(encoding="utf-8")
    Path("pets.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    Path("pets.csv").write_text(re.search(r"```text\n(age,kg.*?)```", text, re.DOTALL)[1])
    for line in lines("ten_minutes.md"):
        run(line + " --simulations 40" * (" check " in line))
    assert pd.read_csv("filled.csv")["kg"].round(1).tolist() == [3.1, 3.9, 5.2, 6.0, 6.8, 8.1, 8.7, 10.2]
    run("probml fit pets.csv --model regression --target kg -o zoo.probml")
