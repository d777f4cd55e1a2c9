"""Figure 3: a typical, a doubtful and a wrong prediction, each with the training examples with the most weight."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dwac._checks import percent
from reproduction import figures, settings
from reproduction.cases import Case
from reproduction.fit import Fitted
from reproduction.rows import Ints, rows
from reproduction.tables import MODELS, NOT_RUN, STALE, Draw, Found, Section, paragraphs, picture, table

TITLE = "Explanations (Figure 3)"
DATASETS = ("adult", "fashion_mnist", "cifar10", "subjectivity", "stackoverflow")
K = 5
MOST_PASSED = 50  # rows to check for one that can be quoted
# Slurs, as parts of words: texts that contain one are skipped. In rot13, so that none is printed here.
UNPRINTED = tuple(
    codecs.decode(word, "rot13")
    for word in ("avttre", "avttn", "snt", "qlxr", "genaal", "ergneq", "xvxr", "puvax", "jrgonpx")
)


def cases() -> Iterator[Case]:
    """The first trial of each vote."""
    yield from (Case(name, setting, "dwac") for name in DATASETS for setting in settings.SETTINGS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """The explanations as plain values; labels are places in the record's classes.

    Of each kind the first row in order that can be quoted, with its voters: no slur is printed.
    """
    found = {}
    for kind, order in examples(fitted).items():
        for row in order[:MOST_PASSED]:
            explained = fitted.clf.explain(rows(fitted.trial.X_test, np.array([row])), k=K)[0].to_dict()
            if quotable(explained):
                del explained["attention"], explained["private"]
                found[kind] = {"row": int(row), "truth": int(fitted.trial.y_test[row]), **explained}
                break
    return found


def quotable(explained: dict[str, Any]) -> bool:
    """Whether neither the example nor a voter contains a slur: a rule that does not depend on results."""
    shown = [explained["record"], *(neighbor["record"] for neighbor in explained["neighbors"])]
    texts = [value.lower() for record in shown for name, value in (record or {}).items()
             if isinstance(value, str) and name != "image"]  # fmt: skip
    return not any(word in text for text in texts for word in UNPRINTED)


def examples(fitted: Fitted) -> dict[str, Ints]:
    """Test rows, the best of a kind first: typical, correct and of median credibility; doubtful, the least credible;
    mistaken, the most confident error. A kind without rows is left out.
    """
    votes, right = fitted.votes, fitted.labels == fitted.trial.y_test
    credibility = fitted.p_values("weights", votes).max(axis=1)
    chosen = {}
    if right.any():
        chosen["typical"] = _ordered(right, np.abs(credibility - 0.5))
    # Votes break ties, as many rows may have the lowest possible credibility.
    chosen["doubtful"] = _ordered(np.ones_like(right), votes.max(axis=1))
    if not right.all():
        chosen["mistaken"] = _ordered(~right, -credibility)
    return chosen


def _ordered(mask: Any, order: Any) -> Ints:
    """The rows under the mask in the order."""
    found: Ints = np.flatnonzero(mask)
    return found[np.argsort(order[found], kind="stable")]


# The report


def report(found: Found) -> Section:
    """Examples per dataset: figures for images, tables for texts and rows. From our best model if it was run."""
    parts = [
        "Test examples of the first trial: a typical one, correct and of median credibility; the most doubtful, with "
        "the lowest class weight; and the most confident error. With each are the training examples with the largest "
        "votes and their shares of the whole vote. If an example or a voter contains a slur from a fixed list, the "
        "next example is taken."
    ]
    drawn: dict[str, Draw] = {}
    for name in DATASETS:
        source = settings.DATASETS[name]
        by_setting = {setting: found.get(Case(name, setting, "dwac"), "explanations") for setting in ("best", "paper")}
        setting = next((setting for setting, explained in by_setting.items() if explained), None)
        if setting is None:
            parts.append(f"### {source.title}\n\n{NOT_RUN}.")
            continue
        explained, classes = by_setting[setting], found.by_case[Case(name, setting, "dwac")]["classes"]
        parts.append(f"### {source.title} ({MODELS[setting].lower().removesuffix('s')})")
        old = STALE * found.is_stale((name, setting, "dwac"))
        for example, one in explained.items():
            if not quotable(one):  # in a record made before such examples were skipped
                parts.append(
                    f"**{example.capitalize()}**{old}: not quoted, because a voter contains a slur; run again."
                )
                continue
            parts.append(f"**{example.capitalize()}**{old}: {_summary(one, classes)}")
            if source.kind != "image":
                parts.append((_text_table if source.kind == "text" else _row_table)(one, classes))
        if source.kind == "image":
            alt = "Test images, one per row, each with the training images with the largest votes"
            parts.append(picture(f"explanations-{name}", alt))
            drawn[f"explanations-{name}"] = partial(_draw, explained, classes)
    return Section(TITLE, paragraphs(*parts), drawn)


def _summary(explained: dict[str, Any], classes: list[str]) -> str:
    removals = explained["flip_size"]
    return (
        f"predicted *{classes[int(explained['label'])]}* (true label *{classes[explained['truth']]}*), probability "
        f"{explained['probability']:.3f}, credibility {explained['credibility']:.2g}; the nearest "
        f"{explained['deciding']:,} of {explained['n_references']:,} training examples decide the label, and "
        + ("no removal" if removals is None else f"removing {removals:,}")
        + " would change it."
    )


def _share(neighbor: dict[str, Any]) -> str:
    return f"{percent(neighbor['share'], 2)}"


def _text_table(explained: dict[str, Any], classes: list[str]) -> str:
    rows = [["this example", classes[explained["truth"]], "", _brief(explained["record"]["text"])]]
    for n in explained["neighbors"]:
        text = _brief(n["record"]["text"])
        rows.append([f"training example {n['id']}", classes[int(n["label"])], _share(n), text])
    return table(["", "class", "share", "text"], rows)


def _row_table(explained: dict[str, Any], classes: list[str]) -> str:
    neighbors = explained["neighbors"]
    head = ["", "this example", *(f"training example {n['id']}" for n in neighbors)]
    rows = [["class", classes[explained["truth"]], *(classes[int(n["label"])] for n in neighbors)]]
    rows.append(["share", "", *(_share(n) for n in neighbors)])
    for column, value in explained["record"].items():
        rows.append([column, str(value), *(str(n["record"][column]) for n in neighbors)])
    return table(head, rows)


def _brief(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _draw(explained: dict[str, Any], classes: list[str]) -> Any:
    figure, axes = figures.new(len(explained), K + 1, width=1.35, height=1.6)
    for row, (kind, one) in zip(axes, explained.items(), strict=True):
        for panel in row:
            panel.set_axis_off()
        title = f"{kind}\n{classes[one['truth']]}\n→ {classes[int(one['label'])]}"
        figures.image(row[0], one["record"]["image"], title)
        for panel, n in zip(row[1:], one["neighbors"], strict=False):
            figures.image(panel, n["record"]["image"], f"{classes[int(n['label'])]}\n{_share(n)}")
    return figure
