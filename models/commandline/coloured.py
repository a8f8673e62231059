"""Explanations and certificates in a terminal: in colours where rich is installed."""

import sys
from typing import Any

import click


def show(thing: Any) -> None:
    """On standard output: tables of rich in a terminal, plain text in a file or a pipe, or where
    there is no rich."""
    if sys.stdout.isatty():
        try:
            from rich import print as coloured
        except ImportError:
            pass
        else:
            coloured(thing)
            return
    click.echo(str(thing))
