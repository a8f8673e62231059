"""The options that several verbs of the command line share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from probml.models.commandline import engines, layouts, learning


def layout_options(command: Callable) -> Callable:
    """How a table is the data of a model with arrays, or with steps."""
    @functools.wraps(command)
    def laid(joined: tuple[str, ...], by: str | None, **given: Any) -> Any:
        return command(layout=layouts.Layout(layouts.joined_of(joined), by), **given)

    for option in (
        click.option("--by", metavar="NAME", help="Of a model with chains, whose rows are steps: "
                     "the column that tells sequences apart; without it they are one."),
        click.option("--as", "joined", multiple=True, metavar="NAME=COLUMN,…",
                     help="The columns that make an array of a function of your own, or the one "
                     "that has another name there; may be said several times."),
    ):
        laid = option(laid)
    return laid


def model_options(command: Callable) -> Callable:
    """What says which model a table is fitted with."""
    for option in (
        layout_options,
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                     help="A setting of the model; may be said several times."),
        click.option("--drop", multiple=True, metavar="NAME",
                     help="A column to leave out, or several, a,b; may be said several times."),
        click.option("--components", "--states", "sizes", metavar="K or LOW-HIGH",
                     help="Of a mixture or an HMM; the best of a range by BIC."),
        click.option("--seed", default=0, show_default=True, help="Of every random choice."),
        click.option("--engine", help=engines.SAID),
        click.option("--target", help="The column that is predicted."),
        click.option("--model", "-m", required=True,
                     help=f"One of {', '.join(learning.ZOO)}, or FILE.py:name."),
    ):
        command = option(command)
    return command


def wish(target: str | None, engine: str | None, seed: int, sizes: str | None,
         settings: tuple[str, ...], drop: tuple[str, ...],
         layout: layouts.Layout) -> learning.Wish:
    """What the options of `model_options` say."""
    return learning.Wish(target, engines.engine_of(engine), seed,
                         learning.sizes_of(sizes, "--components"),
                         dict(map(learning.setting, settings)), drop, layout)


def json_option(command: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Answer as one line of JSON.")(
        command)


def out_option(command: Callable) -> Callable:
    return click.option("--out", "-o", metavar="FILE",
                        help="Write here; CSV on standard output without it.")(command)


own_model = click.option("--model", "-m", metavar="FILE.py:name",
                         help="The model, where the file holds a fit of your own.")
settings_option = click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                               help="A setting of that model.")
unknown_option = click.option("--unknown", type=click.Choice(["refuse", "new"]), default="refuse",
                              show_default=True, help="What becomes of a label of a group that "
                              "was not learnt; new: a member drawn as the others are.")
