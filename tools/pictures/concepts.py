"""The pictures of the concepts in docs/, drawn from real models of scikit-learn's digits and wines.

python tools/pictures/concepts.py      # writes docs/pictures/*.svg
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.utils import Bunch, shuffle

import dwac
from dwac.drawing import COLOURS, INK
from dwac.drawing.style import new

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
# Shuffled: the file is in the order of its writers, so that its last rows are not like its first.
IMAGES, TARGET = shuffle(*(load_digits()[name] for name in ("images", "target")), random_state=0)
DIGITS = Bunch(images=IMAGES, data=IMAGES.reshape(len(IMAGES), -1), target=TARGET)


def vote() -> Any:
    """A query, the voters around it, and how much each counts."""
    names = ("3", "5", "9")
    chosen = np.isin(DIGITS.target, [int(name) for name in names])
    images, labels = DIGITS.images[chosen], DIGITS.target[chosen]
    plane = dwac.Training(embedding_size=2, look_alikes=False)
    clf = dwac.DWACClassifier("image:paper", epochs=6, training=plane, random_state=0)
    clf.fit(images[:300], labels[:300])
    probabilities = clf.predict_proba(images[300:])
    row = int(np.argmin(np.abs(probabilities.max(axis=1) - 0.75)))  # a doubtful digit
    query = clf.embed(images[300:][row : row + 1])[0]
    places = clf.references_.embeddings.cpu().numpy()
    voted = clf.references_.labels.cpu().numpy()
    weights = np.exp(-((places - query) ** 2).sum(axis=1))
    figure, panels = new(1, 2, width=3.6, height=3.2)
    axes = panels[0, 0]
    for label, name in enumerate(names):
        own = voted == label
        axes.scatter(*places[own].T, s=8 + 160 * weights[own], color=COLOURS[label], alpha=0.6, lw=0, label=name)
    axes.scatter(*query, marker="*", s=180, color=INK, zorder=3, label="query")
    axes.set_title("larger: a larger weight", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize=8, frameon=False)
    _bars(panels[0, 1], list(names), probabilities[row], COLOURS[:3], "share of all votes = probability")
    return figure


def groups() -> Any:
    """The groups that vote on one wine."""
    wine = load_wine(as_frame=True)
    clf = dwac.DWACClassifier(random_state=0).fit(wine.data[::2], wine.target[::2])
    held = wine.data[1::2]
    row = int(np.argmin(clf.predict_proba(held).max(axis=1)))  # the most doubtful
    explanation = clf.explain(held.iloc[[row]])[0]
    shown = sorted(explanation.groups, key=lambda group: -group.share)[:5]
    names = [_wrapped(f"class {group.label}: {group.description}") for group in shown]
    figure, panels = new(1, 1, width=7.2, height=3.4)
    _bars(panels[0, 0], names, np.array([group.share for group in shown]), [COLOURS[g.label] for g in shown], "share")
    return figure


def sets() -> Any:
    """Coverage and size of sets as ε changes."""
    clf = _digits()
    truth = DIGITS.target[1000:]
    conformal = clf.conformal(DIGITS.data[1000:])
    epsilons = np.linspace(0.005, 0.3, 60)
    drawn = [conformal.label_sets(epsilon) for epsilon in epsilons]
    figure, panels = new(1, 2, width=3.6, height=2.8)
    left, right = panels[0]
    left.plot(epsilons, [dwac.metrics.coverage(truth, each) for each in drawn], color=COLOURS[0], label="measured")
    left.plot(epsilons, 1 - epsilons, color=INK, ls="--", lw=1, label="promised, 1 - ε")
    left.set_title("coverage", fontsize=9)
    left.legend(fontsize=8, frameon=False)
    sizes = [dwac.metrics.set_sizes(each) for each in drawn]
    right.plot(epsilons, [size.multiple for size in sizes], color=COLOURS[1], label="several labels")
    right.plot(epsilons, [size.single for size in sizes], color=COLOURS[2], ls="--", label="one label")
    right.plot(epsilons, [size.empty for size in sizes], color=COLOURS[3], ls=":", label="empty")
    right.set_title("share of sets with", fontsize=9)
    right.legend(fontsize=8, frameon=False)
    for axes in (left, right):
        axes.set_xlabel("ε", fontsize=9)
    return figure


def typicality() -> Any:
    """Typicality of known digits, and of one that was left out."""
    known = DIGITS.target != 9
    images, labels = DIGITS.images[known], DIGITS.target[known]
    clf = dwac.DWACClassifier(epochs=8, calibration_size=300, random_state=0).fit(images[:1000], labels[:1000])
    figure, panels = new(1, 1, width=6.0, height=2.8)
    axes = panels[0, 0]
    bins = np.linspace(0, 1, 21)
    for place, (name, rows) in enumerate([("digits 0 to 8", images[1000:]), ("9, never seen", DIGITS.images[~known])]):
        values = clf.conformal(rows).typicality
        look = {"bins": bins, "weights": np.full(len(values), 1 / len(values)), "color": COLOURS[place]}
        axes.hist(values, alpha=0.6, **look)
        axes.hist(values, histtype="step", ls="--" if place else "-", label=name, **look)
    axes.set_xlabel("typicality", fontsize=9)
    axes.set_ylabel("share of rows", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def calibration() -> Any:
    """Stated probability and observed frequency, over all classes of held-out digits."""
    clf = _digits()
    stated = clf.predict_proba(DIGITS.data[1000:]).ravel()
    observed = (DIGITS.target[1000:, None] == np.arange(10)).ravel()
    kept = (stated > 0.01) & (stated < 0.99)
    order = np.argsort(stated[kept])
    figure, panels = new(1, 1, width=3.6, height=3.2)
    axes = panels[0, 0]
    axes.plot([0, 1], [0, 1], color=INK, ls="--", lw=1, label="calibrated")
    parts = np.array_split(order, 8)
    axes.plot([stated[kept][part].mean() for part in parts], [observed[kept][part].mean() for part in parts],
              "o-", color=COLOURS[0], label="digits")  # fmt: skip
    axes.set_xlabel("stated probability", fontsize=9)
    axes.set_ylabel("observed frequency", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure


def _digits() -> Any:
    clf = dwac.DWACClassifier(epochs=6, cross_fit=False, calibration_size=300, random_state=0)
    return clf.fit(DIGITS.data[:1000], DIGITS.target[:1000])


def _bars(axes: Any, names: list[str], values: Any, colours: Any, title: str) -> None:
    axes.barh(range(len(names)), values, color=colours)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title(title, fontsize=9)
    for place, value in enumerate(values):
        axes.text(value + 0.02, place, f"{100 * value:.0f} %", va="center", fontsize=8, color=INK)


def _wrapped(text: str) -> str:
    words = text.split(", ")[:3]
    return ",\n".join(words)


def main() -> None:
    """Draw them all."""
    import matplotlib as mpl

    mpl.rcParams.update({"svg.hashsalt": "dwac", "svg.fonttype": "path"})
    PICTURES.mkdir(exist_ok=True)
    for draw in (vote, groups, sets, typicality, calibration):
        figure = draw()
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
        figure.savefig(PICTURES / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
