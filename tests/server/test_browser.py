"""The explorer as a person uses it: in a browser, with mouse and keys, for a table, images and texts.

Needs Chromium (`apt-get install chromium`) and playwright's Python package; with CI set they must be there.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dwac import DWACClassifier, ReferenceSet, Training
from dwac.cli.app import app
from dwac.conformal import label_sets
from dwac.server.explorer import Explorer, explorer_app
from tests.explain.helpers import explained_by_groups, explained_by_voters
from tests.server.client import HANG, TOKEN, Client, served
from tests.server.data import AGED, DIGITS, PEOPLE, fitted
from tests.server.explored import PHONE, WIDE, Visit, visit

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def explorers(
    table: DWACClassifier, rival: DWACClassifier, digits: DWACClassifier, texts: DWACClassifier
) -> dict[str, Explorer]:
    rows = PEOPLE[200:]
    return {
        "table": Explorer.of(table, rows, AGED[200:], title="people", rival=(rival, rows, "other")),
        "image": Explorer.of(digits, DIGITS.images[400:500], DIGITS.target[400:500], title="digits"),
        "text": Explorer.of(texts, ["a red plum", "some green pear", HOSTILE], title="fruit"),
    }


@pytest.fixture(scope="module")
def named_images() -> Explorer:
    ids = [f"scans/patient-{i:06}/left_side_of_the_image.png" for i in range(140)]
    clf = DWACClassifier(epochs=2, random_state=0, device="cpu", verbose=False)
    clf.fit(DIGITS.images[:120], DIGITS.target[:120], ids=ids[:120])
    return Explorer.of(clf, DIGITS.images[120:140], ids=ids[120:])


def edit_query(seen: Visit, kind: str) -> None:
    """Change the example in its form, and ask."""
    seen.open("whatif")
    match kind:
        case "table":
            seen.page.fill('#whatif input[name="age"]', "79")
        case "image":
            seen.page.fill('#whatif input[name="right"]', "2")
        case _:
            seen.page.fill("#what-text", "one green apple")
    seen.page.click("#whatif button:has-text('Predict')")
    seen.page.wait_for_selector("#what-result table")


@pytest.mark.parametrize("kind", ["table", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("image", "text"))])
def test_a_person_looks_slides_edits_removes_undoes_and_exports(
    browser: Any, explorers: dict[str, Explorer], kind: str
) -> None:
    explorer = explorers[kind]
    clf, first = explorer.clf, explorer.points.n_training
    with visit(browser, explorer) as seen:
        seen.choose(first + 1)
        wanted = clf.explain(explorer.examples.row(1), k=5)[0]
        assert seen.label == str(wanted.label)
        for name in ("probability", "confidence", "typicality", "credibility", "deciding"):
            assert seen.number(name) == getattr(wanted, name)
        shares = [float(node.get_attribute("data-share")) for node in seen.page.locator("#voters .share").all()]
        assert shares == [neighbor.share for neighbor in wanted.neighbors]
        _shows_records(seen, kind)
        _five_votes_fit(seen)

        for epsilon in (0.05, 0.2, 0.5):  # slide
            seen.page.locator("#epsilon").fill(str(epsilon))
            held = json.loads(seen.page.locator("#label-set").get_attribute("data-set"))
            assert held == [str(label) for label, p in (wanted.p_values or {}).items() if p > epsilon]
            sets = label_sets(explorer.first.predictions.conformal.p_values, epsilon)
            assert int(seen.page.locator("#sets-now").get_attribute("data-single")) == (sets.sum(axis=1) == 1).sum()

        if kind == "table":
            _splits_by_a_column(seen)
        place = seen.page.evaluate("window.explorer.original.xy")
        edit_query(seen, kind)
        moved = seen.page.evaluate("window.explorer.marks.moved.xy")
        assert np.hypot(*np.subtract(moved, place)) > 1e-3
        seen.page.click("#whatif button:has-text('Back')")
        seen.page.wait_for_selector("#what-result table", state="detached")

        seen.one_by_one()
        seen.remove_first_voter()
        seen.page.wait_for_selector("#before-after")
        assert seen.number("probability") != wanted.probability
        assert seen.page.locator("#edits ol > li").count() == 1
        table = list(csv.DictReader(seen.downloaded("#export-table").splitlines()))
        assert len(table) == len(explorer.examples)
        content = json.loads(seen.downloaded("#export-edits"))
        assert content["edits"][0]["id"] == wanted.neighbors[0].id
        assert content["n_changed"] == seen.changed()

        seen.page.keyboard.press("z")
        seen.page.wait_for_selector("#before-after", state="detached")
        assert seen.number("probability") == wanted.probability
        assert seen.changed() == 0
        seen.page.click("#redo")
        seen.page.wait_for_selector("#before-after")


def _splits_by_a_column(seen: Visit) -> None:
    """A table of groups beside the map, which has their colours."""
    seen.page.select_option("#by", label="job")
    seen.page.wait_for_selector("#split table")
    groups = [node.get_attribute("data-group") for node in seen.page.locator("#split tbody tr").all()]
    assert [name.removesuffix(" (small)") for name in groups] == ["all rows", "clerk", "nurse", "smith"]
    assert seen.page.evaluate("window.explorer.map.options.paint.names") == ["clerk", "nurse", "smith"]
    seen.wait("location.hash.includes('by=')")
    seen.page.click("#clear-split")
    seen.wait("document.getElementById('split').hidden && document.getElementById('colour').value === 'label'")


def test_a_page_opens_divided_by_the_column_that_was_asked_for(browser: Any, table: DWACClassifier) -> None:
    with visit(browser, Explorer.of(table, PEOPLE[200:], AGED[200:], by="job")) as seen:
        seen.page.wait_for_selector("#split table")
        assert seen.page.locator("#by").input_value() == "0"
        assert seen.page.evaluate("window.explorer.map.options.paint.names") == ["clerk", "nurse", "smith"]


def _five_votes_fit(seen: Visit) -> None:
    """On a small desktop, without scrolling; bars are shares of the whole vote."""
    page = seen.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("document.getElementById('right').scrollTo(0, 0)")
    grouped = page.locator("#groups").count() > 0
    bars = page.locator("#groups .group > .voter .bar" if grouped else "#voters .track .bar")
    shares = page.locator("#groups .group > .voter .share" if grouped else "#voters .share")
    assert shares.count() == 5 or (grouped and shares.count() > 0)  # there may be fewer groups
    for place in range(min(shares.count(), 5)):
        share = float(shares.nth(place).get_attribute("data-share"))
        width = bars.nth(place).evaluate("(bar) => bar.style.width")
        assert float(width.rstrip("%")) == pytest.approx(100 * share, abs=1e-3)
        box = shares.nth(place).bounding_box()
        assert box["y"] + box["height"] <= 800
    page.set_viewport_size(WIDE)


def _shows_records(seen: Visit, kind: str) -> None:
    match kind:
        case "table":
            assert seen.page.locator("#compared mark").count() > 0
        case "image":
            assert seen.page.locator("#voters img").count() == 6
            assert seen.page.evaluate(
                "[...document.querySelectorAll('#voters img')].every((i) => i.naturalWidth === 8)"
            )
        case _:
            seen.page.wait_for_selector(".influence [data-without]")
            assert seen.page.locator(".influence [data-without]").count() == 3
            assert seen.page.locator(".attention .words span").count() == 3


def test_the_same_explanation_has_the_same_numbers_in_python_command_service_and_page(
    browser: Any, table: DWACClassifier, tmp_path: Path
) -> None:
    rows = PEOPLE[200:203]
    table.save(tmp_path / "model")
    rows.to_csv(tmp_path / "rows.csv", index_label="who")
    in_python = [json.loads(json.dumps(table.explain(rows[i : i + 1], k=5)[0].to_dict())) for i in range(3)]
    for i in range(3):
        options = ["--id-column", "who", "--row", str(i), "--json", "--device", "cpu"]
        result = CliRunner().invoke(app, ["explain", str(tmp_path / "model"), str(tmp_path / "rows.csv"), *options])
        assert result.exit_code == 0, result.output
        assert _numbers(json.loads(result.stdout)) == _numbers(in_python[i])
    with visit(browser, Explorer.of(table, rows)) as seen:
        sent = [json.loads(row.to_json(date_format="iso")) for _, row in rows.iterrows()]
        for i in range(3):
            answer = Client(seen.port).post(
                "/v1/explain", {"rows": [sent[i]], "k": 5}, authorization=f"Bearer {TOKEN}"
            ).json  # fmt: skip
            assert _numbers(answer["explanations"][0]) == _numbers(in_python[i])
            seen.choose(seen.explorer.points.n_training + i)
            assert _numbers(seen.page.evaluate("window.explorer.answer.explanation")) == _numbers(in_python[i])
            for name in ("probability", "confidence", "typicality", "credibility", "deciding", "flip_size"):
                assert seen.number(name) == in_python[i][name]
            voters = seen.page.locator("#voters .share").all()
            for node, neighbor in zip(voters, in_python[i]["neighbors"], strict=True):
                assert float(node.get_attribute("data-share")) == neighbor["share"]
                assert float(node.get_attribute("data-weight")) == neighbor["weight"]


def _numbers(explanation: dict[str, Any]) -> dict[str, Any]:
    """All but the records, whose dates a file writes in another way."""
    neighbors = [{key: value for key, value in each.items() if key != "record"} for each in explanation["neighbors"]]
    return {**{key: value for key, value in explanation.items() if key != "record"}, "neighbors": neighbors}


@pytest.fixture(scope="module")
def crowded(crowd: DWACClassifier) -> Explorer:
    return Explorer.of(crowd, PEOPLE[200:], AGED[200:], title="crowd")


@pytest.mark.slow
def test_where_few_examples_explain_nothing_the_page_shows_groups_that_open(browser: Any, crowded: Explorer) -> None:
    wanted = crowded.clf.explain(crowded.examples.row(1), k=5)[0]
    with visit(browser, crowded) as seen:
        seen.choose(crowded.points.n_training + 1)
        heads = seen.page.locator("#groups .group > .voter .share").all()
        assert [float(node.get_attribute("data-share")) for node in heads] == [g.share for g in wanted.shown_groups]
        assert [int(node.get_attribute("data-size")) for node in heads] == [g.size for g in wanted.shown_groups]
        assert seen.number("deciding_groups") == wanted.deciding_groups
        assert seen.number("deciding") == wanted.deciding
        seen.open("sentences")
        shown = seen.page.locator("#example").inner_text()
        assert all(sentence in shown for sentence in [*wanted.lead()[-3:], wanted.details()[1]])
        for group in wanted.shown_groups:
            assert str(group.compared) in shown
            assert str(group.members[0].id) in shown
        assert "(the strongest group for another label)" in shown or {g.label for g in wanted.groups[:5]} != {
            wanted.label
        }
        place = next(i for i, group in enumerate(wanted.shown_groups) if group.subgroups)
        seen.page.locator("#groups .opened summary").nth(place).click()
        seen.page.locator("#groups .subgroup").first.wait_for()
        parts = seen.page.locator("#groups .subgroup .share").all()
        wanted_parts = [part.share for part in wanted.shown_groups[place].subgroups[:12]]
        assert [float(node.get_attribute("data-share")) for node in parts] == wanted_parts
        members = [str(member.id) for member in wanted.shown_groups[place].members]
        inside = seen.page.locator("#groups .opened").nth(place).locator(".members").first.inner_text()
        assert all(name in inside for name in members)
        assert not seen.page.locator("#voters").is_visible()
        seen.page.click("#nearest > summary")
        assert seen.page.locator("#voters").is_visible()
        seen.page.locator("#groups .alike button").first.click()  # to the member most alike
        seen.wait(f"window.explorer.answer.id === {json.dumps(wanted.groups[0].members[0].id)}")


@pytest.mark.slow
def test_a_disc_of_the_map_says_what_it_is_and_lists_its_members(browser: Any, crowded: Explorer) -> None:
    groups = crowded.points.references.groups
    disc = int(groups.leaf_sizes.argmax())
    with visit(browser, crowded) as seen:
        seen.page.select_option("#click", "groups")
        x, y = seen.page.evaluate(
            "(i) => { const { map } = window.explorer; const d = map.discs[i]; "
            "return map.pixelOf(d.x, d.y).map((v) => v / map.ratio); }", disc)  # fmt: skip
        tinted = "([x, y]) => [...window.explorer.map.context.getImageData(x, y, 1, 1).data].join()"
        rim = 0.97 * float(crowded.points.layout.radii[disc])
        inside = seen.page.evaluate(
            "([i, r]) => { const { map } = window.explorer; const d = map.discs[i];"
            "return map.pixelOf(d.x, d.y + r).map(Math.round); }", [disc, rim])  # fmt: skip
        assert seen.page.evaluate(tinted, inside) != seen.page.evaluate(tinted, [2, 2])
        box = seen.page.locator("#marks").bounding_box()
        seen.page.mouse.move(box["x"] + x, box["y"] + y)
        tip = seen.page.locator("#tip").inner_text()
        description = (crowded.clf.descriptions_ or [])[groups.parents[disc]]
        assert f"{groups.leaf_sizes[disc]:.0f} training examples" in tip
        assert str(description) in tip
        seen.page.mouse.click(box["x"] + x, box["y"] + y)
        seen.page.wait_for_selector(f'#group[data-disc="{disc}"]:not([hidden])')
        assert seen.page.locator("#group .members li").count() == groups.leaf_sizes[disc]
        assert seen.page.evaluate("window.explorer.marks.group") == [disc]
        seen.page.click("#whole")
        whole = np.flatnonzero(groups.parents == groups.parents[disc])
        seen.page.wait_for_selector('#group[data-whole="true"]')
        assert seen.page.evaluate("window.explorer.marks.group") == whole.tolist()
        assert int(seen.page.locator("#group").get_attribute("data-n")) == groups.sizes[groups.parents[disc]]
        name = seen.page.locator("#group .members .link").first.inner_text()
        seen.page.locator("#group .members .link").first.click()
        seen.wait(f"window.explorer.answer?.id === {json.dumps(name)}")
        seen.page.click("#group button[aria-label^=Close]")
        assert not seen.page.locator("#group").is_visible()
        seen.page.click("#example .head .menu > summary")
        seen.page.click("#its-disc")
        seen.page.wait_for_selector("#group:not([hidden])")


@pytest.mark.slow
def test_a_condensed_model_shows_representatives_and_how_many_each_votes_for(
    browser: Any, table: DWACClassifier
) -> None:
    few = table.condense(14)
    known = few.agreement_
    assert known is not None
    with visit(browser, Explorer.of(few, PEOPLE[200:], AGED[200:])) as seen:
        assert str(known) in seen.page.locator("#represented").inner_text()
        seen.choose(15)
        wanted = few.explain(PEOPLE[201:202], k=5)[0]
        assert seen.number("agreement") == known.share
        seen.open("sentences")
        assert str(known) in seen.page.locator("#example").inner_text()
        voters = seen.page.locator("#voters .share").all_text_contents()
        for text, neighbor in zip(voters, wanted.neighbors, strict=True):
            assert neighbor.size == 1 or f"votes for {neighbor.size:,}" in text
        place = int(few.references_.voters.positions([wanted.neighbors[0].id])[0])
        seen.choose(place)
        assert f"representative of {few.references_.sizes[place]:.0f}" in seen.page.locator("#example h2").inner_text()


@pytest.mark.slow
def test_search_and_keys_lead_where_the_mouse_does(browser: Any, explorers: dict[str, Explorer]) -> None:
    explorer = explorers["table"]
    with visit(browser, explorer) as seen:
        page = seen.page
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "wanted"
        page.keyboard.type("person207")
        page.keyboard.press("Enter")
        page.wait_for_selector(f'#example[data-point="{explorer.points.n_training + 7}"]')
        page.locator("#marks").focus()
        before = page.evaluate("({...window.explorer.map.view})")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("+")
        after = page.evaluate("({...window.explorer.map.view})")
        assert after["scale"] > before["scale"]
        assert after["x"] != before["x"]
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("0")
        page.locator("#marks").focus()
        page.keyboard.press("Enter")  # the point nearest to the middle
        seen.wait("window.explorer.chosen !== null")


@pytest.mark.slow
def test_the_histogram_filters_the_map(browser: Any, explorers: dict[str, Explorer]) -> None:
    explorer = explorers["image"]
    trust: Any = explorer.first.predictions.conformal
    typicality = trust.typicality
    with visit(browser, explorer) as seen:
        seen.page.fill("#high", "0.3")
        seen.page.keyboard.press("Tab")
        assert int(seen.page.locator("#kept").get_attribute("data-kept")) == (typicality <= 0.3).sum()
        faded = "[...window.explorer.map.look].filter((look) => look > 0 && look <= 141).length"
        strange = (typicality <= 0.3).sum()
        assert seen.page.evaluate(faded) == len(explorer.points) - strange
        seen.page.click("#all")
        assert seen.page.evaluate(faded) == 0
        seen.page.locator("#histogram").scroll_into_view_if_needed()
        box = seen.page.locator("#histogram").bounding_box()
        seen.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20)
        seen.page.mouse.down()
        seen.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 20, steps=4)
        seen.page.mouse.up()
        inside = (typicality >= 0.5) & (typicality <= 0.9)
        assert int(seen.page.locator("#kept").get_attribute("data-kept")) == inside.sum()


@pytest.mark.slow
def test_suspicious_labels_and_disagreements_lead_to_their_examples(browser: Any) -> None:
    # Twenty labels of people who are clearly old or young are wrong.
    sure = np.flatnonzero((PEOPLE["age"][:200] - 50).abs() > 12)[:20]
    given = AGED[:200].copy()
    given[sure] = np.where(given[sure] == "old", "young", "old")
    clf, rows = fitted(PEOPLE[:200], given, epochs=20), PEOPLE[200:]
    explorer = Explorer.of(clf, rows, AGED[200:], rival=(fitted(PEOPLE[:60], AGED[:60], epochs=1), rows, "other"))
    with visit(browser, explorer) as seen:
        for section in ("issues", "compare"):
            seen.open(section)
            link = seen.page.locator(f"#{section} .link").first
            link.wait_for()
            name = link.inner_text()
            link.click()
            seen.wait(f"window.explorer.answer?.id === {json.dumps(name)}")
        assert seen.page.locator("#rival").is_visible()
        seen.open("edits")
        seen.open("issues")
        seen.page.locator("#issues .link").first.click()
        seen.page.wait_for_selector("#edits button:has-text('Remove it')")
        seen.page.click("#edits button:has-text('Remove it')")
        seen.page.wait_for_selector("#edits ol > li")


@pytest.mark.slow
def test_a_private_page_shows_labels_and_rounded_shares_only(browser: Any, table: DWACClassifier) -> None:
    with visit(browser, Explorer.of(table, PEOPLE[200:], private=True)) as seen:
        # Several rows may share a place on a private map: found by its id, each is still there.
        seen.page.fill("#wanted", "person204")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector('#example[data-point="4"]')
        assert 1 <= seen.page.locator("#voters .share").count() <= 2  # labels, of all who voted together
        assert "weight" not in seen.page.locator("#voters").inner_text()
        assert seen.page.locator("#voters button").count() == 0
        assert not seen.page.locator("#edits, #issues").first.is_visible()
        seen.page.click("#why")
        seen.page.wait_for_selector("#whatif .versus")  # contributions of columns, and nothing of the two cases
        assert seen.page.locator("#whatif .versus tr[data-column]").count() > 0
        assert seen.page.locator("#whatif .versus input, #whatif .versus button, #pick").count() == 0
        shown = seen.page.locator("body").inner_text()
        assert not {*re.findall(r"person\d+", shown)} & {*table.references_.ids}
        assert "smith" not in shown


def test_hostile_text_stays_text(browser: Any, explorers: dict[str, Explorer]) -> None:
    explorer = explorers["text"]
    with visit(browser, explorer) as seen:
        seen.choose(explorer.points.n_training + 2)
        seen.page.click("#why")
        assert "onerror" in seen.page.locator("#what-text").input_value()
        assert seen.page.locator("#whatif tr:has-text('onerror')").count() > 0
        assert seen.page.locator("#example img, #whatif img").count() == 0
        assert seen.page.title() == "fruit: dwac explorer"


def test_without_its_token_the_page_asks_for_it(browser: Any, explorers: dict[str, Explorer]) -> None:
    with served(explorer_app(explorers["text"], token=TOKEN)) as client:
        page = browser.new_page()
        page.set_default_timeout(1000 * HANG)
        page.goto(f"http://127.0.0.1:{client.port}/")
        page.fill("#secret", TOKEN)
        page.click("#token button")
        page.wait_for_selector("body[data-ready]")
        assert TOKEN not in page.url
        page.close()


# Readable by everyone

_CONTRAST = """() => {
  const rgba = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!(own || node.matches("input, textarea")) || !node.checkVisibility() || node.disabled) continue;
    const under = ground(node), ink = over(rgba(getComputedStyle(node).color), under);
    const [low, high] = [light(ink), light(under)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName} ${node.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
_NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, summary, [role], canvas")]
  .filter((node) => !node.matches("[aria-hidden]"))
  .filter((node) => !(node.getAttribute("aria-label") || node.getAttribute("aria-labelledby")
    || node.matches("[role=alert], [role=status]")
    || (node.matches("button, summary, form") && node.textContent.trim())
    || [...(node.labels ?? [])].some((label) => [...label.childNodes].some((p) => p !== node && p.textContent.trim()))))
  .map((node) => node.outerHTML.slice(0, 120))"""
_STRUCTURE = """() => ({
  headings: [...document.querySelectorAll("h1")].length, language: document.documentElement.lang,
  pictures: [...document.querySelectorAll("img:not([alt])")].length,
  repeated: [...document.querySelectorAll("[id]")].map((n) => n.id).filter((id, i, all) => all.indexOf(id) !== i),
  cells: [...document.querySelectorAll("table")].filter((t) => !t.querySelector("th[scope]")).length,
})"""


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("table", "dark"), *(pytest.param(kind, "light", marks=pytest.mark.slow) for kind in ("image", "text"))],
)
def test_everything_has_contrast_and_a_name(
    browser: Any, explorers: dict[str, Explorer], kind: str, scheme: str
) -> None:
    with visit(browser, explorers[kind], color_scheme=scheme) as seen:
        assert seen.page.evaluate("document.documentElement.dataset.theme") == scheme
        seen.choose(explorers[kind].points.n_training + 1)
        seen.one_by_one()
        seen.remove_first_voter()
        seen.page.wait_for_selector("#before-after")
        for section in ("sentences", "labels", "whatif", "edits", "all-groups", "issues", "compare", "export"):
            if seen.page.locator(f"#{section}").is_visible():
                seen.open(section)
        _compare(seen, kind)
        seen.wait("!document.getElementById('issues').textContent.includes('Asking')")
        assert seen.page.evaluate(_CONTRAST) == []
        ground = seen.page.evaluate("window.explorer.map.background")
        seen.page.click("#theme")  # and in the other theme
        assert {seen.page.evaluate("document.documentElement.dataset.theme"), scheme} == {"light", "dark"}
        assert seen.page.evaluate("window.explorer.map.background") != ground
        assert seen.page.evaluate(_CONTRAST) == []
        assert seen.page.evaluate(_NAMELESS) == []
        found = seen.page.evaluate(_STRUCTURE)
        assert found == {"headings": 1, "language": "en", "pictures": 0, "repeated": [], "cells": 0}


@pytest.fixture(scope="module")
def blank(browser: Any) -> Iterator[Any]:
    """A page for content of its own."""
    page = browser.new_page(viewport=WIDE)
    page.set_default_timeout(1000 * HANG)
    yield page
    page.close()


def test_the_checks_of_contrast_and_names_can_fail(blank: Any) -> None:
    page = blank
    named = '<label>x <input></label><input aria-label="y"><label>z<select><option>a</option></select></label>'
    page.set_content(f'<p style="color:#999">pale</p><button></button><select><option>a</option></select>{named}')
    assert len(page.evaluate(_CONTRAST)) == 1
    assert page.evaluate(_NAMELESS) == ["<button></button>", "<select><option>a</option></select>"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "image", "text"])
def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: Any, explorers: dict[str, Explorer], kind: str
) -> None:
    with visit(browser, explorers[kind], viewport=PHONE, has_touch=True) as seen:
        seen.choose(explorers[kind].points.n_training + 1)
        for section in ("sentences", "whatif", "edits", "all-groups", "issues", "compare", "export"):
            if seen.page.locator(f"#{section}").is_visible():
                seen.open(section)
        _compare(seen, kind)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        controls = "[...document.querySelectorAll('button:not(.link), select, input')]"
        small = f"{controls}.filter((n) => n.checkVisibility() && n.getBoundingClientRect().height < 20).length"
        assert seen.page.evaluate(small) == 0


def _compare(seen: Visit, kind: str) -> None:
    """Open everything that compares with precedents."""
    seen.page.wait_for_selector("#whatif .versus")
    if kind == "table":
        edit_query(seen, kind)
        seen.open("recourse")
        seen.page.click("#recourse button.main")
        seen.page.wait_for_selector("#ways li")
    if kind != "text":
        seen.open("importance")
        seen.page.wait_for_selector("#importance li")


@pytest.mark.parametrize("groups", [False, True])
def test_an_explanation_with_many_columns_fits_the_screen_and_paper(blank: Any, groups: bool) -> None:
    words = ["column 7 of the table at least 12, column 3 of the table at most 4"]
    e = explained_by_groups(words) if groups else explained_by_voters()
    page = blank
    page.set_content(e.to_html())
    beyond = "[...document.querySelectorAll('.dwac-wide')].filter((n) => n.scrollWidth > n.clientWidth).length"
    assert page.locator("th[scope=row]").count() >= 30
    assert page.evaluate(beyond) == 0
    page.set_viewport_size({"width": 688, "height": 1017})  # A4 less its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    assert page.evaluate(beyond) == 0
    page.emulate_media(media="screen")
    page.set_viewport_size(WIDE)


@pytest.mark.parametrize("viewport", [PHONE, pytest.param(WIDE, marks=pytest.mark.slow)])
def test_long_ids_of_images_stay_below_their_images(browser: Any, named_images: Explorer, viewport: Any) -> None:
    with visit(browser, named_images, viewport=viewport) as seen:
        seen.choose(named_images.points.n_training + 1)
        seen.page.wait_for_selector(".strip figure, #groups img")
        beyond = ".filter((n) => n.scrollWidth > n.clientWidth + 1).map((n) => n.textContent)"
        assert seen.page.evaluate(f"[...document.querySelectorAll('.strip figure, #groups li')]{beyond}") == []


@pytest.mark.slow
def test_a_hundred_thousand_points_are_all_drawn_while_the_map_moves(browser: Any) -> None:
    n = 100_000  # benchmarks/explorer.py measures 600,000
    rng = np.random.default_rng(0)
    clf = _with_references(rng.normal(size=(n, 2)).astype(np.float32), rng.integers(2, size=n))
    drawn = """() => { const { map } = window.explorer; map.draw();
      return [Number(map.ground.dataset.shown), new Set(map.context.getImageData(0, 0, map.ground.width,
        map.ground.height).data).size]; }"""
    with visit(browser, Explorer.of(clf, most=500, private=False)) as seen:
        assert seen.page.evaluate(drawn)[0] == n
        for key in ("ArrowLeft", "+", "ArrowDown"):
            seen.page.keyboard.press(key)
        shown, colours = seen.page.evaluate(drawn)
        assert 0.5 * n < shown < n
        assert colours > 4


def _with_references(h: Any, labels: Any) -> DWACClassifier:
    X = np.random.default_rng(0).normal(size=(60, 2))
    clf = fitted(
        pd.DataFrame(X, columns=["a", "b"]), (X[:, 0] > 0).astype(int), epochs=1, training=Training(embedding_size=2)
    )
    clf.model_.references = ReferenceSet(h, labels, n_classes=2)
    return clf


# Views of many examples


def inside(polygon: list[tuple[float, float]], xy: Any) -> Any:
    """Which places are inside a polygon."""
    from matplotlib.path import Path as Outline

    return Outline([*polygon, polygon[0]]).contains_points(xy)


def drag(seen: Visit, corners: list[tuple[float, float]]) -> None:
    """Over the map, from corner to corner, in pixels of its canvas."""
    box = seen.page.locator("#marks").bounding_box()
    for i, (x, y) in enumerate(corners):
        seen.page.mouse.move(box["x"] + x, box["y"] + y, steps=1 if i == 0 else 3)
        if i == 0:
            seen.page.mouse.down()
    seen.page.mouse.up()


@pytest.mark.slow
def test_a_lasso_selects_what_is_inside_and_a_link_shows_the_same(browser: Any, explorers: dict[str, Explorer]) -> None:
    explorer = explorers["table"]
    with visit(browser, explorer) as seen:
        page = seen.page
        page.select_option("#colour", "typicality")
        page.click("#lasso")
        drag(seen, [(200, 40), (560, 60), (500, 420), (180, 400)])
        page.wait_for_selector("#selection:not([hidden])")
        chosen = page.evaluate("window.explorer.selected")
        polygon = page.evaluate("window.explorer.lasso")
        assert chosen == np.flatnonzero(inside(polygon, explorer.points.positions.astype(np.float32))).tolist()
        assert 0 < len(chosen) < len(explorer.points)
        assert "selected" in page.locator("#said").inner_text()
        labels = np.r_[explorer.clf.references_.labels.cpu().numpy(), explorer.examples.truth][chosen]
        shown = {
            node.get_attribute("data-label"): int(node.get_attribute("data-count"))
            for node in page.locator("#selection .counts li").all()
        }
        names = explorer.clf.classes_
        assert shown == {names[code]: int((labels == code).sum()) for code in np.unique(labels)}
        with page.expect_download() as download:
            page.click("#export-selection")
        rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
        assert [row["id"] for row in rows] == [explorer.points.name(point) for point in chosen]
        page.evaluate(f"window.explorer.choose({chosen[0]})")
        page.locator("#epsilon").fill("0.2")
        seen.wait("location.hash.includes('epsilon=0.2') && location.hash.includes('point=')")
        assert TOKEN not in page.url
        state = page.url.split("#")[1]
        page.click("#clear-selection")
        assert page.evaluate("window.explorer.map.options.selected") is None
        other = page.context.new_page()
        other.goto(f"http://127.0.0.1:{seen.port}/#token={TOKEN}&{state}")
        other.wait_for_selector("body[data-ready]")
        assert other.evaluate("window.explorer.selected") == chosen
        assert other.evaluate("window.explorer.chosen") == chosen[0]
        assert other.evaluate("window.explorer.epsilon") == 0.2
        assert other.input_value("#colour") == "typicality"


@pytest.mark.slow
def test_points_can_be_coloured_by_anything_and_the_legend_says_what(
    browser: Any, explorers: dict[str, Explorer]
) -> None:
    explorer = explorers["table"]
    trust: Any = explorer.first.predictions.conformal
    with visit(browser, explorer) as seen:
        page, first = seen.page, explorer.points.n_training
        choices = page.evaluate("[...document.getElementById('colour').options].map((o) => [o.value, o.text])")
        names = [name for _, name in choices]
        wanted = ["label", "prediction", "typicality", "credibility", "error", "worth", *PEOPLE.columns]
        assert names == wanted
        legends = set()
        for value, name in choices:
            page.select_option("#colour", value)
            paint = "window.explorer.map.options.paint"
            painted = json.dumps(name if value.startswith("column:") else value)
            seen.wait(f"{paint}.voters" if value == "worth" else f"{paint}.name === {painted}")
            legends.add((page.locator("#legend").get_attribute("aria-label"), page.locator("#legend").inner_text()))
        assert len(legends) >= len(choices) - 1  # label and prediction have the same names
        page.evaluate("window.explorer.setColour('credibility')")
        codes = "window.explorer.points.withPrediction.map((i) => window.explorer.map.options.paint.codeOf(i))"
        seen.wait("window.explorer.map.options.paint.name === 'credibility'")
        assert page.evaluate(codes) == np.floor(trust.credibility * 139 + 0.5).astype(int).tolist()
        page.evaluate("window.explorer.setColour('error')")
        seen.wait("window.explorer.map.options.paint.name === 'error'")
        wrong = explorer.first.predictions.codes != explorer.examples.truth
        assert page.evaluate(codes) == wrong.astype(int).tolist()
        box = page.locator("#marks").bounding_box()
        x, y = page.evaluate(
            "(i) => { const { map, points } = window.explorer; "
            "return map.pixelOf(points.xy[2 * i], points.xy[2 * i + 1]).map((v) => v / map.ratio); }",
            first + 5,
        )
        page.mouse.move(box["x"] + x, box["y"] + y)
        seen.wait("!document.getElementById('tip').hidden && /person/.test(document.getElementById('tip').textContent)")
        near = page.evaluate(
            f"window.explorer.map.at({x} * window.explorer.map.ratio, {y} * window.explorer.map.ratio)"
        )
        assert explorer.points.name(near) in page.locator("#tip").inner_text()
        assert "job" in page.locator("#tip").inner_text()
        # What the guide tells to click is on the page.
        page.evaluate(f"window.explorer.choose({first + 5})")
        page.wait_for_selector(f'#example[data-point="{first + 5}"]')
        seen.open("whatif")
        page.wait_for_selector("#whatif .versus")
        guide = (Path(__file__).parents[2] / "docs/how-to/explore.md").read_text()
        told = {" ".join(name.split()) for name in re.findall(r"\*\*(.+?)\*\*", guide, re.S)}
        elsewhere = {"What the network read (attention)", "Export (CSV)", "Undo"}  # of texts, selections and edits
        elsewhere |= {"Show who votes", "Try it"}  # of changed examples
        shown = " ".join(page.evaluate("document.body.textContent").split())
        assert [name for name in sorted(told - elsewhere) if name not in shown] == []
        assert elsewhere < told


@pytest.mark.slow
def test_two_cases_stand_side_by_side_and_each_value_can_be_taken_over(
    browser: Any, explorers: dict[str, Explorer]
) -> None:
    explorer = explorers["table"]
    clf, first = explorer.clf, explorer.points.n_training
    wanted = clf.explain(PEOPLE[201:202])[0].reasons()
    with visit(browser, explorer) as seen:
        page = seen.page
        seen.choose(first + 1)
        page.keyboard.press("w")
        page.wait_for_selector("#whatif .versus")
        shown = page.locator("#whatif .versus tr[data-column]")
        told = {row.get_attribute("data-column"): float(row.get_attribute("data-contribution")) for row in shown.all()}
        assert told == {part.column: part.contribution for part in wanted.contributions}
        assert wanted.precedent.id in page.locator("#whatif .versus").first.inner_text()
        assert float(page.locator("#whatif [data-total]").get_attribute("data-total")) == wanted.total

        changed = "document.querySelector('#what-result table') !== null"
        moved = "window.explorer.marks.moved?.explanation"
        for column in (part.column for part in wanted.deciding):  # becomes the precedent, column by column
            page.click(f"#whatif button[aria-label^='Take'][aria-label$='for {column}']")
        seen.wait(f"{changed} && {moved}.label === {json.dumps(wanted.other)}")
        seen.wait("Number(document.querySelector('#whatif [data-total]').dataset.total) === 0")
        page.locator("#whatif button:has-text('Predict')").scroll_into_view_if_needed()
        assert 0 <= page.locator("#what-result").bounding_box()["y"] < WIDE["height"] / 2  # stays in view

        voter = clf.explain(PEOPLE[201:202])[0].neighbors[0].id  # another precedent, from its menu
        page.click("#whatif button:has-text('Back')")
        page.wait_for_selector("#what-result table", state="detached")
        seen.one_by_one()
        page.locator("#voters .menu > summary").first.click()
        page.click(f"#voters button[aria-label='Compare with {voter}']")
        seen.wait(f"document.querySelector('#whatif .versus')?.textContent.includes({json.dumps(voter)})")
        page.click("#pick")  # and one from the map
        place = clf.references_.ids[7]
        _click_point(seen, 7)
        seen.wait(f"document.querySelector('#whatif .versus')?.textContent.includes({json.dumps(place)})")
        assert page.locator("#example").get_attribute("data-point") == str(first + 1)


def _click_point(seen: Visit, point: int) -> None:
    """Where it lies, without waiting for it to be shown."""
    x, y = seen.page.evaluate(
        """(i) => { const { map, points } = window.explorer; map.goTo(points.xy[2 * i], points.xy[2 * i + 1]);
        for (let k = 0; k < 60 && map.at(map.frame.width / 2, map.frame.height / 2) !== i; k++) map.zoom(1.5);
        return [map.frame.width / 2 / map.ratio, map.frame.height / 2 / map.ratio]; }""",
        point,
    )
    box = seen.page.locator("#marks").bounding_box()
    seen.page.mouse.click(box["x"] + x, box["y"] + y)


@pytest.mark.slow
def test_what_would_change_it_is_loaded_into_the_form_and_columns_are_ranked(
    browser: Any, explorers: dict[str, Explorer]
) -> None:
    explorer = explorers["table"]
    row, first = PEOPLE[201:202], explorer.points.n_training
    other = next(name for name in ("old", "young") if name != explorer.clf.predict(row)[0])
    wanted = explorer.clf.recourse(row, other, frozen=["pay"])[0].ways
    with visit(browser, explorer) as seen:
        page = seen.page
        seen.choose(first + 1)
        page.click("#why")
        page.wait_for_selector("#recourse")
        seen.open("recourse")
        page.check("#recourse label:has-text('pay') input")
        page.click("#recourse button.main")
        page.wait_for_selector("#ways li")
        told = [each.get_attribute("data-columns") for each in page.locator("#ways li").all()]
        assert told == [",".join(map(str, way.columns)) for way in wanted]
        page.click("#ways li button")
        seen.wait(f"window.explorer.marks.moved?.explanation.label === {json.dumps(other)}")
        probability = page.evaluate(f"window.explorer.marks.moved.explanation.probabilities[{json.dumps(other)}]")
        assert probability == pytest.approx(wanted[0].value, abs=1e-9)

        seen.open("importance")
        page.wait_for_selector("#importance li")
        page.locator("#importance li button").nth(1).click()
        n, names, column, dots, focus = page.evaluate(
            "() => { const all = (query) => [...document.querySelectorAll(`#importance ${query}`)]; "
            "return [Number(all('#importance-now')[0].dataset.rows), all('li').map((row) => row.dataset.column), "
            "all('.chart')[0].dataset.column, all('circle').length, document.activeElement.dataset.name]; }"
        )
        rows = np.random.default_rng(0).permutation(60)[:n] + 200
        parts = [explorer.clf.importance(PEOPLE[i : i + 1], random_state=first + i - 200).contributions for i in rows]
        assert names == pd.concat(parts).abs().mean().sort_values(ascending=False).index.tolist()
        assert dots == PEOPLE.iloc[rows][column].notna().sum()
        assert focus == column  # where it was


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["image", "text"])
def test_patches_and_phrases_stand_beside_those_of_the_precedent(
    browser: Any, explorers: dict[str, Explorer], kind: str
) -> None:
    explorer = explorers[kind]
    wanted = explorer.clf.explain(explorer.examples.row(1))[0].reasons()
    with visit(browser, explorer) as seen:
        seen.choose(explorer.points.n_training + 1)
        seen.page.click("#why")
        seen.page.wait_for_selector("#whatif .versus")
        shown = seen.page.locator("#whatif .versus tr[data-column]").all()
        told = {row.get_attribute("data-column"): float(row.get_attribute("data-contribution")) for row in shown}
        assert told == {part.column: part.contribution for part in wanted.deciding}
        if kind == "image":
            boxes = [each.bounding_box() for each in seen.page.locator("#whatif .two svg").all()]
            assert len(boxes) == 2
            assert min(box["width"] for box in boxes) >= 180
            assert seen.page.locator("#whatif .two rect.for, #whatif .two rect.against").count() == len(wanted.deciding)


@pytest.mark.slow
def test_a_change_shows_its_result_above_the_form_and_edits_stay_in_view(
    browser: Any, explorers: dict[str, Explorer]
) -> None:
    explorer = explorers["table"]
    with visit(browser, explorer) as seen:
        page = seen.page
        seen.choose(explorer.points.n_training + 1)
        before = page.locator("#example").get_attribute("data-label")
        edit_query(seen, "table")
        field, result = (
            page.locator('#whatif input[name="age"]').bounding_box(),
            page.locator("#what-result").bounding_box(),
        )
        assert 0 <= result["y"] < result["y"] + result["height"] <= field["y"] < WIDE["height"]
        changed = explorer.examples.row(1).assign(age=79.0)
        after = explorer.clf.explain(changed)[0]
        said = page.locator("#what-result tbody tr").first.inner_text()
        assert [before, str(after.label)] == said.split()[1:]
        assert page.locator("#example").get_attribute("data-label") == before  # still the example itself
        page.click("#what-result .link")
        page.wait_for_selector("#unchanged")
        assert seen.number("probability") == after.probability
        page.click("#whatif button:has-text('Back')")
        page.wait_for_selector("#unchanged", state="detached")
        seen.one_by_one()
        seen.remove_first_voter()
        page.wait_for_selector("#effect:not([hidden])")
        box = page.locator("#effect").bounding_box()
        assert box["y"] + box["height"] <= WIDE["height"] + 1
        page.click("#effect button")
        page.wait_for_selector("#effect", state="hidden")


@pytest.mark.slow
def test_words_have_their_influence_and_new_texts_find_their_nearest(
    browser: Any, explorers: dict[str, Explorer]
) -> None:
    explorer = explorers["text"]
    clf, page_of = explorer.clf, explorer.points.n_training
    with visit(browser, explorer) as seen:
        page = seen.page
        seen.choose(page_of)
        page.wait_for_selector(".influence [data-without]")
        words = page.locator(".influence [data-without]").all()
        assert [word.inner_text() for word in words] == ["a", "red", "plum"]
        wanted = clf.predict_proba([" red plum", "a  plum", "a red "])[:, list(clf.classes_).index("red")]
        assert [float(word.get_attribute("data-without")) for word in words] == pytest.approx(wanted.tolist())
        page.click("#new-button")
        page.fill("#new-form textarea", "two green plum")
        page.click("#new-form button.main")
        seen.wait("document.getElementById('example-title')?.textContent === 'A new example'")
        new = clf.explain(["two green plum"], k=5)[0]
        assert seen.number("probability") == new.probability
        shares = [float(node.get_attribute("data-share")) for node in page.locator("#voters .share").all()]
        assert shares == [neighbor.share for neighbor in new.neighbors]


@pytest.mark.slow
def test_an_image_is_uploaded_and_its_nearest_are_shown(
    browser: Any, explorers: dict[str, Explorer], tmp_path: Path
) -> None:
    from PIL import Image

    explorer, digit = explorers["image"], DIGITS.images[450]
    Image.fromarray(np.round(digit * 255 / 16).astype(np.uint8)).save(tmp_path / "new.png")
    with visit(browser, explorer) as seen:
        seen.page.click("#new-button")
        seen.page.set_input_files("#new-form input", tmp_path / "new.png")
        seen.page.click("#new-form button.main")
        seen.wait("document.getElementById('example-title')?.textContent === 'A new example'")
        assert seen.label == str(explorer.clf.predict(digit[None])[0])
        assert seen.page.locator("#voters img, #groups img").count() >= 2


@pytest.mark.slow
def test_all_groups_are_listed_with_their_errors_and_lead_to_the_map(browser: Any, crowded: Explorer) -> None:
    groups = crowded.points.references.groups
    with visit(browser, crowded) as seen:
        seen.open("all-groups")
        seen.page.wait_for_selector("#all-groups li")
        rows = seen.page.locator("#all-groups li").all()
        assert sorted(int(row.get_attribute("data-size")) for row in rows) == sorted(groups.sizes.astype(int).tolist())
        assert sum(int(row.get_attribute("data-n")) for row in rows) == len(crowded.examples)
        wrong = (crowded.first.predictions.codes != crowded.examples.truth).sum()
        assert sum(int(row.get_attribute("data-wrong")) for row in rows) == wrong
        rows[0].locator("button").click()
        seen.page.wait_for_selector('#group[data-whole="true"]')
        assert int(seen.page.locator("#group").get_attribute("data-n")) == groups.sizes.max()


def test_the_keyboard_walks_selects_and_is_told_what_happens(browser: Any, explorers: dict[str, Explorer]) -> None:
    explorer = explorers["table"]
    with visit(browser, explorer) as seen:
        page, first = seen.page, explorer.points.n_training
        page.keyboard.press("n")
        page.wait_for_selector(f'#example[data-point="{first}"]')
        assert f"Example {explorer.points.name(first)}" in page.locator("#said").inner_text()
        page.keyboard.press("n")
        page.wait_for_selector(f'#example[data-point="{first + 1}"]')
        page.keyboard.press("v")
        page.wait_for_selector("#selection:not([hidden])")
        assert int(page.locator("#selection").get_attribute("data-n")) == len(explorer.points)
        page.keyboard.press("Escape")
        page.wait_for_selector("#selection", state="hidden")
        page.locator("#example .head .menu > summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.menu') !== null")
        page.keyboard.press("Escape")
        assert page.locator("#example .head .menu[open]").count() == 0
        assert page.evaluate("document.activeElement.matches('.menu > summary')")  # focus is where it was


def test_twenty_colours_can_be_told_apart_on_light_and_dark() -> None:
    script = (Path(explorer_app.__code__.co_filename).parents[1] / "static/explorer/palette.js").read_text()
    found = {
        scheme: re.findall("#[0-9a-f]{6}", script.split(f"{scheme}: [")[1].split("]")[0])
        for scheme in ("light", "dark")
    }
    for scheme, ground, least in (("light", "#fffffe", 3.0), ("dark", "#1b1d21", 4.4)):
        colours = np.array([_linear(colour) for colour in found[scheme]])
        assert len(colours) == 20
        light = colours @ [0.2126, 0.7152, 0.0722]
        page = float(_linear(ground) @ [0.2126, 0.7152, 0.0722])
        contrast = (np.maximum(light, page) + 0.05) / (np.minimum(light, page) + 0.05)
        assert contrast.min() > least, scheme
        lab = _oklab(colours)
        apart = np.linalg.norm(lab[:, None] - lab, axis=2) + np.eye(20)
        assert apart.min() > 0.08, scheme  # 0.02 is a difference that can just be seen


def _linear(colour: str) -> Any:
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _oklab(linear: Any) -> Any:
    """Ottosson's perceptual coordinates, in which distances are about as seen."""
    to_cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    to_lab = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.cbrt(linear @ np.array(to_cones).T) @ np.array(to_lab).T
