"""Start several processes on this machine that train together, as torchrun does, and say why one ended.

code = launch([sys.executable, "-m", "dwac.training", "people.csv", "-o", "model/"], 2)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import IO, NamedTuple

import torch.distributed as dist

from dwac import _checks as checks
from dwac._machine import cores
from dwac.errors import ProcessError

LOST = ProcessError.exit_code
_PAUSE = 0.05
GRACE = 15.0  # seconds in which a process notices by itself that another ended
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Ended(NamedTuple):
    rank: int
    code: int  # negative: the signal that killed it


def launch(
    command: Sequence[str], n: int, *, environment: Mapping[str, str] | None = None, timeout: float | None = None
) -> int:
    """Run a command as n processes that find one another; the exit code of rank 0.

    Only rank 0 is heard, and every process has an equal part of the cores. When one ends with an error, the others are
    ended too. If the reason is not what rank 0 has said itself, a `ProcessError` tells which process it was, and why.
    Ctrl-C and SIGTERM are passed on.

    environment: further variables. timeout: seconds after which all are ended; by default they may take any time.
    """
    checks.positive_int(n, "n")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=5))  # type: ignore[attr-defined]
    with ExitStack() as files:
        errors = [files.enter_context(tempfile.TemporaryFile()) for _ in range(1, n)]
        started: list[subprocess.Popen[bytes]] = []
        try:
            with _passed_on(started):
                for rank in range(n):
                    variables = _variables(rank, n, store.port) | dict(environment or {})
                    started.append(_start(command, variables, errors[rank - 1] if rank else None))
                first = _wait(started, time.monotonic() + (timeout or float("inf")))
        finally:
            _end(started)
        return _verdict(started, first, errors)


def _variables(rank: int, n: int, port: int) -> dict[str, str]:
    """What a process must know of the others; torchrun sets the same."""
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is this process's: no port can be taken meanwhile
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // n)),
    }
    if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the name of this machine resolves to
    return variables


def _start(command: Sequence[str], variables: Mapping[str, str], errors: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """One process, in a group of its own: a terminal's Ctrl-C reaches it once, through this process."""
    quiet = errors is not None
    return subprocess.Popen(
        list(command),
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=errors,
        process_group=0,
    )


@contextmanager
def _passed_on(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Signals to this process reach all."""

    def send(number: int, _: object) -> None:
        for process in started:
            process.send_signal(number)

    before = {number: signal.signal(number, send) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(started: list[subprocess.Popen[bytes]], until: float) -> _Ended | None:
    """Until all have ended, or one with an error and the others some time later: the first that did."""
    first, since = None, 0.0
    while any(process.poll() is None for process in started):
        if first is None:
            failed = [_Ended(rank, process.poll() or 0) for rank, process in enumerate(started) if process.poll()]
            first, since = (_worst(failed), time.monotonic()) if failed else (None, 0.0)
        elif time.monotonic() - since > GRACE:
            break
        if time.monotonic() > until:
            raise ProcessError(f"{len(started)} processes did not end in time; all were stopped; give them more time")
        time.sleep(_PAUSE)
    failed = [_Ended(rank, process.returncode) for rank, process in enumerate(started) if process.returncode]
    return _worst(failed) if failed and (first is None or first.code == LOST) else first


def _worst(failed: list[_Ended]) -> _Ended:
    """Of those found at once, one that was not only told by another."""
    return min(failed, key=lambda ended: (ended.code == LOST, ended.code > 0, ended.rank))


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """End those that are left."""
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _verdict(started: list[subprocess.Popen[bytes]], first: _Ended | None, errors: Sequence[IO[bytes]]) -> int:
    """The exit code of rank 0, if it speaks for all."""
    heard = started[0].returncode
    if first is None or first.rank == 0 or (heard == first.code and heard > 0 and heard != LOST):
        if heard < 0:
            raise ProcessError(_why(_Ended(0, heard), len(started), ""))
        return heard
    errors[first.rank - 1].seek(0)
    said = errors[first.rank - 1].read()[-4000:].decode(errors="replace").strip()
    raise ProcessError(_why(first, len(started), said))


def _why(ended: _Ended, n: int, said: str) -> str:
    who = f"process {ended.rank} of {n} (counted from 0)"
    if ended.code >= 0:
        last = said.splitlines()[-1] if said else "it said nothing"
        return f"{who} stopped with exit code {ended.code}: {last}"
    name = signal.Signals(-ended.code).name
    hint = "; the system does this when memory runs out" if name == "SIGKILL" else ""
    return f"{who} was killed by {name}{hint}"
