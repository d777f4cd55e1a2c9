"""Claim: on 2 cores `dwac serve` answers 1,000 digits per second, p99 within 50 ms, and survives 10 times the load.

A second process sends requests over 48 to 256 connections, at a fixed rate that does not depend on the answers. Latency
is measured from the scheduled time of a request. If all connections are waiting for answers, the request is sent later,
so latency from sending is reported too. Both share the cores, so answers per second of the server's processor time are
given beside those per second. Two workers and the generator do not fit on two cores: what a second worker adds is the
answers per processor second of the busiest worker, which has one core for itself where there are enough. Besides: a
service that never joins requests (300 per second is the aim), and as a peer the usual solution: a FastAPI function with
one call of the model per request.

    python -m benchmarks.service              # one minute and a half
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import psutil
from sklearn.datasets import load_digits

import dwac
from benchmarks import record

RATE, SECONDS = 1000, 6
MAXIMUM: dict[str, tuple[int | None, int]] = {"maximum rate": (None, 48)}
PHASES: dict[str, tuple[int | None, int]] = {  # requests per second (None: as fast as answers arrive), connections
    "steady": (RATE, 64),
    **MAXIMUM,
    "10 times the load": (10 * RATE, 256),
    "steady again": (RATE, 64),
}
OURS, WORKERS, ALONE, PEER = "dwac serve", "dwac serve --workers 2", "dwac, no joined requests", "one call per request"
Asked = list[tuple[int, float, float]]  # per request: status, seconds since its scheduled time, and since sending


def main() -> None:
    digits, load_before = load_digits(), round(os.getloadavg()[0], 2)  # other load: nothing is fast on a busy machine
    rows: list[dict[str, Any]] = []
    config: dict[str, Any]
    with tempfile.TemporaryDirectory() as folder:
        clf = dwac.DWACClassifier(epochs=6, random_state=0, device="cpu").fit(
            digits.images[:1200], digits.target[:1200]
        )
        model = clf.save(Path(folder) / "digits")
        for who in (OURS, WORKERS, ALONE, PEER):
            with served(who, model) as (port, process):
                for phase, (rate, connections) in (PHASES if who == OURS else MAXIMUM).items():
                    connections *= 2 if who == WORKERS else 1  # as many for each worker
                    busy = processor_seconds(process)
                    asked = load(port, request(digits.images[1300]), rate, connections)
                    after = processor_seconds(process)
                    busy = {number: after[number] - busy.get(number, 0.0) for number in after}
                    rows.append({"who": who, "phase": phase, **summary(asked, rate, busy)})
                    print(rows[-1])
                    time.sleep(1)
    most = {row["who"]: row["answered/s"] for row in rows if row["phase"] in MAXIMUM}
    for row in rows:
        row["answers / peer's"] = most[row["who"]] / most[PEER] if row["phase"] in MAXIMUM else float("nan")
    config = {"requests_a_second": RATE, "seconds": SECONDS, "rows_a_request": 1, "references": len(clf.references_)}
    config |= {"load_average_before": load_before}
    record.write("service", (__doc__ or "").split("\n")[0], config, pd.DataFrame(rows))


def summary(asked: Asked, rate: int | None, busy: dict[int, float]) -> dict[str, Any]:
    """Answers and refusals per second, their latencies, and the server's CPU time per request.

    A core for each worker would answer as many per second as are answered per CPU second of the busiest one.
    """
    table = np.array(asked)
    good, refused = table[table[:, 0] == 200, 1:] * 1e3, table[table[:, 0] == 503, 1:] * 1e3
    return {
        "asked/s": len(asked) / SECONDS if rate is None else rate,
        "answered/s": len(good) / SECONDS,
        "refused/s": len(refused) / SECONDS,
        "failed": len(asked) - len(good) - len(refused),
        "p50 ms": float(np.percentile(good[:, 0], 50)),
        "p99 ms": float(np.percentile(good[:, 0], 99)),
        "p99 ms from sending": float(np.percentile(good[:, 1], 99)),
        "refusal p99 ms from sending": float(np.percentile(refused[:, 1], 99)) if len(refused) else float("nan"),
        "server CPU ms a request": 1e3 * sum(busy.values()) / len(asked),
        "answers per CPU second": len(good) / sum(busy.values()),
        "answers per CPU second of the busiest worker": len(good) / max(busy.values()),
    }


def processor_seconds(process: psutil.Process) -> dict[int, float]:
    """Of the server and of each of its workers, by process number."""
    return {each.pid: sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True))}


def request(image: Any) -> bytes:
    body = json.dumps({"rows": [image.tolist()]}).encode()
    head = "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def load(port: int, data: bytes, rate: int | None, connections: int) -> Asked:
    """Send prepared bytes for SECONDS; a request that finds all connections busy waits, and the wait counts as latency.

    Plain sockets and one loop: a generator with streams takes as much of the two cores as the server that it measures.
    """
    asked: Asked = []
    idle = deque(socket.create_connection(("127.0.0.1", port)) for _ in range(connections))
    waiting: dict[socket.socket, tuple[float, float, bytearray]] = {}  # per busy connection: due, sent, the answer
    selector, number, start = selectors.DefaultSelector(), 0, time.perf_counter() + 0.3
    for connection in idle:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
    while (now := time.perf_counter()) < start + SECONDS or waiting:
        due = max(start, now) if rate is None else start + number / rate
        if idle and now >= due and now < start + SECONDS:
            connection, number = idle.popleft(), number + 1
            connection.sendall(data)
            waiting[connection] = due, now, bytearray()
            continue
        for key, _ in selector.select(max(0.0, due - now) if idle and due < start + SECONDS else 0.01):
            connection = cast(socket.socket, key.fileobj)
            due, sent, answer = waiting[connection]
            answer += connection.recv(2**16)
            head = answer.find(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer[:head], re.IGNORECASE) if head >= 0 else None
            if length and len(answer) >= head + 4 + int(length[1]):
                done = time.perf_counter()
                asked.append((int(answer[9:12]), done - due, done - sent))
                del waiting[connection]
                idle.append(connection)
    for connection in idle:
        connection.close()
    return asked


@contextmanager
def served(who: str, model: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The server in a separate process; yields its port and process once it answers."""
    ours = [str(Path(sys.executable).parent / "dwac"), "serve", str(model), "--port", "0"]
    alone = [sys.executable, "-m", "benchmarks.service", "--alone", str(model)]
    commands = {OURS: ours, WORKERS: [*ours, "--workers", "2"], ALONE: alone, PEER: [*alone[:3], "--peer", str(model)]}
    process = subprocess.Popen(commands[who], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
    assert found is not None
    try:
        yield int(found[1]), psutil.Process(process.pid)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0 or who == PEER


def serve_alone(folder: str) -> None:
    """The service, with one call of the model per request."""
    import torch

    from dwac.cli.serve import listen
    from dwac.server import Limits, create_app
    from dwac.server.run import serve

    torch.set_num_threads(1)
    app = create_app(dwac.load(folder, device="cpu"), limits=Limits(batch_rows=1, gather_seconds=0))
    listener = listen("127.0.0.1", 0)
    serve(app, [listener], on_start=lambda: print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True))


def serve_peer(folder: str) -> None:
    """The usual solution: a scikit-learn model served as in the FastAPI tutorial."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    torch.set_num_threads(1)
    clf, app = dwac.load(folder, device="cpu"), FastAPI()

    class Ask(BaseModel):
        rows: list[list[list[float]]]

    def predict(ask: Ask) -> dict[str, Any]:
        X = np.array(ask.rows)
        trust, probabilities = clf.conformal(X), clf.predict_proba(X)
        return {
            "labels": clf.classes_[probabilities.argmax(axis=1)].tolist(),
            "probabilities": probabilities.tolist(),
            "confidence": trust.confidence.tolist(),
            "credibility": trust.credibility.tolist(),
            "sets": trust.label_sets(0.05).tolist(),
        }

    predict.__annotations__["ask"] = Ask  # a local class, which the string annotation cannot name
    app.post("/v1/predict")(predict)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        serve_peer(sys.argv[2])
    elif sys.argv[1:2] == ["--alone"]:
        serve_alone(sys.argv[2])
    else:
        main()
