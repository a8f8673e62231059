"""The commands of the command line. What goes wrong is one line on standard error and an exit code:
1 a check did not pass, 2 a command that is not understood, 3 data, 4 a model or an engine that
refuses. What a command needs is imported when it runs: help and the first line of a fit come at
once."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

try:
    import click
except ModuleNotFoundError as error:
    raise SystemExit(f"probml: the command line needs click ({error}). Install it: "
                     f"pip install 'probml[cli]'") from None

import probml
import probml.models as library
from probml.errors import DataError, ModelError, Refusal, listed
from probml.models.commandline.catalogue import SAID, canonical_name
from probml.models.commandline.options import (
    json_option,
    layout_options,
    model_options,
    out_option,
    own_model,
    settings_option,
    unknown_option,
    wish,
)
from probml.numerics.process.libraries import LateModule, pd

if TYPE_CHECKING:
    from probml.models.commandline import answers, engines, files, layouts, learning
    from probml.models.commandline import demo as demonstration
    from probml.typing import FitOrEstimator
else:
    answers, engines, files, layouts, learning = (
        LateModule(f"probml.models.commandline.{name}")
        for name in ("answers", "engines", "files", "layouts", "learning"))
    demonstration = LateModule("probml.models.commandline.demo")

CODES = ((DataError, 3), (Refusal, 4), (ModelError, 4), (ValueError, 3), (OSError, 3),
         (ImportError, 4), (Exception, 4))
FIT, REPORT = b"PK", b"<!DOCTYPE"  # how these files begin


class Verbs(click.Group):
    """A group whose commands fail in one line."""

    def make_context(self, info_name: str | None, args: list[str],
                     parent: click.Context | None = None, **extra: object) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _usage_error(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                return super().invoke(ctx)
        except click.UsageError as error:
            _usage_error(error)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # the last: whoever reads has enough, `| head`
        except Exception as error:
            if os.environ.get("PROBML_TRACEBACK"):
                raise
            line = " ".join(str(error).split()) or type(error).__name__
            click.echo(f"probml: {line}", err=True)
            ctx.exit(next(code for kind, code in CODES if isinstance(error, kind)))


def _usage_error(error: click.UsageError) -> NoReturn:
    message = " ".join(error.format_message().split())
    verb = (error.ctx and error.ctx.parent and error.ctx.info_name) or ""
    hint = ""
    if error.ctx is not None and isinstance(error, click.MissingParameter):
        usage = error.ctx.command.collect_usage_pieces(error.ctx)
        hint = f" Write '{' '.join(['probml', verb, *usage])}'."
    if isinstance(error, click.NoSuchOption) and verb == "fit" and "Did you" not in message:
        word = error.option_name.lstrip("-").replace("-", "_")
        hint = f" A setting of the model is written --set {word}=VALUE."
    click.echo(f"probml: {message}{hint} See probml {verb + ' ' if verb else ''}--help", err=True)
    raise SystemExit(2)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"probml: warning: {' '.join(str(message).split())}", err=True)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(probml.__version__, prog_name="probml")
def main() -> None:
    """Fit probabilistic models to tables, and ask them: predict, impute, forecast, compare, report.

    Tables (DATA) are CSV, TSV, Parquet or Arrow files, by the ending of their name; empty cells
    are missing. FITTED is a file that probml fit wrote.

    \b
    probml fit iris.csv --model naive_bayes --target Species -o iris.probml
    probml predict iris.probml new.csv --proba
    """


@main.command()
@click.argument("data")
@model_options
@click.option("--out", "-o", default="fit.probml", show_default=True, help="The file of the fit.")
@json_option
def fit(data: str, model: str, target: str | None, formula: str | None, engine: str | None,
        seed: int, sizes: str | None, settings: tuple[str, ...], drop: tuple[str, ...], out: str,
        as_json: bool, layout: layouts.Layout) -> None:
    """Fit a model to the table DATA, and save the fit. Its summary is printed."""
    if sys.stderr.isatty():  # a line at once, before what takes seconds to import
        click.echo(f"fitting {canonical_name(model)} to {data} ...", err=True)
    files.check_kind(out, FIT, "fit")
    table = files.read_table(data)
    found = learning.learn(model, table, wish(target, formula, engine, seed, sizes, settings, drop,
                                              layout))
    found.save(out)
    inner = answers.fit_of(found)
    if as_json:
        files.write_json({"file": out, "model": repr(inner.model), "engine": inner.engine,
                          "status": inner.status, "converged": inner.converged,
                          "warnings": [found.record() for found in inner.warnings],
                          "rows": len(table)})
    else:
        click.echo(answers.summary_of(found))
        click.echo(f"written to {out}", err=True)


def _open_fit(fitted: str, model: str | None, settings: tuple[str, ...] = ()) -> FitOrEstimator:
    return files.open_fit(fitted, model, dict(map(learning.setting, settings)))


def _write(table: pd.DataFrame, out: str | None, as_json: bool) -> None:
    files.write_json(table) if as_json else files.write_table(table, out)


@main.command()
@click.argument("fitted")
@click.argument("data")
@click.option("--target", "--site", "site", metavar="NAME",
              help="The column or site to predict, if there are several.")
@click.option("--proba", is_flag=True, help="Print the probability of each class.")
@own_model
@settings_option
@unknown_option
@layout_options
@out_option
@json_option
def predict(fitted: str, data: str, site: str | None, proba: bool, model: str | None,
            settings: tuple[str, ...], out: str | None, as_json: bool,
            layout: layouts.Layout,
            unknown: str) -> None:
    """Predict the target for each row of the table DATA. FITTED is a file of probml fit."""
    loaded, table = _open_fit(fitted, model, settings), files.read_table(data)
    _write(answers.predict(loaded, table, site, proba, layout._replace(unknown=unknown)), out,
           as_json)


@main.command()
@click.argument("fitted")
@click.argument("data")
@own_model
@settings_option
@unknown_option
@layout_options
@out_option
@json_option
def impute(fitted: str, data: str, model: str | None, settings: tuple[str, ...], out: str | None,
           as_json: bool, layout: layouts.Layout,
           unknown: str) -> None:
    """Fill the empty cells of the table DATA. They get their expected values, given the other
    cells of the row."""
    loaded, table = _open_fit(fitted, model, settings), files.read_table(data)
    _write(answers.impute(loaded, table, layout._replace(unknown=unknown)), out, as_json)


@main.command()
@click.argument("fitted")
@click.option("--rows", "-n", default=100, show_default=True, type=click.IntRange(1),
              help="Number of rows (for an HMM, steps of one sequence); with --data, the number of "
                   "rows of the table.")
@click.option("--data", help="A table of inputs, if the model has inputs.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@own_model
@settings_option
@layout_options
@out_option
@json_option
def simulate(fitted: str, rows: int, data: str | None, seed: int, model: str | None,
             settings: tuple[str, ...], out: str | None, as_json: bool,
             layout: layouts.Layout) -> None:
    """Draw new rows from the fitted model."""
    inputs = None if data is None else files.read_table(data)
    _write(answers.simulate(_open_fit(fitted, model, settings), rows, seed, inputs,
                            layout), out, as_json)


@main.command()
@click.argument("fitted")
@click.argument("data")
@click.option("--steps", "-n", default=1, show_default=True, type=click.IntRange(1),
              help="The number of steps.")
@click.option("--interval", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="A probability, such as 0.9: also print the bounds between which a value lies "
                   "with this probability.")
@own_model
@settings_option
@layout_options
@out_option
@json_option
def forecast(fitted: str, data: str, steps: int, interval: float | None, model: str | None,
             settings: tuple[str, ...], out: str | None, as_json: bool,
             layout: layouts.Layout) -> None:
    """Forecast the steps after the last row of DATA. The model must be one of time series."""
    loaded, table = _open_fit(fitted, model, settings), files.read_table(data)
    _write(answers.forecast(loaded, table, steps, interval, layout), out, as_json)


@main.command()
@click.argument("fitted")
@click.argument("data")
@click.option("--target", help="Score the prediction of this column.")
@own_model
@settings_option
@unknown_option
@layout_options
@json_option
def score(fitted: str, data: str, target: str | None, model: str | None,
          settings: tuple[str, ...], as_json: bool, layout: layouts.Layout,
          unknown: str) -> None:
    """Print the mean log probability of a row of DATA. With a target print also how well it is
    predicted."""
    scores = answers.score(_open_fit(fitted, model, settings), files.read_table(data), target,
                           layout._replace(unknown=unknown))
    if as_json:
        files.write_json(scores)
    else:
        click.echo("\n".join(f"{name:10} {value:.6g}" for name, value in scores.items()))


@main.command()
@click.argument("data")
@click.argument("fitted", nargs=-1, required=True)
@click.option("--target", help="Compare the prediction of this column on held-out rows.")
@click.option("--folds", type=click.IntRange(2), help="The number of folds of cross-validation.")
@click.option("--model", "-m", "models", multiple=True, metavar="FILE.py:name",
              help="A model of your own for one of the files; may be repeated.")
@layout_options
@out_option
@json_option
def compare(data: str, fitted: tuple[str, ...], target: str | None, folds: int | None,
            models: tuple[str, ...], out: str | None, as_json: bool,
            layout: layouts.Layout) -> None:
    """Compare fitted models on the table DATA, best first."""
    fits = {Path(path).stem: files.open_any(path, models) for path in fitted}
    if len(fits) < len(fitted):
        raise ModelError(f"compare: two files have the same name, {listed(fitted)}. Rename one")
    _write(answers.compare_files(fits, files.read_table(data), target, folds, layout), out,
           as_json)


@main.command()
@click.argument("fitted", required=False)
@click.option("--data", help="A table: show how a model would be fitted to it.")
@own_model
@settings_option
@layout_options
@json_option
def explain(fitted: str | None, data: str | None, model: str | None, settings: tuple[str, ...],
            as_json: bool, layout: layouts.Layout) -> None:
    """Show how a model of your own would be fitted. Name it, --model FILE.py:name; of a file of
    probml fit, the parameters are shown by their names in the model."""
    if fitted is None:
        if model is None:
            raise click.UsageError("expected a file, or --model FILE.py:name")
        bound = files.own_model(model, dict(map(learning.setting, settings)))
        rows = None if data is None else layouts.of_model(bound, files.read_table(data),
                                                          layout).data
        click.echo(str(bound.explain(rows)))
        return
    _print_summary(answers.fit_of(_open_fit(fitted, model, settings)), as_json)


@main.command()
@click.argument("fitted")
@own_model
@settings_option
@json_option
def summary(fitted: str, model: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Print the estimates of a fit, and how it was fitted."""
    _print_summary(_open_fit(fitted, model, settings), as_json)


def _print_summary(loaded: FitOrEstimator, as_json: bool) -> None:
    if not as_json:
        click.echo(answers.summary_of(loaded))
        return
    inner = answers.fit_of(loaded)
    files.write_json({"model": repr(inner.model), "engine": inner.engine, "status": inner.status,
                      "parameters": answers.estimates_of(loaded),
                      "warnings": [finding.record() for finding in inner.warnings],
                      **({} if files.is_fit(loaded) else {"summary": loaded.summary().to_dict()})})


@main.command()
@click.argument("spec", metavar="FILE.py:name")
@click.option("--rows", default=50, show_default=True, type=click.IntRange(1),
              help="The number of rows of each simulated table.")
@click.option("--data", help="A table; the simulated rows have its inputs and its pattern of "
                             "missing values.")
@click.option("--simulations", default=200, show_default=True, type=click.IntRange(20),
              help="The number of simulated tables.")
@click.option("--engine", help=SAID)
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@settings_option
@layout_options
@json_option
def check(spec: str, rows: int, data: str | None, simulations: int, engine: str | None, seed: int,
          settings: tuple[str, ...], as_json: bool,
          layout: layouts.Layout) -> None:
    """Test a model of your own on simulated rows. Parameters are drawn from the prior, rows are
    simulated from them and fitted, and the posteriors should contain the parameters as often as
    they claim (simulation-based calibration). The exit code is 1 if they do not."""
    model = files.own_model(spec, dict(map(learning.setting, settings)))
    if model.inputs and data is None:
        raise ModelError(f"check: the model has the inputs {listed(model.inputs)}. Give a table "
                         "with these columns, --data FILE")
    kw = {"rows": rows} if data is None else {
        "data": layouts.of_model(model, files.read_table(data), layout).data}
    result = model.check(engine=engines.engine_of(engine), simulations=simulations, seed=seed, **kw)
    if as_json:
        files.write_json({"passed": result.passed, "table": result.table.reset_index()})
    else:
        click.echo(str(result))
    raise SystemExit(0 if result.passed else 1)


@main.command()
@click.argument("fitted")
@click.option("--data", help="The table to report on: the fitted table or another one.")
@click.option("--target", help="The predicted column, for a classifier or a regression.")
@click.option("--out", "-o", default="report.html", show_default=True, help="The HTML file.")
@own_model
@settings_option
@layout_options
def report(fitted: str, data: str | None, target: str | None, out: str, model: str | None,
           settings: tuple[str, ...], layout: layouts.Layout) -> None:
    """Write a report about a fit, as one HTML file."""
    files.check_kind(out, REPORT, "report")
    loaded = _open_fit(fitted, model, settings)
    table = None if data is None else files.read_table(data)
    rows = () if table is None else (answers.rows_of(loaded, table, layout),)
    if target is not None:
        if table is None or files.is_fit(loaded):
            raise ModelError(f"report --target {target}: " + (
                "a model of your own finds its columns by name. Omit --target"
                if files.is_fit(loaded) else "the table is not given. Give it, --data FILE"))
        files.require_columns(table, [target], "--target")
        rows += (table[target].to_numpy(),)
    loaded.report(out, *rows, name=None if data in (None, "-") else Path(data).name)
    click.echo(f"written to {out}", err=True)


@main.command()
@click.argument("source")
@click.argument("destination")
def convert(source: str, destination: str) -> None:
    """Convert a table, or a Bayesian network, to another format. Networks are BIF files (.bif,
    .bif.gz) and files of probml fit."""
    if _is_bif(source):
        network = library.read_bif(source)
        if _is_bif(destination):
            library.write_bif(network, destination)
        else:
            files.check_kind(destination, FIT, "fit")
            network.save(destination)
    elif _is_bif(destination):
        library.write_bif(answers.fit_of(_open_fit(source, None)), destination)
    else:
        files.write_table(files.read_table(source), destination)
    click.echo(f"written to {destination}", err=True)


def _is_bif(path: str) -> bool:
    return path.lower().endswith((".bif", ".bif.gz"))


@main.command()
@click.option("-o", "--out", type=click.Path(path_type=Path), default="out/faithful.png",
              show_default=True, help="The file of the picture.")
@click.option("--most", type=click.IntRange(1), default=5, show_default=True,
              help="Compare the numbers of components from 1 to this number.")
def demo(out: Path, most: int) -> None:
    """Fit mixtures to the Old Faithful eruptions (shipped). The best is drawn."""
    demonstration.run(out, most)


@main.command()
@json_option
def versions(as_json: bool) -> None:
    """Print the versions of probml and its libraries. The devices are listed, too."""
    info = probml.show_versions(show=False)
    click.echo(json.dumps(info) if as_json else "\n".join(f"{k:12} {v}" for k, v in info.items()))
