"""Draw docs/pictures/worth-curves.svg: accuracy as the least worthy examples go, from docs/results/worth_curves.json.

python tools/pictures/worth.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from dwac.drawing import INK
from dwac.drawing.style import legend, line, new, tidy

DOCS = Path(__file__).parents[2] / "docs"
ORDERS = ("worth", "leave-one-out", "KNN-Shapley, embeddings", "KNN-Shapley, features", "self-confidence", "random")
NETWORKS = ("fixed", "retrained")
LEAST, FLIPPED = "least worthy removed", 0.2


def curves() -> Any:
    """A column of panels for each dataset: above with the network as it was, below with a new one."""
    record = json.loads((DOCS / "results" / "worth_curves.json").read_text(encoding="utf-8"))
    table = pd.DataFrame(record["rows"])
    table = table[table["flipped"] == FLIPPED]
    names = [name for name in dict.fromkeys(table["dataset"]) if not name.startswith("mean of")]
    figure, panels = new(2, len(names), width=2.2, height=2.0)
    for row, network in enumerate(NETWORKS):
        for column, name in enumerate(names):
            part = table[(table["dataset"] == name) & (table["network"] == network)].set_index(["what", "order"])
            axes = panels[row, column]
            before = part.loc[("nothing removed", "all"), "mean accuracy"]
            for number, order in enumerate(ORDERS):
                steps = part.loc[(LEAST, order)].filter(like="accuracy at").dropna()
                removed = [0, *(int(text.split()[-1].rstrip("%")) for text in steps.index)]
                axes.plot(removed, [before, *steps], label=order, **line(number))
            axes.axhline(before, color=INK, lw=0.5, ls=":")
            tidy(axes, title=name if row == 0 else "", x="% removed" if row else "", y="" if column else network)
    for column in panels.T:
        low, high = (pick(axes.get_ylim()[end] for axes in column) for end, pick in ((0, min), (1, max)))
        for axes in column:
            axes.set_ylim(low, high)
    legend(figure, panels, columns=3)
    return figure


def main() -> None:
    """Draw and write it."""
    import matplotlib as mpl

    mpl.rcParams.update({"svg.hashsalt": "dwac", "svg.fonttype": "path"})
    curves().savefig(DOCS / "pictures" / "worth-curves.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
