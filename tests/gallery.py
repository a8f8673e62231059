"""`make gallery`: the pictures of docs/gallery.md and docs/tasks/, drawn by the code below them."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gallery.md"
TASKS = sorted((ROOT / "docs" / "tasks").glob("*.md"))
BLOCK = re.compile(r"(?:!\[[^\]]+\]\((?P<picture>[^)]+)\)\n\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def drawn(folder: Path, page: Path = PAGE, dpi: int = 90) -> list[Path]:
    """The pictures of a page, drawn into a folder."""
    from matplotlib import pyplot

    names, out = {"__name__": "gallery"}, []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block["code"], str(page), "exec"), names)
        if block["picture"]:
            path = folder / block["picture"]
            path.parent.mkdir(parents=True, exist_ok=True)
            # without a date, so that the same picture is the same file
            names["ax"].figure.savefig(path, dpi=dpi, metadata={"Software": None})
            pyplot.close(names["ax"].figure)  # pyplot keeps, and counts, those that are open
            out.append(path)
    return out


if __name__ == "__main__":
    for each in (PAGE, *TASKS):
        for picture in drawn(each.parent, each):
            print(picture.relative_to(ROOT))
