"""The verbs of the command line. What goes wrong is one line on standard error and an exit code: 1
a check that did not pass, 2 a command that is not understood, 3 data, 4 a model or an engine that
refuses."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

try:
    import click
except ModuleNotFoundError as error:
    raise SystemExit(f"probml: the command line needs click ({error}): pip install "
                     f"'probml[cli]'") from None

import pandas as pd

import probml
from probml.errors import DataError, ModelError, Refusal
from probml.models import read_bif, write_bif
from probml.models.commandline import answers, files, learning

CODES = ((DataError, 3), (Refusal, 4), (ModelError, 4), (ValueError, 3), (OSError, 3),
         (ImportError, 4), (Exception, 4))


class Verbs(click.Group):
    """A group whose commands fail in one line."""

    def make_context(self, info_name: str | None, args: list[str],
                     parent: click.Context | None = None, **extra: Any) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _misused(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                return super().invoke(ctx)
        except click.UsageError as error:
            _misused(error)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if os.environ.get("PROBML_TRACEBACK"):
                raise
            line = " ".join(str(error).split()) or type(error).__name__
            click.echo(f"probml: {line}", err=True)
            ctx.exit(next(code for kind, code in CODES if isinstance(error, kind)))


def _misused(error: click.UsageError) -> NoReturn:
    said = " ".join(error.format_message().split())
    verb = error.ctx.info_name if error.ctx is not None and error.ctx.parent is not None else ""
    click.echo(f"probml: {said} See probml {verb + ' ' if verb else ''}--help", err=True)
    raise SystemExit(2)


def _warn(message: Any, *_: Any, **__: Any) -> None:
    click.echo(f"probml: warning: {' '.join(str(message).split())}", err=True)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(probml.__version__, prog_name="probml")
def main() -> None:
    """Write one generative function, say what you saw; everything unseen is inferred.

    Tables are CSV, TSV, Parquet or Arrow, by the ending of their name; empty cells are unseen.
    """


def _model_options(command: Callable) -> Callable:
    """What says which model a table is fitted with."""
    for option in (
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the model; may be said several times."),
        click.option("--drop", multiple=True, metavar="NAME",
                     help="A column to leave out; may be said several times."),
        click.option("--components", "--states", "sizes", metavar="K or LOW-HIGH",
                     help="Of a mixture or an HMM; the best of a range by BIC."),
        click.option("--seed", default=0, show_default=True, help="Of every random choice."),
        click.option("--engine", help=f"One of {', '.join(learning.ENGINES)}."),
        click.option("--target", help="The column that is predicted."),
        click.option("--model", "-m", required=True,
                     help=f"One of {', '.join(learning.ZOO)}, or FILE.py:name."),
    ):
        command = option(command)
    return command


def _wish(target: str | None, engine: str | None, seed: int, sizes: str | None,
          settings: tuple[str, ...], drop: tuple[str, ...]) -> learning.Wish:
    return learning.Wish(target, learning.engine_of(engine), seed,
                         learning.sizes_of(sizes, "--components"),
                         dict(map(learning.setting, settings)), drop)


def _json(command: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Answer as one line of JSON.")(
        command)


def _out(command: Callable) -> Callable:
    return click.option("--out", "-o", metavar="FILE",
                        help="Write here; CSV on standard output without it.")(command)


own_model = click.option("--model", "-m", metavar="FILE.py:name",
                         help="The model, where the file holds a fit of your own.")
settings_option = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                               help="A setting of that model.")


@main.command()
@click.argument("data")
@_model_options
@click.option("--out", "-o", default="fit.probml", show_default=True, help="The file of the fit.")
@_json
def fit(data: str, model: str, target: str | None, engine: str | None, seed: int,
        sizes: str | None, settings: tuple[str, ...], drop: tuple[str, ...], out: str,
        as_json: bool) -> None:
    """Learn from the table DATA and write what was found."""
    table = files.read_table(data)
    found = learning.learn(model, table, _wish(target, engine, seed, sizes, settings, drop))
    found.save(out)
    inner = answers.fit_of(found)
    if as_json:
        files.write_json({"file": out, "model": repr(inner.model), "engine": inner.engine,
                          "status": inner.status, "converged": inner.converged,
                          "rows": len(table)})
    else:
        click.echo(f"{answers.title(found)}\nwritten to {out}", err=True)


def _opened(fitted: str, model: str | None, settings: tuple[str, ...] = ()) -> Any:
    return files.open_fit(fitted, model, dict(map(learning.setting, settings)))


def _written(table: pd.DataFrame, out: str | None, as_json: bool) -> None:
    files.write_json(table) if as_json else files.write_table(table, out)


@main.command()
@click.argument("fitted")
@click.argument("data")
@click.option("--site", help="What is predicted, where the model leaves a choice.")
@click.option("--proba", is_flag=True, help="The probabilities of all states, too.")
@own_model
@settings_option
@_out
@_json
def predict(fitted: str, data: str, site: str | None, proba: bool, model: str | None,
            settings: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """The unseen column of every row of DATA, by the file FITTED."""
    found, table = _opened(fitted, model, settings), files.read_table(data)
    _written(answers.predict(found, table, site, proba), out, as_json)


@main.command()
@click.argument("fitted")
@click.argument("data")
@own_model
@settings_option
@_out
@_json
def impute(fitted: str, data: str, model: str | None, settings: tuple[str, ...], out: str | None,
           as_json: bool) -> None:
    """DATA with its empty cells filled."""
    found, table = _opened(fitted, model, settings), files.read_table(data)
    _written(answers.impute(found, table), out, as_json)


@main.command()
@click.argument("fitted")
@click.option("--rows", "-n", default=100, show_default=True, type=click.IntRange(1),
              help="How many; of an HMM, steps of one sequence; with --data as many as it has.")
@click.option("--data", help="A table of inputs, where the model has some.")
@click.option("--seed", default=0, show_default=True)
@own_model
@settings_option
@_out
@_json
def simulate(fitted: str, rows: int, data: str | None, seed: int, model: str | None,
             settings: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """New rows from what was fitted."""
    inputs = None if data is None else files.read_table(data)
    _written(answers.simulate(_opened(fitted, model, settings), rows, seed, inputs), out, as_json)


@main.command()
@click.argument("fitted")
@click.argument("data")
@click.option("--target", help="Score the prediction of this column.")
@own_model
@settings_option
@_json
def score(fitted: str, data: str, target: str | None, model: str | None,
          settings: tuple[str, ...], as_json: bool) -> None:
    """The mean log probability of a row of DATA; with a target also how well it is predicted."""
    found = answers.score(_opened(fitted, model, settings), files.read_table(data), target)
    if as_json:
        files.write_json(found)
    else:
        click.echo("\n".join(f"{name:10} {value:.6g}" for name, value in found.items()))


@main.command()
@click.argument("data")
@click.argument("fitted", nargs=-1, required=True)
@click.option("--target", help="Compare the prediction of this column, on rows left out.")
@click.option("--folds", type=click.IntRange(2), help="Of cross-validation.")
@_out
@_json
def compare(data: str, fitted: tuple[str, ...], target: str | None, folds: int | None,
            out: str | None, as_json: bool) -> None:
    """Several files side by side on the table DATA, the best first."""
    found = {Path(path).stem: _opened(path, None) for path in fitted}
    if len(found) < len(fitted):
        raise ModelError("two files have one name: rename one")
    _written(answers.compared(found, files.read_table(data), target, folds), out, as_json)


@main.command()
@click.argument("fitted", required=False)
@click.option("--data", help="A table: how would a model be fitted to it?")
@own_model
@settings_option
@_json
def explain(fitted: str | None, data: str | None, model: str | None, settings: tuple[str, ...],
            as_json: bool) -> None:
    """What a file holds; or, with --model FILE.py:name, how a model would treat DATA."""
    if fitted is None:
        if model is None:
            raise click.UsageError("say a file, or --model FILE.py:name")
        bound = files.own_model(model, dict(map(learning.setting, settings)))
        click.echo(str(bound.explain(None if data is None else files.read_table(data))))
        return
    found = _opened(fitted, model, settings)
    table = answers.fit_of(found).summary().reset_index()
    if as_json:
        inner = answers.fit_of(found)
        files.write_json({"model": repr(inner.model), "engine": inner.engine,
                          "status": inner.status, "parameters": table})
    else:
        click.echo(f"{answers.title(found)}\n\n{table.to_string(index=False)}")


@main.command()
@click.argument("spec", metavar="FILE.py:name")
@click.option("--rows", default=50, show_default=True, type=click.IntRange(1))
@click.option("--data", help="A table whose inputs and unseen cells the simulated rows have.")
@click.option("--simulations", default=200, show_default=True, type=click.IntRange(20))
@click.option("--engine", help=f"One of {', '.join(learning.ENGINES)}.")
@click.option("--seed", default=0, show_default=True)
@settings_option
@_json
def check(spec: str, rows: int, data: str | None, simulations: int, engine: str | None, seed: int,
          settings: tuple[str, ...], as_json: bool) -> None:
    """A certificate of a model: are parameters found again that made the rows? Exit code 1: no."""
    model = files.own_model(spec, dict(map(learning.setting, settings)))
    if model.inputs and data is None:
        raise ModelError(f"the model has the inputs {list(model.inputs)}: give a table that has "
                         f"them, --data FILE")
    of = {"rows": rows} if data is None else {"data": files.read_table(data)}
    found = model.check(engine=learning.engine_of(engine), simulations=simulations, seed=seed, **of)
    if as_json:
        files.write_json({"passed": found.passed, "table": found.table.reset_index()})
    else:
        click.echo(str(found))
    raise SystemExit(0 if found.passed else 1)


@main.command()
@click.argument("fitted")
@click.option("--data", help="The table that was fitted, or another; the report tells of it.")
@click.option("--out", "-o", default="report.html", show_default=True)
@own_model
@settings_option
def report(fitted: str, data: str | None, out: str, model: str | None,
           settings: tuple[str, ...]) -> None:
    """One self-contained HTML file about a fit."""
    found = _opened(fitted, model, settings)
    table = None if data is None else answers.columns_of(found, files.read_table(data))
    found.report(out, table)
    click.echo(f"written to {out}", err=True)


@main.command()
@click.argument("source")
@click.argument("destination")
def convert(source: str, destination: str) -> None:
    """A Bayesian network between BIF (.bif, .bif.gz) and a file of probml; a table between
    formats."""
    if _is_bif(source):
        found = read_bif(source)
        write_bif(found, destination) if _is_bif(destination) else found.save(destination)
    elif _is_bif(destination):
        write_bif(answers.fit_of(_opened(source, None)), destination)
    else:
        files.write_table(files.read_table(source), destination)
    click.echo(f"written to {destination}", err=True)


def _is_bif(path: str) -> bool:
    return path.lower().endswith((".bif", ".bif.gz"))


@main.command()
@_json
def versions(as_json: bool) -> None:
    """What stands here: probml, Python, the libraries below, devices."""
    found = probml.show_versions(show=False)
    click.echo(json.dumps(found) if as_json else "\n".join(f"{k:12} {v}" for k, v in found.items()))
