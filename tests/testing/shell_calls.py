"""The command line misused: each word of a good command in turn replaced by what it should not be, files by those that
people have.

A command answers, or ends in one line of words of ours and a code that is not 0; a file that was there before it
failed is there whole.
"""

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from click.testing import CliRunner
from random_models.misuse import Fault, find_fault

from probml.models.commandline.main import main

OWN = '''
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample
import probml

@probml.model
def line(a, scale: float = 10.0):
    slope = sample("slope", dist.Normal(0.0, scale))
    with probml.rows():
        sample("b", dist.Normal(slope * a, 1.0))

@probml.model
def grouped(g, k: int = 2):
    with plate("group", k):
        mean = sample("mean", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("a", dist.Normal(mean[g], 1.0))

@probml.model
def moods():
    with plate("mood", 2):
        level = sample("level", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        sample("a", dist.Normal(level[z], 1.0).to_event(1))

number = 3
'''
RANDOM = np.random.default_rng(0)
ROWS = 24
A = RANDOM.normal(size=ROWS) + np.where(np.arange(ROWS) % 2, 4.0, 0.0)
GOOD = pd.DataFrame({"a": A.round(3), "b": (2 * A + RANDOM.normal(size=ROWS)).round(3),
                     "g": np.array(["no", "yes"])[np.arange(ROWS) % 2]})
NUMBERS = GOOD[["a", "b"]]
# what a good command has: @name is a file of the folder
COMMANDS: dict[str, tuple[str, ...]] = {
    "fit naive_bayes": ("fit", "@good.csv", "-m", "naive_bayes", "--target", "g", "-o", "@out.probml"),
    "fit mixture": ("fit", "@good.csv", "-m", "mixture", "--components", "2", "-o", "@out.probml"),
    "fit network": ("fit", "@good.csv", "-m", "network", "-o", "@out.probml"),
    "fit hmm": ("fit", "@numbers.csv", "-m", "hmm", "--states", "2", "-o", "@out.probml"),
    "fit series": ("fit", "@numbers.csv", "-m", "series", "--target", "a", "-o", "@out.probml"),
    "fit regression": ("fit", "@numbers.csv", "-m", "regression", "--target", "b", "-o", "@out.probml"),
    "fit classes": ("fit", "@good.csv", "-m", "regression", "--target", "g", "-o", "@out.probml"),
    "fit line": ("fit", "@good.csv", "-m", "@mine.py:line", "-o", "@out.probml"),
    "fit grouped": ("fit", "@good.csv", "-m", "@mine.py:grouped", "-o", "@out.probml"),
    "fit moods": ("fit", "@good.csv", "-m", "@mine.py:moods", "-o", "@out.probml"),
    "predict": ("predict", "@bayes.probml", "@good.csv", "--proba", "-o", "@out.csv"),
    "predict of a mixture": ("predict", "@mixture.probml", "@good.csv", "--proba", "-o", "@out.csv"),
    "predict of a line": ("predict", "@line.probml", "@numbers.csv", "-m", "@mine.py:line", "--site", "b", "-o",
                          "@out.csv"),
    "impute": ("impute", "@mixture.probml", "@good.csv", "-o", "@out.csv"),
    "impute of a line": ("impute", "@line.probml", "@numbers.csv", "-m", "@mine.py:line", "-o", "@out.parquet"),
    "simulate": ("simulate", "@line.probml", "-m", "@mine.py:line", "--data", "@numbers.csv", "-o", "@out.csv"),
    "forecast": ("forecast", "@hmm.probml", "@numbers.csv", "-n", "2", "-o", "@out.csv"),
    "forecast of moods": ("forecast", "@moods.probml", "@good.csv", "-m", "@mine.py:moods", "--by", "g", "-n", "2"),
    "score": ("score", "@mixture.probml", "@good.csv"),
    "score of a target": ("score", "@bayes.probml", "@good.csv", "--target", "g", "--json"),
    "score of grouped": ("score", "@grouped.probml", "@good.csv", "-m", "@mine.py:grouped", "--unknown", "new"),
    "compare": ("compare", "@good.csv", "@line.probml", "-m", "@mine.py:line", "--target", "b", "--folds", "2"),
    "explain": ("explain", "@line.probml", "-m", "@mine.py:line"),
    "explain data": ("explain", "-m", "@mine.py:line", "--data", "@good.csv"),
    "check": ("check", "@mine.py:line", "--data", "@numbers.csv", "--simulations", "20"),
    "report": ("report", "@bayes.probml", "--data", "@good.csv", "--target", "g", "-o", "@out.html"),
    "convert": ("convert", "@good.csv", "@out.parquet"),
}  # fmt: skip
# what a word that is no file should not be
WORDS = ("", " ", "nothing", "-1", "0", "1e400", "nan", "9" * 30, "a=b=c", "=", "a,b", ",", "/", ".", "[", "EM(",
         "ä\n", "{}", "1-", "2-1000000", "\udcff", "@mine.py:number", "@mine.py:nothing", "@good.csv:line", "--", "a",
         "SVI(steps=-1)", "NUTS(draws='x')", "MAP(10)", "@nowhere/out.csv", "@folder.csv", "@out.nothing", "/dev/full",
         "@mine.py")  # fmt: skip


def _text(text: str, encoding: str = "utf-8") -> Callable[[Path], None]:
    return lambda path: path.write_bytes(text.encode(encoding))


def _csv(table: Callable[[], pd.DataFrame] | pd.DataFrame, **more: Any) -> Callable[[Path], None]:
    return lambda path: (table() if callable(table) else table).to_csv(path, index=False, **more)


def _cells(**columns: Any) -> Callable[[Path], None]:
    """A good table in which some columns are others."""
    return lambda path: GOOD.assign(**columns).to_csv(path, index=False)


def _parquet(table: pd.DataFrame) -> Callable[[Path], None]:
    return lambda path: table.to_parquet(path)


def _lines(change: Callable[[int, str], str]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lines = GOOD.to_csv(index=False).splitlines()
        path.write_text("\n".join(change(i, line) for i, line in enumerate(lines)) + "\n")
    return write


def _wide(path: Path) -> None:
    wide = np.resize(A.round(2), (6, 100_000))
    names = ["a", "b", "g", *(f"c{i}" for i in range(100_000 - 3))]
    path.write_text(",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in wide))


MONTHS = pd.date_range("2020-01-31", periods=ROWS, freq="D", tz="Europe/Berlin")
FILES: dict[str, Callable[[Path], None]] = {
    "empty.csv": _text(""), "blank.csv": _text("\n\n \n"), "header.csv": _text("a,b,g\n"), "one.csv": _text("a\n1\n"),
    "one row.csv": _text("a,b,g\n1,2,no\n"), "nul.csv": _text("a,b,g\n1,\0,no\n"),
    "bytes.csv": lambda path: path.write_bytes(bytes(range(256)) * 20),
    "bom.csv": _csv(GOOD, encoding="utf-8-sig"), "utf-16.csv": _csv(GOOD, encoding="utf-16"),
    "latin.csv": lambda path: GOOD.assign(g="n\xf6").to_csv(path, index=False, encoding="latin-1"),
    "semicolons.csv": _csv(GOOD, sep=";"), "tabs.csv": _csv(GOOD, sep="\t"), "commas.tsv": _csv(GOOD),
    "decimal commas.csv": _csv(GOOD, sep=";", decimal=","), "spaces.csv": _csv(GOOD, sep=" "),
    "quoted decimals.csv": _cells(a=[f"{v:.2f}".replace(".", ",") for v in A]),
    "thousands.csv": _cells(b=[f"{1000 * v:,.1f}" for v in A]), "euros.csv": _cells(b=[f"{v:.2f} €" for v in A]),
    "twice.csv": _lines(lambda i, line: line if i else "a,a,g"), "no header.csv": _csv(GOOD, header=False),
    "numbered.csv": _csv(NUMBERS, header=["0", "1"]), "blank names.csv": _lines(lambda i, line: line if i else ",,"),
    "spaced names.csv": _lines(lambda i, line: line if i else " a, b , g"), "odd names.csv": _csv(GOOD.rename(
        columns={"a": "a\nb", "b": "b,\"x\"", "g": "ä" * 300})), "upper.csv": _csv(GOOD.rename(columns=str.upper)),
    "trailing.csv": _lines(lambda i, line: line + "," if i else line),
    "row names.csv": _lines(lambda i, line: f"{i},{line}" if i else line),
    "longer.csv": _lines(lambda i, line: line + ",7" if i == 9 else line),
    "shorter.csv": _lines(lambda i, line: line.rpartition(",")[0] if i == 9 else line),
    "unclosed.csv": _lines(lambda i, line: '"' + line if i == 9 else line), "wide.csv": _wide,
    "a word.csv": _cells(a=["?", *A[1:].round(2)]), "none.csv": _cells(g=np.where(A > 2, "None", "some")),
    "unseen.csv": _cells(a=np.nan, b=np.nan, g=None), "unseen a.csv": _cells(a=np.nan), "unseen g.csv": _cells(g=None),
    "constant.csv": _cells(a=1.0), "all constant.csv": _cells(a=1.0, b=2.0, g="no"), "holes.csv": _csv(GOOD.mask(
        RANDOM.random(GOOD.shape) < 0.3)), "inf.csv": _cells(a=np.where(A > 5, np.inf, A)), "huge.csv": _cells(a=A * 1e307),
    "tiny.csv": _cells(a=A * 1e-320), "integers.csv": _cells(a=[10**30 + i for i in range(ROWS)]), "far.csv": _cells(
        a=A + 1e12), "booleans.csv": _cells(a=A > 2, g=A > 3), "complex.csv": _cells(a=A + 1j),
    "dates.csv": _cells(a=MONTHS), "days.csv": _cells(g=MONTHS.strftime("%Y-%m-%d")), "names.csv": _cells(g=[
        f"n {i}" for i in range(ROWS)]), "a class of one.csv": _cells(g=["rare", *["no"] * (ROWS - 1)]),
    "numbers as labels.csv": _cells(g=np.arange(ROWS) % 3 + 10), "halves as labels.csv": _cells(g=np.arange(ROWS) % 3 / 2),
    "text and numbers.csv": _cells(g=np.where(np.arange(ROWS) % 2, "no", "1")), "new labels.csv": _cells(g="new"),
    "long ids.csv": _cells(g=2**60 + np.arange(ROWS) % 2), "negative.csv": _cells(a=-np.abs(A), b=-1),
    "a column.csv": _csv(GOOD[["a"]]), "no g.csv": _csv(NUMBERS), "further.csv": _cells(more="word", z=1, slope=2.0, level=3),
    "rows of one.csv": _csv(pd.concat([GOOD.iloc[:1]] * 9)), "parquet.csv": lambda path: GOOD.to_parquet(path),
    "csv.parquet": _csv(GOOD), "csv.feather": _csv(GOOD), "empty.parquet": _text(""), "good.txt": _csv(GOOD),
    "folder.csv": lambda path: path.mkdir(), "folder.parquet": lambda path: path.mkdir(), "none": lambda path: None,
    "link.csv": lambda path: path.symlink_to(path.parent / "nowhere.csv"), "fit.csv": lambda path: path.write_bytes(
        (path.parent / "mixture.probml").read_bytes()),
    "no rows.parquet": _parquet(GOOD.iloc[:0]), "no columns.parquet": _parquet(GOOD[[]]), "index.parquet": _parquet(
        GOOD.set_index("a")), "two indices.parquet": _parquet(GOOD.set_index(["a", "g"])),
    "lists.parquet": _parquet(GOOD.assign(a=[[1.0, 2.0]] * ROWS)), "structs.parquet": _parquet(GOOD.assign(a=[{"x": 1}] * ROWS)),
    "null.parquet": _parquet(GOOD.assign(a=None)), "dates.parquet": _parquet(GOOD.assign(a=MONTHS)),
    "days.parquet": _parquet(GOOD.assign(g=MONTHS.date)), "spans.parquet": _parquet(GOOD.assign(a=MONTHS - MONTHS[0])),
    "bytes.parquet": _parquet(GOOD.assign(g=[b"\xff\xfe"] * ROWS)), "categories.parquet": _parquet(GOOD.assign(
        g=GOOD["g"].astype(pd.CategoricalDtype(["unused", "yes", "no"])))), "nullable.parquet": _parquet(GOOD.assign(
            a=pd.array([None, *range(ROWS - 1)], "Int64"), g=pd.array([None, *([True, False] * ROWS)[1:ROWS]], "boolean"))),
    "periods.parquet": _parquet(GOOD.assign(a=MONTHS.tz_localize(None).to_period("D"))),
}  # fmt: skip


@functools.cache
def folder() -> Path:
    """Where good files, fits and odd files lie."""
    import tempfile

    place = Path(tempfile.mkdtemp(prefix="shell"))
    GOOD.to_csv(place / "good.csv", index=False)
    NUMBERS.to_csv(place / "numbers.csv", index=False)
    (place / "mine.py").write_text(OWN)
    for name, command in (("bayes", "naive_bayes"), ("mixture", "mixture"), ("hmm", "hmm"), ("line", "line"),
                          ("grouped", "grouped"), ("moods", "moods")):
        found = _run(place, tuple(f"@{name}.probml" if word == "@out.probml" else word
                                  for word in COMMANDS[f"fit {command}"]))
        assert found.exit_code == 0, found.output
    for name, write in FILES.items():
        write(place / name)
    return place


@functools.cache
def kept() -> dict[str, bytes]:
    """The files that no command may change."""
    return {path.name: path.read_bytes() for path in folder().iterdir()
            if path.is_file() and path.name in ("good.csv", "numbers.csv", "mine.py", "line.probml")}


BEFORE = {".probml": b"PK before", ".html": b"<!DOCTYPE before"}


def _run(place: Path, words: tuple[str, ...]) -> Any:
    with contextlib.chdir(place):  # where a word that is the name of a file writes it
        return CliRunner().invoke(main, [str(place / word[1:]) if word.startswith("@") else word for word in words])


@contextlib.contextmanager
def _raising() -> Iterator[None]:
    """Errors come as they are, so that it is known whose they are."""
    os.environ["PROBML_TRACEBACK"] = "1"
    try:
        yield
    finally:
        del os.environ["PROBML_TRACEBACK"]


def asked(words: tuple[str, ...]) -> Any:
    """What a command answers; its errors as they are.

    Raises:
        AssertionError: the end of a command is not one line and a code, or what it was to replace is gone.
    """
    place = folder()
    outs = [place / word[1:] for word in words if word.startswith("@out.")]
    before = {out: BEFORE.get(out.suffix, b"before") for out in outs}
    for out, written in before.items():
        out.write_bytes(written)
    with _raising():
        found = _run(place, words)
    failed = found.exit_code != 0
    told = [line for line in found.stderr.splitlines() if not line.startswith("probml: warning: ")]
    for line in found.stderr.splitlines():
        if line.startswith("probml: warning: "):
            warnings.warn(line, RuntimeWarning, stacklevel=1)
    whole = all(out.is_file() and out.read_bytes() == written for out, written in before.items())
    lost = [name for name, held in kept().items() if (place / name).read_bytes() != held]
    for name in lost:
        (place / name).write_bytes(kept()[name])
    if lost:
        raise AssertionError(f"it wrote over {lost}")
    left = [path.name for path in place.iterdir() if path.name.startswith(".")]
    for path in left:
        (place / path).unlink()
    if left:
        raise AssertionError(f"it left {left}")
    if failed and not whole:
        raise AssertionError(f"it failed, and what it was to replace is gone ({found.exception!r})")
    if isinstance(found.exception, SystemExit) and failed and words[0] != "check" and (
            len(told) != 1 or not told[0].startswith("probml: ")):
        raise AssertionError(f"{len(told)} lines: {told[:3]}")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    tables = [pd.read_csv(out) for out in outs if not failed and out.suffix == ".csv"]
    return {name: column.to_numpy() for table in tables for name, column in table.items()
            if column.dtype.kind == "f"}


SLOW = ("wide.csv",)  # tried where it is asked for


def misused(name: str, share: float = 1.0, seed: int = 0, part: str = "") -> Iterator[Fault | None]:
    """Of each way in which a word of a command is another, its fault, or None."""
    words, random = COMMANDS[name], np.random.default_rng([seed, *name.encode()])
    for place in range(1, len(words)):
        if words[place].startswith("-"):
            continue
        file = words[place].startswith("@") and not words[place].startswith("@out") and ".py" not in words[place]
        for value in ([f"@{each}" for each in FILES] if file else []) + [*WORDS]:
            if random.random() >= share or part not in value or value[1:] in SLOW and value[1:] != part:
                continue
            what = find_fault(asked, (*words[:place], value, *words[place + 1:]))
            yield None if what is None else Fault(name, words[place], repr(value), what)


if __name__ == "__main__":
    import argparse
    import sys

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names of commands")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", default="", help="part of what is given")
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    tried, faults = 0, 0
    for command in COMMANDS:
        if any(part in command for part in said.parts):
            for fault in misused(command, said.share, said.seed, said.where):
                tried += 1
                faults += fault is not None
                if fault is not None:
                    print(fault, flush=True)
            print(f"# {command}: {tried} so far", flush=True)
    print(f"# {tried} tried, {faults} faults")
    sys.exit(faults > 0)
