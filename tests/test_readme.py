"""The README is true: its Python runs from top to bottom as a user runs it, and prints what the
README shows."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL)


def test_readme_prints_what_it_shows(tmp_path):
    blocks = list(BLOCK.finditer(README.read_text(encoding="utf-8")))
    assert len(blocks) >= 5
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
