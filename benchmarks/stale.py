"""Every benchmark's record: when and by which code it was made, and whether it is stale.

A record is stale if a source that can change it has changed since: its stamp is another than today's.

python -m benchmarks.stale
"""

from __future__ import annotations

import json

import pandas as pd

from benchmarks import record


def overview() -> pd.DataFrame:
    """One row per record in docs/results."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(record.RESULTS.glob("*.json"))}
    rows = [
        {
            "record": name,
            "date": kept.get("date", "–")[:10],
            "commit": (kept.get("commit") or "–")[:12],
            "stamp": kept.get("code", "–"),
            "GPU of the machine": kept["machine"]["gpu"] or "–",
            "stale": "stale" if record.stale(name, kept) else "",
        }
        for name, kept in found.items()
    ]
    return pd.DataFrame(rows)


def main() -> None:
    table = overview()
    print(record.markdown(table))
    print(f"{(table['stale'] != '').sum()} of {len(table)} records are stale")


if __name__ == "__main__":
    main()
