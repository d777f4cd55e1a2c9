"""The local engine: a process that dies loses nothing, and what it left undone is done by another."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from dwac.errors import InputError
from dwac.scoring.engines import TRIES, engine
from dwac.scoring.engines.local import run
from dwac.scoring.pieces import Done, Piece
from tests.named import named, refuses


@dataclass(frozen=True)
class Deadly:
    """Piece 1 kills its first process, piece 2 every one."""

    folder: str

    def __call__(self, piece: Piece) -> Done:
        with open(Path(self.folder, str(piece.number)), "a") as tries:
            tries.write("x")
        met = len(Path(self.folder, str(piece.number)).read_text())
        if piece.number == 2 or (piece.number == 1 and met == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(piece.number, rows=piece.number)


def pieces(n: int) -> list[Piece]:
    return [Piece(number, f"part-{number}", f"file{number}", f"file{number}", "csv") for number in range(n)]


@pytest.mark.slow
def test_a_process_that_dies_loses_nothing(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    found = {done.piece: done for done in run(Deadly(str(tmp_path)), pieces(6), 2, {})}
    assert not [child for child in set(multiprocessing.active_children()) - before if child.is_alive()]
    assert set(found) == set(range(6))
    assert {number: done.rows for number, done in found.items() if done.error is None} == {0: 0, 1: 1, 3: 3, 4: 4, 5: 5}
    assert named(found[2].error, "file2", TRIES, "killed")
    assert (tmp_path / "2").read_text() == "x" * TRIES


def test_an_engine_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    monkeypatch.setattr("importlib.import_module", missing)
    with refuses(InputError, "--engine ray", "pip install 'dwac[ray]'"):
        engine("ray")
