"""Pictures of models: a plate holds its own and nothing else, arrows pass no box, and what is shown
is said in words; tables say what they show."""

import sys
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, plate, sample

import probml
from probml.assessment.pages.html import picture, table
from probml.assessment.pages.scene import Node, curve, scene
from probml.assessment.pages.svg import svg
from probml.assessment.replicated import Bins
from probml.interface.showing.page import graph_scene


@probml.model
def wards(x, ward, wards: int):
    mean, spread = sample("mean", dist.Normal(0.0, 1.0)), sample("spread", dist.HalfNormal(1.0))
    with plate("wards", wards):
        level = sample("level", dist.Normal(mean, spread))
    deterministic("gap", level.max() - level.min())
    with probml.rows():
        ill = sample("ill", dist.Bernoulli(0.2))
        with plate("tests", 3, dim=-2):
            sample("score", dist.Normal(level[ward] + x + ill, 1.0))


DATA = {"x": np.zeros(6), "ward": np.arange(6) % 2, "score": np.zeros((6, 3))}


@pytest.fixture(scope="module")
def seen():
    return graph_scene(wards(wards=2), DATA)


def _apart(a, b):
    return (a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y
            or b.y + b.height <= a.y)


def _within(box, frame):
    return (frame.x <= box.x and box.x + box.width <= frame.x + frame.width
            and frame.y <= box.y and box.y + box.height <= frame.y + frame.height)


def test_a_plate_holds_its_own_and_nothing_else(seen):
    names = {"wards (2)": "wards", "tests (3)": "tests", "rows (6)": "rows"}
    assert {frame.name for frame in seen.frames} == set(names)
    for frame in seen.frames:
        for box in seen.boxes:
            inside = names[frame.name] in box.node.plates
            assert _within(box, frame) if inside else _apart(box, frame)


def test_no_two_boxes_overlap_and_arrows_pass_none(seen):
    boxes = seen.boxes
    assert all(_apart(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    for arrow in seen.arrows:
        others = [box for box in boxes if box.node.name not in (arrow.tail, arrow.head)]
        for x, y in curve(arrow.points):
            assert not any(b.x < x < b.x + b.width and b.y < y < b.y + b.height for b in others)
            assert 0 <= x <= seen.width


def test_roles_are_those_of_the_data(seen):
    roles = {box.node.name: box.node.role for box in seen.boxes}
    assert roles == {"mean": "parameter", "spread": "parameter", "level": roles["level"],
                     "gap": "computed", "ill": "summed", "score": "seen", "x": "input",
                     "ward": "input"}
    alone = {box.node.name: box.node.role for box in graph_scene(probml.model(_coin)()).boxes}
    assert alone == {"bias": "parameter", "toss": "unseen"}


def _coin():
    bias = sample("bias", dist.Beta(1.0, 1.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(bias))


def test_a_path_into_a_plate_and_out_again_is_drawn():
    nodes = [Node("a", "seen", plates=("p",)), Node("b", "seen"), Node("c", "seen", plates=("p",))]
    found = scene(nodes, [("a", "b"), ("b", "c")], {})
    assert len(found.boxes) == 3 and len(found.arrows) == 2


def test_the_svg_is_xml_and_says_what_it_shows(seen):
    root = ET.fromstring(svg(seen, "graph of <wards>"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == "graph of <wards>"
    assert "level (parameter) depends on mean, spread" in root.find(f"{space}desc").text or (
        "level (unseen, integrated out) depends on mean, spread" in root.find(f"{space}desc").text)
    assert root.get("role") == "img"


def test_draw_is_drawn_on_axes_that_are_given():
    plt = pytest.importorskip("matplotlib.figure")
    ax = plt.Figure().subplots()
    found = wards(wards=2).draw(DATA, ax)
    assert found is ax
    assert {"mean", "level→score", "ill"} <= {patch.get_gid() for patch in ax.patches}


NUMBERS = {"intervals": (["w<1>"], [0.0], [0.5], [1.0], "w"),
           "traces": (np.array([[3.0, np.nan, 1.0], [2.0, 2.0, 2.0]]), "w<1>"),
           "counts": (Bins("<x>", np.arange(4.0), np.arange(3), np.zeros(3), np.ones(3),
                           np.full(3, 2.0)),)}


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_picture_of_numbers_is_an_svg_with_a_title_and_words(kind):
    pytest.importorskip("matplotlib")
    found = picture(kind, "what & why", "in words <", *NUMBERS[kind])
    root = ET.fromstring(found.replace("xlink:href", "href"))
    assert root.tag == "figure" and root[1].text == "in words <"
    assert [part.text for part in root[0][:2]] == ["what & why", "in words <"]
    assert kind == "counts" or "w&lt;1&gt;" in found


def test_a_page_without_matplotlib_has_no_picture(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert picture("intervals", "", "", *NUMBERS["intervals"]) == ""


def test_tables_are_escaped_and_headed():
    found = table([{"site": "<b>", "value": 0.123456}], "what & why", sortable=True)
    assert "&lt;b&gt;" in found and "<b>" not in found and "what &amp; why" in found
    assert 'scope="col"' in found and 'scope="row"' in found and "0.1235" in found


def test_models_fits_and_explanations_have_html():
    model = probml.model(_coin)()
    fit = model.fit({"toss": np.array([1, 0, 1])})
    certificate_like = model.explain({"toss": np.array([1])})._repr_html_()
    assert "<svg" in model._repr_html_() and "bias" in fit._repr_html_()
    assert fit.status in fit._repr_html_()
    assert "<caption>engines (inference algorithms)</caption>" in certificate_like
    assert jnp.isfinite(fit.log_evidence)


def test_a_fit_in_a_terminal_says_what_how_it_ended_and_the_first_of_its_numbers():
    fit = probml.model(_coin)().fit({"toss": np.array([1, 0, 1])})
    lines = repr(fit).splitlines()
    assert lines[0] == "_coin() fitted by Exact" and lines[1] == fit.status
    assert lines[2].split() == ["bias", f"{float(fit.point['bias']):.4g}"] and len(lines) == 3
    # as a transformation of its arrays leaves it
    many = jax.tree.map(lambda leaf: np.linspace(0, 1, 9), fit)
    assert "0 0.125 0.25 0.375 0.5 0.625 … (9,)" in repr(many)
    seen = []
    jax.jit(lambda fit: seen.append(repr(fit)))(fit)
    assert seen[0].splitlines()[-1].split() == ["bias", "()"]


def test_a_model_that_was_not_called_says_to_call_it():
    with pytest.raises(AttributeError, match=r"called with its settings before 'fit' can be used: _coin\(\.\.\.\)\.fit"):
        probml.model(_coin).fit({"toss": [1]})
    assert not hasattr(probml.model(_coin), "nothing")
