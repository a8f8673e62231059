"""Every sentence that a user can meet uses the words of textbooks, not those of this project.

A string, a docstring of a public name or a sentence of a page (README, CHANGELOG, docs, notebooks)
that contains one of the words of WORDS fails, with its place.
`python tests/test_plain_words.py [FOLDER]` lists them, below a folder of the repository.
"""

import ast
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("probml", "models")
FEW = 3  # words: a shorter string is a name or a code

# a word of this project → the word of the field
WORDS = {
    r"seen|unseen": "observed, missing, latent",
    r"looks? at|looked at": "depends on",
    r"told|untold|tells?": "identified, estimated, reported",
    r"climb(?:s|ed|ing)?": "optimisation",
    r"judg(?:e|es|ed|ing)": "evaluated",
    r"a word|word is said": "warning",
    r"typical": "posterior mean",
    r"spreads?": "standard deviation, scale",
    r"turns? of": "correlation",
    r"nats": "log-likelihood lower by",
    r"faces?": "estimator",
    r"zoo": "model library",
    r"ladder|rungs?": "order of engines",
    r"torn": "partially observed",
    r"beside": "together with, in addition to",
    r"held(?![ -]out)|kept": "fixed, stored",
    r"ends differ": "local optima",
    r"soft labels": "label probabilities",
    r"in parts": "in batches",
    r"(?:too few|few) digits": "precision",
    r"as high|runs? away": "not identified, diverges",
    r"stands? (?:in|for)|in place of": "is in, instead of",
    r"reach(?:es)? the rows|show(?:s|n)? themselves": "enters the likelihood",
}
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)

# a phrase that may stay → why
ALLOWED = {
    "unseen: latent nodes": "an argument of adjustment_sets",
    "spread: ": "an argument of item_response and multidimensional_scaling",
    "see `unseen`": "a module that the docstring of structure_score refers to",
    "hill climbing": "the field's own term",
    "A new look at": "the title of a paper of Akaike's",
}
# warnings of other libraries, which the code ignores by their text
FOREIGN = {"X has feature names", "The least populated class", "Solver terminated early"}
# arguments of other libraries that messages name
OF_OTHERS = {"days", "decimal", "encoding", "frozen", "margins", "npartitions", "sep", "subset",
             "use_colnames", "n_features"}
# what is code in a page, and links' targets
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL)


def strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every literal that is no docstring; {} for the values of an f-string."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(value.value if isinstance(value, ast.Constant) else "{}"
                                   for value in node.values)
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                yield from strings(value.value)
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def words_of(text: str) -> list[str]:
    """The words of a text that are none of the field's."""
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    return sorted({found.lower() for found in PATTERN.findall(text)})


def advice(text: str) -> str:
    """Those words, each with what to write instead."""
    return "; ".join(f"{word} (write: {field})" for word in words_of(text)
                     for own, field in WORDS.items() if re.fullmatch(own, word, re.IGNORECASE))


def of_strings(below: str = "") -> list[str]:
    """A line for each string with such a word, in the files below a folder."""
    out = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(below):
            continue
        for line, text in strings(ast.parse(path.read_text(encoding="utf-8"))):
            found = advice(text) if len(text.split()) >= FEW else ""
            if found:
                out.append(f"{name}:{line}: {found}: {text[:200]!r}")
    return out


def public() -> Iterator[tuple[str, object]]:
    """(name, object) of the names that a user imports, and of the methods of the classes."""
    import probml
    import probml.models

    for module, names in ((probml, probml.__all__), (probml.models, probml.models.__all__)):
        for name in names:
            found = getattr(module, name)
            yield f"{module.__name__}.{name}", found
            for method, value in inspect.getmembers(found) if inspect.isclass(found) else ():
                if not method.startswith("_") and callable(value):
                    yield f"{module.__name__}.{name}.{method}", value


def of_docstrings() -> list[str]:
    """A line for each docstring of a public name with such a word; one of several names once."""
    out, met = [], set()
    for name, found in public():
        module = sys.modules.get(getattr(inspect.unwrap(found), "__module__", None) or "")
        path = Path(getattr(module, "__file__", None) or sys.executable).resolve()
        own = found.__dict__.get("__doc__") if inspect.isclass(found) else found.__doc__
        ours = any(path.is_relative_to(ROOT / room) for room in ("probml", "models"))
        if not own or own in met or not ours:
            continue
        met.add(own)
        place = path.relative_to(ROOT).as_posix()
        text = " ".join(own.split())
        if advice(text):
            shown = PATTERN.search(text)
            at = max(0, shown.start() - 60) if shown else 0
            out.append(f"{place}: {name}: {advice(text)}: …{text[at:at + 160]!r}")
    return out


def pages() -> list[Path]:
    """The pages that users read; the glossary names words of this project as such."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "glossary.md"]
    return sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *docs,
                   *(ROOT / "notebooks").rglob("*.ipynb")])


def text_of(page: Path) -> str:
    """Its Markdown: of a notebook that of its cells of text."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(text: str) -> str:
    """A page without its code; its lines keep their numbers."""
    return CODE.sub(lambda code: "\n" * code[0].count("\n"), text)


def of_pages() -> list[str]:
    """A line for each line of a page with such a word."""
    return [f"{path.relative_to(ROOT).as_posix()}:{number}: {found}: {line[:200]!r}"
            for path in pages()
            for number, line in enumerate(prose(text_of(path)).splitlines(), 1)
            if (found := advice(line))]


def test_pages_are_in_plain_words():
    found = of_pages()
    assert not found, "\n".join(found)


def test_messages_are_in_plain_words():
    found = of_strings()
    assert not found, "\n".join(found)


def test_docstrings_of_public_names_are_in_plain_words():
    found = of_docstrings()
    assert not found, "\n".join(found)


def filters() -> Iterator[tuple[str, str]]:
    """(place, pattern) of the warnings that the code itself ignores by their text."""
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.filterwarnings":
                message = [key.value for key in node.keywords if key.arg == "message"]
                for text in (*node.args[1:2], *message):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", ast.literal_eval(text)


def test_a_warning_that_the_code_ignores_has_the_text_of_the_filter():
    texts = [text for room in ROOMS for path in (ROOT / room).rglob("*.py")
             for _, text in strings(ast.parse(path.read_text(encoding="utf-8")))]
    lost = [f"{place}: {pattern}" for place, pattern in filters() if pattern not in FOREIGN
            and not any(re.match(pattern, text) for text in texts if text != pattern)]
    assert not lost, "\n".join(lost)


NO_OBJECT = re.compile(r'^ *def (\w+)\((?:[^"#]|"[^"]*"(?!"))*?"{3}'
                       r"((?:Of|By|On|In|That|So|The same (?:of|for|at|where|as|without))\b.{0,40})",
                       re.MULTILINE)


def arguments() -> set[str]:
    """The names of the arguments of NumPyro's distributions, and of our functions and classes."""
    import numpyro
    import numpyro.distributions as dist

    made = [value.__init__ for value in vars(dist).values() if inspect.isclass(value)
            and issubclass(value, dist.Distribution)]
    found = {name for function in (numpyro.sample, numpyro.plate.__init__, *made)
             for name in inspect.signature(function).parameters}
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                found |= {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            elif isinstance(node, ast.ClassDef):
                found |= {each.target.id for each in node.body
                          if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    return found


def test_an_argument_that_a_message_names_exists():
    """Messages had named an argument distributions= of bayesian_network, which has none."""
    known = arguments() | OF_OTHERS
    lost = [f"{path.relative_to(ROOT)}:{line}: {name}=" for room in ROOMS
            for path in sorted((ROOT / room).rglob("*.py"))
            for line, text in strings(ast.parse(path.read_text(encoding="utf-8")))
            if len(text.split()) >= FEW and not re.search(r"</?[a-z]|=\"|=\[|var ", text)
            for name in re.findall(r"(?<![\w.\-{])([a-z_]\w*)=(?!=)", text) if name not in known]
    assert not lost, "\n".join(lost)


LONGEST = 25  # words of a sentence of a message
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z'`({])|\n")
# a style sheet, a script, a page or a picture
MARKUP = re.compile(r"</?[a-z]|=\"|=\[|var |[;{]--")


def test_sentences_of_messages_are_short():
    """A value counts as one word."""
    long = [f"{path.relative_to(ROOT)}:{line}: {len(sentence.split())} words: {sentence}"
            for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))
            for line, text in strings(ast.parse(path.read_text(encoding="utf-8")))
            if not MARKUP.search(text)
            for sentence in SENTENCE.split(text) if len(sentence.split()) > LONGEST]
    assert not long, "\n".join(long)


def test_a_type_in_a_message_has_its_article():
    """"got a int" came from "a {type(value).__name__}"; `errors.type_of` has the article."""
    wrong = [f"{path.relative_to(ROOT)}:{node.lineno}" for room in ROOMS
             for path in sorted((ROOT / room).rglob("*.py"))
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.JoinedStr)
             for before, value in itertools.pairwise(node.values)
             if re.search(r"\ban? $", str(getattr(before, "value", "")))
             and isinstance(value, ast.FormattedValue)
             and re.fullmatch(r"type\(.*\)\.__name__", ast.unparse(value.value))]
    assert not wrong, "\n".join(wrong)


# an expression that counts, the plural behind it, and those that are never one
COUNT = re.compile(r"(?:len|sum|round|int)\(|.*(?:\.size|\b(?:rows|steps|max_iter)|\.shape\[.*\]"
                   r"|\.sum\(\))$|[dkn]\b")
PLURAL = re.compile(r" (?:[a-z]+ )?(?:rows|columns|values|numbers|entries|states|components|steps"
                    r"|iterations|dimensions|bins|labels|tables|elements|sites|classes)\b(?!=)")
NEVER_ONE = {"mask.size": "of an array", "stats.rows": "a sum of weights"}


def test_a_count_in_a_message_has_its_noun_in_the_singular_where_it_is_one():
    """"1 columns" came from "{d} columns"; `errors.counted` has both. An n × n table has n² numbers."""
    wrong = [f"{path.relative_to(ROOT)}:{value.lineno}: {ast.unparse(value.value)}{after.value}"
             for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.JoinedStr)
             for before, value, after in zip([None, *node.values], node.values,
                                             node.values[1:], strict=False)
             if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)
             and COUNT.match(ast.unparse(value.value)) and PLURAL.match(after.value)
             and ast.unparse(value.value) not in NEVER_ONE
             and not str(getattr(before, "value", "")).endswith("× ")]
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_functions_begin_with_what_they_return():
    """"Of a site outside rows" says what a function is about, and not what it returns."""
    found = [f"{path.relative_to(ROOT)}: {name}: {text}" for room in ROOMS
             for path in sorted((ROOT / room).rglob("*.py"))
             for name, text in NO_OBJECT.findall(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


# several values in Python's own form, all of them
SEVERAL = re.compile(r"(?:list|sorted|tuple)\(|\[|.*\.tolist\(\)$")


def lists_in_messages(function: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, expression) of the lists that f-strings print, and of the names bound to lists."""
    bound = {ast.unparse(target) for node in ast.walk(function) if isinstance(node, ast.Assign)
             and re.match(r"list\(|sorted\(|\[", ast.unparse(node.value))
             for target in node.targets}
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr) and len(ast.unparse(node).split()) >= FEW:
            for value in node.values:
                said = ast.unparse(value.value) if isinstance(value, ast.FormattedValue) else ""
                if said in bound or SEVERAL.match(said):
                    yield value.lineno, said


def test_messages_name_at_most_twelve_of_many():
    """A model of a hundred parameters had all of them in a message: errors.listed names twelve."""
    found = {f"{path.relative_to(ROOT)}:{line}: {{{said}}}" for room in ROOMS
             for path in (ROOT / room).rglob("*.py")
             for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(function, ast.FunctionDef)
             for line, said in lists_in_messages(function)}
    assert not found, "\n".join(sorted(found))


def test_words_are_found_where_they_are():
    assert words_of("'y' is unseen, and looks at 'x'") == ["looks at", "unseen"]
    assert advice("'y' is unseen") == "unseen (write: observed, missing, latent)"
    assert words_of("held-out rows; a held value; the surface of faceted foreseen things") == ["held"]
    assert list(strings(ast.parse("def f():\n    'unseen'\n    return f'is {x} seen'"))) == [
        (3, "is {} seen")]
    assert prose("seen `unseen`\n```text\nzoo\n```\n[face](zoo.md)").split() == ["seen", "[face"]


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else ""
    print(*of_strings(folder), *(line for line in (*of_docstrings(), *of_pages())
                                 if line.startswith(folder)), sep="\n")
