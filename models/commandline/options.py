"""The options that several verbs of the command line share. What they mean is imported when a
command runs, not for its help."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from probml.models.commandline.catalogue import MODELS, SAID
from probml.numerics.process.libraries import LateModule

if TYPE_CHECKING:
    from probml.models.commandline import engines, layouts, learning
else:
    engines, layouts, learning = (LateModule(f"probml.models.commandline.{name}")
                                  for name in ("engines", "layouts", "learning"))


def _models() -> str:
    listing = "; ".join(f"{name} ({kind.what})" for name, kind in MODELS.items())
    return f"One of {listing}; or FILE.py:name, a function of your own."


def layout_options(command: Callable) -> Callable:
    """How a table is the data of a model with arrays, or with steps."""
    @functools.wraps(command)
    def with_layout(joined: tuple[str, ...], by: str | None, **kwargs: Any) -> Any:
        return command(layout=layouts.Layout(layouts.joined_of(joined), by), **kwargs)

    for option in (
        click.option("--by", metavar="NAME", help="The column that identifies sequences (HMM, time "
                                                  "series); without it all rows are one sequence."),
        click.option("--as", "joined", multiple=True, metavar="NAME=COLUMN,…",
                     help="The columns that make an array argument of your own function, or the "
                          "column of an argument with another name; may be repeated."),
    ):
        with_layout = option(with_layout)
    return with_layout


def model_options(command: Callable) -> Callable:
    """What says which model a table is fitted with."""
    for option in (
        layout_options,
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the model, such as prior=False; may be repeated."),
        click.option("--drop", multiple=True, metavar="NAME",
                     help="A column to drop, or several, a,b; may be repeated."),
        click.option("--components", "--states", "sizes", metavar="K or LOW-HIGH",
                     help="The number of components, classes, factors or states. Of a range, such "
                          "as 1-5, the number with the lowest BIC (Bayesian information "
                          "criterion) is chosen."),
        click.option("--seed", default=0, show_default=True, help="Random seed."),
        click.option("--engine", help=SAID),
        click.option("--formula", metavar="'y ~ x + (x | g)'",
                     help="The formula of a glm or mixed model, as R writes it. Give the family by "
                          "--set family=poisson."),
        click.option("--target", help="The column to predict."),
        click.option("--model", "-m", required=True, help=_models()),
    ):
        command = option(command)
    return command


def wish(target: str | None, formula: str | None, engine: str | None, seed: int,
         sizes: str | None, settings: tuple[str, ...], drop: tuple[str, ...],
         layout: layouts.Layout) -> learning.Wish:
    """What the options of `model_options` say."""
    return learning.Wish(target, engines.engine_of(engine), seed,
                         learning.sizes_of(sizes, "--components"),
                         dict(map(learning.setting, settings)), drop, layout, formula)


def json_option(command: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as one line of "
                                                                "JSON.")(
        command)


def out_option(command: Callable) -> Callable:
    return click.option("--out", "-o", metavar="FILE",
                        help="Output file; without it CSV is printed on standard output.")(command)


own_model = click.option("--model", "-m", metavar="FILE.py:name",
                         help="Your model function, if the file contains a fit of it.")
settings_option = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                               help="A setting of your own model, such as k=3; may be repeated.")
unknown_option = click.option("--unknown", type=click.Choice(["refuse", "new"]), default="refuse",
                              show_default=True, help="A group label that was not in the training "
                                                      "data is an error (refuse) or a new group "
                                                      "(new). The effect of a new group is drawn "
                                                      "from its prior.")
