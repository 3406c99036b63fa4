"""The report of `e3 eval all`, in a real browser: every figure can be seen and read, on a phone too."""

import json
import re
import subprocess

import pytest

import browser
from e3run import program

TIME_MAX_S = 900
PHONE_PX = 360
DESKTOP_PX = 1200

LOOK = r"""
(document, window) => {
  const figures = [...document.querySelectorAll("figure")].map(figure => {
    const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(t => ({text: t.textContent.trim(), box: t.getBoundingClientRect()}));
    const outside = texts.filter(({box: b}) =>
      b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1);
    const overlap = texts.filter((a, i) => texts.some((b, j) => i < j && a.box.left < b.box.right - 1 &&
      b.box.left < a.box.right - 1 && a.box.top < b.box.bottom - 2 && b.box.top < a.box.bottom - 2));
    // Colours of a series; frame, grid and text are black.
    const marks = [...svg.querySelectorAll("rect,circle,polyline")].filter(e => {
      const colour = e.getAttribute(e.tagName == "polyline" ? "stroke" : "fill");
      const b = e.getBoundingClientRect();
      return colour && colour != "#000000" && colour != "none" && (b.width > 0 || b.height > 0);
    });
    return {
      name: svg.getAttribute("aria-label"), role: svg.getAttribute("role"), width: box.width, height: box.height,
      marks: marks.length, texts: texts.map(t => t.text), outside: outside.map(t => t.text),
      overlap: overlap.map(t => t.text), text_px: Math.min(...texts.map(t => Math.min(t.box.height, t.box.width + 99))),
      colour: window.getComputedStyle(svg.querySelector("text")).fill,
    };
  });
  const root = document.documentElement;
  return {
    figures, scroll: root.scrollWidth, client: root.clientWidth, back: window.getComputedStyle(document.body).backgroundColor,
    sections: [...document.querySelectorAll("section")].map(s => s.id),
    requests: window.performance.getEntriesByType("resource").map(e => e.name),
    viewport: !!document.querySelector('meta[name="viewport"][content*="width=device-width"]'),
    linked: [...document.querySelectorAll("[src],link,[href]")].map(e => e.getAttribute("src") || e.getAttribute("href")),
  };
}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    browser.find()
    out = tmp_path_factory.mktemp("report")
    words = [program(), "eval", "all", "--quick", "--out", str(out), "-o", "json"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=TIME_MAX_S)
    assert ended.returncode == 0, ended.stderr
    return out, json.loads(ended.stdout)


@pytest.mark.parametrize("width", [PHONE_PX, DESKTOP_PX])
def test_every_figure_can_be_seen(written, width):
    out, view = written
    asked = browser.ask((out / "report.html").read_text(), width, LOOK)
    seen = asked.answer
    assert "error" not in seen, seen
    assert asked.console == []
    assert seen["scroll"] <= seen["client"] <= width, "the page scrolls sideways"
    assert seen["requests"] == []
    assert all(link.startswith("#") for link in seen["linked"]), seen["linked"]
    assert seen["viewport"]
    assert seen["sections"] == [o["experiment"] for o in view["outcomes"]]
    plots = [plot for outcome in view["outcomes"] for plot in outcome["plots"]]
    assert [f["name"] for f in seen["figures"]] == [plot["alt"] for plot in plots]
    for figure, plot in zip(seen["figures"], plots):
        check(figure, plot)


def check(figure, plot):
    name = plot["title"]
    assert figure["role"] == "img" and len(figure["name"]) > 40, name
    assert figure["width"] > 250 and figure["height"] > 80, f"{name}: {figure['width']} x {figure['height']} px"
    (kind, drawing), = plot["drawing"].items()
    labels = [drawing["x"]["label"]] + ([drawing["y"]["label"]] if kind == "lines" else drawing["groups"])
    series = [s["name"] for s in drawing[kind]]
    for text in labels + series + [name]:
        assert text in figure["texts"], f"{name}: {text!r} is missing"
    values = sum(len(s["points"]) for s in drawing["lines"]) if kind == "lines" else sum(
        value is not None for s in drawing["bars"] for value in s["values"])
    # a mark for each value, and one for each series in the legend
    assert values > 0 and figure["marks"] >= values + len(series), f"{name}: {figure['marks']} marks for {values}"
    ticks = [text for text in figure["texts"] if re.fullmatch(r"-?[\d.]+[kM]?", text)]
    assert len(ticks) >= 2, f"{name}: ticks {ticks}"
    assert figure["outside"] == [], f"{name}: text outside of the figure"
    assert figure["overlap"] == [], f"{name}: text over text"
    assert figure["text_px"] >= 9, f"{name}: text of {figure['text_px']} px"


def test_the_report_is_dark_where_the_reader_wants_it(written):
    page = (written[0] / "report.html").read_text()
    light, dark = (browser.ask(page, PHONE_PX, LOOK, dark).answer for dark in (False, True))
    assert brightness(light["back"]) > 200 and brightness(dark["back"]) < 60
    for figure in dark["figures"]:
        assert brightness(figure["colour"]) > 180, figure["name"]


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_a_plot_is_a_file_of_its_own(written):
    out, view = written
    for outcome in view["outcomes"]:
        assert json.loads((out / f"{outcome['experiment']}.json").read_text()) == outcome
        for number, _ in enumerate(outcome["plots"], 1):
            assert (out / f"{outcome['experiment']}-{number}.svg").read_text().startswith("<svg ")
