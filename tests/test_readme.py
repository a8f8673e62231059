"""The README and the tour are true: their Python runs from top to bottom as a user runs it, and
prints what they show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/tour.md")
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL)


def test_readme_and_tour_print_what_they_show(tmp_path):
    blocks = [block for page in PAGES
              for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    assert len(blocks) >= 7
    script = tmp_path / "readme.py"
    script.write_text("\nprint('@@')\n".join(block["code"] for block in blocks), encoding="utf-8")
    # a process of its own, in JAX's default precision; a fit that does not converge warns, and
    # fails here
    command = [sys.executable, "-X", "utf8", "-W", "error::RuntimeWarning", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    printed = run.stdout.split("@@\n")
    for block, text in zip(blocks, printed, strict=True):
        assert text.strip() == (block["shown"] or "").strip()


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
