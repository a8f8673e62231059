"""Findings: each has its numbers, a section in the documentation, and survives a file."""

import ast
import json
import re
import string
from pathlib import Path

import pytest

from probml.engines.findings import Code, Finding

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "how_to" / "warnings.md").read_text()


def fields(code):
    """The numbers that the sentences of a code mention, and whether the parameter is one."""
    every = "".join((code.problem, code.consequence, *code.remedies))
    return {name for _, name, _, _ in string.Formatter().parse(every) if name}


def made():
    """(file and line, codes, names of numbers, whether a parameter is given) of each call of
    Finding.of in the sources, but for those that compute their code."""
    for path in sorted([*(ROOT / "probml").rglob("*.py"), *(ROOT / "models").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding.of":
                codes = [ast.unparse(at)[5:] for at in ast.walk(node.args[0])
                         if isinstance(at, ast.Attribute) and ast.unparse(at).startswith("Code.")]
                names = {keyword.arg for keyword in node.keywords}
                yield f"{path.name}:{node.lineno}", codes, names, len(node.args) > 1


def test_every_finding_that_is_made_has_the_numbers_of_its_sentences():
    seen = set()
    for where, codes, names, parameter in made():
        for code in codes:
            wanted = fields(Code[code])
            assert wanted - {"at"} <= names, (where, code, wanted - names)
            assert parameter or "at" not in wanted, (where, code)
            seen.add(code)
    # those that another table names: endings of runs, scales and guides by their kind
    named = (ROOT / "probml" / "engines" / "engine.py").read_text() + (
        ROOT / "probml" / "fits" / "latent_findings.py").read_text()
    assert {code.name for code in Code} - seen - {"NOTE"} <= set(re.findall(r"Code\.(\w+)", named))


def shown(template):
    """A template as the page shows it."""
    text = re.sub(r"\{[^}]*\}", "…", template.replace("{at}", "'b'"))
    return text[:1].upper() + text[1:]


def test_the_page_of_warnings_has_a_section_for_each_code_and_no_other():
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
    assert set(sections) == {code.value for code in Code}
    for code in Code:
        text = sections[code.value]
        assert f"> {shown(code.problem)}." in text and "Example: " in text, code
        assert shown(code.consequence) in text, code
        assert all(shown(remedy)[1:] in text for remedy in code.remedies), code


@pytest.mark.parametrize("finding", [
    Finding.of(Code.BOUNDARY, "w[1, 2]", end="0", count=""), Finding.of(Code.MAX_ITERATIONS),
    Finding.of(Code.RESTARTS, starts=3, reached=1, lower=None, where="", others="", then="")])
def test_a_finding_is_itself_again_as_json_and_says_what_it_says(finding):
    again = Finding.read(json.loads(json.dumps(finding.record())))
    assert again == finding and hash(again) == hash(finding) and str(again) == str(finding)


def test_a_finding_names_entry_problem_consequence_remedies_and_code():
    found = Finding.of(Code.BOUNDARY, "w[1, 2]", end="0", count="")
    assert (found.parameter, found.entry, found.warns) == ("w", (1, 2), True)
    assert str(found) == (
        "The estimate of 'w[1, 2]' is at the boundary of its possible values (0). Most of the "
        "posterior mass lies away from the boundary, and standard errors are not defined at the "
        "boundary. Remedies: fit with engine=probml.NUTS(); use a prior whose density is 0 at the boundary. "
        "[boundary]")


def test_findings_of_later_versions_are_notes():
    record = Finding.of(Code.MAX_ITERATIONS).record() | {"code": "not-yet-known", "message": "Oh."}
    assert Finding.read(record).code is Code.NOTE
    with pytest.raises(TypeError, match="a warning in the file is damaged"):
        Finding.read({"code": "boundary"})
