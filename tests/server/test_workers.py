"""Several workers on one port, run as the command that people run."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dwac import DWACClassifier
from dwac.server.workers import Plan, Supervisor
from tests.monitoring.test_monitor import QUICK, old, people
from tests.server.test_monitor import rows_of
from tests.server.test_server import DWAC, Client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X = people(200, 0)
    return (
        DWACClassifier(**QUICK, calibration_size=80).fit(X, old(X)).save(tmp_path_factory.mktemp("workers") / "model")
    )


def until(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def workers_of(process: Any) -> list[psutil.Process]:
    """The processes that answer; Python itself adds one that cleans up."""
    found = []
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.Error):  # it has just ended
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_workers_share_a_port_add_up_their_rows_replace_a_lost_one_and_end_together(
    folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    command = [DWAC, "serve", folder, "--port", "0", "--workers", "2", "--threads", "1", "--monitor-state", state]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+) by 2 workers", line)
        assert found, (line, process.stderr and process.stderr.read())
        client, began = Client(int(found[1])), time.monotonic()
        for place in range(12):
            assert client.post("/v1/predict", {"rows": rows_of(people(5, place))}).status == 200
        until(lambda: client.get("/v1/monitor").json["rows"] == 60, 10)  # whichever of them answers
        until(lambda: 'path="/v1/predict",status="200"} 12\n' in client.get("/v1/metrics").body.decode(), 10)
        assert client.get("/v1/monitor").json["workers"] == 2
        assert client.get("/v1/health/ready").json == {"status": "ready"}

        time.sleep(max(0.0, 5.5 - (time.monotonic() - began)))  # sooner, it would look like one that cannot run
        lost = workers_of(process)[0]
        lost.kill()
        until(lambda: len(workers_of(process)) == 2 and lost not in workers_of(process))
        assert client.post("/v1/predict", {"rows": rows_of(people(5, 1))}).status == 200

        children = workers_of(process)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        assert process.wait(30) == 0
        assert not any(child.is_running() for child in children)
    finally:
        process.kill()
        process.communicate()
    assert sorted(path.name for path in state.iterdir())[-1] == "monitor-1-of-2.json"


def test_a_service_whose_workers_cannot_start_says_why(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", (
            "from dwac.cli import main; import sys; "
            f"sys.argv = ['dwac', 'serve', {str(tmp_path / 'nothing')!r}, '--port', '0', '--workers', '2']; main()"
        )],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode != 0
    assert str(tmp_path / "nothing") in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_plan_hides_its_token_and_a_supervisor_without_workers_starts_none() -> None:
    plan = Plan("model", token="a-secret-of-sixteen", workers=2)
    assert "secret" not in repr(plan)
    supervisor = Supervisor(plan, None)  # type: ignore[arg-type]
    supervisor._end()  # nothing was started, so nothing is to end
