"""What rich prints of models and fits: the same words, in tables, nothing of them taken for markup.
Where rich itself is not installed, pip's own copy is asked."""

import importlib.util
import io
import sys

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml

NEEDED = ("rich", "rich.box", "rich.console", "rich.table", "rich.text")


@pytest.fixture
def printed(monkeypatch):
    """A function: what a terminal of 200 columns shows of an object."""
    if importlib.util.find_spec("rich") is None:
        pytest.importorskip("pip._vendor.rich.table")
        for name in NEEDED:
            importlib.import_module(f"pip._vendor.{name}")
            monkeypatch.setitem(sys.modules, name, sys.modules[f"pip._vendor.{name}"])

    def show(thing):
        out = io.StringIO()
        importlib.import_module("rich.console").Console(file=out, width=200, color_system=None).print(thing)
        return out.getvalue()

    return show


@probml.model
def coin(a: float = 1.0):
    bias = sample("bias", dist.Beta(a, a))
    with probml.rows():
        sample("toss", dist.Bernoulli(bias))


DATA = {"toss": np.array([1, 1, 0, 1, 1, 1])}


def test_a_fit_shows_how_it_ended_and_its_first_parameters(printed):
    text = printed(coin().fit(DATA))
    assert "coin(a=1.0) fitted by Exact" in text and "✓ Exact posterior" in text
    assert ["bias", "0.75"] in [line.split() for line in text.splitlines()]


def test_an_explanation_shows_its_tables(printed):
    why = coin().explain(DATA)
    text = printed(why)
    assert all(title in text for title in ("sites", "updates", "engines"))
    assert all(record["engine"] in text for record in why.engines)


def test_a_certificate_says_whether_it_passed(printed):
    found = coin().check(rows=5, simulations=20)
    text = printed(found)
    assert ("✓" in text) == found.passed and "bias" in text and "quantities" in text


def test_names_in_brackets_are_no_markup(printed):
    from probml.assessment.pages.terminal import rich_report

    assert "[red]w[smoke][/red]" in printed(rich_report([("[red]w[smoke][/red]", "")], []))
