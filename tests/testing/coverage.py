"""Which mechanisms of models the tests try together, and which questions they ask of each.

    python tests/testing/coverage.py            # two tables in Markdown
    python tests/testing/coverage.py --never    # the pairs that no test tries

A test is said to try a mechanism where it, or a function of its module that it calls, contains it. It is read
from the source, nothing is run: a pair that is counted may still be tried weakly, a pair with none is not tried.
"""

import argparse
import ast
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

TESTS = Path(__file__).parents[1]

# mechanism → what its source looks like
MECHANISMS = {
    "mixture": r"MixtureSameFamily|\[z\b|\[kind\b|\[state\b|\[cluster\b|\[component\b",
    "Markov chain": r"\bMarkovChain\(",
    "Gaussian chain": r"GaussianChain\(|local_level\(|local_trend\(",
    "scan": r"\bscan\(",
    "effect of a group": r"\[(g|group|school|unit|subject|clinic|county|batch|person|item|ward)\]",
    "latent number of a row": r"rows\([^)]*\):(?:\n.*){0,9}?\n\s+(u|b|eta|latent|ability|p|rate|frailty|f|theta)"
                              r" = sample\(\"\w+\", dist\.(?!Dirichlet|Bernoulli|Categorical)",
    "vector by a matrix": r"@ (w|loadings?|W|beta|B|coef)\b|\.T\b",
    "plate in rows": r"rows\([^)]*\)[^:]*:(?:\n.*){1,6}?\n\s+with (numpyro\.)?plate",
    "factor": r"\bfactor\(",
    "mask": r"\bmask\(|\.mask\(",
    "censored or truncated": r"Truncated|censor|log_cdf|\.cdf\(|log_ndtr|Censored",
    "Dirichlet in rows": r"rows\([^)]*\):(?:\n.*){1,6}?dist\.Dirichlet",
    "matrix parameter": r"LKJ|Wishart|MatrixNormal|covariance_matrix|scale_tril",
    "deterministic": r"deterministic\(",
    "two tables": r"of=\"",
    "pasted NumPyro function": r"obs=",
    "discrete outside rows": r"(?m)^    (def .*:\n(        (?!with).*\n)*?        (with plate.*\n\s+)?)?"
                             r"\w+ = sample\(\"\w+\", dist\.(Bernoulli|Categorical)",
    "label probabilities": r"soft|evidence of a label|label prob",
    "missing cells": r"\bnan\b|holes|holed|None,",
    "weights": r"weights=",
    "text labels": r"dtype=object|\[\"[a-z]+\", \"[a-z]+\"|pd\.Categorical",
    "float32": r"enable_x64\(False\)|float32",
    "inputs along time": r"\(n, t|steps=.*x=|x\[\.\.\., None\]|inhomogeneous",
}
QUESTIONS = {
    "predict": r"\.predict\(", "interval": r"interval=", "predict_proba": r"\.predict_proba\(",
    "joint": r"\.joint\(", "decode": r"\.decode\(", "impute": r"\.impute\(",
    "conditional": r"\.conditional\(", "simulate": r"\.simulate\(", "given=": r"given=",
    "do": r"\.do\(", "log_prob": r"\.log_prob\(|\.score\(", "forecast": r"\.forecast\(",
    "new groups": r"unknown=", "compare": r"compare\(", "evidence": r"log_evidence",
    "check": r"\.check\(", "merge or update": r"\.merge\(|\.update\(", "save": r"\.save\(|load\(",
    "to_arviz": r"to_arviz", "table": r"\.table\(", "decide": r"decide\(|calibration\(",
}


def tests() -> list[tuple[set[str], set[str]]]:
    """(mechanisms, questions) of every test."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        nodes = [node for node in ast.parse(text).body
                 if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        functions = {**_imported(path, text),
                     **{node.name: ast.get_source_segment(text, node) or "" for node in nodes}}
        cases = {node.name for node in nodes if path.parent.name == "strangers"
                 and node.decorator_list}
        for name in (node.name for node in nodes):
            if name.startswith("test_") or name in cases and "close(" in functions[name]:
                whole = "\n".join(functions[other] for other in _called(name, functions))
                found.append((_matching(MECHANISMS, whole), _matching(QUESTIONS, whole)))
    return found


def _imported(path: Path, text: str) -> dict[str, str]:
    """The functions that a module has from others of its folder."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (own := path.with_name(f"{node.module}.py")).exists():
            other, names = own.read_text(), {alias.name for alias in node.names}
            found |= {part.name: ast.get_source_segment(other, part) or "" for part in ast.parse(
                other).body if isinstance(part, ast.FunctionDef) and part.name in names}
    return found


def _called(name: str, functions: dict[str, str]) -> set[str]:
    """The function, and those of its module that it names, and so on."""
    seen, left = set(), [name]
    while left:
        seen.add(one := left.pop())
        words = set(re.findall(r"\w+", functions[one]))
        left += [other for other in functions if other in words and other not in seen]
    return seen


def _matching(patterns: dict[str, str], text: str) -> set[str]:
    return {name for name, pattern in patterns.items() if re.search(pattern, text)}


def generated(cases: int = 500) -> list[tuple[set[str], set[str]]]:
    """The same of what the generator of random_models draws: all questions of its claims."""
    import random_models as testing
    from hypothesis import HealthCheck, Phase, given, settings

    found, asked = [], {"predict_proba", "joint", "decode", "impute", "conditional", "given=", "do",
                        "log_prob", "evidence", "check", "merge or update", "save"}

    @settings(max_examples=cases, deadline=None, database=None, phases=[Phase.generate], derandomize=True,
              suppress_health_check=list(HealthCheck))
    @given(testing.cases())
    def draw(case):
        found.append((_of_recipe(case), asked))

    draw()
    return found


def _of_recipe(case) -> set[str]:
    sites = case.recipe["sites"]
    kinds = {site["kind"] for site in sites}
    below = {name for site in sites for name in (*site.get("adds", ()), site.get("takes"))}
    adds = {name for site in sites for name in site.get("adds", ())}
    said = {
        "mixture": "peaks" in kinds or "rates" in kinds or any(
            name in case.hidden for site in sites for name in site.get("parents", ())),
        "Markov chain": "chain" in kinds, "Gaussian chain": "walk" in kinds,
        "effect of a group": bool(adds & {"group", "unit"}),
        "latent number of a row": bool(below & case.hidden.keys()),
        "vector by a matrix": any(site.get("width") for site in sites),
        "plate in rows": any(site.get("layout") in ("plate", "grid") for site in sites),
        "censored or truncated": bool(kinds & {"truncated", "cut"}),
        "Dirichlet in rows": "shares" in kinds, "matrix parameter": False,
        "deterministic": any(site.get("tells") for site in sites),
        "discrete outside rows": bool(case.outside),
        "label probabilities": "soft" in case.hidden.values(),
        "missing cells": "part" in case.hidden.values(), "weights": True, "text labels": True,
        "float32": True, "inputs along time": "t" in adds,
    }
    return {name for name, true in said.items() if true}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--never", action="store_true", help="only pairs that no test tries")
    never = parser.parse_args().never
    written, drawn = tests(), generated()
    pairs, asked, made, answered = Counter(), Counter(), Counter(), Counter()
    for source, both, questions in ((written, pairs, asked), (drawn, made, answered)):
        for mechanisms, ask in source:
            both.update(frozenset(two) for two in combinations(sorted(mechanisms), 2))
            questions.update((m, q) for m in mechanisms for q in ask)
    names = list(MECHANISMS)
    if never:
        print("mechanism × mechanism:", *(f"{a} × {b}" for a, b in combinations(names, 2)
              if not pairs[frozenset((a, b))] + made[frozenset((a, b))]), sep="\n  ")
        print("mechanism × question:", *(f"{m} × {q}" for m in names for q in QUESTIONS
              if not asked[m, q] + answered[m, q]), sep="\n  ")
        return
    tried = [pairs[frozenset(two)] + made[frozenset(two)] for two in combinations(names, 2)]
    answered_by = [asked[m, q] + answered[m, q] for m in names for q in QUESTIONS]
    print(f"{len(written)} tests; {len(drawn)} cases of the generator; of {len(tried)} pairs of "
          f"mechanisms {tried.count(0)} are never tried, of {len(answered_by)} pairs of a mechanism "
          f"and a question {answered_by.count(0)}\n")
    print("| |", " | ".join(map(str, range(1, len(names) + 1))), "|")
    print("|---" * (len(names) + 1) + "|")
    for i, a in enumerate(names):
        row = ["" if j >= i else str(pairs[frozenset((a, b))] + made[frozenset((a, b))])
               for j, b in enumerate(names)]
        print(f"| {i + 1} {a} |", " | ".join(row), "|")
    print("\n| |", " | ".join(QUESTIONS), "|")
    print("|---" * (len(QUESTIONS) + 1) + "|")
    for m in names:
        print(f"| {m} |", " | ".join(str(asked[m, q] + answered[m, q]) for q in QUESTIONS), "|")


if __name__ == "__main__":
    main()
