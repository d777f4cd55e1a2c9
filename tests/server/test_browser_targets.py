"""The explorer in a browser, where numbers or several labels are predicted."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dwac import DWACClassifier, DWACRegressor
from dwac.server.explorer import Explorer
from tests.named import named
from tests.server.client import TOKEN
from tests.server.data import PAID, SIZES, TAGS
from tests.server.explored import PHONE, Visit, visit

NEW, TRUE = SIZES[240:], PAID[240:]


@pytest.fixture(scope="module")
def numbers_page(browser: Any, numbers: DWACRegressor) -> Iterator[Visit]:
    with visit(browser, Explorer.of(numbers, NEW, TRUE, title="pay")) as visited:
        yield visited


@pytest.fixture(scope="module")
def tags_page(browser: Any, tags: DWACClassifier) -> Iterator[Visit]:
    with visit(browser, Explorer.of(tags, NEW, TAGS[240:], title="tags")) as visited:
        yield visited


def interval(page: Any) -> Any:
    return page.evaluate("JSON.parse(document.getElementById('distribution').dataset.interval)")


def test_a_number_is_shown_with_its_votes_and_its_interval(numbers_page: Visit, numbers: DWACRegressor) -> None:
    first, page = numbers_page.explorer.points.n_training, numbers_page.page
    numbers_page.choose(first + 3)
    assert numbers_page.number("prediction") == pytest.approx(numbers.predict(NEW[3:4])[0])
    assert interval(page) == numbers.predict_interval(NEW[3:4], 0.05)[0].tolist()
    bars = page.locator("#distribution rect.vote")
    assert bars.count() == len(numbers.explain(NEW[3:4])[0].histogram[1])
    assert page.locator("#distribution line.true").count() == 1
    assert page.locator("#distribution svg").get_attribute("aria-label").startswith("Votes from ")
    page.evaluate(
        "() => { const e = document.getElementById('epsilon'); e.value = 0.3; e.dispatchEvent(new Event('input')); "
        "e.dispatchEvent(new Event('change')); }"
    )
    numbers_page.wait("document.querySelector('#distribution figcaption').textContent.includes('0.3')")
    assert interval(page) == numbers.predict_interval(NEW[3:4], 0.3)[0].tolist()
    ends = numbers.predict_interval(NEW, 0.3)
    covered = int(((ends[:, 0] <= TRUE) & (ends[:, 1] >= TRUE)).sum())
    assert int(page.locator("#sets-now").get_attribute("data-covered")) == covered
    assert page.locator(".bar.other").count() == 0  # a number is against no other


def test_a_link_with_an_epsilon_says_how_many_intervals_of_that_epsilon_hold_the_true_number(
    numbers_page: Visit, numbers: DWACRegressor
) -> None:
    page = numbers_page.page.context.new_page()
    page.goto(f"http://127.0.0.1:{numbers_page.port}/#token={TOKEN}&epsilon=0.4")
    page.wait_for_selector("body[data-ready]")
    ends = numbers.predict_interval(NEW, 0.4)
    covered = int(((ends[:, 0] <= TRUE) & (ends[:, 1] >= TRUE)).sum())
    assert int(page.locator("#sets-now").get_attribute("data-covered")) == covered
    page.close()


def test_the_map_of_numbers_has_a_scale_and_filters_by_error(numbers_page: Visit, numbers: DWACRegressor) -> None:
    page = numbers_page.page
    scale = page.locator("#legend .scale")
    assert float(scale.get_attribute("data-low")) < float(scale.get_attribute("data-high"))
    page.select_option("#colour", "error")
    assert scale.get_attribute("data-low") == "0"
    page.select_option("#colour", "label")
    page.select_option("#measure", label="size of the error")
    errors = np.abs(numbers.predict(NEW) - TRUE.to_numpy())
    least = float(np.median(errors))
    page.fill("#low", f"{least:.6f}")
    page.press("#low", "Enter")
    kept = int(page.locator("#kept").get_attribute("data-kept"))
    assert abs(kept - int((errors >= least).sum())) <= 1
    page.click("#all")
    assert int(page.locator("#kept").get_attribute("data-kept")) == len(NEW)


@pytest.mark.slow
def test_a_training_example_gets_another_number_by_keyboard_and_undo_takes_it_back(numbers_page: Visit) -> None:
    first, page = numbers_page.explorer.points.n_training, numbers_page.page
    numbers_page.choose(first)
    before = numbers_page.number("prediction")
    numbers_page.one_by_one()
    page.locator("#voters .menu > summary").first.click()
    field = page.locator('#voters input[type="number"]').first
    field.fill("90000")
    field.press("Enter")
    page.wait_for_selector("#before-after")
    assert numbers_page.number("prediction") > before + 10
    assert numbers_page.changed() > 0
    page.click("#undo")
    numbers_page.wait("document.getElementById('n-changed').dataset.n === '0'")
    assert numbers_page.number("prediction") == pytest.approx(before)


def test_who_matters_most_can_be_selected_from_the_list(numbers_page: Visit, numbers: DWACRegressor) -> None:
    first, page = numbers_page.explorer.points.n_training, numbers_page.page
    numbers_page.choose(first + 1)
    numbers_page.open("influential")
    most = numbers.explain(NEW[1:2])[0].influential[0]
    row = page.locator("#influential tbody tr").first
    assert float(row.locator("[data-move]").get_attribute("data-move")) == pytest.approx(most.move)
    row.locator("button").click()
    page.wait_for_selector(f'#example h2:has-text("{most.id}")')


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_a_label_is_chosen_by_its_bar_and_its_vote_is_shown(tags_page: Visit, tags: DWACClassifier) -> None:
    first, page = tags_page.explorer.points.n_training, tags_page.page
    tags_page.choose(first + 2)
    shares = tags.predict_proba(NEW[2:3])[0]
    shown = [float(each.get_attribute("data-probability")) for each in page.locator("#label-bars li").all()]
    assert shown == pytest.approx(shares.tolist())
    page.locator('#label-bars li[data-label="smith"] button').click()
    page.wait_for_selector('#label-bars li.current[data-label="smith"]')
    assert page.input_value("#subject") == "1"
    assert tags_page.number("probability") == pytest.approx(max(shares[1], 1 - shares[1]))
    assert [each.inner_text() for each in page.locator("#legend li").all()][:2] == ["not smith", "smith"]
    told = {1: "yes", 0: "no", -1: "undecided"}[int(tags.conformal(NEW[2:3]).decisions(0.05)[0, 1])]
    assert page.locator('#label-bars li[data-label="smith"]').get_attribute("data-decision") == told


@pytest.mark.slow
def test_numbers_on_a_phone_in_the_dark_do_not_overflow(browser: Any, numbers: DWACRegressor) -> None:
    with visit(browser, Explorer.of(numbers), viewport=PHONE, color_scheme="dark") as visited:
        visited.page.evaluate("() => window.explorer.choose(4)")
        visited.page.wait_for_selector("#distribution")
        wide = visited.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"]
        assert named(visited.page.locator("#sets-now").inner_text(), "Load", "data")


@pytest.mark.slow
def test_who_helps_least_is_removed_from_the_list_with_exactly_that_effect(numbers_page: Visit) -> None:
    page, points = numbers_page.page, numbers_page.explorer.points
    page.locator("#worth summary").focus()
    page.keyboard.press("Enter")
    numbers_page.wait("document.querySelectorAll('#worth table.worth').length === 2")
    worst = page.locator("#worth table.worth").nth(1).locator("tbody tr").first
    point, after = (
        int(worst.get_attribute("data-point")),
        float(worst.locator("[data-after]").get_attribute("data-after")),
    )
    assert float(worst.locator("[data-worth]").get_attribute("data-worth")) < 0
    assert float(worst.locator("[data-relative]").get_attribute("data-relative")) < -1
    page.locator("#colour-worth").click()
    numbers_page.wait("document.querySelector('#legend .scale')?.textContent.includes('helps')")
    scale = page.locator("#legend .scale")
    assert float(scale.get_attribute("data-low")) == -float(scale.get_attribute("data-high"))
    code = "(i) => explorer.map.options.paint.codeOf(i)"
    assert page.evaluate(f"({code})({point})") == 0  # at the end of those who help less
    assert page.evaluate(f"({code})({points.n_training})") == 65535  # a row of data has no worth
    worst.locator("button.link").click()
    numbers_page.wait(f"document.getElementById('example').dataset.point === '{point}'")
    worst.get_by_role("button", name="Remove").focus()
    page.keyboard.press("Enter")
    its_row = f"document.querySelector('#worth tr[data-point=\"{point}\"]')"
    numbers_page.wait(f"document.querySelector('#worth tbody tr') && !{its_row}")
    before = float(page.locator("#worth [data-before]").get_attribute("data-before"))
    assert before == pytest.approx(after, abs=1e-9)
    assert page.evaluate("document.querySelector('#worth summary') === document.activeElement")
    page.keyboard.press("z")
    numbers_page.wait(its_row)
    assert numbers_page.problems == []
    page.select_option("#colour", "label")
