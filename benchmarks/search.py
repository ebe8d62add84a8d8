"""Searching, sorting, and grouping many runs, compared with MLflow (SQLite) and with another version of mlw."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import machine
import peers
from context import Context
from history import Store, fill, load_peer, python_of, runs_of
from table import Line, Section, median, ms, time_of, times
from timing import Contestant, Program, Timing, measure, take_turns

RUNS = 100_000
MORE = 6  # additional metrics; each run has 4 others
CALLS = 5
LONGEST = 120.0  # timeout for a call of the peer in seconds
CALL_AIM = 20.0
GROUP_AIM = 1.0  # seconds
BEFORE = os.environ.get("MLW_BENCH_BEFORE")  # folder of another version's source tree, to measure it in turns

CONDITION = "accuracy > 0.999 and loss < 0.5"
PARAMETER = "metrics.loss < 0.1 and params.lr = 0.01"
GROUP = ("history", "list", "--group", "epoch", "-o", "json")

_CALLS = """
import json, sys, time
from pathlib import Path
from mlworkbench.history.expression import parse
from mlworkbench.history.run_query import Query
from mlworkbench.history.store import History
from mlworkbench.paths import UserPaths
history = History(UserPaths(Path(sys.argv[1])))
queries = {
    "search": Query(where=parse("accuracy > 0.999 and loss < 0.5")),
    "parameter": Query(where=parse("metrics.loss < 0.1 and params.lr = 0.01")),
    "best": Query(sort="accuracy", descending=True, limit=10),
    "page": Query(limit=50),
}
calls = {name: lambda query=query: len(history.search(query)) for name, query in queries.items()}
"""
_PEER_CALLS = """
import json, sys, time
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
place = client.get_experiment_by_name("bench").experiment_id
def search(condition="", **options):
    return lambda: len(client.search_runs([place], condition, **options))
calls = {
    "search": search("metrics.accuracy > 0.999 and metrics.loss < 0.5", max_results=1000),
    "parameter": search("metrics.loss < 0.1 and params.lr = '0.01'", max_results=1000),
    "best": search(order_by=["metrics.accuracy DESC"], max_results=10),
    "page": search(max_results=50),
}
"""
# Prints the median time of several calls in one process. The first call is not counted if there are several.
_TIMED = """
results = {}
for name in sys.argv[3].split(","):
    taken = []
    for _ in range(int(sys.argv[2])):
        began = time.perf_counter()
        found = calls[name]()
        taken.append(time.perf_counter() - began)
    results[name] = {"found": found, "taken": sorted(taken[1:] or taken)[len(taken[1:]) // 2]}
print(json.dumps(results))
"""
_LABELS = {
    "search": f"runs with `{CONDITION}`, a call",
    "parameter": f"runs with `{PARAMETER}`, a call",
    "best": "the 10 runs of the best accuracy, a call",
    "page": "the first page of 50 runs, a call",
}

Results = dict[str, dict[str, float]]


@dataclass(frozen=True)
class _Version:
    """A version of mlw with its own index of the same run folders."""

    store: Store
    source: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        more = {"PYTHONPATH": str(self.source)} if self.source else {}
        return {**self.store.environment, **more}

    def mlw(self, *arguments: str) -> Program:
        program = self.store.mlw(*arguments)
        return replace(program, environment=self.environment)

    def calls(self, count: int) -> Program:
        names = ",".join(_LABELS)
        command = (sys.executable, "-c", _CALLS + _TIMED, str(self.store.home), str(count), names)
        return Program(command, self.store.context.workspace, self.environment)

    def rebuild(self) -> float:
        """Build the index, and return the seconds it takes."""
        for path in self.store.home.glob("history.db*"):
            path.unlink()
        began = time.monotonic()
        self.store.context.call(self.mlw("history", "rebuild"))
        return time.monotonic() - began

    @property
    def size(self) -> int:
        return self.store.database.stat().st_size


def search_section(context: Context) -> Section:
    section = Section(f"{RUNS:,} runs with {4 + MORE} metrics each")
    section.notes.append(f"load average before: {machine.load()}")
    store = Store(context, context.scratch / "history-search")
    fill(store, RUNS, MORE)
    versions = {"now": _Version(store)}
    if BEFORE:
        versions["before"] = _Version(Store(context, _second_home(store)), Path(BEFORE) / "src")
    quiet = context.quiet()
    rebuilds: dict[str, list[float]] = {name: [] for name in versions}
    for _ in range(max(1, context.slow // 2)):
        for name, version in versions.items():
            quiet.wait()
            rebuilds[name].append(version.rebuild())
    peer = peers.mlflow()
    calls = {name: version.calls(CALLS + 1) for name, version in versions.items()}
    best = math.nan
    if peer.program:
        place = str(context.scratch / "search.db")
        load_peer(context, peer, place, RUNS, MORE)
        theirs = partial(python_of, context, peer, "-c", _PEER_CALLS + _TIMED, place)
        calls["mlflow"] = theirs(str(CALLS + 1), "search,parameter,page")
        best = _patiently(theirs("1", "best"))
    results = take_turns(
        [Contestant(name, partial(_parsed, context, program)) for name, program in calls.items()], context.slow, quiet
    )
    groups = [Contestant(name, partial(measure, version.mlw(*GROUP))) for name, version in versions.items()]
    grouped = take_turns(groups, context.slow, quiet)
    written = [Contestant(name, partial(_group_after_write, version)) for name, version in versions.items()]
    grouped_after_write = take_turns(written, context.slow, quiet)
    _check(results)
    section.lines += [_call_line(name, results, peer, best) for name in _LABELS]
    section.lines += [_group_line(grouped), _group_line(grouped_after_write, ", the first after a write")]
    section.lines += _index_lines(versions, rebuilds)
    section.notes += [
        f"median of {context.slow} rounds; a call: the median of {CALLS} in a process that is up, after one that is not"
        f" counted; {quiet.words()}",
        f"`{CONDITION}` fits {results['now'][0]['search']['found']:.0f} of the runs, `{PARAMETER}`"
        f" {results['now'][0]['parameter']['found']:.0f}; they are handed over whole",
        f"the best runs were asked of {peer.name} once, and no longer waited for than {LONGEST:.0f} s",
    ]
    return section


def _second_home(store: Store) -> Path:
    home = store.home.parent / "history-search-before"
    home.mkdir(mode=0o700)
    (home / "runs").symlink_to(store.home / "runs")
    return home


def _parsed(context: Context, program: Program) -> Results:
    result: Results = json.loads(context.call(program).splitlines()[-1])
    return result


def _patiently(program: Program) -> float:
    """Run a program, and return the seconds per call that it prints, or infinity after the timeout."""
    try:
        done = subprocess.run(
            program.command, cwd=program.folder, env=program.environment, capture_output=True, text=True, check=True,
            timeout=LONGEST,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return math.inf
    return float(json.loads(done.stdout.splitlines()[-1])["best"]["taken"])


def _check(results: dict[str, list[Results]]) -> None:
    runs = list(runs_of(RUNS, MORE))
    expected = {
        "search": sum(run["metrics"]["accuracy"] > 0.999 and run["metrics"]["loss"] < 0.5 for run in runs),
        "parameter": sum(run["metrics"]["loss"] < 0.1 and run["lr"] == 0.01 for run in runs),
        "best": 10,
        "page": 50,
    }
    for name, rounds in results.items():
        for call, result in rounds[0].items():
            if result["found"] != expected[call]:
                raise RuntimeError(f"{name} found {result['found']} for {call}, and there are {expected[call]}")


def _call_line(name: str, results: dict[str, list[Results]], peer: peers.Peer, best: float) -> Line:
    def taken(of: str) -> list[float]:
        return [each[name]["taken"] for each in results.get(of, []) if name in each]

    ours, theirs = taken("now"), [best] if name == "best" else taken("mlflow")
    before = f"before: {time_of(taken('before'))}; " if taken("before") else ""
    if "mlflow" not in results:
        return Line(_LABELS[name], time_of(ours), f"{before}{peer.name} is not installed: {peer.problem}")
    late = math.isinf(median(theirs))
    ratio = (LONGEST if late else median(theirs)) / median(ours)
    shown = f"not done after {LONGEST:.0f} s" if late else time_of(theirs)
    beside = f"{before}{peer.name} {peer.version} `search_runs`, SQLite store: {shown}"
    factor = ("> " if late else "") + times(ratio)
    return Line(_LABELS[name], time_of(ours), beside, factor, f"≥ {CALL_AIM:.0f}×", ratio >= CALL_AIM)


def _group_after_write(version: _Version) -> Timing:
    """Measure the first command after a write, which verifies the index."""
    version.store.touch()
    return measure(version.mlw(*GROUP))


def _group_line(grouped: dict[str, list[Timing]], when: str = "") -> Line:
    taken = {name: [one.total for one in rounds] for name, rounds in grouped.items()}
    before = f"before: {time_of(taken['before'])}" if "before" in taken else ""
    ratio = times(median(taken["before"]) / median(taken["now"])) if before else ""
    is_met = median(taken["now"]) <= GROUP_AIM
    label = f"`mlw history list --group epoch`, 100 groups, a command{when}: wall time"
    return Line(label, time_of(taken["now"]), before, ratio, f"≤ {ms(GROUP_AIM)}", is_met)


def _index_lines(versions: dict[str, _Version], rebuilds: dict[str, list[float]]) -> list[Line]:
    def beside(shown: dict[str, str]) -> str:
        return f"before: {shown['before']}" if "before" in shown else ""

    built = {name: f"{median(taken):.1f} s" for name, taken in rebuilds.items()}
    sizes = {name: f"{version.size / 1e6:,.0f} MB" for name, version in versions.items()}
    return [
        Line("building the index from the run folders", built["now"], beside(built)),
        Line("size of the index", sizes["now"], beside(sizes)),
    ]
