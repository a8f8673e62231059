"""For the site: every notebook is a page, with the outputs that it was saved with, and links to
notebooks lead there. A hook of MkDocs; nothing is executed."""

import base64
import json
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent / "notebooks"
GROUPS = {"": "Notebooks", "course": "The course"}
BEHIND = 6  # entries of the navigation: from the start to the tour
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<part>#[^)\s]*)?\)")
BREAKS = re.compile(r"\n\s*\n+")  # a blank line would end what is raw HTML
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Pictures = dict[str, bytes]  # address in the site → PNG


def page_of(path: Path) -> tuple[str, Pictures]:
    """A notebook as Markdown, and its pictures."""
    book, pictures = json.loads(path.read_text(encoding="utf-8")), {}
    parts = []
    for cell in book["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```python\n{source}\n```")
            for output in cell.get("outputs", []):
                shown = _output(output, f"{path.stem}_{len(pictures) + 1}.png", pictures)
                parts += [shown] if shown else []
    return "\n\n".join(parts) + "\n", pictures


def _output(output: dict[str, Any], picture: str, pictures: Pictures) -> str:
    """What a cell showed: a picture, else a table as HTML, else text."""
    data = output.get("data", {})
    if "image/png" in data:
        pictures[picture] = base64.b64decode("".join(data["image/png"]))
        return f"![what the cell above drew]({picture})"
    if "text/html" in data:
        html = BREAKS.sub("\n", "".join(data["text/html"])).strip()
        return f'<div class="output" markdown="0">\n{html}\n</div>'
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    text = COLOURS.sub("", text)
    return f"```text\n{text}\n```" if text.strip() else ""


def title_of(markdown: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    if found is None:
        raise ValueError("a notebook begins with a heading, # …")
    return found[1].strip()


def linked(markdown: str, page: str) -> str:
    """Links of a page that lead out of docs/: those to notebooks, or to their folders, lead to
    their pages; others, to files of the repository, become the names of these.

    Args:
        page: its address in docs/.
    """
    here = posixpath.dirname(page)

    def to(found: re.Match) -> str:
        target = found["target"]
        place = posixpath.normpath(posixpath.join("docs", here, target))
        if "://" in target or target.startswith("mailto:") or place.startswith("docs/"):
            return found[0]
        if place.startswith("notebooks"):
            own = (place.replace(".ipynb", ".md") if place.endswith(".ipynb")
                   else "notebooks/index.md")
            return f"[{found['text']}]({posixpath.relpath(own, here or '.')})"
        return f"{found['text']} (`{place}`)"

    return LINK.sub(to, markdown)


def pages() -> dict[str, tuple[str, Pictures]]:
    """Address of a page → its Markdown and its pictures, in the order of their names; the course
    after the others."""
    found = {}
    for group in GROUPS:
        for path in sorted((ROOT / group).glob("*.ipynb")):
            found[posixpath.join("notebooks", group, f"{path.stem}.md")] = page_of(path)
    return found


def contents(found: dict[str, tuple[str, Pictures]]) -> str:
    """The page that lists them."""
    lines = ["# Notebooks", "", "Executed from top to bottom by the tests; in the repository under "
             "`notebooks/`.", ""]
    for group, own in grouped(found).items():
        lines += [f"## {GROUPS[group]}", ""] if group else []
        lines += [f"- [{title_of(found[address][0])}]({posixpath.relpath(address, 'notebooks')})"
                  for address in own] + [""]
    return "\n".join(lines)


def grouped(found: Iterable[str]) -> dict[str, list[str]]:
    """Folder of notebooks → the addresses of its pages."""
    return {group: [address for address in found if posixpath.dirname(address)
                    == posixpath.join("notebooks", group).rstrip("/")] for group in GROUPS}


def on_files(files: Any, config: Any) -> Any:
    """The pages, beside those of docs/."""
    from mkdocs.structure.files import File

    found = pages()
    files.append(File.generated(config, "notebooks/index.md", content=contents(found)))
    for address, (markdown, pictures) in found.items():
        files.append(File.generated(config, address, content=markdown))
        for name, image in pictures.items():
            place = posixpath.join(posixpath.dirname(address), name)
            files.append(File.generated(config, place, content=image))
    first, *others = grouped(found).items()
    more = [{GROUPS[group]: own} for group, own in others]
    config.nav.insert(BEHIND, {GROUPS[""]: ["notebooks/index.md", *first[1], *more]})
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Links of every page."""
    return linked(markdown, page.file.src_uri)
