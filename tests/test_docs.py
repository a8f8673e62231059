"""The pages of tasks and how-tos are true: their Python runs, and prints what they show; every
public name is in the reference."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import re
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import optax
import pyarrow
import pytest
from numpyro import plate, sample

import gallery
import probml
from probml import models
from probml.assessment.pages import citations
from probml.engines.ladder import KINDS
from probml.jaxpr import compat

DOCS = Path(__file__).resolve().parent.parent / "docs"
TASKS = [page for page in gallery.TASKS if page.stem != "index"]
PAGES = [*sorted((DOCS / "how_to").glob("*.md")), *TASKS, DOCS / "explanation.md"]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```text\n(?P<shown>.*?)```\n)?", re.DOTALL)
PICTURES = {name for name, _ in inspect.getmembers(models.pictures, inspect.isfunction)}
SHOWN_ELSEWHERE = {  # number of an expectation → file of tests, a name in it
    4: ("models/test_estimators.py", "contract"),
    22: ("interface/test_functions.py", "test_a_scan_over_states_is_the_sum_over_all_paths"),
    23: ("interface/test_functions.py", "test_batches_of_a_subsampled_plate_are_the_whole"),
    24: ("engines/test_posteriors.py", "test_a_users_own_guide_is_fitted"),
    36: ("extensions/test_von_mises.py", "test_the_density_is_that_of_scipy"),
    56: ("models/test_network_learning.py", "test_a_gaussian_node_is_least_squares"),
    57: ("models/test_network_learning.py", "also_where_cells_are_unseen"),
    59: ("assessment/test_whole_arviz.py", "arviz.loo"),
}


def printed(page: Path) -> list[tuple[str, str]]:
    """What each block shows, and what it prints."""
    names, out = {"__name__": f"how_to_{page.stem}"}, []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(block["code"], str(page), "exec"), names)
        out.append(((block["shown"] or "").strip(), said.getvalue().strip()))
    return out


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_how_to_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for shown, said in printed(page):
        assert said == shown


@pytest.mark.parametrize("page", TASKS, ids=[page.stem for page in TASKS])
def test_a_task_has_its_parts_and_its_picture(page):
    text = page.read_text(encoding="utf-8")
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert parts == ["The data", "The fit", "The table", "The picture", "What it says", "Prediction"]
    pictures = [block["picture"] for block in gallery.BLOCK.finditer(text) if block["picture"]]
    assert pictures == [f"pictures/{page.stem}.png"] and (page.parent / pictures[0]).stat().st_size


@pytest.mark.parametrize("page", [DOCS.parent / "CONTRIBUTING.md", DOCS / "organisation.md",
                                  DOCS / "how_to" / "extend.md"], ids=lambda page: page.stem)
def test_files_that_are_named_are_there(page):
    named = re.findall(r"`((?:\w+/)*\w+(?:/|\.py|\.md|\.txt))`", page.read_text(encoding="utf-8"))
    there = "".join(f"/{path.relative_to(DOCS.parent)}\n" for folder in ("probml", "models", "docs", "tests")
                    for path in (DOCS.parent / folder).rglob("*") if path.name != "__pycache__")
    assert named
    assert [name for name in named if f"/{name.strip('/')}\n" not in there + "/CHANGELOG.md\n"
            and not (DOCS.parent / name).exists()] == []


def test_there_are_twelve_tasks():
    assert len(TASKS) == 12
    listed = (DOCS / "tasks" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in TASKS if f"({page.name})" not in listed] == []


def test_every_public_name_is_told():
    text = (DOCS / "names.md").read_text(encoding="utf-8")
    assert [name for name in probml.__all__ if f"`{name}`" not in text] == []
    verbs = [name for name in dir(probml.Fit) if not name.startswith("_")]
    tables = text.partition("## Names of parameters")[0]  # below are names of models' parameters
    told = set(re.findall(r"`(\w+)`", tables))
    assert {"predict", "impute", "report", "compiled", "filter", "save"} <= told <= {
        *probml.__all__, *verbs, *dir(probml.Model), "Fit", "ValueError", "fit", "converged",
        "iterations", "history", "status", "seed"}


@pytest.mark.parametrize("page", ["names.md", "reference/fit.md"])
def test_every_question_to_a_fit_is_listed(page):
    listed = set(re.findall(r"`(\w+)`", (DOCS / page).read_text(encoding="utf-8")))
    methods = {name for name, _ in inspect.getmembers(probml.Fit, inspect.isfunction)
               if not name.startswith("_")}
    assert methods <= listed, f"docs/{page} has no {sorted(methods - listed)}"


def test_the_site_lists_every_page():
    listed = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in listed] == []


def test_the_glossary_names_files_that_exist():
    named = re.findall(r"`((?:probml|models)/[\w/.]+)`", (DOCS / "glossary.md").read_text("utf-8"))
    assert len(named) > 60 and [path for path in named if not (DOCS.parent / path).exists()] == []


def test_the_reference_has_every_public_name_once_and_no_other():
    told = [name for page in sorted((DOCS / "reference").glob("*.md"))
            for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]
    assert len(told) == len(set(told))
    public = {*probml.__all__, *models.__all__, *PICTURES, "Certificate"}
    assert {name.rpartition(".")[2] for name in told} == public
    for name in told:
        place, _, own = name.rpartition(".")
        found = getattr(importlib.import_module(place), own)
        assert inspect.getdoc(found), f"{name} has no docstring"


def test_what_cite_prints_stands_among_the_works():
    page = (DOCS / "bibliography.md").read_text(encoding="utf-8")
    cited = [line for lines in (*citations.ENGINES.values(), citations.SOFTWARE, citations.SEVERAL,
                                citations.CHAINS, citations.NUMBERS) for line in lines]
    assert set(citations.ENGINES) == {kind.__name__ for kind in KINDS}
    for line in cited:
        assert re.match(r".*?\(\d{4}\)", line)[0] in page, line


def expectations() -> dict[str, tuple[str, str]]:
    """Section → its table, and its code."""
    text = (DOCS / "expectations.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {title: (re.split("```python", body)[0], BLOCK.search(body)["code"])
            for title, body in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS of model:probml.ConvergenceWarning")  # a hundred draws
@pytest.mark.parametrize("section", expectations())
def test_what_is_expected_holds(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(expectations()[section][1], section, "exec"), {"__name__": "expectations"})


def test_the_switches_that_are_explained_are_those_there_are():
    page = (DOCS / "explanation.md").read_text(encoding="utf-8")
    rows = page.split("`PROBML_OFF`", 1)[1].split("\n\n")[1].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(compat.NAMES)


def test_every_yes_is_shown_or_says_where():
    numbers = []
    for table, code in expectations().values():
        rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", table, re.MULTILINE)
        shown = {int(number) for number in re.findall(r"# (\d+)$", code, re.MULTILINE)}
        numbers += [int(number) for number, *_ in rows]
        for number, what, here in rows:
            elsewhere = int(number) in SHOWN_ELSEWHERE
            assert (here[:3] != "yes") or (int(number) in shown) != elsewhere, what
    assert numbers == list(range(1, len(numbers) + 1))
    for path, name in SHOWN_ELSEWHERE.values():
        assert name in (DOCS.parent / "tests" / path).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # ArviZ's own
def test_the_gallery_draws_what_it_shows(tmp_path):
    pytest.importorskip("matplotlib")
    if not pytest.importorskip("arviz").__version__.startswith("0."):
        pytest.skip("the pictures are those of ArviZ 0.2x")
    fresh = gallery.drawn(tmp_path, dpi=20)
    page = gallery.PAGE.read_text(encoding="utf-8")
    assert len(fresh) == page.count("![") == page.count("```python")
    kept = {path.name for path in (DOCS / "pictures").iterdir()}
    assert {path.name for path in fresh} == kept and all(path.stat().st_size for path in fresh)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:MAP of model:probml.ConvergenceWarning")  # of few steps
def test_the_code_about_sizes_runs(tmp_path, monkeypatch):
    """Its blocks say `model`, and read a folder of files; steps are fewer here."""
    dataset, parquet = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "rows").mkdir()
    for part in range(2):
        x = np.repeat([-4.0, 4.0], 2500) + random.normal(size=5000)
        parquet.write_table(pyarrow.table({"x": x}), f"rows/{part}.parquet")

    @probml.model
    def mixture():
        with plate("kinds", 2):
            mean = sample("mean", dist.Normal(0.0, 10.0))
        with probml.rows():
            z = sample("z", dist.Bernoulli(0.5))
            sample("x", dist.Normal(mean[z], 1.0))

    rows = dataset.dataset("rows").to_table()
    weighed = dataset.dataset(rows.append_column("times", pyarrow.array(np.ones(len(rows)))))
    names = {"model": mixture(), "optax": optax, "weighed": weighed}
    for block in BLOCK.finditer((DOCS / "sizes.md").read_text(encoding="utf-8")):
        exec(compile(block["code"].replace("steps=5000", "steps=50"), "sizes.md", "exec"), names)
    assert np.allclose(np.sort(names["fit"].params["mean"]), [-4, 4], atol=0.1)
    assert dataset.dataset("answers.parquet").count_rows() == 10_000


def hook(name="notebooks"):
    """A hook of the site, which is no module of the package."""
    found = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_notebook_is_a_page_of_the_site_with_its_pictures():
    notebooks = hook()
    found = notebooks.pages()
    assert len(found) == len(list((DOCS.parent / "notebooks").rglob("*.ipynb")))
    listed = notebooks.contents(found)
    for address, (markdown, pictures) in found.items():
        assert f"]({address.removeprefix('notebooks/')})" in listed
        assert markdown.count("![") == len(pictures) > 0 and "```python\n" in markdown
        assert all(image.startswith(b"\x89PNG") for image in pictures.values())


@pytest.mark.parametrize(("page", "link", "shown"), [
    ("tour.md", "[x](../notebooks/nile.ipynb)", "[x](notebooks/nile.md)"),
    ("topics.md", "[x](../notebooks/course/)", "[x](notebooks/index.md)"),
    ("coming_from/lme4.md", "[x](../../notebooks/zoo.ipynb)", "[x](../notebooks/zoo.md)"),
    ("tour.md", "[x](../benchmarks/functions.md)", "x (`benchmarks/functions.md`)"),
    ("tour.md", "[x](sizes.md#batches) [y](https://a.b/c)", "[x](sizes.md#batches) [y](https://a.b/c)"),
])
def test_links_out_of_the_pages_lead_to_pages_or_are_names(page, link, shown):
    assert hook().linked(link, page) == shown


def test_every_name_of_the_reference_has_a_page_of_its_own_in_its_group():
    reference, addresses = hook("reference_pages"), []
    for page in sorted((DOCS / "reference").glob("*.md")):
        markdown = page.read_text(encoding="utf-8")
        own = [reference.address_of(page.name, name) for name in reference.names(markdown)]
        inside = [entry for entry in reference.navigation(page.name, markdown)[1:]]
        flat = [at for entry in inside
                for at in (next(iter(entry.values())) if isinstance(entry, dict) else [entry])]
        assert flat == own
        links = reference.listed(markdown, page.name, {})
        assert "::: " not in links and all(f"({at.removeprefix('reference/')})" in links for at in own)
        addresses += own
    # also where a file system takes large and small letters for the same
    assert len({address.lower() for address in addresses}) == len(addresses) > 130


def test_a_summary_is_the_first_sentence_of_a_docstring():
    found = hook("reference_pages").summary_of("A mixture of normals; cells may be\n    NaN. The model is x.\n\nArgs:")
    assert found == "A mixture of normals; cells may be NaN"


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    page = '<p>of <span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[x^2\\]</div>'
    found = hook("formulas").set_formulas(page)
    assert found.count("<math") == 2 and "arithmatex" not in found and 'display="block"' in found
    assert "&lt;" in found or "&#x0003C;" in found
