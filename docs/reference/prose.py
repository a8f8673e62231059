"""For the reference: sections of docstrings that are prose, such as attributes told in a sentence,
stay prose; griffe would drop the lines that are no `name: description`. A parameter of an estimator
has the default that a user sees. A class whose docstring has no Args is not made by users, and has
no constructor here."""

import re
import textwrap

import griffe

HEAD = re.compile(r"^(Args|Attributes|Raises):[ \t]*\n((?:[ ]{4,}.*\n?|[ \t]*\n)+)", re.MULTILINE)
SAID = re.compile(r"^(Args|Attributes|Raises): (\S.*(?:\n[ ]+\S.*)*)", re.MULTILINE)
ITEM = re.compile(r"[\w*., ]+(\(.*?\))?:( |$)")


def told(text: str) -> str:
    """The docstring with its prose as paragraphs."""
    text = SAID.sub(lambda found: f"**{found[1]}**: {' '.join(found[2].split())}", text)
    return HEAD.sub(_section, text)


def _section(found: re.Match) -> str:
    body = textwrap.dedent(found[2])
    starts = [line for line in body.splitlines() if line.strip() and not line.startswith(" ")]
    if all(ITEM.match(line) for line in starts):
        return found[0]
    return f"**{found[1]}**\n\n{body}"


NAMES = re.compile(r"^(?P<names>\w+(?:, \w+)+): (?P<text>.*)$")


def single(text: str) -> str:
    """A docstring whose arguments that share a description have an item each: of the second and
    later ones it refers to the first."""
    out, more, margin = [], [], 0
    for line in [*text.splitlines(), ""]:
        indent = len(line) - len(line.lstrip())
        if more and (not line.strip() or indent <= margin):  # the end of the shared description
            out += more
            more = []
        found = NAMES.match(line.strip()) if indent else None
        if found:
            first, *others = found["names"].split(", ")
            margin = indent
            out.append(f"{' ' * indent}{first}: {found['text']}")
            more = [f"{' ' * indent}{name}: see `{first}`." for name in others]
        else:
            out.append(line)
    return "\n".join(out[:-1])


class Prose(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = told(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: object) -> None:
        """Before griffe makes the constructors of dataclasses from the members."""
        if cls.docstring is None or "Args:" not in cls.docstring.value:
            cls.decorators = [at for at in cls.decorators if "dataclass" not in str(at.value)]
            cls.members.pop("__init__", None)
        else:
            cls.docstring.value = single(cls.docstring.value)
        for member in cls.members.values():
            value = member.value if member.is_attribute else None
            if isinstance(value, griffe.ExprCall) and str(value.function) == "parameter":
                member.value = value.arguments[0]
