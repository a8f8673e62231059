"""A fit that has no good end says so: in its status, or it refuses (the table: tests/endings.py)."""

import re

import pytest

import endings


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ending", [
    pytest.param(ending, id=f"{ending.why}, {type(ending.engine).__name__} {i}",
                 marks=[] if ending.quick else [pytest.mark.slow])
    for i, ending in enumerate(endings.ENDINGS)
])
def test_what_has_no_good_end_says_so(ending):
    how, words = endings.said(ending)
    assert ending.says
    assert re.search(ending.says, f"{how} {words}"), f"{how}: {words}"
