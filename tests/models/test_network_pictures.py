"""The picture of a network shows the numbers of the fit and what was seen; nothing overlaps; bad
evidence is refused by name."""

import itertools
import re
from importlib.resources import as_file, files

import networkx as nx
import numpy as np
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import probml  # noqa: E402
from probml.assessment.pages.layout import WAYPOINT, arrange  # noqa: E402
from probml.models import (  # noqa: E402
    bayesian_network,
    gaussian_mixture,
    read_bif,  # noqa: E402
)
from probml.models.pictures.canvas import PAPER  # noqa: E402
from probml.models.pictures.network_pictures import STYLES, draw_network  # noqa: E402

  # noqa: E402
  # noqa: E402


@pytest.fixture(scope="module")
def asia():
    with as_file(files("probml.data") / "asia.bif") as path:
        return read_bif(path)


def many(n):
    """A network of n nodes, each with a table of its own."""
    dag = nx.gn_graph(n, seed=0).reverse()
    dag = nx.relabel_nodes(dag, {i: f"node_{i}" for i in dag})
    model = bayesian_network(dag, dict.fromkeys(dag, ["no", "yes"]))
    return model.at({f"{v}.table": np.full((*[2] * dag.in_degree(v), 2), 0.5) for v in dag})


@pytest.fixture(scope="module")
def mixed():
    dag = nx.DiGraph([("kind", "size"), ("kind", "count"), ("size", "price")])
    random = np.random.default_rng(0)
    kind = random.integers(2, size=80)
    size = kind + random.normal(size=80)
    data = {"kind": np.array(["cat", "dog"])[kind], "size": size,
            "price": 2 * size + random.normal(size=80), "count": kind * 11}
    return bayesian_network(dag, {"kind": ["cat", "dog"], "size": float, "price": float,
                                  "count": 12}).fit(data)


def bars(ax):
    """Node → {label: share of the longest bar}."""
    out = {}
    longest = {b.get_width() for b in ax.patches if b.get_gid() is None and hasattr(b, "get_width")}
    for bar in ax.patches:
        if "=" in (bar.get_gid() or ""):
            node, label = bar.get_gid().split("=", 1)
            out.setdefault(node, {})[label] = bar.get_width() / max(longest)
    return out


def frames(ax):
    return {p.get_gid(): p for p in ax.patches if p.get_gid()
            and not re.search("[=→]", p.get_gid())}


def kinds(ax):
    """Node → the kind of which it has the colour of the edge."""
    to = matplotlib.colors.to_hex
    return {
        n: [k for k, (edge, estimator, _) in STYLES.items()
            if (to(p.get_edgecolor()), to(p.get_facecolor())) == (edge, to(estimator))]
        for n, p in frames(ax).items()
    }


def texts(ax):
    return [text.get_text() for text in ax.texts]


def letters_inside(ax):
    """No text reaches beyond its box, and no two texts meet, as Agg draws them."""
    figure = ax.figure.figure
    FigureCanvasAgg(figure).draw()
    boxes = [frame.get_window_extent() for frame in frames(ax).values()]
    places = [text.get_window_extent() for text in ax.texts]
    for place in places:
        holding = [box for box in boxes if box.overlaps(place)]
        assert (len(holding) == 1 and place.x0 >= holding[0].x0 and place.x1 <= holding[0].x1
                and place.y0 >= holding[0].y0)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert not any(a.shrunk(0.98, 0.8).overlaps(b.shrunk(0.98, 0.8))
                   for a, b in itertools.combinations(places, 2))
    inside = figure.bbox
    assert all(box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0
               and box.y1 <= inside.y1 for box in boxes)


EVIDENCE = {
    "nothing": None,
    "labels": {"dysp": "yes", "asia": "yes"},
    "an unseen cell": {"dysp": "yes", "smoke": None, "asia": float("nan")},
    "a table of one row": pd.DataFrame({"dysp": ["yes"], "xray": ["no"], "tub": [None]}),
    "a series": pd.Series({"dysp": "yes", "tub": None}),
    "as the fit takes it": {"dysp": ["no"]},
    "likelihood": {"xray": np.array([[0.9, 0.2]])},
}


@pytest.mark.parametrize("case", EVIDENCE)
def test_bars_are_the_probabilities_and_seen_nodes_are_marked(asia, case, tmp_path):
    evidence = EVIDENCE[case]
    ax = draw_network(asia, evidence)
    row = {} if evidence is None else dict(evidence.items())
    row = {n: v.iloc[0] if isinstance(v, pd.Series) else v for n, v in row.items()}
    row = {n: [v] if np.ndim(v) == 0 else v for n, v in row.items() if np.ndim(v) or not pd.isna(v)}
    expected = asia.predict_proba({"asia": [None], **row}, list(asia.model.graph))
    drawn = bars(ax)
    assert drawn.keys() == expected.keys() == set(asia.model.graph)
    for node, chances in expected.items():
        assert list(drawn[node]) == ["yes", "no"]
        np.testing.assert_allclose(list(drawn[node].values()), chances[0], atol=1e-9)
    soft = {n for n, v in row.items() if np.ndim(v) == 2}
    for node, found in kinds(ax).items():
        assert found == ["likelihood" if node in soft else "seen" if node in row else "unseen"]
    written = [float(text[:-1]) / 100 for text in texts(ax) if text.endswith("%")]
    np.testing.assert_allclose(written, np.concatenate([chance[0] for chance in expected.values()]),
                               atol=5.1e-4)
    letters_inside(ax)
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_arrows_are_those_of_the_graph_and_point_down(asia):
    ax = draw_network(asia)
    ends = {}
    for arrow in ax.patches:
        if "→" in (arrow.get_gid() or ""):
            a, b = arrow.get_gid().split("→")
            corners = arrow._path_original.vertices
            assert corners[0, 1] > corners[-1, 1]
            ends.setdefault(a, []).append(b)
    edges = set()
    for node in asia.model.graph:  # through waypoints, "('bronc', 2)", to the next node
        stack = list(ends.get(node, ()))
        while stack:
            b = stack.pop()
            stack += ends[b] if b.startswith("(") else ()
            edges |= set() if b.startswith("(") else {(node, b)}
    assert edges == set(asia.model.graph.edges)
    assert any(a.startswith("(") for a in ends)  # bronc → dysp passes the layer of either


def test_an_intervention_is_drawn_without_the_arrows_that_it_cut(asia):
    done = asia.do({"bronc": "yes"})
    ax = draw_network(done, {"xray": "yes"})
    assert kinds(ax)["bronc"] == ["done"] and "do: yes" in texts(ax) and "bronc" not in bars(ax)
    assert not any((p.get_gid() or "").endswith("→bronc") for p in ax.patches) and len(
        frames(ax)
    ) == 8
    np.testing.assert_allclose(list(bars(ax)["dysp"].values()),
                               done.predict_proba({"xray": ["yes"]}, "dysp")[0], atol=1e-9)
    with pytest.raises(probml.DataError, match="'bronc' is set by do"):
        draw_network(done, {"bronc": "no"})


def test_numbers_have_means_and_many_states_are_cut_short(mixed):
    ax = draw_network(mixed, {"size": 1.5})
    assert ("= 1.5" in texts(ax)
            and f"mean {mixed.predict({'size': [1.5]}, 'price')[0]:.3g}" in texts(ax))
    expected = mixed.predict_proba({"size": [1.5]}, ["kind", "count"])
    drawn = bars(ax)
    np.testing.assert_allclose(list(drawn["kind"].values()), expected["kind"][0], atol=1e-9)
    assert (len(drawn["count"]) == 10 and list(drawn["count"])[-1] == "3 others"
            and {"0", "11"} <= drawn["count"].keys())
    assert sum(drawn["count"].values()) == pytest.approx(1.0)
    letters_inside(ax)
    unseen = texts(draw_network(mixed))
    assert f"mean {mixed.predict({'kind': [None]}, 'size')[0]:.3g}" in unseen and sum(
        t.startswith("mean") for t in unseen
    ) == 2


def test_some_nodes_only(asia):
    ax = draw_network(asia, {"smoke": "yes"}, nodes=["lung", "either", "xray"])
    assert set(bars(ax)) == {"lung", "either", "xray"}
    np.testing.assert_allclose(bars(ax)["xray"]["yes"],
                               asia.predict_proba({"smoke": ["yes"]}, "xray")[0, 0], atol=1e-9)


@pytest.mark.slow
def test_a_large_network_is_drawn_as_circles_with_names(tmp_path):
    fit = many(40)
    ax = draw_network(fit, {"node_3": "yes"})
    assert set(frames(ax)) == set(fit.model.graph) and not bars(ax)
    assert {*fit.model.graph, "= yes"} == set(texts(ax))
    assert matplotlib.colors.to_hex(frames(ax)["node_3"].get_facecolor()) == STYLES["seen"][2]
    assert matplotlib.colors.to_hex(frames(ax)["node_4"].get_facecolor()) == PAPER
    FigureCanvasAgg(ax.figure).draw()
    places = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(places, 2))
    assert len(bars(draw_network(fit, nodes=list(fit.model.graph)[:5]))) == 5
    ax.figure.savefig(tmp_path / "picture.png", dpi=5)  # letters of less than a pixel


def test_it_is_drawn_where_it_is_told_to_and_its_letters_shrink(asia):
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert draw_network(asia,
                        ax=left) is left and draw_network(asia, {"dysp": "no"}, ax=right) is right
    letters_inside(left)
    letters_inside(right)
    assert right.texts[0].get_fontsize() < draw_network(asia).texts[0].get_fontsize()


def test_labels_are_letters_never_formulas():
    dag = nx.DiGraph([("x_1^2", "a→b")])
    model = bayesian_network(dag, {
        "x_1^2": ["$5", "<5 & $", "a label of more than eighteen letters"], "a→b": [True, False]
    })
    fit = model.at({"x_1^2.table": [0.5, 0.25, 0.25], "a→b.table": np.full((3, 2), 0.5)})
    ax = draw_network(fit, {"x_1^2": "$5"})
    FigureCanvasAgg(ax.figure).draw()
    assert {"$5", "<5 & $", "a label of more t…", "x_1^2"} <= set(texts(ax))


@pytest.mark.parametrize("seed", range(20))
def test_a_layout_keeps_boxes_apart_and_lets_no_arrow_pass_one(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 25))
    dag = nx.DiGraph()
    dag.add_nodes_from(map(str, range(n)))
    dag.add_edges_from((str(i), str(j)) for j in range(n) for i in range(j)
                       if random.random() < 2.5 / n)
    size = {v: tuple(random.uniform(0.3, 2.0, 2)) for v in dag}
    layout = arrange(dag, size)
    assert all(layout.layer[a] < layout.layer[b] for a, b in dag.edges)
    assert all(layout.layer[b] == layout.layer[a] + 1 for a, b in layout.hops)
    assert min(layout.layer.values()) == 0
    for a, b in itertools.combinations(layout.layer, 2):
        if layout.layer[a] == layout.layer[b]:
            room = sum(size[p][0] if p in size else WAYPOINT for p in (a, b)) / 2
            assert abs(layout.x[a] - layout.x[b]) > room
    for level, (top, height) in enumerate(zip(layout.top, layout.height, strict=True)):
        assert all(size[v][1] <= height for v in dag if layout.layer[v] == level)
        assert level == 0 or top < layout.top[level - 1] - layout.height[level - 1]
    again = arrange(dag, size)
    assert again.x == layout.x


def test_the_layers_of_a_long_chain_with_a_late_source_are_tight():
    dag = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "d"), ("late", "d")])
    layer = arrange(dag, dict.fromkeys(dag, (1.0, 1.0))).layer
    assert [layer[v] for v in ("a", "b", "c", "d", "late")] == [0, 1, 2, 3, 2]


REFUSED = {
    "no fit": (lambda fit: draw_network(fit.model), "Fit", "Model"),
    "a name that is no node": (lambda fit: draw_network(fit, {"smoking": "yes"}), "'smoking'",
                               "'smoke'"),
    "a table's name": (lambda fit: draw_network(fit, {"smoke.table": 0.5}), "'smoke.table'",
                       "'smoke'"),
    "a label that is no state": (lambda fit: draw_network(fit, {"smoke": "maybe"}), "'smoke'",
                                 "'maybe'", "'yes'"),
    "two rows": (lambda fit: draw_network(fit, pd.DataFrame({"smoke": ["yes", "no"]})), "2 rows",
                 "iloc"),
    "two rows in a dict": (lambda fit: draw_network(fit, {"smoke": ["yes", "no"]}), "2 rows",
                           "'smoke'"),
    "an array": (lambda fit: draw_network(fit, ["yes"]), "list", "DataFrame"),
    "probability 0": (lambda fit: draw_network(fit, {"tub": "yes", "either": "no"}),
                      "probability 0", "tub = yes"),
    "a node that is not there": (lambda fit: draw_network(fit, nodes=["lungs"]), "'lungs'",
                                 "'lung'"),
    "no nodes": (lambda fit: draw_network(fit, nodes=[]), "expected a list of labels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name(asia, case):
    call, *words = REFUSED[case]
    with pytest.raises((probml.ModelError, probml.DataError)) as error:
        call(asia)
    for word in words:
        assert word in str(error.value), str(error.value)


@pytest.mark.slow
def test_other_models_are_drawn_too():
    x = np.random.default_rng(0).normal(size=(60, 2))
    fit = gaussian_mixture(2, 2).fit({"x": x}, probml.EM(restarts=1))
    assert set(bars(draw_network(fit, {"x": x[:1]}))) == {"z"}
