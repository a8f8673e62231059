"""Questions after a fit to models that combine mechanisms: the right answer, or a refusal in words."""

import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import more_cases  # noqa: E402, F401
import fourth_cases  # noqa: E402, F401
import third_cases  # noqa: E402, F401


@pytest.mark.parametrize("name", cases.CASES)
def test_a_strangers_question_has_the_right_answer(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases.CASES[name][1]()
