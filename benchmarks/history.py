"""How long a search among many runs takes, with the start of the process, and making the index anew."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine
import peers
from context import Context
from table import Line, Section, median, ms, time_of, times
from timing import Contestant, Program, Timing, measure, take_turns

RUNS = 100_000
LIST_AIM = 0.300
LOADING = 60.0  # seconds that a peer gets to take the runs in
CONDITION = "accuracy > 0.999 and lr < 0.05"
SEED = 7

# In the peer's own Python. Each run is logged as its documentation has it, by one batch.
_LOAD = """
import json, sys, time
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
place = client.create_experiment("bench")
end = time.monotonic() + float(sys.argv[2])
done = 0
for line in sys.stdin:
    one = json.loads(line)
    run = client.create_run(place).info.run_id
    now = int(time.time() * 1000)
    metrics = [Metric(name, value, now, 0) for name, value in one["metrics"].items()]
    client.log_batch(run, metrics=metrics, params=[Param("lr", str(one["lr"]))])
    client.set_terminated(run)
    done += 1
    if time.monotonic() > end:
        break
print(done)
"""
_SEARCH = """
import sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
place = client.get_experiment_by_name("bench").experiment_id
print(len(client.search_runs([place], "metrics.accuracy > 0.999", max_results=1000)))
"""


def history_section(context: Context) -> Section:
    section = Section(f"{RUNS:,} runs in the history")
    section.notes.append(f"load average before: {machine.load()}")
    large, rebuilt = _store(context, "history-large", RUNS)
    peer = next(one for one in peers.find_all() if one.name == "mlflow")
    loaded, uri = _load(context, peer) if peer.program else (0, "")
    contestants = {
        "start": context.mlw(context.outside, "--version"),
        "list": _mlw(large, "history", "list", "--where", CONDITION),
        "best": _mlw(large, "history", "list", "--sort", "-accuracy", "-n", "10"),
        "ps": _mlw(large, "ps"),
        "info": _mlw(large, "history", "info", "bench-00500"),
    }
    if loaded:
        few, _ = _store(context, "history-few", loaded)
        contestants["list of few"] = _mlw(few, "history", "list", "--where", "accuracy > 0.999")
        contestants["mlflow"] = _python(context, peer, "-c", _SEARCH, uri)
    quiet = context.quiet()
    rounds = [_contestant(context, name, program) for name, program in contestants.items()]
    results = {name: [one.total for one in got] for name, got in take_turns(rounds, context.quick, quiet).items()}
    section.lines += _our_lines(results, rebuilt)
    section.lines.append(_peer_line(peer, loaded, results))
    section.notes += [
        f"median and smallest of {context.quick} rounds ({context.slow} for the peer), each a new process; "
        + quiet.words(),
        f"each run has 4 metrics and 2 parameters; the condition `{CONDITION}` fits {_hits(RUNS)} of the runs",
        "every list checks the checksum of every one of the runs",
    ]
    return section


def _contestant(context: Context, name: str, program: Program) -> Contestant[Timing]:
    return Contestant(name, lambda: measure(program), context.slow if name == "mlflow" else None)


def _our_lines(results: dict[str, list[float]], rebuilt: float) -> list[Line]:
    start = f"`mlw --version`: {time_of(results['start'])}"
    found = results["list"]
    ratio = times(median(found) / median(results["start"]))
    return [
        Line(
            f"`mlw history list --where '{CONDITION}'`", time_of(found), start, ratio, f"≤ {ms(LIST_AIM)}",
            median(found) <= LIST_AIM,
        ),
        Line("`mlw history list --sort -accuracy -n 10`", time_of(results["best"])),
        Line("`mlw ps`", time_of(results["ps"])),
        Line("`mlw history info` by the beginning of an id", time_of(results["info"])),
        Line("`mlw history rebuild`", f"{rebuilt:.1f} s", f"{RUNS / rebuilt:,.0f} runs each second"),
    ]  # fmt: skip


def _peer_line(peer: peers.Peer, loaded: int, results: dict[str, list[float]]) -> Line:
    what = f"{peer.name} {peer.version} `search_runs`, SQLite store"
    if not loaded:
        return Line(what, "not installed", peer.problem)
    theirs, ours = results["mlflow"], results["list of few"]
    what += f", {loaded:,} runs (all that it took in within {LOADING:.0f} s)"
    beside = f"`mlw history list --where` over as many: {time_of(ours)}"
    return Line(what, time_of(theirs), beside, times(median(theirs) / median(ours)))


# -- the same runs for all -----------------------------------------------------------------------------


def _runs(count: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(SEED)
    for number in range(count):
        names = ("accuracy", "loss", "f1")
        metrics = {**{name: dice.random() for name in names}, "epoch": number % 100}
        yield {"number": number, "metrics": metrics, "lr": round(dice.random() / 10, 5)}


def _hits(count: int) -> int:
    return sum(one["metrics"]["accuracy"] > 0.999 and one["lr"] < 0.05 for one in _runs(count))


def _mlw(home: Path, *words: str) -> Program:
    context = _CONTEXTS[home]
    return Program((context.mlw(context.outside).command[0], *words), context.outside, _environment(context, home))


_CONTEXTS: dict[Path, Context] = {}


def _environment(context: Context, home: Path) -> dict[str, str]:
    return {**context.environment, "MLW_HOME": str(home)}


def _store(context: Context, name: str, count: int) -> tuple[Path, float]:
    """A history with so many runs that have ended, and the seconds that it took to make its index from folders."""
    home = context.scratch / name
    _CONTEXTS[home] = context
    home.mkdir(mode=0o700)
    context.call(_mlw(home, "history", "list", "--all"))
    for one in _runs(count):
        _write(home / "runs" / f"bench-{one['number']:05}-x", one)
    began = time.monotonic()
    done = subprocess.run(
        _mlw(home, "history", "rebuild").command, env=_environment(context, home), cwd=context.outside,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    taken = time.monotonic() - began
    if str(count) not in re.findall(r"\d+", done.stderr):
        raise RuntimeError(f"{count} runs were written, and rebuild said: {done.stderr}")
    return home, taken


def _write(folder: Path, one: dict[str, Any]) -> None:
    """A run's folder as its supervisor leaves it, as far as the index looks at it."""
    arguments = ["--lr", str(one["lr"]), "--optimizer=adam"]
    created = 1_700_000_000.0 + one["number"]
    spec = {
        "id": folder.name, "key": folder.name, "number": one["number"] + 1, "name": None, "project_id": "bench",
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
    points = [{"n": name, "v": value} for name, value in one["metrics"].items()]
    (folder / "metrics").mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "metrics" / "1-0").write_text("".join(json.dumps(point) + "\n" for point in points))


# -- the peer ------------------------------------------------------------------------------------------


def _python(context: Context, peer: peers.Peer, *words: str) -> Program:
    assert peer.program
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    return Program((str(peer.program.parent / "python"), *words), context.outside, {**context.environment, **quiet})


def _load(context: Context, peer: peers.Peer) -> tuple[int, str]:
    """As many of the runs as the peer takes in within the time; how many, and where they are."""
    uri = f"sqlite:///{context.scratch / 'mlflow.db'}"
    program = _python(context, peer, "-c", _LOAD, uri, str(LOADING))
    text = "".join(json.dumps(one) + "\n" for one in _runs(RUNS))
    done = subprocess.run(
        program.command, cwd=program.folder, env=program.environment, input=text, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"mlflow could not load the runs: {done.stderr[-2000:]}")
    return int(done.stdout.split()[-1]), uri
