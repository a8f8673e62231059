"""The answers of one fit to different questions, by the rules of probability (coherence.py): a few programs of users,
and a slice of all."""

import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import coherence  # noqa: E402
import invariances  # noqa: E402
from rewritten_models import Unwritten  # noqa: E402

USERS = [f"users/{case!r}" for case in invariances.tabled_models.user_models.CASES
         if case.truth != "refused"]
QUICK = ("users/heteroscedastic", "users/gaussian_network", "users/ordered_logistic")


def verdicts(name):
    subject = next(invariances.subjects(lambda other: other == name))
    fit, why, _ = invariances.attempted(subject)
    assert fit is not None, why
    if not fit.converged or fit.warnings:
        return {}
    try:
        return {(asked.site, rule): coherence.tried(asked, rule)
                for asked in coherence.ask(subject, fit) for rule in coherence.RULES}
    except Unwritten:
        return {}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in USERS])
def test_answers_of_one_fit_agree(name):
    found = verdicts(name)
    assert found or name not in QUICK
    assert not [*filter(lambda item: item[1].word in ("BROKEN", "failed"), found.items())]


def test_a_wrong_answer_is_seen(monkeypatch):
    """Log densities of outcomes that are too high where these are."""
    own = coherence.probml.Fit.log_prob
    monkeypatch.setattr(coherence.probml.Fit, "log_prob",
                        lambda fit, data, **more: own(fit, data, **more) + 0.5 * np.asarray(data["y"], float))
    words = {rule: verdict.word for (_, rule), verdict in verdicts("users/heteroscedastic").items()}
    assert list(words.values()).count("BROKEN") >= 1
