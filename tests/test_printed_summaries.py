"""The page of printed summaries: its code prints what it shows, and every number that another
package printed is in ours."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from probml.assessment.reports import Estimates
from probml.models import gaussian_mixture

PAGE = Path(__file__).resolve().parent.parent / "docs" / "printed_summaries.md"
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def numbers(text: str) -> list[tuple[float, float]]:
    """(number, half of the unit of its last digit) of all numbers of a print."""
    found = []
    for word in NUMBER.findall(text):
        mantissa, _, power = word.replace(",", "").replace("−", "-").partition("e")
        places = len(mantissa.partition(".")[2]) - int(power or 0)
        found.append((float(f"{mantissa}e{power or 0}"), 0.5 * 10.0**-places))
    return found


def differing(ours: str, peers: str, within: float = 0.0) -> list[float]:
    """Numbers with a decimal point of the other print that are not in ours, to the digits that both
    have, or within a share where methods differ."""
    mine, out = numbers(ours), []
    for value, half in numbers(re.sub(r"\[0\.025\s+0\.975\]", "", peers)):
        away = min(abs(value - number) - half - unit for number, unit in mine)
        if half < 0.5 and away > within * max(abs(value), 1.0) + 1e-9:
            out.append(value)
    return out


@pytest.mark.parametrize("title", sections())
def test_the_numbers_of_the_other_package_are_in_ours(title):
    body = sections()[title]
    ours, peers = re.findall(r"```text\n(.*?)```", body, re.DOTALL)
    within = float((re.findall(r"<!-- within ([\d.]+) -->", body) or [0.0])[0])
    assert len(numbers(peers)) > 1 and differing(ours, peers, within) == []


@pytest.mark.slow
def test_the_page_prints_what_it_shows():
    """One minute; the last digit of a number, and the order of components, may differ."""
    names: dict = {"__name__": "printed_summaries"}
    for title, body in sections().items():
        code, = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, title, "exec"), names)
        shown, said = re.findall(r"```text\n(.*?)```", body, re.DOTALL)[0], out.getvalue()
        words = [[line.split() for line in text.strip().splitlines() if not re.search(r"\d", line)]
                 for text in (shown, said)]
        assert words[0] == words[1], title
        # rounding decides which draws a sampler makes
        assert differing(said, shown, 0.3 if title == "Sampled posterior" else 0.003) == [], title


def test_a_number_that_differs_is_found():
    ours = "Intercept  251.4 (6.8)\nlog-likelihood: -1,681.25"
    assert differing(ours, "(Intercept) 251.405 6.825\n log-likelihood -1681.2 [0.025 0.975]") == []
    assert differing(ours, "(Intercept) 251.505") == [251.505]
    assert differing(ours, "(Intercept) 252.405", 0.01) == []


def test_every_column_of_a_posterior_is_printed():
    columns = ["mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat"]
    table = Estimates(np.full((2, 7), 1234.56789), ["a", "intercept"], columns)
    width = pd.get_option("display.width")
    assert repr(table).splitlines()[0].split() == columns
    assert str(table) == repr(table) and pd.get_option("display.width") == width


@pytest.mark.parametrize("given", [
    {"meanx": np.zeros((2, 2))}, {"mean": np.zeros((2, 4))}, {"precision": np.ones(3)}, {"weights": 0.5},
])
def test_given_parameters_that_fit_no_table_are_one_table(given):
    """Files and `at` give values that are held to the model with the data of a question."""
    values = {"weights": [0.5, 0.5], "mean": np.zeros((2, 2)), "precision": np.stack([np.eye(2)] * 2)}
    text = str(gaussian_mixture(k=2).at({**values, **given}))
    assert "Parameters were given" in text and next(iter(given)).removesuffix("x") in text
