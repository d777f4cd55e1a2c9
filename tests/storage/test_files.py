"""Files on other systems: Windows, as far as it can be acted here, locks no folders and replaces no open file."""

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dwac.storage import files

SYSTEMS = ["this", "windows"]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """The module as Windows would import it, with a stand-in for its locks: by file, and not twice."""
    taken: dict[int, int] = {}  # descriptor by inode

    def locking(descriptor: int, mode: int, _: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if taken.setdefault(inode, descriptor) != descriptor:
            raise PermissionError(13, "Permission denied")
        if mode == 0:
            del taken[inode]

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2, LK_UNLCK=0))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        return SimpleNamespace(**runpy.run_path(files.__file__))


@pytest.mark.parametrize("system", SYSTEMS)
def test_one_writer_at_a_time_has_the_lock_of_a_folder(system: str, windows: Any, tmp_path: Path) -> None:
    module = windows if system == "windows" else files
    folder, other = tmp_path / "model", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    with (
        module.locked(folder) as first,
        module.locked(folder, wait=False) as second,
        module.locked(other, wait=False) as elsewhere,
    ):
        assert (first, second, elsewhere) == (True, False, True)
    with module.locked(folder, wait=False) as again:
        assert again
    assert os.listdir(folder) == []


def test_on_windows_a_file_that_others_read_is_replaced_when_they_have_read_it(
    windows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [PermissionError(13, "being read")] * 3
    replace = os.replace

    def refuse_at_first(old: Path, new: Path) -> None:
        if refusals:
            raise refusals.pop()
        replace(old, new)

    monkeypatch.setattr(os, "replace", refuse_at_first)
    monkeypatch.setattr("time.sleep", lambda _: None)
    windows.replace_file(tmp_path / "model.json", b"{}")
    assert (tmp_path / "model.json").read_bytes() == b"{}"
    refusals += [PermissionError(13, "being read")] * 100
    with pytest.raises(PermissionError):
        windows.replace_file(tmp_path / "model.json", b"[]")
    assert {path.name for path in tmp_path.iterdir()} == {"model.json", "temporary"}
    assert (tmp_path / "model.json").read_bytes() == b"{}"
