"""Exporting runs to an MLflow server, compared with MLflow's own client that sends the same data."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import machine
import peers
from context import Context
from history import Store, fill, python_of
from table import Line, Section, median, time_of, times
from timing import Contestant, measure, take_turns

RUNS = 100
POINTS = 1_000  # per run
SINGLE_POINTS = 20  # per run, for the client that sends one point per request
AIM = 3.0
_START = 300.0  # seconds until the server responds
_METRICS = 5
_MOST_ROUNDS = 3  # a round takes minutes

# Sends the same runs with MLflow's client: all points of a run in batches, or each with its own call.
_CLIENT = """
import json, math, sys
from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
runs, points, metrics, way = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
place = client.create_experiment(sys.argv[2])
for number in range(runs):
    run = client.create_run(place, run_name=f"bench-{number:05}-x").info.run_id
    client.log_batch(run, params=[Param("lr", "0.1"), Param("optimizer", "adam")], tags=[RunTag("copied", "yes")])
    client.log_text(run, json.dumps({"number": number}), "record.json")
    rows = [
        Metric(f"loss-{at % metrics}", math.sin(at / 1000) / (1 + at), 1763190000000 + at, at // metrics)
        for at in range(points)
    ]
    if way == "batch":
        for first in range(0, points, 1000):
            client.log_batch(run, metrics=rows[first : first + 1000])
    else:
        for row in rows:
            client.log_metric(run, row.key, row.value, row.timestamp, row.step)
    client.set_terminated(run)
"""


def export_section(context: Context) -> Section:
    section = Section(f"an export of {RUNS} runs with {RUNS * POINTS:,} points to an MLflow server")
    section.notes.append(f"load average before: {machine.load()}")
    store, peer, quiet = _fill(context), peers.mlflow(), context.quiet()
    rounds = min(context.slow, _MOST_ROUNDS)
    if not peer.program:
        section.lines.append(Line("export", "not measured", f"mlflow is not installed: {peer.problem}"))
        return section
    names = (f"bench-{number}" for number in itertools.count())
    with _server(context, peer) as uri:

        def ours() -> float:
            arguments = ("history", "export", "--all", "--mlflow", uri, "--experiment", next(names))
            return measure(store.mlw(*arguments)).total

        def theirs(points: int, way: str) -> float:
            arguments = (uri, next(names), str(RUNS), str(points), str(_METRICS), way)
            return measure(python_of(context, peer, "-c", _CLIENT, *arguments)).total

        contestants = [
            Contestant("mlw", ours),
            Contestant("batch", partial(theirs, POINTS, "batch")),
            Contestant("single", partial(theirs, SINGLE_POINTS, "single")),
        ]
        results = take_turns(contestants, rounds, quiet, warm_up=False)
    section.lines += _lines(peer, results)
    section.notes += [
        f"median of {rounds} rounds, each a new process and a new experiment; {quiet.words()}",
        f"`mlflow server` {peer.version} with its default number of workers, SQLite, and artifacts on the same machine",
        f"one call per point was measured with {SINGLE_POINTS} points per run",
        "the server needs most of the time: it inserts each point as an object of its database library",
    ]
    return section


def _lines(peer: peers.Peer, results: dict[str, list[float]]) -> list[Line]:
    ours = median(results["mlw"]) / (RUNS * POINTS)
    lines = [Line("`mlw history export --mlflow`", time_of(results["mlw"]), f"{1 / ours:,.0f} points/s")]
    for name, points, what, aim in (
        ("single", SINGLE_POINTS, "`log_metric`, one call per point", AIM),
        ("batch", POINTS, "`log_batch`, 1,000 points per call", math.nan),
    ):
        theirs = median(results[name]) / (RUNS * points)
        label, value = f"mlflow {peer.version} client: {what}", time_of(results[name])
        aimed = ("", None) if math.isnan(aim) else (f"≥ {aim:.0f}×", theirs / ours >= aim)
        lines.append(Line(label, value, f"{1 / theirs:,.0f} points/s", times(theirs / ours), *aimed))
    return lines


def _fill(context: Context) -> Store:
    """Create a history whose runs have long metrics."""
    store = Store(context, context.scratch / "history-export")
    fill(store, RUNS)
    for folder in (store.home / "runs").iterdir():
        with open(folder / "metrics" / "1-0", "w") as file:
            for at in range(POINTS):
                point = {
                    "n": f"loss-{at % _METRICS}", "v": math.sin(at / 1000) / (1 + at), "t": 1763190000 + at / 1000,
                    "s": at // _METRICS, "i": at + 1,
                }  # fmt: skip
                file.write(json.dumps(point) + "\n")
    context.call(store.mlw("history", "rebuild"))
    return store


@contextmanager
def _server(context: Context, peer: peers.Peer) -> Iterator[str]:
    place = context.scratch / "server"
    place.mkdir()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    storage = ("--backend-store-uri", f"sqlite:///{place}/store.db", "--artifacts-destination", f"{place}/artifacts")
    program = python_of(context, peer, "-m", "mlflow", "server", *storage, "--port", str(port))
    environment = {**program.environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(place / "log", "wb") as log:
        started = subprocess.Popen(
            program.command, stdout=log, stderr=log, cwd=place, env=environment, start_new_session=True
        )
    try:
        _await(f"http://127.0.0.1:{port}", started, place / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def _await(uri: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"the MLflow server did not start: {log.read_text()[-2000:]}")
