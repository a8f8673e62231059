"""The how-to pages are true: their Python runs, and prints what they show; every public name is
told."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import probml

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted((DOCS / "how_to").glob("*.md"))
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL)


def printed(page: Path) -> list[tuple[str, str]]:
    """What each block shows, and what it prints."""
    names, out = {"__name__": f"how_to_{page.stem}"}, []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(block["code"], str(page), "exec"), names)
        out.append(((block["shown"] or "").strip(), said.getvalue().strip()))
    return out


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_how_to_prints_what_it_shows(page):
    for shown, said in printed(page):
        assert said == shown


def test_every_public_name_is_told():
    text = (DOCS / "names.md").read_text(encoding="utf-8")
    assert [name for name in probml.__all__ if f"`{name}`" not in text] == []
    verbs = [name for name in dir(probml.Fit) if not name.startswith("_")]
    told = set(re.findall(r"`(\w+)`", text))
    assert {"predict", "impute", "report", "compiled", "filter", "save"} <= told <= {
        *probml.__all__, *verbs, *dir(probml.Model), "Fit", "ValueError", "fit", "converged",
        "iterations", "history", "status", "seed"}


def test_the_site_lists_every_page():
    listed = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in listed] == []
