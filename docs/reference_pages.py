"""For the site: every name of the reference has a page of its own. A page of docs/reference/ lists
names, `::: probml.NAME`; here each becomes a page, and the list becomes links with the first
sentences of the docstrings. A hook of MkDocs; nothing is executed."""

import posixpath
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "reference"
NAME = re.compile(r"^::: (?P<name>\S+)$", re.MULTILINE)
HEADING = re.compile(r"^## (?P<heading>.+)$", re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.:])\s")


def names(markdown: str) -> list[str]:
    """The names that a page lists, in its order."""
    return NAME.findall(markdown)


def address_of(page: str, name: str) -> str:
    """The address in docs/ of the page of a name; of a class with a word more, since some file
    systems take Calibration and calibration for the same name."""
    own = name.rpartition(".")[2]
    file = f"{own}_class" if own[0].isupper() else own
    return posixpath.join("reference", Path(page).stem, f"{file}.md")


def page_of(name: str) -> str:
    """The page of a name."""
    own = name.rpartition(".")[2]
    return f"---\ntitle: {own}\n---\n\n::: {name}\n    options:\n      heading_level: 1\n"


def groups(markdown: str) -> dict[str, list[str]]:
    """Heading → the names below it; those before the first heading below ""."""
    first, *others = HEADING.split(markdown)
    found = {"": names(first)}
    for heading, body in zip(others[::2], others[1::2], strict=True):
        found[heading] = names(body)
    return {heading: own for heading, own in found.items() if own}


def navigation(page: str, markdown: str) -> list[Any]:
    """The entries below a page of the reference: its names, in its groups."""
    out: list[Any] = [f"reference/{page}"]
    for heading, own in groups(markdown).items():
        pages = [address_of(page, name) for name in own]
        out += [{heading: pages}] if heading else pages
    return out


def summary_of(docstring: str) -> str:
    """The first sentence of a docstring."""
    first = docstring.strip().split("\n\n")[0]
    return SENTENCE.split(" ".join(first.split()))[0].rstrip(".:")


def listed(markdown: str, page: str, summaries: dict[str, str]) -> str:
    """A page whose names have become links, each with a sentence."""
    def link(found: re.Match) -> str:
        name = found["name"]
        to = posixpath.relpath(address_of(page, name), "reference")
        said = summaries.get(name, "")
        return f"- [`{name.rpartition('.')[2]}`]({to}){': ' if said else ''}{said}"

    # an item a line: without the blank lines between names the list is tight
    return re.sub(r"^(- .*)\n\n(?=- )", r"\1\n", NAME.sub(link, markdown), flags=re.MULTILINE)


def summaries(search_path: str, found: list[str]) -> dict[str, str]:
    """Name → the first sentence of its docstring, as the sources have it."""
    import griffe

    package = griffe.load("probml", search_paths=[search_path], try_relative_path=False,
                          resolve_aliases=True)
    out = {}
    for name in found:
        docstring = package[name.removeprefix("probml.")].docstring
        out[name] = summary_of(docstring.value) if docstring else ""
    return out


_said: dict[str, str] = {}


def on_files(files: Any, config: Any) -> Any:
    """The pages of the names, and their places in the navigation."""
    from mkdocs.structure.files import File

    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.md"))}
    every = [name for markdown in sources.values() for name in names(markdown)]
    _said.update(summaries(config.plugins["mkdocstrings"].config.handlers["python"]["paths"][0],
                           every))
    for page, markdown in sources.items():
        for name in names(markdown):
            files.append(File.generated(config, address_of(page, name), content=page_of(name)))

    def opened(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: opened(inside) for title, inside in entry.items()}
        if isinstance(entry, list):
            return [opened(inside) for inside in entry]
        page = entry.removeprefix("reference/")
        has = entry != page and names(sources.get(page, ""))
        return navigation(page, sources[page]) if has else entry

    config.nav = opened(config.nav)
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lists of names become lists of links."""
    folder, own = posixpath.split(page.file.src_uri)
    return listed(markdown, own, _said) if folder == "reference" else markdown
