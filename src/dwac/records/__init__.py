"""The record of decisions: what was decided, by which model, on which row; replayed, and compared with another model.

    record("decisions/", clf, X, ids)                      # append a row per decision, in Parquet
    override("decisions/", "case-7", by="Dr Lee", answer="benign", why="a second biopsy")
    read("decisions/")                                     # a DataFrame, with who overrode what
    print(replay("decisions/", clf, X, ids))               # compute all of them again, and compare bit for bit
    impact("decisions/", clf, X, ids, forget=["p17"])      # the decisions that change without these examples
    ledger("decisions/", clf, X, ids, by="clinic")         # what each source contributed

See docs/how-to/records.md.
"""

from dwac.records.log import override, read, record
from dwac.records.replaying import Replay, replay
from dwac.records.touching import Impact, impact, ledger

__all__ = ["Impact", "Replay", "impact", "ledger", "override", "read", "record", "replay"]
