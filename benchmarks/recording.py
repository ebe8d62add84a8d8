"""Cost of a log call in a script, compared with MLflow (SQLite), Weights & Biases (offline), and Trackio."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import machine
import peers
from context import Context
from table import Line, Section, median, times
from timing import Contestant, Program, take_turns

LOGGERS = Path(__file__).resolve().parent / "loggers.py"
RECIPES = (
    peers.Recipe("mlflow", "mlflow", ("mlflow",), ()),
    peers.Recipe("wandb", "wandb", ("wandb",), ()),
    peers.Recipe("trackio", "trackio", ("trackio",), ()),
)
NUMPY = peers.Recipe("numpy", "numpy-config", ("numpy",), ())
IN_MLW, FILE_STORE = "mlflow_in_mlw", "mlflow_file"  # with the Python of mlflow
_MLFLOW_CALLS = dict.fromkeys(("mlflow", FILE_STORE, IN_MLW), 5_000)
CALLS = {"mlworkbench": 1_000_000, **_MLFLOW_CALLS, "wandb": 20_000, "trackio": 20_000}
HOW = {"mlflow": "SQLite store", "wandb": "offline", "trackio": "local"}
CALL_AIM = 1e-6
QUICKER_AIM = 3.0
SLOWDOWN_AIM = 0.001
TURNS = 20  # the same value as in loggers.py

Costs = dict[str, list[dict[str, float]]]


def recording_section(context: Context) -> Section:
    section = Section("logging a metric")
    section.notes.append(f"load average before: {machine.load()}")
    installed = [peers.find(recipe) for recipe in RECIPES]
    quiet = context.quiet()
    pythons = {"mlworkbench": context.interpreter, **_pythons(installed)}
    contestants = [Contestant(name, partial(_cost, context, name, python)) for name, python in pythons.items()]
    results = take_turns(contestants, context.slow, quiet)
    section.lines += [_call_line(results), *[_peer_line(peer, results) for peer in installed]]
    section.lines += _mlflow_lines(installed[0], results)
    section.lines.append(_slowdown_line(context))
    section.notes += [
        f"median of {context.slow} rounds, each a new process; {quiet.words()}",
        "calls in one process: " + ", ".join(f"{name} {CALLS[name]:,}" for name in pythons),
        "a call: median of 20 bursts of up to 5,000, with pauses as a training has them; in a row: without a pause",
        "until it is on the disk: all calls without a pause, and what the library does at its end",
    ]
    return section


def _pythons(installed: list[peers.Peer]) -> dict[str, Path]:
    pythons = {peer.name: peer.program.parent / "python" for peer in installed if peer.program}
    mlflow = pythons.get("mlflow")
    return {**pythons, **(dict.fromkeys((FILE_STORE, IN_MLW), mlflow) if mlflow else {})}


def _cost(context: Context, name: str, python: Path) -> dict[str, float]:
    place = context.scratch / "logged"
    own = str(context.scratch / "home-of-loggers")
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "HOME": own}
    command = (str(python), str(LOGGERS), name, str(CALLS[name]), str(place))
    try:
        output = context.call(Program(command, context.workspace, {**context.environment, **quiet}))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def _of(results: Costs, name: str, what: str) -> float:
    return median([result[what] for result in results[name]])


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f} µs" if seconds < 1e-5 else f"{seconds * 1e6:,.0f} µs"


def _call_line(results: Costs) -> Line:
    call, row = _of(results, "mlworkbench", "call"), _of(results, "mlworkbench", "row")
    value = f"{_us(call)} ({1 / call:,.0f} calls each second)"
    beside = f"{CALLS['mlworkbench']:,} in a row: {_us(row)}; until it is on the disk: "
    beside += _us(_of(results, "mlworkbench", "all"))
    met = max(call, row) <= CALL_AIM
    return Line('`mlworkbench.log("loss", value, step)`', value, beside, "", f"≤ {_us(CALL_AIM)}, both", met)


def _peer_line(peer: peers.Peer, results: Costs) -> Line:
    what = f"{peer.name} {peer.version}, {HOW[peer.name]}: the same call"
    if peer.name not in results:
        return Line(what, "not installed", peer.problem)
    call, whole = _of(results, peer.name, "call"), _of(results, peer.name, "all")
    ratio = call / _of(results, "mlworkbench", "call")
    on_disk = whole / _of(results, "mlworkbench", "all")
    beside = f"until it is on the disk: {_us(whole)} ({times(on_disk)})"
    met = min(ratio, on_disk) >= QUICKER_AIM
    return Line(what, _us(call), beside, times(ratio), f"≥ {QUICKER_AIM:.0f}×, both", met)


def _mlflow_lines(peer: peers.Peer, results: Costs) -> list[Line]:
    """Compare `mlflow.log_metric` in a run of mlw with the same call of MLflow's own stores."""
    if IN_MLW not in results:
        return []
    stores = {IN_MLW: "in a run of mlw", "mlflow": "SQLite store", FILE_STORE: "file store"}
    call, whole = _of(results, IN_MLW, "call"), _of(results, IN_MLW, "all")
    lines = []
    for name, store in stores.items():
        what = f"`mlflow.log_metric`, mlflow {peer.version}, {store}"
        beside = f"{CALLS[name]:,} calls until they are on the disk: {_of(results, name, 'all') * CALLS[name]:.1f} s"
        ratio = min(_of(results, name, "call") / call, _of(results, name, "all") / whole)
        aimed = name == "mlflow"
        aim, met = (f"≥ {QUICKER_AIM:.0f}×, both", ratio >= QUICKER_AIM) if aimed else ("", None)
        shown = "" if name == IN_MLW else times(ratio)
        lines.append(Line(what, _us(_of(results, name, "call")), beside, shown, aim, met))
    return lines


def _slowdown_line(context: Context) -> Line:
    """Report the time of the calls and of the writing as a share of the steps.

    The measured difference between the two variants is also reported, but on most machines it is mostly noise.
    """
    what = "a training that logs every step is slower by"
    numpy = peers.find(NUMPY)
    if not numpy.program:
        return Line(what, "not measured", numpy.problem)
    place = context.scratch / "logged"
    command = (str(numpy.program.parent / "python"), str(LOGGERS), "training", "0", str(place))
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    try:
        output = context.call(Program(command, context.workspace, {**context.environment, **one_core}))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    result = json.loads(output.splitlines()[-1])
    share = (result["call"] + result["writing"]) / result["step"]
    beside = (
        f"a step of {result['step'] * 1e3:.1f} ms; a call there, with cold caches: {_us(result['call'])}, its writing"
        f" beside it: {_us(result['writing'])}; the same by {TURNS} pairs of clocks:"
        f" {result['low']:+.2%} to {result['high']:+.2%}"
    )
    return Line(what, f"{share:.3%}", beside, "", f"< {SLOWDOWN_AIM:.1%}", share < SLOWDOWN_AIM)
