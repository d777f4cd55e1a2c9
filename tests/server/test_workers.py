"""Several workers on one port, run as the command that people run."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dwac.errors import ProcessError
from dwac.server.workers import Plan, Supervisor, Worker, work
from tests.named import refuses
from tests.server.client import DWAC, HANG, Client, until
from tests.server.data import watched_rows


def workers_of(process: Any) -> list[psutil.Process]:
    """The processes that answer; Python itself adds one that cleans up."""
    found = []
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.Error):  # it has just ended
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.slow
def test_workers_share_a_port_add_up_their_rows_and_end_together(watched_folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command: list[Any] = [DWAC, "serve", watched_folder, "--port", "0", "--workers", "2", "--threads", "1"]
    command += ["--monitor-state", state]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+) with 2 workers", line)
        assert found, (line, process.stderr and process.stderr.read())
        client, children = Client(int(found[1])), workers_of(process)
        assert len(children) == 2
        for place in range(12):
            assert client.post("/v1/predict", {"rows": watched_rows(5, place)}).status == 200
        until(lambda: client.get("/v1/monitor").json["rows"] == 60)  # whichever of them answers
        until(lambda: 'path="/v1/predict",status="200"} 12\n' in client.get("/v1/metrics").body.decode())
        assert client.get("/v1/monitor").json["workers"] == 2
        assert client.get("/v1/health/ready").json == {"status": "ready"}
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        assert process.wait(HANG) == 0
        assert not any(child.is_running() for child in children)
    finally:
        process.kill()
        process.communicate()
    assert {path.name for path in state.iterdir()} <= {"monitor-0-of-2.json", "monitor-1-of-2.json"}
    assert sum(json.loads(path.read_text())["state"]["rows"] for path in state.iterdir()) == 60


# One process, with workers that only seem to be there


@dataclass
class Seeming:
    """A process that is alive or has ended."""

    exitcode: int | None = None
    terminated: bool = False

    def is_alive(self) -> bool:
        return self.exitcode is None

    def terminate(self) -> None:
        self.terminated, self.exitcode = True, -15

    def join(self, seconds: float | None = None) -> None: ...

    @property
    def sentinel(self) -> int:
        return self.pipe[0].fileno()

    def __post_init__(self) -> None:
        self.pipe = multiprocessing.Pipe()


def supervised(monkeypatch: pytest.MonkeyPatch) -> tuple[Supervisor, list[int]]:
    """A supervisor of one seeming worker, and the numbers of those that it started."""
    supervisor, started = Supervisor(Plan("model", token="a-secret-of-sixteen", workers=1), None), []  # type: ignore[arg-type]

    def start(number: int) -> None:
        started.append(number)
        ours, supervisor.theirs = multiprocessing.Pipe(duplex=False)  # type: ignore[attr-defined]
        supervisor.workers[number] = Worker(Seeming(), ours)

    monkeypatch.setattr(supervisor, "start", start)
    supervisor.start(0)
    return supervisor, started


def test_a_lost_worker_is_replaced_and_one_that_cannot_run_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, started = supervised(monkeypatch)
    supervisor.theirs.send(None)  # type: ignore[attr-defined]
    supervisor.look()
    worker = supervisor.workers[0]
    assert worker.since is not None
    worker.process.exitcode, worker.since = -9, worker.since - 60
    supervisor.look()
    assert started == [0, 0]
    supervisor.workers[0].process.exitcode = 1
    with refuses(ProcessError, "worker 0", "code 1"):
        supervisor.look()


def test_the_reason_of_a_worker_that_cannot_start_is_told_and_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, _ = supervised(monkeypatch)
    supervisor.plan = replace(supervisor.plan, workers=0)  # one is there already
    supervisor.theirs.send("there is no model in 'nowhere'")  # type: ignore[attr-defined]
    with refuses(ProcessError, "'nowhere'"):
        supervisor.run(lambda: None)
    assert supervisor.workers[0].process.terminated


def test_a_worker_without_a_model_tells_why(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with pytest.raises(SystemExit):
        work(Plan(str(tmp_path / "nowhere")), None, 0, theirs)  # type: ignore[arg-type]
    assert "nowhere" in ours.recv()


def test_a_plan_hides_its_token() -> None:
    assert "secret" not in repr(Plan("model", token="a-secret-of-sixteen"))
