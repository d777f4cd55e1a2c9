"""What dwac is best at, what it is level with and what it loses, read from the records by one rule.

A comparison is a table of cases (datasets, seeds, sizes) by models. The peer is the one that does best against us on
the cases that both have. We are best if the mean difference over the cases (for times, of logarithms) is more than two
of its standard errors, we lose if it is more than one, and otherwise we are level; as we are if it is less than
`LEAST`. Cases on which settings were chosen do not count, where a record names them.

    python -m benchmarks --summary          # writes the blocks in docs/results.md and README.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "results.md", DOCS.parent / "README.md")
LEAST = {"share": 0.005, "error": 0.02, "time": np.log(1.1)}  # half a point, 2 % of the peer's error, 10 % of a time
OURS = "dwac"
VERDICTS = {"best": "Where we are best", "level": "Where we are level", "behind": "Where we lose"}


class Comparison(NamedTuple):
    """One line: what is compared, in which record, as a table of cases by models."""

    what: str
    record: str
    kind: str  # "share": higher is better; "error" and "time": lower is better
    cases: pd.DataFrame


class Line(NamedTuple):
    """What a comparison says."""

    what: str
    ours: float
    peer: str
    theirs: float
    n: int
    verdict: str
    record: str
    kind: str


def judged(comparison: Comparison) -> Line:
    """Our figure beside that of the best peer, and the verdict by the rule above."""
    what, record, kind, cases = comparison
    scores = cases if kind == "share" else -cases if kind == "error" else -cases.map(np.log)
    ahead = {peer: (scores[OURS] - scores[peer]).dropna() for peer in cases.columns.drop(OURS)}
    peer = min((name for name, by in ahead.items() if len(by)), key=lambda name: float(ahead[name].mean()))
    by = ahead[peer]
    error = float(by.std(ddof=1) / np.sqrt(len(by))) if len(by) > 1 else 0.0
    both = scores.loc[by.index, [OURS, peer]].mean()
    ours, theirs = (both if kind == "share" else -both if kind == "error" else np.exp(-both)).to_list()
    least, gain = LEAST[kind] * (theirs if kind == "error" else 1), float(by.mean())
    verdict = "best" if gain > max(2 * error, least) else "behind" if -gain > max(error, least) else "level"
    return Line(what, ours, str(peer), theirs, len(by), verdict, record, kind)


def rows(name: str) -> pd.DataFrame:
    """The rows of a record."""
    return pd.DataFrame(json.loads((DOCS / "results" / f"{name}.json").read_text("utf-8"))["rows"])


def by_model(name: str, value: str, case: str = "table", model: str = "model") -> pd.DataFrame:
    """Cases by models, without means over them, and without cases on which settings were chosen."""
    table = rows(name)
    table = table[~table[case].astype(str).str.startswith("mean")]
    for column, chosen in (("kind", "development"), ("chosen on it", "yes")):
        if column in table:
            table = table[table[column] != chosen]
    return table.pivot_table(index=case, columns=model, values=value).dropna(axis="columns", how="all")


def tables() -> Iterator[Comparison]:
    """Accuracy and loss on tables."""
    for title, name in (
        ("small tables", "small_tables"),
        ("wide tables", "wide_tables"),
        ("middle tables", "middle_tables"),
    ):
        for value, kind in (("accuracy", "share"), ("log-loss", "error")):
            if (name, value) == ("middle_tables", "log-loss"):
                continue  # some are nearly 0
            found = by_model(name, value)
            own = [column for column in found if str(column).startswith("dwac,")]  # our other ways are no peers
            yield Comparison(f"{title}: {value}", name, kind, found.drop(columns=own))
    yield Comparison("small tables: seconds to fit", "small_tables", "time", by_model("small_tables", "seconds"))
    large = rows("table_peers")
    large["model"] = large["model"].str.removesuffix(", from its record")
    for data in ("Adult, all rows", "Covertype"):
        for value, kind in (("accuracy", "share"), ("log_loss", "error")):
            some = large[large["data"] == data].pivot_table(index="data", columns="model", values=value)
            yield Comparison(f"{data}: {value.replace('_', '-')}", "table_peers", kind, some.dropna(axis="columns"))
    splits = rows("talent")
    for data, value, kind in (
        ("bank", "accuracy", "share"),
        ("mfeat-factors", "accuracy", "share"),
        ("cpu_act", "RMSE", "error"),
    ):
        some = splits[splits["table"] == data].pivot_table(index="table", columns="model", values="figure")
        yield Comparison(f"TALENT's split of {data}: {value}", "talent", kind, some)


def other_targets() -> Iterator[Comparison]:
    """Numbers, several labels, texts."""
    found = rows("numbers").replace("", np.nan)
    found["model"] = found["model"].replace("DWACRegressor", OURS)
    for data in ("california_housing", "diamonds", "bike_sharing_hour"):
        some = (
            found[(found["data"] == data) & (found["model"] != "ratio")].astype({"rmse": float}).dropna(subset="rmse")
        )
        title = f"numbers, {data.replace('_', ' ')}: RMSE"
        yield Comparison(title, "numbers", "error", some.pivot_table(index="data", columns="model", values="rmse"))
    labels = by_model("several_labels", "micro F1", case="data").rename(columns={"DWACClassifier": OURS})
    for data in labels.index:
        yield Comparison(f"several labels, {data}: micro F1", "several_labels", "share", labels.loc[[data]])
    texts = rows("small_texts")
    texts = texts[(texts["chosen on it"] == "no") & ~texts["data"].str.contains("mean|as published")].set_index("data")
    names = {"dwac accuracy": OURS, "logistic accuracy": "logistic regression", "svm accuracy": "linear SVM"}
    yield Comparison("few texts: accuracy", "small_texts", "share", texts[list(names)].rename(columns=names) / 100)
    pretrained = rows("pretrained_test_gpu").set_index("dataset")
    heads = {OURS: "fine-tuned with n-grams, votes", "softmax": "fine-tuned with n-grams, softmax"}
    both = {head: pretrained[pretrained["way"] == way]["accuracy"] for head, way in heads.items()}
    yield Comparison("texts, pretrained encoder: accuracy", "pretrained_test_gpu", "share", pd.DataFrame(both).dropna())


def trust() -> Iterator[Comparison]:
    """What is said beside a prediction."""
    labels = rows("label_issues").replace({"rule": {"ours": OURS}})
    shown = labels[labels["rule"].isin([OURS, "cleanlab, self-confidence", "cleanlab, normalized margin"])]
    for value, title in (("precision at our count", "precision of as many"), ("recall", "recall at its own count")):
        cases = shown.pivot_table(index="dataset", columns="rule", values=value)
        yield Comparison(f"wrong labels: {title}", "label_issues", "share", cases)
    methods = {"reasons": OURS, "shap Kernel": "shap Kernel", "shap Permutation": "shap Permutation"}
    for value, kind in (("deletion", "error"), ("insertion", "share")):
        cases = rows("reasons").pivot_table(index="table", columns="method", values=value)
        yield Comparison(
            f"which columns decide: {value}", "reasons", kind, cases[list(methods)].rename(columns=methods).dropna()
        )
    for value, title in (("changed columns", "changed columns"), ("ms a row", "milliseconds per row")):
        cases = rows("recourse").assign(case=0).pivot_table(index="case", columns="who", values=value)
        yield Comparison(f"recourse: {title}", "recourse", "time" if value == "ms a row" else "error", cases)
    slabs = (
        by_model("local_coverage", "worst slab", case="data", model="method")
        .drop(columns=OURS)
        .rename(columns={"dwac, local": OURS})
    )
    yield Comparison("coverage where it is least", "local_coverage", "share", slabs)
    fair = rows("reweighing")
    fair = fair[(fair["method"] == OURS) & (fair["bound"] < 1)]
    for table, some in fair.groupby("table"):
        cases = pd.DataFrame({OURS: some["accuracy"], "fairlearn": some["accuracy"] - some["gap"]})
        yield Comparison(f"{table}, at the same difference between groups: accuracy", "reweighing", "share", cases)
    removed = rows("worth_curves").query("flipped == .2 and network == 'retrained' and what == 'least worthy removed'")
    cases = removed[~removed["dataset"].str.startswith("mean")].pivot_table(
        index="dataset", columns="order", values="mean accuracy"
    )
    cases = cases.drop(columns=["leave-one-out", "worth, classes together"], errors="ignore").rename(
        columns={"worth": OURS}
    )
    yield Comparison("wrong rows removed by worth: accuracy", "worth_curves", "share", cases)
    cases = by_model("worth_next", "mean accuracy", case="dataset", model="choice").rename(columns={"label_next": OURS})
    shown = cases[[OURS, "margin", "entropy", "random"]]
    yield Comparison("what to label next: accuracy", "worth_next", "share", shown)


def paper() -> Iterator[Comparison]:
    """The paper's data, our best models: accuracy by trial; unfamiliar rows beside the softmax twin's best score."""
    fits = [json.loads(path.read_text("utf-8")) for path in sorted((DOCS / "results" / "paper").glob("*/*.json"))]
    best = [fit for fit in fits if fit["case"]["setting"] == "best" and not fit["case"].get("variant")]
    found = pd.DataFrame([{**fit["case"], **fit["metrics"].get("accuracy", {})} for fit in best])
    for data, title in (
        ("fashion_mnist", "Fashion-MNIST"), ("cifar10", "CIFAR-10"), ("stackoverflow", "Stack Overflow"),
        ("subjectivity", "Subjectivity"), ("imdb", "IMDB"),
    ):  # fmt: skip
        cases = found[found["dataset"] == data].pivot_table(index="trial", columns="head", values="accuracy")
        yield Comparison(f"{title}: accuracy", "paper", "share", cases.rename(columns={"softmax": "softmax twin"}))
    scores: list[dict[str, object]] = []
    for fit in best:
        if fit["case"]["dataset"] == "covertype":
            continue  # typicality was designed with its class 7 in view
        for name, score in fit["metrics"].get("domain", {}).get("scores", {}).items():
            who = (
                OURS if (fit["case"]["head"], name) == ("dwac", "typicality") else f"softmax, {name.replace('_', ' ')}"
            )
            if who == OURS or fit["case"]["head"] == "softmax":
                scores.append({"dataset": fit["case"]["dataset"], "who": who, "auroc": score["auroc"]})
    cases = pd.DataFrame(scores).pivot_table(index="dataset", columns="who", values="auroc")
    yield Comparison("out-of-distribution rows: AUROC", "paper", "share", cases.dropna(subset=OURS))


def speed() -> Iterator[Comparison]:
    """Times."""
    for name in ("engine_cpu", "engine_gpu"):
        found = rows(name).dropna(subset="pairs/s")
        found = found[~found["who"].str.startswith("dwac, ")].assign(seconds=lambda table: 1e9 / table["pairs/s"])
        for title, some in (("class sums", found[found["k"] == 0]), ("nearest neighbours", found[found["k"] > 0])):
            cases = some.pivot_table(index=["n", "m", "d", "K", "k"], columns="who", values="seconds")
            yield Comparison(f"{title}, {name[-3:].upper()}: seconds for 10⁹ pairs", name, "time", cases)
    found = rows("gradient_gpu").pivot_table(index=["d", "K"], columns="who", values="ms")
    yield Comparison("loss and gradient, GPU: ms", "gradient_gpu", "time", found.rename(columns={"dwac, triton": OURS}))
    found = rows("conformal").pivot_table(index="p-values", columns="who", values="seconds")
    yield Comparison("p-values: seconds", "conformal", "time", found)
    for name in ("training_cost_cpu", "training_cost_gpu"):
        found = rows(name).set_index(["dataset", "encoder"])[["dwac s/epoch", "softmax s/epoch"]]
        cases = found.set_axis([OURS, "softmax twin"], axis="columns")
        yield Comparison(f"training, {name[-3:].upper()}: seconds per epoch", name, "time", cases)
    found = rows("latency")
    peers = found[(found["model"] != OURS) & (found["question"] == "predict_proba")]
    for question, title in (
        ("predict_proba", "probabilities"),
        ("conformal", "set and typicality, beside probabilities"),
    ):
        own = found[(found["model"] == OURS) & (found["question"] == question)]
        cases = pd.concat([own, peers]).pivot_table(index="data", columns="model", values="one row, ms")
        yield Comparison(f"one row, {title}: ms", "latency", "time", cases)
    found = rows("scoring").query("what == 'cancer'")
    if len(found):
        cases = found.assign(case=0).pivot_table(index="case", columns="who", values="seconds")
        cases = cases[["dwac score, parquet", "forest, predict_proba"]].set_axis([OURS, "forest"], axis="columns")
        yield Comparison("scoring a table with sets: seconds", "scoring", "time", cases)


PARTS: tuple[Callable[[], Iterator[Comparison]], ...] = (tables, other_targets, paper, trust, speed)


def lines() -> list[Line]:
    """All comparisons, judged."""
    return [judged(comparison) for part in PARTS for comparison in part()]


def brief(found: list[Line]) -> str:
    """A sentence per verdict; the figures are in docs/results.md."""
    named = {verdict: [line.what for line in found if line.verdict == verdict] for verdict in VERDICTS}
    return "\n".join(
        f"- **{title}**, {len(named[verdict])} of {len(found)}: {'; '.join(named[verdict])}."
        for verdict, title in VERDICTS.items()
    )


def block(found: list[Line]) -> str:
    """A table per verdict."""
    texts = []
    for verdict, title in VERDICTS.items():
        some = [line for line in found if line.verdict == verdict]
        texts.append(
            f"**{title}** ({len(some)} of {len(found)})\n\n| what | dwac | best peer | cases |\n|---|---|---|---|"
        )
        for line in some:
            page = "paper.md" if line.record == "paper" else f"results/{line.record}.md"
            ours, theirs = _shown(line.ours, line.kind), _shown(line.theirs, line.kind)
            texts[-1] += f"\n| [{line.what}]({page}) | {ours} | {theirs}, {line.peer} | {line.n} |"
    return "\n\n".join(texts)


def _shown(value: float, kind: str) -> str:
    if kind == "share":
        return f"{value:.4f}"
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def written(path: Path, found: list[Line]) -> str:
    """A page with its block made anew: the tables, and sentences in the README."""
    inside = brief(found) if path.name == "README.md" else block(found)
    new = f"<!-- summary: python -m benchmarks --summary -->\n{inside}\n<!-- /summary -->"
    return re.sub(r"<!-- summary: .*?<!-- /summary -->", lambda _: new, path.read_text("utf-8"), flags=re.DOTALL)


def main() -> None:
    """Write the blocks of all pages."""
    found = lines()
    for path in PAGES:
        path.write_text(written(path, found), "utf-8")
