"""A report in a real browser, headless Chromium: nothing is said on its console and nothing fetched
from elsewhere, tables sort by keyboard, a narrow screen needs no sideways scrolling, it prints."""

import shutil

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@probml.model
def wards(ward, n: int):
    with plate("wards", n):
        level = sample("level", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(level[ward], 1.0))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    data = {"ward": np.repeat(["north", "south", "west"], 4), "y": np.arange(12.0) % 7}
    fit = wards(n=3).fit(data)
    return fit.report(tmp_path_factory.mktemp("report") / "report.html", data)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as found:
        # in a container of CI the browser has no sandbox of its own
        opened = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_it_opens_quietly_and_fits_its_screen(browser, report, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    assert said == [] and asked == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    dark = [sum(map(int, colour[4:-1].split(","))) < 384 for colour in (ink, paper)]
    assert dark == ([True, False] if scheme == "light" else [False, True])
    page.close()


def test_a_table_is_sorted_from_the_keyboard(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())

    def shown():
        return [float(text) for text in page.locator("#found table.sortable tbody tr td:nth-child(2)")
                .all_text_contents()]

    heading = page.locator("#found table.sortable th").nth(1)
    before = shown()
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert shown() == sorted(before) and heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert shown() == sorted(before)[::-1] and heading.get_attribute("aria-sort") == "descending"
    page.close()


def test_links_lead_to_their_sections_and_the_first_skips_them(browser, report):
    page = browser.new_page()
    page.goto(report.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "skip to the main text"
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1
    computed = page.locator("#details > details:has(> summary:text-is('Inference'))")
    assert computed.evaluate("it => !it.open")
    computed.locator("summary").first.click()
    assert computed.locator("table").first.is_visible()
    page.close()


def test_tabs_go_by_arrow_keys_and_all_of_them_print(browser, tmp_path):
    fit = wards(n=3).fit({"ward": np.repeat(["a", "b", "c"], 4), "y": np.arange(12.0) % 7},
                         probml.NUTS(draws=50, warmup=50, chains=1, progress=False))
    page = browser.new_page()
    page.goto(fit.report(tmp_path / "drawn.html").as_uri())
    tabs, panels = (page.locator(f"#found [role={role}]") for role in ("tab", "tabpanel"))
    assert tabs.count() == panels.count() >= 2

    def shown():
        return [i for i in range(panels.count()) if panels.nth(i).is_visible()]

    assert shown() == [0] and tabs.nth(0).get_attribute("aria-selected") == "true"
    tabs.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert shown() == [1] and page.evaluate("document.activeElement.id") == "picture-tab-1"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert shown() == [0]
    page.keyboard.press("Tab")  # on into what is shown
    assert page.evaluate("document.activeElement.id") == "picture-0"
    page.emulate_media(media="print")
    assert len(shown()) == panels.count() and not tabs.nth(0).is_visible()
    page.close()


def test_it_prints(browser, report, tmp_path):
    page = browser.new_page()
    page.goto(report.as_uri())
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.close()


def test_what_a_notebook_shows_scrolls_by_itself_on_a_narrow_screen(browser, tmp_path):
    data = {"ward": np.repeat(["north", "south", "west"], 4), "y": np.arange(12.0) % 7}
    model = wards(n=3)
    judged = probml.calibration([0, 1, 1, 0], np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [1, 0]]))
    shown = {"model": model, "explanation": model.explain(data), "fit": model.fit(data),
             "certificate": model.check(data=data, simulations=20), "calibration": judged}
    for name, each in shown.items():
        (tmp_path / f"{name}.html").write_text(
            f"<!DOCTYPE html><html><head><meta charset='utf-8'></head><body>{each._repr_html_()}"
            f"</body></html>")
        page = browser.new_page(viewport={"width": 390, "height": 800})
        said = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.goto((tmp_path / f"{name}.html").as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert (said, wide <= 390) == ([], True), name
        page.close()
