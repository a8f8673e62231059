"""The pages for those who come from other libraries: our side of each is run, with what it says of
itself."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parent.parent / "docs" / "coming_from").glob("*.md"))
NAMES = {"bnlearn", "hmmlearn", "lme4", "numpyro", "pgmpy", "pymc", "scikit_learn", "stan"}


def test_there_is_a_page_for_each():
    assert {page.stem for page in PAGES} == NAMES


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_our_side_of_a_page_runs_and_holds(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    code = "\n".join(blocks)
    assert "assert " in code, "a page shows that its answers are right"
    exec(compile(code, str(page), "exec"), {"__name__": f"coming_from_{page.stem}"})
