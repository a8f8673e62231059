"""BIF in every dialect, every mistake on its line, and files that come back to the last bit."""

import gzip
import json
import math
import os
import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import probml
from probml.models import bayesian_network, gaussian_mixture
from probml.models.bayesian_networks.bif import MAX_FILE_BYTES, read_bif, render, write_bif
from probml.models.bayesian_networks.bif_reader import Network, parse

VARIABLES = """network sprinkler { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable wet { type discrete [ 3 ] { dry, damp, wet }; }
"""
RAIN = "probability ( rain ) { table 0.8, 0.2; }\n"
WET = "probability ( wet | rain ) { (no) 0.9, 0.1, 0.0; (yes) 0.2, 0.3, 0.5; }\n"
BIF = VARIABLES + RAIN + WET
TABLE = [[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]


def same(one: Network, two: Network) -> bool:
    """Every name, order and bit."""
    return (
        one.name == two.name
        and list(one.states.items()) == list(two.states.items())
        and one.parents == two.parents
        and all(np.array_equal(one.tables[node], two.tables[node]) for node in one.states)
    )


def one(block: str, states: str = "{ a, b }") -> np.ndarray:
    """The table of a single variable x."""
    return parse(
        f"variable x {{ type discrete [ 2 ] {states}; }} probability ( x ) {{ {block} }}"
    ).tables["x"]


def test_names_states_parents_and_tables_are_those_of_the_file():
    network = parse(BIF)
    assert network.name == "sprinkler"
    assert list(network.states.items()) == [("rain", ("no", "yes")),
                                            ("wet", ("dry", "damp", "wet"))]
    assert network.parents == {"rain": (), "wet": ("rain",)}
    np.testing.assert_array_equal(network.tables["rain"], [0.8, 0.2])
    np.testing.assert_array_equal(network.tables["wet"], TABLE)
    assert network.tables["wet"].dtype == np.float64


DIALECTS = {
    "no commas": lambda text: text.replace(",", " "),
    "commas without blanks": lambda text: text.replace(", ", ","),
    "one line": lambda text: text.replace("\n", " "),
    "a line for each token": lambda text: text.replace(" ", "\n"),
    "Windows' lines": lambda text: text.replace("\n", "\r\n"),
    "line comments, in which a semicolon counts for nothing": lambda text: text.replace(
        "\n", " // ; } \"\n"
    ),
    "comments behind a label, as Hugin's": lambda text: text.replace(
        "no,", 'no, // "no"\n'
    ).replace("yes }", 'yes// "y"\n}'),
    "block comments": lambda text: text.replace(" {", " /* { // * */ {").replace("yes", "/**/yes"),
    "a heading": lambda text: "// made by hand\n\n/* two\nlines */" + text,
    "no blanks around marks": lambda text: text.replace(
        " ( ", "("
    ).replace(" ) ", ")").replace(" { ", "{").replace("[ 2 ]", "[2]"),
    "JavaBayes' header without a bar": lambda text: text.replace("wet | rain", '"wet" "rain"'),
    "everything quoted": lambda text: text.replace("no", '"no"').replace("yes", '"yes"').replace(
        "rain", '"rain"'
    ),
    "properties": lambda text: text.replace("{ type", '{ property position = ( 25, 471 ); property '
                                            '"a; }" ; type').replace(
        "{ table", "{ property credal-set 1.1; table"
    ),
    "properties behind the type and in the network": lambda text: text.replace(
        "}; }", "}; property weight = None ; }"
    ).replace(
        "{ }", "{ property version 1.0; property author x; }"
    ),
    "probabilities before variables": lambda text: RAIN + WET + VARIABLES,
    "rows in another order": lambda text: VARIABLES + RAIN
    + WET.replace("(no)", "(?)").replace("(yes)", "(no)").replace("(?)", "(yes)")
    .replace("0.9, 0.1, 0.0", "_").replace("0.2, 0.3, 0.5",
                                           "0.9, 0.1, 0.0").replace("_", "0.2, 0.3, 0.5"),
    "a default for the rest": lambda text: text.replace("(no)", "default"),
    "a default first": lambda text: VARIABLES + RAIN + "probability ( wet | rain ) { default 0.9 "
    "0.1 0; (yes) 0.2, 0.3, 0.5; }",
    "a default of a root, as aGrUM writes": lambda text: text.replace("table", "default"),
    "a default that nothing needs": lambda text: text.replace("{ table",
                                                              "{ default 0.5 0.5; table"),
    "an empty configuration of a root": lambda text: text.replace("table", "()"),
    "no count of states": lambda text: text.replace("[ 2 ]", "").replace("[ 3 ]", ""),
    "exponents and bare points": lambda text: text.replace(
        "0.8", "8e-1"
    ).replace("0.2", "+.2").replace("0.0", "0."),
    "a table with the last parent fastest": lambda text: VARIABLES + RAIN
    + "probability(wet|rain){table .9 .2 .1 .3 0 .5;}",
}  # fmt: skip


@pytest.mark.parametrize("case", DIALECTS)
def test_a_dialect_says_the_same(case):
    text = DIALECTS[case](BIF)
    assert text != BIF
    assert same(parse(text), parse(BIF))


@pytest.mark.parametrize(
    ("header", "name"),
    [("network alarm {}", "alarm"), ('network "My net; v2" {}', "My net; v2"),
        ("network { }", "unknown"), ("", "unknown"),
     ("network New Net {}", "New Net"), ('network "" {}', "")],
)  # fmt: skip
def test_the_name_of_the_network_may_be_quoted_or_missing(header, name):
    assert parse(BIF.replace("network sprinkler { }", header)).name == name


def test_a_table_lists_the_child_slowest_and_the_last_parent_fastest():
    """JavaBayes' dog-problem: p(dog-out | bowel-problem, family-out), whose first row is .99 .97 .9
    .3."""
    nodes = ("bowel-problem", "dog-out", "family-out")
    binary = "".join(f'variable "{name}" {{ //2 values\n type discrete[2] {{ "true" "false" '
                     f'}}; }}\n' for name in nodes)
    roots = ('probability ( "bowel-problem" ) { table 0.01 0.99 ; } probability ( "family-out" ) { '
             'table 0.15 0.85 ; }')
    dog = ('probability (  "dog-out"  "bowel-problem"  "family-out" ) {\n table 0.99 0.97 0.9 0.3 '
           '0.01 0.03 0.1 0.7 ;\n}')
    network = parse(binary + roots + dog)
    assert network.parents["dog-out"] == ("bowel-problem", "family-out")
    np.testing.assert_array_equal(network.tables["dog-out"][..., 0], [[0.99, 0.97], [0.9, 0.3]])


def test_a_table_with_the_child_fastest_is_refused_and_explained():
    with pytest.raises(probml.ModelError, match=r"line 5: 'wet' given rain=no: .* sum to "
                       r"1.2,.*states of 'wet' changing fastest, as in XMLBIF"):
        parse(VARIABLES + RAIN + "probability ( wet | rain ) { table 0.9, 0.1, 0.0, 0.2, 0.3, "
              "0.5; }")


def test_axes_are_the_parents_as_declared_not_as_in_the_file():
    text = """variable a { type discrete [ 2 ] { a0, a1 }; } variable b { type discrete [ 3 ] { b0, b1, b2 }; }
    variable x { type discrete [ 2 ] { x0, x1 }; } probability ( a ) { table .5 .5; } probability ( b ) { table .2 .3 .5; }
    probability ( x | b, a ) { (b2, a0) 0.1, 0.9; default 0.5, 0.5; (b0, a1) 0.25, 0.75; }"""
    network = parse(text)
    assert network.parents["x"] == ("b", "a")
    np.testing.assert_array_equal(network.tables["x"][..., 0],
                                  [[0.5, 0.25], [0.5, 0.5], [0.1, 0.5]])


@pytest.mark.parametrize("label",
                         "<5 >=7.5 20_MG/L x-1 1.5 -5 1 __ 50% a=b a:b * + #1 ø table a'b".split())
def test_a_label_may_be_any_word_without_quotes(label):
    text = f"""variable x {{ type discrete [ 2 ] {{ {label}, other }}; }} probability ( x ) {{ table 0.5 0.5; }}
    variable y {{ type discrete [ 2 ] {{ a, b }}; }} probability ( y | x ) {{ ({label}) 0.3 0.7; (other) 0.6, 0.4; }}"""
    network = parse(text)
    assert network.states["x"] == (label, "other")
    assert network.tables["y"][0, 0] == 0.3
    assert same(parse(render(network)), network)


names = st.text(max_size=8) | st.text('"\\/*|,;{}()[] \n\r\tab', max_size=8) | st.sampled_from(
    ["table", "property", "}", "//"]
)


@given(st.data())
def test_any_network_with_any_names_is_read_as_it_was_written(data):
    nodes = data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
    states = {node: tuple(data.draw(st.lists(names, min_size=1, max_size=3, unique=True)))
              for node in nodes}
    parents = {node: tuple(data.draw(st.permutations(nodes[:i]))[: data.draw(st.integers(0, 2))])
               for i, node in enumerate(nodes)}
    draws = np.random.default_rng(data.draw(st.integers(0, 99)))
    tables = {node: draws.dirichlet(np.full(len(states[node]), 0.3),
                                    [len(states[p]) for p in parents[node]]) for node in nodes}
    network = parse(render(Network(data.draw(names), states, parents, tables)))
    assert same(parse(render(network)), network)
    assert (network.states, network.parents) == (states, parents)
    for node in nodes:
        np.testing.assert_allclose(network.tables[node], tables[node], rtol=1e-14)


def test_rows_are_divided_by_their_sum_where_digits_are_missing():
    np.testing.assert_array_equal(one("table 0.333333, 0.666666;"),
                                  np.array([0.333333, 0.666666]) / 0.999999)
    assert one("table 0.333333, 0.666666;").sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(probml.ModelError, match=r"'x'.*sum to 0\.9999\b"):
        one("table 0.3333, 0.6666;")


ERRORS = {  # what is done to BIF -> the line, words of the message
    "probabilities that do not sum to 1": (lambda t: t.replace("0.2, 0.3, 0.5", "0.2, 0.3, 0.6"), 5,
                                     "'wet' given rain=yes", "1.1", "expected 1"),
    "a root that does not sum to 1": (lambda t: t.replace("0.8, 0.2", "0.8, 0.1"), 4, "'rain'",
                                      "0.9"),
    "a default that does not sum to 1": (lambda t: t.replace("(no) 0.9", "default 0.8"), 5,
                                         "the default of 'wet'", "0.9"),
    "a negative number": (lambda t: t.replace("0.9, 0.1", "1.1, -0.1"), 5, "'wet' given rain=no",
                          "between 0 and 1, got -0.1"),
    "not a number": (lambda t: t.replace("0.9, 0.1", "nan, 0.1"), 5, "'wet' given rain=no",
                     "between 0 and 1, got nan"),
    "infinity": (lambda t: t.replace("0.8, 0.2", "0.8, inf"), 4, "'rain'", "between 0 and 1, got inf"),
    "a word for a number": (lambda t: t.replace("0.9, 0.1", "0.9, high"), 5, "'wet'",
                            "expected a number", "'high'"),
    "too few numbers": (lambda t: t.replace("0.9, 0.1, 0.0", "0.9, 0.1"), 5, "'wet' given rain=no",
                        "expected 3 probabilities", "got 2"),
    "too many numbers": (lambda t: t.replace("0.9, 0.1, 0.0", "0.9, 0.1, 0, 0"), 5,
                         "'wet' given rain=no", "expected 3 probabilities", "got 4"),
    "a table of the wrong size": (lambda t: t.replace("0.8, 0.2", "0.8"), 4, "the table of 'rain'",
                                  "expected 2 probabilities", "got 1"),
    "no semicolon": (lambda t: t.replace("0.0;", "0.0"), 5, "'wet'", "expected a number or ';'",
                     "'('"),
    "no semicolon at the end": (lambda t: t.replace("0.5; }", "0.5 }") + "//\n;", 5, "'wet'",
                                "expected a number or ';'", "'}'"),
    "a configuration twice": (lambda t: t.replace("(yes)", "(no)"), 5, "'wet' given rain=no",
                              "twice", "first on line 5"),
    "a table and a row": (lambda t: t.replace("table", "() 0.8 0.2;\n table"), 5, "'rain'", "twice",
                          "first on line 4"),
    "two defaults": (lambda t: t.replace("(no)", "default").replace("(yes)", "default"), 5,
                     "the default of 'wet'", "twice"),
    "a missing configuration": (lambda t: t.replace("(yes) 0.2, 0.3, 0.5;", ""), 5,
                                "'wet' given rain=yes", "1 of 2"),
    "an empty block": (lambda t: t.replace("table 0.8, 0.2;", ""), 4,
                       "'rain' has no probabilities"),
    "an unknown state": (lambda t: t.replace("(yes)", "(maybe)"), 5, "'wet'", "'maybe'", "'rain'",
                         "'no', 'yes'"),
    "too many labels": (lambda t: t.replace("(yes)", "(yes, dry)"), 5, "'wet'", "(yes, dry)",
                        "one label for each parent", "'rain'"),
    "labels of a root": (lambda t: t.replace("table", "(no)"), 4, "'rain'", "(no)", "none"),
    "an unknown parent": (lambda t: t.replace("| rain", "| snow"), 5, "'wet'", "'snow'",
                          "not a variable"),
    "a parent twice": (lambda t: t.replace("| rain", "| rain, rain"), 5, "'wet'", "'rain'",
                       "twice"),
    "an unknown child": (lambda t: t + "probability ( snow ) { table 1; }", 6, "'snow'",
                         "no 'variable' block"),
    "no probability block": (lambda t: VARIABLES + RAIN, 3, "'wet'", "no probability block"),
    "two probability blocks": (lambda t: t + RAIN, 6, "'rain'", "second", "line 4"),
    "a variable twice": (lambda t: t.replace("variable wet", "variable rain"), 3, "'rain'", "twice",
                         "line 2"),
    "a state twice": (lambda t: t.replace("no, yes }", "no, no }"), 2, "'rain'", "'no'", "twice"),
    "more states than declared": (lambda t: t.replace("[ 2 ]", "[ 1 ]"), 2, "'rain'", "states as 1",
                                  "lists 2", "'no', 'yes'"),
    "fewer states than declared": (lambda t: t.replace("no, yes }", "no }"), 2, "'rain'",
                                   "states as 2", "lists 1"),
    "no states": (lambda t: t.replace("[ 2 ] { no, yes }", "{ }"), 2, "'rain'", "no states"),
    "no type": (lambda t: t.replace("type discrete [ 2 ] { no, yes };", ""), 2, "'rain'",
                "no states"),
    "two types": (lambda t: t.replace("yes }; }", "yes }; type discrete { a, b }; }"), 2, "'rain'",
                  "expected 'property'", "'type'"),
    "a continuous variable": (lambda t: t.replace("discrete [ 2 ]", "continuous"), 2, "'rain'",
                              "'discrete'", "'continuous'"),
    "an unknown attribute": (lambda t: t.replace("{ table", "{ tabel"), 4, "'rain'", "'table'",
                             "'tabel'"),
    "an unknown attribute of a variable": (lambda t: t.replace("{ type", "{ tipe"), 2, "'rain'",
                                           "expected 'type'", "'tipe'"),
    "an unknown attribute of the network": (lambda t: t.replace("{ }", "{ author me; }"), 1,
                                            "network", "'property'", "'author'"),
    "an unknown block": (lambda t: t.replace("variable wet", "\nvarible wet"), 4,
                         "expected 'network', 'variable'", "'varible'"),
    "a mark for a name": (lambda t: t.replace("variable wet", "variable"), 3,
                          "the name of a variable", "'{'"),
    "a comment never closed": (lambda t: t.replace("variable wet", "/* variable wet"), 3,
                               "an unclosed comment"),
    "a quote never closed": (lambda t: t.replace("variable wet", 'variable "wet'), 3,
                             "an unclosed quote"),
    "a property never closed": (lambda t: t.replace("0.5; }", "0.5; property x }"), 6, "property",
                                "'wet'", "the end of the file"),
    "a parenthesis never closed": (lambda t: VARIABLES + RAIN + "probability ( wet | rain ) { (no",
                                   5, "'wet'", "')'", "the end"),
    "no variables": (lambda t: "network sprinkler { }\n", 2, "variable"),
    "an empty text": (lambda t: "", 1, "empty"),
    "comments only": (lambda t: "// BIF\n\n", 3, "empty"),
    "another format": (lambda t: '<?xml version="1.0"?>\n<BIF VERSION="0.3">', 1, "not a BIF file",
                       "XMLBIF"),
    "bytes": (lambda t: "\x89PNG\r\n\x1a\n\x00\x00", 1, "not a BIF file", "PNG"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_mistake_is_refused_with_its_line_and_its_node(case):
    change, line, *words = ERRORS[case]
    with pytest.raises(probml.ModelError) as error:
        parse(change(BIF), "here.bif")
    text = str(error.value)
    assert text.startswith(f"here.bif, line {line}: "), text
    assert [word for word in words if word not in text] == [], text


def test_a_text_cut_off_anywhere_is_refused_with_a_line():
    for end in range(len(BIF.rstrip())):
        with pytest.raises(probml.ModelError, match=r"^here, line \d+: ...."):
            parse(BIF[:end], "here")


def test_the_line_is_right_far_down_a_file_with_comments_and_strings():
    text = "/* one\ntwo */ // three\n" * 50 + BIF.replace(
        "network sprinkler", 'network "a\nb"'
    ).replace("0.8, 0.2", "0.8,\n 0.2x")
    with pytest.raises(probml.ModelError,
                       match=r"line 106: 'rain': expected a number or ';', got '0.2x'"):
        parse(text)


def files(folder):
    return [*sorted((folder / "bn" / "networks").iterdir()),
            *sorted((folder / "bn" / "dialects").iterdir())]


def text_of(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("latin-1")


def test_the_networks_of_the_repository_have_their_known_sizes_and_joint(shared_data):
    for path in sorted((shared_data / "bn" / "networks").iterdir()):
        network = parse(text_of(path), path.name)
        reference = next(
            (shared_data / "bn" / "reference").glob(path.name.partition(".")[0] + ".json*")
        )
        case = json.loads(text_of(reference))
        assert len(network.states) == case["n_nodes"]
        assert sum(map(len, network.parents.values())) == case["n_arcs"]
        assert sum(table.size - table[..., 0].size for table in network.tables.values()) == case[
            "n_free_parameters"
        ]
        codes = {node: network.states[node].index(label)
                 for node, label in case["full_assignment_sampled"].items()}
        rows = (network.tables[node][*(codes[parent] for parent in network.parents[node]),
                                     codes[node]] for node in codes)
        assert sum(map(math.log, rows)) == pytest.approx(case["log_joint_of_full_assignment"],
                                                         abs=1e-9), path.name


def test_the_networks_of_the_repository_come_back_to_the_last_bit(shared_data):
    for path in files(shared_data):
        network = parse(text_of(path), path.name)
        assert same(parse(render(network)), network), path.name
        assert all(np.abs(table.sum(-1) - 1).max() < 1e-14
                   for table in network.tables.values()), path.name


def test_a_million_numbers_take_seconds_not_minutes(shared_data):
    """Half a million take 0.6 s where this was written; ten times that means numbers are read one
    by one."""
    text = text_of(shared_data / "bn" / "networks" / "mildew.bif.gz")
    start = time.perf_counter()
    parse(text)
    assert time.perf_counter() - start < 6


# Files and fits


def written(tmp_path, data, name="net.bif"):
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_a_fit_has_the_nodes_labels_and_tables_of_the_file(tmp_path):
    fit = read_bif(written(tmp_path, BIF))
    assert sorted(fit.model.graph) == ["rain", "wet"]
    assert fit.labels("wet") == ("dry", "damp", "wet")
    np.testing.assert_array_equal(fit.params["wet.table"], TABLE)
    np.testing.assert_allclose(fit.predict_proba({"wet": ["wet"]}, "rain"), [[0.0, 1.0]],
                               atol=1e-12)


def test_parents_keep_their_declared_order_through_a_fit(tmp_path):
    text = """variable a { type discrete [ 2 ] { 0, 1 }; } variable b { type discrete [ 2 ] { 0, 1 }; }
    variable x { type discrete [ 2 ] { 0, 1 }; } probability ( a ) { table .5 .5; } probability ( b ) { table .5 .5; }
    probability ( x | b, a ) { (0, 0) .1 .9; (0, 1) .2 .8; (1, 0) .3 .7; (1, 1) .4 .6; }"""
    fit = read_bif(written(tmp_path, text))
    np.testing.assert_allclose(fit.predict_proba({"b": ["0"], "a": ["1"]}, "x"), [[0.2, 0.8]],
                               atol=1e-12)
    write_bif(fit, tmp_path / "again.bif")
    again = parse((tmp_path / "again.bif").read_text())
    assert again.parents["x"] == ("b", "a")
    np.testing.assert_array_equal(again.tables["x"],
                                  [[[0.1, 0.9], [0.2, 0.8]], [[0.3, 0.7], [0.4, 0.6]]])


def test_gzip_is_told_by_content_and_written_by_name(tmp_path):
    fit = read_bif(written(tmp_path, gzip.compress(BIF.encode()), "net.bif"))
    write_bif(fit, tmp_path / "net.bif.gz")
    assert gzip.decompress((tmp_path / "net.bif.gz").read_bytes()).startswith(b"network")
    np.testing.assert_array_equal(read_bif(tmp_path / "net.bif.gz").params["wet.table"], TABLE)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_in_utf_8_or_latin_1_keeps_its_names(tmp_path, encoding):
    fit = read_bif(written(tmp_path, BIF.replace("rain", "Kjærulff").encode(encoding)))
    assert "Kjærulff" in fit.model.graph
    write_bif(fit, tmp_path / "again.bif")
    assert "Kjærulff" in read_bif(tmp_path / "again.bif").model.graph


def test_odd_names_survive_a_file(tmp_path):
    network = Network("n", {'a "b"\r\n': ("<5", "\\", 'x"')}, {'a "b"\r\n': ()},
                      {'a "b"\r\n': np.array([0.1, 0.7, 0.2])})
    write_bif(read_bif(written(tmp_path, render(network))), tmp_path / "again.bif")
    assert read_bif(tmp_path / "again.bif").labels('a "b"\r\n') == ("<5", "\\", 'x"')


def test_a_learned_network_is_written_and_read_back(tmp_path):
    model = bayesian_network(nx.DiGraph([("rain", "wet")]),
                             states={"rain": ["no", "yes"], "wet": 2})
    fit = model.fit({"rain": ["no", "yes", "yes", "no"], "wet": [0, 1, 1, 1]})
    write_bif(fit, tmp_path / "net.bif")
    back = read_bif(tmp_path / "net.bif")
    assert back.labels("rain") == ("no", "yes") and back.labels("wet") == ("0", "1")
    for name in ("rain.table", "wet.table"):
        np.testing.assert_allclose(back.params[name], fit.params[name], atol=1e-12)


def test_single_precision_is_written_in_its_own_digits(tmp_path):
    model = bayesian_network(nx.DiGraph([("rain", "wet")]), states={"rain": 2, "wet": 2})
    fit = model.at({"rain.table": np.array([0.3, 0.7]),
                    "wet.table": np.array([[0.1, 0.9], [0.5, 0.5]])})
    fit.params["rain.table"] = np.array([0.3, 0.7], np.float32)
    write_bif(fit, tmp_path / "net.bif")
    assert "table 0.3, 0.7;" in (tmp_path / "net.bif").read_text()


def test_a_continuous_node_is_refused_by_name_and_nothing_is_written(tmp_path):
    model = bayesian_network(nx.DiGraph([("rain", "height")]),
                             states={"rain": ["no", "yes"], "height": float})
    values = {"rain.table": [0.5, 0.5], "height.intercept": [0.0, 1.0],
              "height.precision": [1.0, 1.0]}
    with pytest.raises(probml.ModelError, match="'height'.*continuous"):
        write_bif(model.at(values), tmp_path / "net.bif")
    assert os.listdir(tmp_path) == []


def test_other_models_and_labels_that_read_alike_are_refused(tmp_path):
    mixture = gaussian_mixture(k=1, d=1).at({"weights": [1.0], "mean": [[0.0]],
                                             "precision": [[[1.0]]]})
    with pytest.raises(probml.ModelError,
                       match="only a fit of bayesian_network.*gaussian_mixture"):
        write_bif(mixture, tmp_path / "net.bif")
    dag = nx.DiGraph()
    dag.add_node("x")
    with pytest.raises(probml.ModelError, match="'x' are the same text"):
        write_bif(bayesian_network(dag, states={"x": [1, "1"]}).at({"x.table": [0.5, 0.5]}),
                  tmp_path / "net.bif")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = written(tmp_path, BIF)
    fit = read_bif(path)

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_bif(fit, path)
    assert os.listdir(tmp_path) == ["net.bif"] and path.read_text() == BIF


def test_what_is_no_bif_file_is_refused_by_path(tmp_path):
    with pytest.raises(probml.ModelError, match=f"{tmp_path}' is a folder, expected a BIF file"):
        read_bif(tmp_path)
    for data, words in [
        (b"", "line 1: the file is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "line 1: expected 'network'.*not a BIF file"),
        (gzip.compress(BIF.encode())[:-20], "damaged or incomplete"),
        (BIF[:150].encode(), "line 4: .*the end of the file"),
    ]:
        with pytest.raises(probml.ModelError, match=f"^{tmp_path}/net.bif.*{words}"):
            read_bif(written(tmp_path, data))
    with pytest.raises(FileNotFoundError):
        read_bif(tmp_path / "absent.bif")


def test_a_cycle_is_refused_by_path_and_nodes(tmp_path):
    text = VARIABLES + "probability ( rain | wet ) { default 0.5 0.5; }" + WET
    with pytest.raises(probml.ModelError, match="net.bif: .*cycle.*(rain.*wet|wet.*rain)"):
        read_bif(written(tmp_path, text))


def test_a_small_file_that_stands_for_much_is_refused(tmp_path):
    names = [f"v{i}" for i in range(40)]
    text = "".join(f"variable {n} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for n in names)
    text += f"probability ( v0 | {', '.join(names[1:])} ) {{ default 0.5, 0.5; }}\n"
    text += "".join(f"probability ( {n} ) {{ table 0.5, 0.5; }}\n" for n in names[1:])
    with pytest.raises(probml.ModelError, match="'v0', which has 39 parents.*more than 16,777,216"):
        parse(text)
    path = tmp_path / "bomb.bif"
    path.write_bytes(gzip.compress(b"/" * (MAX_FILE_BYTES + 1)))
    with pytest.raises(probml.ModelError, match="more than 67,108,864 bytes of text"):
        read_bif(path)


@pytest.mark.parametrize("mark", ['"\\', "/*", '"', "variable a { type discrete { x, x, "])
def test_long_mistakes_are_found_in_a_moment(mark):
    start = time.process_time()
    with pytest.raises(probml.ModelError):
        parse(VARIABLES + mark * 50_000)
    assert time.process_time() - start < 5
