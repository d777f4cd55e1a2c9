"""Reference sets on disk: written block by block, asked block by block, and never held whole."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dwac import ReferenceSet
from dwac.errors import DwacError, EmptyReferenceError, IdError, InputError, ShapeError, StorageError
from dwac.reference import ReferenceWriter, files, in_memory, merge, novelty, open_references
from tests.named import refuses

RNG = np.random.default_rng(0)
M, K = 700, 3
POINTS, LABELS = RNG.normal(size=(M, 4)).astype(np.float32), RNG.integers(0, K, M)
TARGETS, WEIGHTS = RNG.normal(size=(M, 2)).round(2), RNG.uniform(0.5, 3, M)
QUERIES = np.concatenate([RNG.normal(size=(5, 4)), [[900.0] * 4]])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 500)
    monkeypatch.setattr(files, "SMALLEST_BLOCK", 10)


def write(path: Path, columns: dict[str, Any] | None = None, **options: Any) -> Path:
    """A folder with the examples above, written in blocks of 300."""
    columns = {"targets": TARGETS, "weights": WEIGHTS, **(columns or {})}
    with ReferenceWriter(path, K, **options) as writer:
        for start in range(0, M, 300):
            part = slice(start, start + 300)
            given = {name: value[part] for name, value in columns.items() if value is not None}
            writer.add(POINTS[part], LABELS[part], **given)
    return path


def test_a_set_on_disk_answers_as_the_set_in_memory_does(tmp_path: Path) -> None:
    options: dict[str, Any] = {"class_weights": [1.0, 2.0, 0.5], "look_alikes": (0.0, 0.1)}
    ids = np.arange(M) * 3 + 10
    found = open_references(write(tmp_path / "set", {"ids": ids}, **options))
    want = ReferenceSet(POINTS.astype(np.float64), LABELS, ids, K, weights=WEIGHTS, targets=TARGETS, **options)
    assert len(found.voters.blocks) == 7
    assert repr(found) == repr(want)
    (votes, near), (exact, nearest) = found.query(QUERIES, k=9), want.query(QUERIES, k=9)
    np.testing.assert_allclose(votes, exact, rtol=1e-12, atol=1e-9)
    assert (near.ids == nearest.ids).all()
    assert (near.sizes == nearest.sizes).all()
    np.testing.assert_allclose(found.log_group_weights(QUERIES), want.log_group_weights(QUERIES), rtol=1e-9)
    for ask in (lambda d: d.mean, lambda d: d.variance, lambda d: d.median, lambda d: d.ends(-3.0)[1]):
        np.testing.assert_allclose(ask(found.distribution(QUERIES)), ask(want.distribution(QUERIES)), atol=1e-9)
    as_stored = ReferenceSet(POINTS, LABELS)
    strange = [novelty(refs, QUERIES, directions=True) for refs in (found, as_stored)]
    np.testing.assert_allclose(strange[0], strange[1], atol=1e-9)
    assert found.voters.positions([13, 10]).tolist() == [1, 0]
    few = found.condensed()
    assert few.voters.blocks == ()
    np.testing.assert_allclose(few.log_class_weights(QUERIES), want.condensed().log_class_weights(QUERIES), rtol=1e-9)
    held = in_memory(found)
    held.remove([10])
    assert held.nearest(QUERIES, 1).ids.tolist() == want.nearest(QUERIES, 1).ids.tolist()
    assert len(found) == M == len(held) + 1


def test_blocks_are_sent_as_places_in_files_and_never_as_rows(tmp_path: Path) -> None:
    found = open_references(write(tmp_path / "set", {"weights": None}))
    want = found.log_class_weights(QUERIES)
    sent = pickle.dumps(found.voters.blocks[2])
    assert len(sent) < 1500 < len(found.voters.blocks[2]) * POINTS.nbytes / M
    parts = [pickle.loads(pickle.dumps(block)).votes(torch.tensor(QUERIES)) for block in found.voters.blocks]
    np.testing.assert_array_equal(merge(parts).log_sums, want)


def test_labels_of_a_set_on_disk_can_be_changed_in_memory_and_voters_stay(tmp_path: Path) -> None:
    found, again = (open_references(write(tmp_path / name, {"weights": None})) for name in ("one", "two"))
    want = ReferenceSet(POINTS.astype(np.float64), LABELS, targets=TARGETS)
    for refs in (found, want):
        refs.relabel([5, 600], [0, 0])
    np.testing.assert_allclose(found.log_class_weights(QUERIES), want.log_class_weights(QUERIES), rtol=1e-9)
    for edit in (lambda: again.remove([5]), lambda: again.add(POINTS[:1], [0], ids=[M], targets=TARGETS[:1])):
        with refuses(InputError, "in_memory"):
            edit()
    assert len(again) == M


def test_a_set_on_disk_is_complete_or_absent(tmp_path: Path) -> None:
    def fill() -> None:
        with ReferenceWriter(tmp_path / "set", K) as writer:
            writer.add(POINTS[:5], LABELS[:5])
            writer.add(POINTS[:6], LABELS[:5])

    with pytest.raises(ShapeError):
        fill()
    assert not (tmp_path / "set").exists()
    with refuses(EmptyReferenceError, "none"), ReferenceWriter(tmp_path / "set", K):
        pass
    write(tmp_path / "set")
    with refuses(StorageError):
        write(tmp_path / "set")
    assert len(open_references(tmp_path / "set")) == M


@pytest.mark.parametrize(
    ("columns", "error", "facts"),
    [
        (
            {"embeddings": POINTS[:2, :3]},
            ShapeError,
            ["all examples", "(n, 4)", "torch.float32", "(n)", "torch.int64", "(n, 3)"],
        ),
        (
            {"targets": TARGETS[:2]},
            ShapeError,
            ["all examples", "(n, 4)", "torch.float32", "(n)", "torch.int64", "(n, 2)", "torch.float64"],
        ),
        ({"ids": ["a", "b"]}, IdError, ["ids", "2 whole numbers", "<U1", "(2,)"]),
        ({"labels": [0, K]}, DwacError, ["labels", "0 … 2", "3", "row 1"]),
        ({"embeddings": [[np.nan] * 4, [0.0] * 4]}, DwacError, ["embeddings", "finite", "nan", "row 0", "column 0"]),
    ],
)
def test_examples_that_do_not_fit_are_refused(tmp_path: Path, columns: Any, error: Any, facts: list[object]) -> None:
    writer = ReferenceWriter(tmp_path / "set", K)
    writer.add(POINTS, LABELS)
    with refuses(error, *facts):
        writer.add(**{"embeddings": POINTS[:2], "labels": LABELS[:2], **columns})
    writer.close()  # what was added before is whole
    assert len(open_references(tmp_path / "set")) == M


def _cut(folder: Path) -> None:
    os.truncate(folder / "embeddings.safetensors", 5000)


def _other_labels(folder: Path) -> None:
    with open(folder / "labels.safetensors", "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(np.array([K], np.int64).tobytes())


def _not_finite(folder: Path) -> None:
    with open(folder / "embeddings.safetensors", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.array([np.nan], np.float32).tobytes())


def _missing(folder: Path) -> None:
    (folder / "labels.safetensors").unlink()


def _another_version(folder: Path) -> None:
    facts = json.loads((folder / "references.json").read_text())
    (folder / "references.json").write_text(json.dumps({**facts, "version": 9}))


@pytest.mark.parametrize("harm", [_cut, _other_labels, _not_finite, _missing, _another_version])
def test_damaged_folders_are_refused_by_name(tmp_path: Path, harm: Any) -> None:
    folder = write(tmp_path / "set")
    harm(folder)
    with refuses(StorageError, folder):
        open_references(folder)


def test_a_file_that_goes_away_while_in_use_is_named(tmp_path: Path) -> None:
    found = open_references(write(tmp_path / "set"))
    (tmp_path / "set" / "embeddings.safetensors").unlink()
    with refuses(StorageError, "embeddings.safetensors"):
        found.log_class_weights(QUERIES)


_ASK = """
import resource, sys, torch
from dwac.reference import files, open_references
files.BLOCK = 2**18
refs = open_references(sys.argv[1], check=False)
queries = torch.zeros(2, 64)
few = files.ReferenceSet(torch.randn(100, 64), torch.zeros(100, dtype=torch.int64))
few.query(queries, k=1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
refs.query(queries, k=1)
sys.stdout.write(str(peak() - before))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_asking_takes_the_memory_of_a_block_and_not_of_the_set(tmp_path: Path) -> None:
    rows = 400_000
    with ReferenceWriter(tmp_path / "set", 1) as writer:
        for _ in range(8):
            writer.add(torch.randn(rows // 8, 64), torch.zeros(rows // 8, dtype=torch.int64))
    command = [sys.executable, "-c", _ASK, str(tmp_path / "set")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40e6 < rows * 64 * 4
