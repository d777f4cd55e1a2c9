"""A picture of one measure in several groups: a point each, with its interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing import COLOURS, INK
from dwac.drawing.style import new, plain, tidy

_MOST = 40  # groups drawn


def draw_groups(part: pd.DataFrame, measure: str, by: str) -> Any:
    """A point and an interval per group; hollow where the group is small. part: its first row is of all rows."""
    overall, groups = part.iloc[0], part.iloc[1 : _MOST + 1]
    figure, axes = new(1, 1, width=3.3, height=0.9 + 0.26 * len(groups))
    figure.get_layout_engine().set(rect=(0, 0, 0.97, 1))  # the label of a tick at the right end reaches beyond it
    panel = axes[0, 0]
    panel.axvline(overall["value"], color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    for place, row in enumerate(groups.to_dict("records")):
        if np.isfinite([row["low"], row["high"]]).all():
            panel.plot([row["low"], row["high"]], [place, place], color=COLOURS[0], linewidth=1.4)
        look = {"markerfacecolor": "none"} if row["small"] else {}
        panel.plot([row["value"]], [place], marker="o", markersize=5, color=COLOURS[0], linestyle="none", **look)
    names = [f"{name}  ({rows:,})" for name, rows in zip(groups["group"], groups["rows"], strict=True)]
    panel.set_yticks(range(len(names)), [plain(name, 32) for name in names])
    panel.set_ylim(len(names) - 0.4, -0.6)
    tidy(panel, title=plain(measure, 40), x=plain(f"by {by}", 40))
    return figure
