"""Programs of users and strangers under transformations of which the effect is known (invariances.py):
a quick pair of each kind of change, and a slice of all."""

import sys
import warnings
from pathlib import Path
from zlib import crc32

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import invariances  # noqa: E402
import rewritings  # noqa: E402

USERS = [f"users/{case!r}" for case in invariances.tabled_models.user_models.CASES
         if case.truth != "refused"]
KINDS = list(rewritings.KINDS)
# by the number of a user one transformation, which another day's slice does not choose
PAIRS = [(name, KINDS[crc32(name.encode()) % len(KINDS)]) for name in USERS]


def verdict(name, kind):
    subject = next(invariances.subjects(lambda other: other == name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, why, seconds = invariances.attempted(subject)
        assert one is not None, why
        return invariances.tried(subject, kind, {"base": one, "seconds": seconds})


@pytest.mark.slow
@pytest.mark.one_in(10)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_an_answer_does_not_change_where_it_must_not(name, kind):
    found = verdict(name, kind)
    assert found.word not in ("DIFFERENT", "failed"), found


@pytest.mark.parametrize("kind", ["parameters × 1e3", "rows pasted as a plate", "statements exchanged",
                                  "rows twice at half weight"])
def test_a_regression_is_the_same_in_other_words(kind):
    assert verdict("users/heteroscedastic", kind).word == "same"


def test_a_change_that_matters_is_seen(monkeypatch):
    """Outcomes in another unit, of which the model knows nothing."""
    def other(subject):
        data = dict(subject.data)
        return rewritings.twin(subject, data={**data, "y": 3 * data["y"]})

    monkeypatch.setitem(rewritings.KINDS, "other outcomes", other)
    assert verdict("users/heteroscedastic", "other outcomes").word == "DIFFERENT"
