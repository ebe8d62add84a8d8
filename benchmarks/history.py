"""Duration of a search among many runs, including process startup, and of rebuilding the index."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import machine
import peers
from context import Context, await_supervisor, is_alive
from table import Line, Section, median, ms, time_of, times
from timing import Contestant, Program, Timing, measure, take_turns

from mlworkbench.history.history_api import History
from mlworkbench.paths import UserPaths

RUNS = 100_000
FEW = 10
LIST_AIM = 0.300
CONDITION = "accuracy > 0.999 and lr < 0.05"
SIMPLE = "accuracy > 0.999"  # without a parameter: the peer compares parameters only as text
SEED = 7

# Runs in the peer's Python. One run is logged through the documented API; the others are copies of its rows with
# other values, because the API takes about 20 ms for each.
_LOAD = """
import json, sqlite3, sys, time, uuid
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
place = client.create_experiment("bench")
runs = (json.loads(line) for line in sys.stdin)
one = next(runs)
first = client.create_run(place).info.run_id
now = int(time.time() * 1000)
metrics = [Metric(name, value, now, 0) for name, value in one["metrics"].items()]
client.log_batch(first, metrics=metrics, params=[Param("lr", str(one["lr"]))])
client.set_terminated(first)
store = sqlite3.connect(sys.argv[1])
templates = {}
for table in ("runs", "latest_metrics", "metrics", "params", "tags"):
    found = store.execute("SELECT * FROM " + table + " WHERE run_uuid = ?", (first,))
    names = [column[0] for column in found.description]
    templates[table] = names, [dict(zip(names, row)) for row in found]
for one in runs:
    new = uuid.uuid4().hex
    for table, (names, rows) in templates.items():
        for row in rows:
            changed = {"run_uuid": new}
            if table == "runs":
                changed["artifact_uri"] = row["artifact_uri"].replace(first, new)
            elif "metrics" in table:
                changed["value"] = one["metrics"][row["key"]]
            elif table == "params":
                changed["value"] = str(one["lr"])
            values = {**row, **changed}
            marks = ", ".join("?" * len(names))
            store.execute("INSERT INTO " + table + " VALUES (" + marks + ")", [values[name] for name in names])
store.commit()
"""
_SEARCH = """
import sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
place = client.get_experiment_by_name("bench").experiment_id
print(len(client.search_runs([place], "metrics.accuracy > 0.999", max_results=1000)))
"""


@dataclass(frozen=True)
class Store:
    """A separate history and the mlw commands that query it."""

    context: Context
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**self.context.environment, "MLW_HOME": str(self.home)}

    def mlw(self, *arguments: str, folder: Path | None = None) -> Program:
        return replace(self.context.mlw(folder or self.context.workspace, *arguments), environment=self.environment)

    def complete(self, line: str) -> Program:
        """Return the command that bash runs to complete the line."""
        asked = {"_MLW_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
        return replace(self.mlw(), environment={**self.environment, **asked})

    @property
    def database(self) -> Path:
        return self.home / "history.db"

    def touch(self) -> None:
        """Change the time of the index, as a write does, so that mlw verifies every row again."""
        os.utime(self.database)

    def settle(self) -> None:
        """Wait until the supervisors of the submitted runs have ended."""
        for name in os.listdir(self.home / "runs"):
            if not name.startswith("bench-"):
                while is_alive(await_supervisor(self.home / "runs" / name)):
                    time.sleep(0.002)


def history_section(context: Context) -> Section:
    section = Section(f"{RUNS:,} runs in the history")
    section.notes.append(f"load average before: {machine.load()}")
    few, large = Store(context, context.scratch / "history-few"), Store(context, context.scratch / "history-large")
    fill(few, FEW)
    context.call(few.mlw("history", "rebuild"))
    fill(large, RUNS)
    quiet = context.quiet()
    rebuilds = _rebuild_lines(large, quiet)
    peer = next(one for one in peers.find_all() if one.name == "mlflow")
    contestants = _searches(context, large) + _everyday(context, few, "few") + _everyday(context, large, "large")
    if peer.program:
        contestants.append(_search_of_peer(context, peer))
    results = {name: [one.total for one in got] for name, got in take_turns(contestants, context.quick, quiet).items()}
    section.lines += [*_search_lines(results), _peer_line(peer, results), *rebuilds, *_everyday_lines(results)]
    section.notes += [
        f"median and smallest of {context.quick} rounds ({context.slow} for the peer), each a new process; "
        + quiet.words(),
        f"each run has 4 metrics and 2 parameters; the condition `{CONDITION}` fits {_hits(RUNS)} of the runs",
        "the first list after a write looks at the checksum of every run, later ones see that nothing was written;"
        " the verbs at the end may each come right after a submit",
        "rebuilds: once each; the machine's caches hold the folders, which were written just before",
    ]
    return section


# -- searches ------------------------------------------------------------------------------------------


def _searches(context: Context, store: Store) -> list[Contestant[Timing]]:
    after_write = store.mlw("history", "list", "--where", CONDITION)

    def first() -> Timing:
        store.touch()
        return measure(after_write)

    def settled() -> None:
        time.sleep(2.5)  # a verification is recorded only for files that are not recent
        measure(after_write)

    programs = {
        "start": context.mlw(context.workspace, "--version"),
        "list": store.mlw("history", "list", "--where", CONDITION),
        "simple": store.mlw("history", "list", "--where", SIMPLE),
        "best": store.mlw("history", "list", "--sort", "-accuracy", "-n", "10"),
    }
    return [Contestant("first", first, None, settled), *_contestants(programs)]


def _contestants(programs: dict[str, Program]) -> list[Contestant[Timing]]:
    return [Contestant(name, partial(measure, program)) for name, program in programs.items()]


def _search_lines(results: dict[str, list[float]]) -> list[Line]:
    start = f"`mlw --version`: {time_of(results['start'])}"

    def aimed(what: str, name: str) -> Line:
        found = median(results[name])
        ratio = times(found / median(results["start"]))
        return Line(what, time_of(results[name]), start, ratio, f"≤ {ms(LIST_AIM)}", found <= LIST_AIM)

    return [
        aimed(f"`mlw history list --where '{CONDITION}'`", "list"),
        aimed("the same, the first after a write", "first"),
        Line("`mlw history list --sort -accuracy -n 10`", time_of(results["best"])),
    ]


# -- everyday commands ---------------------------------------------------------------------------------

_EVERYDAY = {
    "`mlw submit hello.py`": "submit",
    "`mlw ps`": "ps",
    "`mlw history last`": "last",
    "`mlw history info` by the beginning of an id": "info",
    "`mlw logs`": "logs",
    "completion of `mlw logs `": "completion",
}


def _everyday(context: Context, store: Store, name: str) -> list[Contestant[Timing]]:
    project = context.project(f"hello-{name}")
    programs = {
        "ps": store.mlw("ps"),
        "last": store.mlw("history", "last"),
        "info": store.mlw("history", "info", "bench-00005"),
        "logs": store.mlw("logs", "bench-00005-x"),
        "completion": store.complete("mlw logs "),
    }
    submit = store.mlw("submit", "hello.py", folder=project)
    return [
        Contestant(f"submit {name}", lambda: measure(submit), None, store.settle),
        *_contestants({f"{verb} {name}": program for verb, program in programs.items()}),
    ]


def _everyday_lines(results: dict[str, list[float]]) -> list[Line]:
    lines = []
    for what, name in _EVERYDAY.items():
        large, few = results[f"{name} large"], results[f"{name} few"]
        beside = f"with {FEW} runs: {time_of(few)}"
        lines.append(Line(what, time_of(large), beside, times(median(large) / median(few))))
    return lines


# -- rebuilding the index ------------------------------------------------------------------------------


def _rebuild_lines(store: Store, quiet: machine.Quiet) -> list[Line]:
    """Measure rebuilds of an index without the runs while others write, a missing index, and a complete index."""
    quiet.wait()
    writes, live = _write_meanwhile(store)
    for path in store.home.glob("history.db*"):
        path.unlink()
    quiet.wait()
    new = _rebuild(store)
    quiet.wait()
    sound = _rebuild(store)
    lasting = f"longest of {len(writes)} writes by another process meanwhile: {ms(max(writes))}"
    return [
        Line("`mlw history rebuild`, no index", _seconds(new), f"{RUNS / new:,.0f} runs each second"),
        Line("the same, sound index", _seconds(sound), f"{RUNS / sound:,.0f} runs each second"),
        Line("the same, index that knows none of the runs", _seconds(live), lasting),
    ]


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _rebuild(store: Store) -> float:
    began = time.monotonic()
    done = _start_rebuild(store)
    _check_count(done.communicate()[1], RUNS)
    return time.monotonic() - began


def _start_rebuild(store: Store) -> subprocess.Popen[str]:
    program = store.mlw("history", "rebuild")
    return subprocess.Popen(
        program.command, env=program.environment, cwd=program.folder, stderr=subprocess.PIPE, text=True
    )


def _write_meanwhile(store: Store) -> tuple[list[float], float]:
    history = History(UserPaths(store.home))
    runs = history.list()
    began = time.monotonic()
    process = _start_rebuild(store)
    taken = []
    while process.poll() is None:
        start = time.monotonic()
        words = f"no contact since {start}"
        history.update(runs[0].id, partial(replace, contact=words))
        taken.append(time.monotonic() - start)
        time.sleep(0.05)
    total = time.monotonic() - began
    assert process.stderr
    _check_count(process.stderr.read(), RUNS)
    history.close()
    return taken, total


def _check_count(output: str, count: int) -> None:
    if str(count) not in re.findall(r"holds (\d+) runs", output):
        raise RuntimeError(f"{count} runs were written, and rebuild said: {output}")


# -- test data -----------------------------------------------------------------------------------------


def runs_of(count: int, more: int = 0) -> Iterator[dict[str, Any]]:
    """Yield runs with 4 metrics and ``more`` additional metrics."""
    dice = random.Random(SEED)
    for number in range(count):
        names = ("accuracy", "loss", "f1", *(f"metric-{index}" for index in range(more)))
        metrics = {**{name: dice.random() for name in names}, "epoch": number % 100}
        yield {"number": number, "metrics": metrics, "lr": round(dice.random() / 10, 5)}


def _hits(count: int) -> int:
    return sum(run["metrics"]["accuracy"] > 0.999 and run["lr"] < 0.05 for run in runs_of(count))


def fill(store: Store, count: int, more: int = 0) -> None:
    """Write the folders of finished runs. The index contains only the first run."""
    store.home.mkdir(mode=0o700)
    runs = runs_of(count, more)
    _write(store.home / "runs" / "bench-00000-x", next(runs))
    store.context.call(store.mlw("history", "list", "--all"))
    for run in runs:
        _write(store.home / "runs" / f"bench-{run['number']:05}-x", run)


def _write(folder: Path, run: dict[str, Any]) -> None:
    """Write the files of a finished run that the index reads."""
    arguments = ["--lr", str(run["lr"]), "--optimizer=adam"]
    created = 1_700_000_000.0 + run["number"]
    spec = {
        "id": folder.name, "key": folder.name, "number": run["number"] + 1, "name": None, "project_id": "bench",
        "project_name": "bench", "project_path": "/bench", "created": created,
        "compute": {"name": "local", "type": "local"}, "runconfig": "local", "framework": "Python",
        "entry": {"kind": "script", "name": "train.py", "arguments": arguments},
        "commands": [{"step": "run", "argv": ["python", "train.py", *arguments]}], "environment": {}, "inherit": [],
        "secrets": [], "snapshot": "0" * 64, "git": {"commit": "0" * 40, "branch": "main", "dirty": False},
    }  # fmt: skip
    kinds = {"accepted": {}, "started": {}, "finished": {"ending": "succeeded", "exit": 0, "elapsed": 12.5}}
    events = [
        {"w": "sup", "seq": seq, "t": created + seq, "kind": kind, "data": data}
        for seq, (kind, data) in enumerate(kinds.items(), 1)
    ]
    points = [{"n": name, "v": value} for name, value in run["metrics"].items()]
    (folder / "metrics").mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "metrics" / "1-0").write_text("".join(json.dumps(point) + "\n" for point in points))


# -- peer ----------------------------------------------------------------------------------------------


def load_peer(context: Context, peer: peers.Peer, place: str, count: int, more: int = 0) -> None:
    """Load the same runs into a store of the peer."""
    program = python_of(context, peer, "-c", _LOAD, place)
    text = "".join(json.dumps(run) + "\n" for run in runs_of(count, more))
    done = subprocess.run(
        program.command, cwd=program.folder, env=program.environment, input=text, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"mlflow could not load the runs: {done.stderr[-2000:]}")


def _search_of_peer(context: Context, peer: peers.Peer) -> Contestant[Timing]:
    """Load the same runs into the peer, and return its search as a contestant."""
    place = str(context.scratch / "mlflow.db")
    load_peer(context, peer, place, RUNS)
    search = python_of(context, peer, "-c", _SEARCH, place)
    count = int(context.call(search).split()[-1])
    expected = sum(run["metrics"]["accuracy"] > 0.999 for run in runs_of(RUNS))
    if count != expected:
        raise RuntimeError(f"mlflow found {count} runs, and there are {expected}")
    return Contestant("mlflow", lambda: measure(search), context.slow)


def python_of(context: Context, peer: peers.Peer, *arguments: str) -> Program:
    assert peer.program
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    return Program(
        (str(peer.program.parent / "python"), *arguments), context.workspace, {**context.environment, **quiet}
    )


def _peer_line(peer: peers.Peer, results: dict[str, list[float]]) -> Line:
    what = f"{peer.name} {peer.version} `search_runs` by `{SIMPLE}`, SQLite store, the same runs"
    if "mlflow" not in results:
        return Line(what, "not installed", peer.problem)
    theirs, ours = results["mlflow"], results["simple"]
    beside = f"`mlw history list --where '{SIMPLE}'`: {time_of(ours)}"
    return Line(what, time_of(theirs), beside, times(median(theirs) / median(ours)))
