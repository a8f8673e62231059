"""`make gallery`: the pictures of docs/gallery.md, drawn by the code beside them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PAIR = re.compile(r"!\[(?P<words>[^\]]+)\]\((?P<picture>[^)]+)\)\n\n```python\n(?P<code>.*?)```",
                  re.DOTALL)


def drawn(folder: Path, dpi: int = 90) -> list[Path]:
    """The pictures of the page, drawn into a folder."""
    from matplotlib import pyplot

    names, out = {"__name__": "gallery"}, []
    for pair in PAIR.finditer(PAGE.read_text(encoding="utf-8")):
        exec(compile(pair["code"], pair["picture"], "exec"), names)
        path = folder / pair["picture"]
        path.parent.mkdir(parents=True, exist_ok=True)
        # without a date, so that the same picture is the same file
        names["ax"].figure.savefig(path, dpi=dpi, metadata={"Software": None})
        pyplot.close(names["ax"].figure)  # pyplot keeps, and counts, those that are open
        out.append(path)
    return out


if __name__ == "__main__":
    for picture in drawn(PAGE.parent):
        print(picture.relative_to(ROOT))
