"""The README and the tour are true: their Python runs from top to bottom as a user runs it, and
prints what they show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL)


def run_as_shown(pages, folder):
    """Run the blocks of pages one after the other, as one script, and hold what they print to what
    the pages show."""
    blocks = [block for page in pages
              for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    assert len(blocks) >= len(pages)
    script = folder / "readme.py"
    script.write_text("\nprint('@@')\n".join(block["code"] for block in blocks), encoding="utf-8")
    # a process of its own, in JAX's default precision; a fit that does not converge warns, and
    # fails here
    command = [sys.executable, "-X", "utf8", "-W", "error::RuntimeWarning", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder)
    assert run.returncode == 0, run.stderr
    printed = run.stdout.split("@@\n")
    pairs = [((block["shown"] or "").strip(), text.strip())
             for block, text in zip(blocks, printed, strict=True)]
    wrong = [f"shown:\n{shown}\nprinted:\n{text}" for shown, text in pairs if shown != text]
    assert not wrong, "\n\n".join(wrong)  # all of them: a run takes minutes


def test_the_readme_prints_what_it_shows(tmp_path):
    run_as_shown(("README.md",), tmp_path)


def test_the_tour_goes_on_from_the_readme_and_prints_what_it_shows(tmp_path):
    run_as_shown(("README.md", "docs/tour.md"), tmp_path)


def test_the_readme_is_one_screen_of_story():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text) < 7_000 and len(list(BLOCK.finditer(text))) <= 2


@pytest.mark.parametrize("page", sorted(
    str(path.relative_to(ROOT)) for folder in (ROOT / "docs", ROOT)
    for path in (folder.rglob if folder.name == "docs" else folder.glob)("*.md")
))
def test_links_lead_somewhere(page):
    path = ROOT / page
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (path.parent / target).exists(), f"{page} links to {target}"
