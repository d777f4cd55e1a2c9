"""A model folder changed at random, with checksums that fit: it works, or is refused on purpose."""

import copy
import hashlib
import io
import json
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import dwac
from dwac import DWACClassifier, Training
from dwac.errors import DwacError
from dwac.storage.folder import config_digest
from dwac.storage.tensors import pack_tensors, unpack_tensors
from tests.drawn import SEED, TIMES
from tests.encoders.helpers import tiny_bert

SETTINGS: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}
KINDS = ("table", "few", "ensemble", "text", "image", "huggingface")
N = 40


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = wrap(value)
    return value


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30, 10**400, -(2**63)),
    *(0.5, -0.5, 1e-320, 1e300, -1e308, float("nan"), float("inf")),
    *("", "x", "1", "auto", "x" * 10_000, "\0", "<U9", "O", "M8[ns]", "cuda", "meta", "laplace", "softmax", "dwac"),
    *("paper", "resnet18", "tabular", "text", "image", "module", "huggingface", "balanced"),
    *("numeric", "categorical", "datetime", "empty", "quantile", "binary", "float", "whole", "HW", "CHW", "first"),
    *([], [[]], [0], [None], [1] * 10_000, ["a", "a"], [[0, "p0"]], {}, {"a": 1}, {"pairs": [["yes", -1]]}),
    *({"tuple": []}, {"float": "nan"}, {"int": "0x" + "f" * 3000}, {"Decimal": "nan"}, {"NaT": None}),
    *({"numpy": ["int8", 300]}, {"numpy": ["datetime64[0s]", 1]}, {"Timestamp": [0, "ns", None]}),
    nested(50, lambda value: [value]),
    nested(40, lambda value: {"tuple": [value]}),
]


def queries(kind: str) -> Any:
    rng = np.random.default_rng(1)
    if kind in ("table", "few", "ensemble"):
        numbers = {
            "size": rng.normal(size=N),
            "gap": np.where(rng.random(N) < 0.5, np.nan, 1.5),
            "flag": rng.random(N) < 0.5,
        }
        words = {"job": rng.choice(["nurse", "clerk"], N), "when": pd.date_range("2020-01-01", periods=N, freq="11h")}
        return pd.DataFrame({**numbers, **words}, index=[f"p{i}" for i in range(N)])
    if kind == "image":
        return rng.integers(0, 255, (N, 8, 8, 3), dtype=np.uint8)
    return [f"{word} a list, parse json {i % 5}" for i, word in zip(range(N), ["sort", "read"] * N, strict=False)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model of each kind, which is trained when it is first asked for."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def folder(kind: str) -> Path:
        options = dict(SETTINGS)
        if kind == "huggingface":
            options["encoder"] = f"huggingface:{tiny_bert(tmp_path_factory.mktemp('bert'))}"
        if kind == "few":
            options["voters"] = 6
        if kind == "ensemble":
            options["training"] = Training(embedding_size=5, ensemble_size=2)
        return DWACClassifier(**options).fit(queries(kind), ["yes", "no"] * (N // 2)).save(root / kind)

    return folder


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Room for 3 GiB more: asking for more raises a MemoryError, which the test finds."""
    if sys.platform != "linux":
        yield
        return
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 3 * 2**30, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


# Changes


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all parts; of a long list to the first, the second and the last."""
    keys: Any = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = sorted({0, 1, len(value) - 1} & set(range(len(value))))
    return [path for key in keys for path in ((*here, key), *places(value[key], (*here, key)))]


def change(root: Any, rng: random.Random) -> str:
    """Change one part of a JSON value in place, and say how."""
    path = rng.choice(places(root))
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    key, old = path[-1], parent[path[-1]]
    how = rng.choice(["drop", "repeat", "number", "cut", "other", *["value"] * 5])
    if how == "drop":
        del parent[key]
    elif how == "repeat" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(old))
    elif how == "number" and type(old) in (int, float):
        parent[key] = rng.choice([old + 1, -old, old * 1000, old + 0.5, str(old), [old]])
    elif how == "cut" and isinstance(old, list | str):
        parent[key] = old[: rng.randrange(len(old) + 1)]
    elif how == "other" and isinstance(parent, dict):
        parent[key] = copy.deepcopy(parent[rng.choice(sorted(parent))])
    else:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    return f"{'/'.join(map(str, path))} {how} {parent.get(key)!r:.60}" if isinstance(parent, dict) else f"{path} {how}"


def put(folder: Path, manifest: dict[str, Any], part: str, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    name = f"{part}-{digest[:16]}{Path(manifest['files'][part]['name']).suffix}"
    (folder / name).write_bytes(data)
    manifest["files"][part] = {"name": name, "size": len(data), "sha256": digest}


def change_tensor(folder: Path, manifest: dict[str, Any], rng: random.Random) -> str:
    tensors, _ = unpack_tensors((folder / manifest["files"]["weights"]["name"]).read_bytes(), "weights")
    name = rng.choice(sorted(tensors))
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "float64": lambda t: t.double() * 1e300,
        "int64": lambda t: t.long(),
        "complex64": lambda t: t.to(torch.complex64),
        "bool": lambda t: t.bool(),
        "flat": lambda t: t.flatten(),
        "first": lambda t: t.flatten()[:1].reshape(()),
        "none": lambda t: t[:0],
        "fewer": lambda t: t[1:],
        "nan": lambda t: t * float("nan"),
        "negative": lambda t: -t,
        "deeper": lambda t: t[None],
        "repeated": lambda t: t[:1].expand_as(t) if t.ndim else t,
        "zero": torch.zeros_like,
    }
    how = rng.choice(sorted(changes))
    if tensors[name].numel() and (tensors[name].dim() or how not in ("none", "fewer")):
        tensors[name] = changes[how](tensors[name])
    put(folder, manifest, "weights", pack_tensors(tensors))
    return f"{name} {how}"


def change_facts(folder: Path, manifest: dict[str, Any], rng: random.Random) -> str:
    table = pq.read_table(io.BytesIO((folder / manifest["files"]["examples"]["name"]).read_bytes()))
    facts = json.loads(table.schema.metadata[b"dwac.examples"])
    how, file = change(facts, rng), io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"dwac.examples": json.dumps(facts)}), file)
    put(folder, manifest, "examples", file.getvalue())
    return how


def mutate(folder: Path, rng: random.Random) -> str:
    """Change the folder's config, tokeniser, tensors or facts about records, and mend its checksums."""
    manifest = json.loads((folder / "model.json").read_text())
    config, how = manifest["config"], rng.random()
    encoder = config["encoder"]["config"]
    if "tokenizer" in encoder and how < 0.5:
        tokenizer = json.loads(encoder["tokenizer"])
        changed = change(tokenizer, rng)
        encoder["tokenizer"] = json.dumps(tokenizer)
    elif how < 0.65:
        changed = change(encoder if how < 0.2 else config, rng)
    elif how < 0.85 or "examples" not in manifest["files"]:
        changed = change_tensor(folder, manifest, rng)
    else:
        changed = change_facts(folder, manifest, rng)
    manifest["config_sha256"] = config_digest(config)
    (folder / "model.json").write_text(json.dumps(manifest))
    return changed


def use(folder: Path, X: Any) -> str:
    """The error that a folder gives, or "" if it works."""
    try:
        clf = dwac.load(folder, device="cpu")
        clf.predict_proba(X)
        clf.conformal(X).label_sets(0.1)
        clf.explain(X, k=2)[0].to_dict()
    except DwacError as error:
        return str(error)
    return ""


@pytest.mark.drawn
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("kind", "changes"),
    [*((kind, 30) for kind in KINDS[:2]), *(pytest.param(kind, 60, marks=pytest.mark.slow) for kind in KINDS)],
)
def test_a_changed_folder_works_or_is_refused_on_purpose(
    kind: str, changes: int, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    X, refused = queries(kind)[:2], 0
    for number in range(changes * TIMES):
        folder = Path(shutil.copytree(saved(kind), tmp_path / "model"))
        how = mutate(folder, random.Random(f"{kind} {number}{SEED}"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what huge numbers do on the way to an answer
                refusal = use(folder, X)
        except BaseException as error:
            raise AssertionError(f"{kind} {number}{SEED}: {how}: {error!r:.300}") from error
        assert "more memory than there is" not in refusal, (number, how)
        refused += bool(refusal)
        shutil.rmtree(folder)
    assert changes / 3 * TIMES < refused < changes * TIMES
