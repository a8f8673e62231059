"""BIF text → a network: tokens, blocks, tables, and mistakes by line.

All dialects are read: commas and bars only separate, as in `0.9 0.1` and JavaBayes' `( "wet" "rain"
)`; blocks stand in any order; names and labels are words of any characters (`<5`, `20_MG/L`) or
quoted strings, with \\" and \\\\ for a quote and a backslash; properties are skipped; `default`
gives every configuration not listed; network block, name and count of states may be missing.

A `table` lists the child slowest and the last parent fastest: p(x1|a1 b1), p(x1|a1 b2), …, p(x2|a1
b1), …. So do JavaBayes' dog-problem (`probability ( "light-on" "family-out" ) { table 0.6 0.05 0.4
0.95; }`), aGrUM (rawConditionalTable) and pgmpy; in XMLBIF, another format, the child runs fastest.

Source: Cozman (1996), "The Interchange Format for Bayesian Networks",
    www.cs.washington.edu/dm/vfml/appendixes/bif.htm."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

import probml
from probml.errors import counted, listed

TOLERANCE = 1e-5  # how far the sum of a row may be from 1: files print few digits
# numbers of all tables, 128 MB; the largest of the repositories has 81 thousand
MAX_TABLE_NUMBERS = 2**24
MARKS = {"{", "}", "(", ")", "[", "]", ";"}
ODD = {"": "the end of the file", '"': "an unclosed quote",
       "/*": "an unclosed comment"}
# Whatever only separates, then one token: a quoted string (its quotes kept, so that no string is a
# mark), a word, or a character. A slash in a word opens no comment; a quote or '/*' alone is a
# token where nothing closes it; the last token is empty.
TOKEN = re.compile(
    r"""(?:[\s,|]|//[^\r\n]*|/\*[\s\S]*?\*/)*+"""
    r"""("(?:[^"\\]|\\[\s\S])*"|(?:[^\s,|{}()\[\];"/]|/(?![/*]))+|/\*|[\s\S]|\Z)"""
)


@dataclass(frozen=True, eq=False)
class Network:
    """A discrete Bayesian network as it stands in a file."""

    name: str
    states: dict[str, tuple[str, ...]]  # node → labels, in the order of the file
    parents: dict[str, tuple[str, ...]]  # node → parents, as declared
    # node → float64 (*states of the parents, states); each row sums to 1
    tables: dict[str, np.ndarray]


def parse(text: str, where: str = "the text") -> Network:
    """The network that a BIF text defines.

    Args:
        text: the whole file.
        where: what messages call it, as a rule its path.

    Raises:
        ModelError: "where, line n: …" at the first mistake, naming node and configuration.

    Cost: one regular expression over the text; a few Python steps for each configuration.
    """
    read = _Reader(text, where)
    name, states, lines = "unknown", {}, {}
    blocks: dict[str, tuple[int, tuple[str, ...], list[tuple]]] = {}
    if not read.token:
        read.fail("the file is empty; expected 'network name { … }' and variables")
    while read.token:
        start = read.at
        keyword = read.take()
        if keyword == "network":
            names = read.names("{", "the name of the network")
            name, read.at = " ".join(names) if names else name, read.at - 1
            for token in read.attributes("the network block"):
                read.fail(
                    f"the network block: expected 'property' or '}}', got {_format_token(token)}")
        elif keyword == "variable":
            node = read.name("the name of a variable")
            if node in states:
                read.fail(f"variable '{node}' is declared twice, first on line "
                          f"{read.line(lines[node])}: drop one", start)
            states[node], lines[node] = _states(read, f"variable '{node}'"), start
        elif keyword == "probability":
            node, parents, entries = _block(read)
            if node in blocks:
                read.fail(f"'{node}' has a second probability block; the first is on line "
                          f"{read.line(blocks[node][0])}. Drop one", start)
            blocks[node] = start, parents, entries
        else:
            hint = "" if states else (": not a BIF file (XMLBIF, .net, .dsc and .dne are other "
                                      "formats)")
            read.fail(f"expected 'network', 'variable' or 'probability', got "
                      f"{_format_token(keyword)}{hint}", start)
    if not states:
        read.fail("expected at least one 'variable' block before the end of the file; the file may "
                  "be cut off")
    for node in {**blocks, **states}:
        if node not in states:
            read.fail(f"'{node}' has a probability block but no 'variable' block: declare the "
                      f"variable '{node}', or drop the probability block", blocks[node][0])
        if node not in blocks:
            read.fail(f"variable '{node}' has no probability block: add one; the file may be cut "
                      f"off", lines[node])
    _refuse_large(read, blocks, states)
    tables = {node: _table(read, node, *blocks[node], states) for node in states}
    return Network(name, states, {node: blocks[node][1] for node in states}, tables)


class _Reader:
    """The tokens of a text, the place reached, and errors that tell the line."""

    def __init__(self, text: str, where: str):
        self.text, self.source, self.tokens, self.at = text, where, list(_tokens(text)), 0

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    def line(self, pos: int) -> int:
        """The line of a token. Positions are not kept while reading: the tokens up to this one are
        found once more."""
        match = next(itertools.islice(TOKEN.finditer(self.text), pos, None))
        return self.text.count("\n", 0, match.start(1)) + 1

    def fail(self, problem_and_remedy: str, pos: int | None = None) -> NoReturn:
        line = self.line(self.at if pos is None else pos)
        raise probml.ModelError(f"{self.source}, line {line}: {problem_and_remedy}")

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, mark: str, where: str) -> None:
        if self.token != mark:
            self.fail(f"{where}: expected '{mark}', got {_format_token(self.token)}")
        self.at += 1

    def name(self, what: str) -> str:
        if self.token in MARKS or self.token in ODD:
            self.fail(f"expected {what}, got {_format_token(self.token)}")
        return _unquote(self.take())

    def names(self, end: str, what: str) -> list[str]:
        """All names up to a mark, and past it."""
        names = []
        while self.token != end:
            names.append(self.name(f"{what}, or '{end}'"))
        self.at += 1
        return names

    def find(self, mark: str, where: str) -> int:
        """Where the next such mark stands."""
        try:
            return self.tokens.index(mark, self.at)
        except ValueError:
            self.fail(f"{where}: expected '{mark}', got {ODD['']}", len(self.tokens) - 1)

    def attributes(self, where: str) -> Iterator[str]:
        """The first token of each attribute of a block in braces, properties skipped; the caller
        reads the attribute."""
        self.expect("{", where)
        while self.token != "}":
            if self.token == "property":
                self.at = self.find(";", f"a property of {where}") + 1
            else:
                yield self.token
        self.at += 1

    def numbers(self, node: str, start: int, words: list[str]) -> None:
        """Refuse the first of these tokens that is no number."""
        for pos, token in enumerate(words, start):
            try:
                float(token)
            except ValueError:
                self.fail(f"'{node}': expected a number or ';', got {_format_token(token)}", pos)


def _states(read: _Reader, where: str) -> tuple[str, ...]:
    """The labels of a variable, from behind its name to the end of its block."""
    begin, labels = read.at - 1, []
    for _ in read.attributes(where):
        if labels:
            read.fail(f"{where}: expected 'property' or '}}', got {_format_token(read.token)}")
        read.expect("type", where)
        read.expect("discrete", where)
        start, count = read.at, None
        if read.token == "[":
            read.at += 1
            count = read.names("]", f"the number of states of {where}")
        read.expect("{", where)
        labels = read.names("}", f"a state of {where}")
        read.expect(";", where)
        if len(set(labels)) < len(labels):
            repeated = Counter(labels).most_common(1)[0][0]
            read.fail(f"{where} has the state '{repeated}' twice: {listed(labels)}", start)
        if count not in (None, [str(len(labels))]):
            read.fail(f"{where} gives the number of states as {', '.join(count)}, but lists "
                      f"{len(labels)}: {listed(labels)}", start)
    return tuple(labels) or read.fail(f"{where} has no states: expected type discrete [ 2 ] {{ "
                                      f"no, yes }};", begin)


def _block(read: _Reader) -> tuple[str, tuple[str, ...], list[tuple]]:
    """(child, parents, entries) of a probability block; an entry is (its first token, keyword or
    labels, first number, numbers)."""
    read.expect("(", "probability")
    node, entries = read.name("the name of a variable"), []
    parents = tuple(read.names(")", f"a parent of '{node}'"))
    where = f"the probability block of '{node}'"
    for key in read.attributes(where):
        first = end = read.at
        if key == "(":
            end = read.find(")", where)
        elif key not in ("table", "default"):
            read.fail(f"{where}: expected '(', 'table', 'default', 'property' or '}}', got "
                      f"{_format_token(key)}")
        read.at = start = end + 1
        words = read.tokens[start : read.find(";", where)]
        if "}" in words:  # a semicolon is missing, and what follows is no part of the block
            read.numbers(node, start, words)
        labels = [_unquote(label) for label in read.tokens[first + 1 : end]]
        entries.append((first, labels if key == "(" else key, start, words))
        read.at += len(words) + 1
    return node, parents, entries


def _refuse_large(read: _Reader, blocks: dict, states: dict) -> None:
    """A few words (`default`, many parents) may stand for more numbers than memory holds."""
    total = 0
    for node, (place, parents, _) in blocks.items():
        total += math.prod(len(states.get(name, "?")) for name in (node, *parents))
        if total > MAX_TABLE_NUMBERS:
            read.fail(f"the table of '{node}', which has {counted(len(parents), 'parent')}, and "
                      f"the tables of earlier blocks would have more than {MAX_TABLE_NUMBERS:,} "
                      f"numbers. Give '{node}' fewer parents", place)


class _Block(NamedTuple):
    """A probability block: the node, its parents, the states of all nodes, the block's place."""

    node: str
    parents: tuple[str, ...]
    states: dict
    at: int

    @property
    def sizes(self) -> list[int]:
        return [len(self.states[parent]) for parent in self.parents]

    @property
    def rows(self) -> int:
        return math.prod(self.sizes)

    def row(self, index: int) -> str:
        """A row of the table in a message; the number `rows` is the default."""
        if index == self.rows:
            return f"the default of '{self.node}'"
        if not self.parents:
            return f"'{self.node}'"
        codes = np.unravel_index(index, self.sizes)
        return f"'{self.node}' given " + ", ".join(
            f"{parent}={self.states[parent][code]}"
            for parent, code in zip(self.parents, codes, strict=True))


def _table(read: _Reader, node: str, place: int, parents: tuple[str, ...], entries: list[tuple],
           states: dict) -> np.ndarray:
    """The table (*states of the parents, states) of a probability block; every row checked."""
    counts = Counter(parents)
    stray = next((parent for parent in parents if parent not in states or counts[parent] > 1), None)
    if stray is not None:
        read.fail(f"'{node}': the parent '{stray}' "
                  f"{'is listed twice' if stray in states else 'is not a variable of the file'}",
                  place)
    block = _Block(node, parents, states, place)
    places, numbers = _entries_by_row(read, block, entries)
    k, rows, order = len(states[node]), block.rows, np.array(list(places))
    try:
        values = np.array(list(map(float, numbers))).reshape(-1, k)
    except ValueError:
        for _, _, start, words in entries:
            read.numbers(node, start, words)
        raise
    sums = values.sum(-1)
    # what is not a number is wrong both times
    invalid = ~((values >= 0).all(-1) & (np.abs(sums - 1) <= TOLERANCE))
    if invalid.any():
        i = int(invalid.argmax())
        read.fail(f"{block.row(order[i])}: {_why_no_distribution(block, entries, values, i)}",
                  places[order[i]])
    # A quotient sums to 1 within k units of the last place: what was read, written and read again
    # stays the same to the last bit.
    values = np.where(np.abs(sums - 1) <= k * np.finfo(float).eps, values.T, values.T / sums).T
    table = np.empty((rows, k))
    table[:] = values[order == rows] if rows in places else 0.0
    table[order[order < rows]] = values[order < rows]
    return table.reshape(*block.sizes, k)


def _entries_by_row(read: _Reader, block: _Block, entries: list[tuple]
                    ) -> tuple[dict[int, int], list]:
    """(row → the place of its entry, their numbers row after row), the default last of the rows;
    every row given once."""
    node, parents, states, block_at = block
    k, rows = len(states[node]), block.rows
    codes = [{label: code for code, label in enumerate(states[parent])} for parent in parents]
    places: dict[int, int] = {}
    numbers: list = []
    for place, key, start, words in entries:
        is_table = key == "table"
        indices = range(rows) if is_table else [rows] if key == "default" else [
            _index(read, node, place, key, parents, codes)
        ]
        if len(words) != k * len(indices):
            # a word among them, as where a semicolon is missing, explains the count
            read.numbers(node, start, words)
            what = f"the table of '{node}'" if is_table else block.row(indices[0])
            read.fail(f"{what}: expected {k * len(indices)} probabilities, one for each state of "
                      f"'{node}' ({listed(states[node])}) in each row, got {len(words)}", place)
        repeated = next((index for index in indices if index in places), None)
        if repeated is not None:
            read.fail(f"{block.row(repeated)} is given twice, first on line "
                      f"{read.line(places[repeated])}: drop one", place)
        places.update(dict.fromkeys(indices, place))
        numbers += ([number for index in indices for number in words[index::rows]]
                    if is_table else words)
    if rows not in places and len(places) < rows:
        missing = next(index for index in range(rows) if index not in places)
        read.fail(f"{block.row(missing)} has no probabilities; {rows - len(places)} of "
                  f"{counted(rows, 'row')} have none. Add these rows, or a default", block_at)
    return places, numbers


def _why_no_distribution(block: _Block, entries: list[tuple], values: np.ndarray, i: int) -> str:
    """What is wrong with the probabilities of a row."""
    bad = [value for value in values[i] if not 0 <= value < math.inf]
    problem = (f"expected probabilities between 0 and 1, got "
               f"{bad[0]:g}" if bad else f"the probabilities sum to {values[i].sum():.10g}, "
                                         f"expected 1 (within {TOLERANCE:g}). Correct this row")
    rows, k = block.rows, values.shape[1]
    if entries[0][1] == "table" and (
        np.abs(values[:rows].T.reshape(rows, k).sum(-1) - 1) <= TOLERANCE
    ).all():
        problem += (". In BIF the states of the last parent change fastest. With the states of "
                    f"'{block.node}' changing fastest, as in XMLBIF, all rows would sum to 1: "
                    "reorder the numbers")
    return problem


def _index(read: _Reader, node: str, place: int, labels: list[str], parents: tuple[str, ...],
           codes: list[dict[str, int]]) -> int:
    """The number of a configuration, the last parent running fastest."""
    if len(labels) != len(parents):
        read.fail(f"'{node}': expected one label for each parent ({listed(parents) or 'none'}) "
                  f"before the probabilities, got ({', '.join(labels)})", place)
    index = 0
    for label, parent, code in zip(labels, parents, codes, strict=True):
        if label not in code:
            read.fail(f"'{node}': expected a state of the parent '{parent}' ({listed(code)}) "
                      f"before the probabilities, got '{label}'", place)
        index = index * len(code) + code[label]
    return index


def _tokens(text: str) -> Iterator[str]:
    """The tokens of a text; none behind a quote or a comment that is never closed, which is a
    mistake: each such mark would be looked for to the end again."""
    for match in TOKEN.finditer(text):
        yield match[1]
        if match[1] in ('"', "/*"):
            yield ""
            return


def _unquote(token: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", token[1:-1]) if token.startswith('"') else token


def _format_token(token: str) -> str:
    return ODD.get(token) or repr(token[:40])
