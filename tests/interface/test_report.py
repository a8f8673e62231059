"""A report is one file that opens anywhere: well-formed, without network, with headings, captions
and words for pictures; what it tells is what was found."""

import pickle
import re
from html.parser import HTMLParser

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

import probml

EMPTY = {"meta", "link", "br", "hr", "img", "input", "line", "rect", "circle", "polyline",
         "polygon", "path"}
RANDOM = np.random.default_rng(0)
X = np.concatenate([RANDOM.normal(-3, 1, (20, 2)), RANDOM.normal(3, 1, (20, 2))])
DATA = {"x": X[:, 0], "y": 2 * X[:, 0] + RANDOM.normal(size=40)}


@probml.model
def line(x):
    slope = sample("slope", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(slope * x, 1.0))


class Page(HTMLParser):
    """What a browser's checker would say of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.faults, self.ids, self.links, self.headings = [], [], [], [], []
        self.tables, self.pictures, self.text, self.titles = [], 0, [], 0
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if not (tag in EMPTY or self.get_starttag_text().endswith("/>")):
            self.open.append(tag)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        for name in ("src", "href"):
            if name in attrs:
                self.links.append(attrs[name])
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append(set())
        if tag in ("caption", "thead"):
            self.tables[-1].add(tag)
        if tag == "th" and "scope" not in attrs:
            self.faults.append("a heading of a table without scope")
        self.pictures += tag == "svg" and attrs.get("role") == "img"
        self.titles += tag == "desc"
        if tag == "html" and not attrs.get("lang"):
            self.faults.append("no language")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if tag in EMPTY:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text.append(data)


def checked(path) -> Page:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    page = Page(text)
    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links), page.links
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").split("<main")[0]
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert page.tables and all(held == {"caption", "thead"} for held in page.tables)
    assert page.pictures == page.titles >= 1
    return page


def test_a_report_of_a_point_tells_all_of_it(tmp_path):
    fit = line().fit(DATA, probml.MAP(), seed=7)
    page = checked(fit.report(tmp_path / "report.html", DATA))
    text = " ".join(page.text)
    for said in ("slope", "40 rows", "The function", "dist.Normal(slope * x", "seed", "7",
                 "MAP", "chosen", "Software", probml.__version__, "Nocedal & Wright", "float64"):
        assert said in text, said
    assert f"{fit.params['slope']:.4g}" in text


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_report_of_draws_shows_them_and_doubts_them(tmp_path):
    fit = line().fit(DATA, probml.NUTS(draws=10, warmup=10, chains=1, progress=False))
    page = checked(fit.report(tmp_path / "report.html"))
    text = " ".join(page.text)
    assert "Draws of slope" in text and "R-hat is not available" in text
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count('role="tab"') == html.count('role="tabpanel"') == 2  # objective, slope
    assert "Hoffman & Gelman (2014)" in text and "90% intervals" in text


def test_a_report_without_rows_says_how_to_have_them(tmp_path):
    fit = line().fit(DATA, probml.MAP())
    page = checked(fit.report(tmp_path / "report.html"))
    assert "This Fit does not store its data" in " ".join(page.text)


def test_the_page_of_an_estimator_is_about_it_and_the_table(tmp_path):
    from probml.models import NaiveBayes

    table = pd.DataFrame({"colour": ["red", None, "blue", "red"], "size": [1.0, 2.0, 1.5, np.nan]})
    table.attrs["name"] = "toys.csv"
    y = pd.Series(["a", "b", "b", "a"], name="kind")
    estimator = NaiveBayes().fit(table, y)
    page = checked(estimator.report(tmp_path / "report.html", table, y))
    text = " ".join(page.text)
    for said in ("Naive Bayes of toys.csv", "4 rows, 3 columns.", "kind (target)", "25.0%",
                 "blue, red", "1 to 2", "Profile", "Confusion matrix"):
        assert said in text, said
    assert page.headings.count(2) == 4  # data, estimates, checks, details

    def told(path):  # but for the time of day
        words = " ".join(checked(path).text)
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", words)

    same = told(estimator.report(tmp_path / "a.html", table, y))
    assert same == told(estimator.fit_.report(tmp_path / "b.html", table, y))
    assert same == told(estimator.report(tmp_path / "c.html"))  # with the rows that it still has
    assert "toys.csv" not in told(estimator.report(tmp_path / "d.html", table, y, name="of mine"))
    with pytest.raises(probml.ModelError, match="report.name=3"):
        estimator.report(tmp_path / "e.html", table, y, name=3)
    copy = pickle.loads(pickle.dumps(estimator))  # which has none
    assert "This Fit does not store its data" in told(copy.report(tmp_path / "f.html"))


def test_a_series_has_time_steps_and_a_long_table_an_expander(tmp_path):
    from probml.models import HiddenMarkov

    series = pd.Series(np.r_[np.zeros(30), np.full(30, 5.0), 1.0] + RANDOM.normal(size=61),
                       pd.date_range("2020-01-01", periods=61), name="load")
    estimator = HiddenMarkov(2, n_init=2).fit(series)
    text = " ".join(checked(estimator.report(tmp_path / "report.html")).text)
    assert "Hidden Markov model" in text and "61 time steps, 1 column." in text
    assert "load" in text and "y[0]" not in text and "1 rows" not in text and "date" in text

    from probml.assessment.pages.html import table

    html = table([{"i": i} for i in range(40)], "numbers")
    assert html.count("<tr>") == 1 + 25 + 1 + 40 and "All 40 rows" in html
    assert "details" not in table([{"i": i} for i in range(30)], "numbers")


def test_a_mapping_of_sites_of_an_estimators_fit_is_read_as_the_function_reads_it(tmp_path):
    from probml.models import GaussianMixture

    estimator = GaussianMixture(2, n_init=1).fit(X)
    text = " ".join(checked(estimator.fit_.report(tmp_path / "a.html", {"x": X})).text)
    assert "Gaussian mixture" in text and "x[0]" in text
    with pytest.raises(probml.ModelError, match=r"report\(y=...\): .*target"):
        estimator.fit_.report(tmp_path / "a.html", {"x": X}, X[:, 0])


def test_what_is_cited_is_what_was_used():
    from probml.models import dishonest_casino, gaussian_mixture

    found = probml.cite(gaussian_mixture(k=2, d=1), probml.EM(), show=False)
    assert any("Dempster" in line for line in found) and any("NumPyro" in line for line in found)
    assert not any("Hoffman" in line for line in found)
    assert any("Rabiner" in line for line in probml.cite(dishonest_casino(), show=False))
    assert len(found) == len(set(found))


def test_versions_are_told(capsys):
    found = probml.show_versions()
    shown = capsys.readouterr().out
    assert found["probml"] in shown and found["precision"] == "float64" and "numpyro" in found
