"""Companions of a run: a failing one does not affect the others, and their results are combined."""

from __future__ import annotations

from typing import Any

import pytest

from mlworkbench.model import RunSpec
from mlworkbench.plan import plan
from mlworkbench.remote.companions.companion import Companion
from mlworkbench.remote.companions.group import CompanionGroup, make_companions
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.run_spec import companion_settings
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.layout import RunFolder

from ...test_plan import PARTS

SPARK = {"master": "local[2]", "deploy": "client"}


class Failing(Companion):
    """A companion that raises an exception in every method."""

    task = "failing"

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("as it must")

    tick = end_leftovers = end = explain = evidence = _fail


class Recording(Companion):
    """A companion that records its calls and adds its name to combined results."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[str] = []

    def tick(self, facts: Any) -> None:
        self.calls.append("tick")

    def end(self, facts: Any) -> None:
        self.calls.append("end")

    def explain(self, ending: str, reason: str | None, ended: Any) -> tuple[str, str | None]:
        return ending, f"{reason} {self.name}"

    def evidence(self, verdict: Any, started: bool, ending: str, reason: str | None) -> Any:
        return {"seen": [*(verdict or {"seen": []})["seen"], self.name]}


def test_failing_companion_does_not_stop_others(capfd):
    failing, recording = Failing(), Recording("x")
    companions = CompanionGroup([failing, recording])
    for _ in range(3):
        companions.tick(None)
    assert capfd.readouterr().err.count("stopped failing: RuntimeError: as it must") == 1, "it is not called again"
    companions.end_leftovers(None, None)  # type: ignore[arg-type]
    companions.end(None)
    assert recording.calls == ["tick", "tick", "tick", "end"]


def test_results_of_companions_are_combined():
    companions = CompanionGroup([Recording("a"), Failing(), Recording("b")])
    assert companions.explain(run_endings.FAILED, "why", {}) == (run_endings.FAILED, "why a b")
    assert companions.verdict(True, run_endings.FAILED, "why") == {"seen": ["a", "b"]}


def test_base_companion_changes_nothing():
    companions = CompanionGroup([Companion()])
    companions.prepare()
    companions.tick(None)
    assert companions.explain(run_endings.SUCCEEDED, None, {}) == (run_endings.SUCCEEDED, None)
    assert companions.verdict(True, run_endings.SUCCEEDED, None) is None


@pytest.mark.parametrize("keys", [{"companions": {"spark": SPARK}}, {"spark": SPARK}], ids=["now", "earlier builds"])
def test_spark_key_of_earlier_builds_is_read(tmp_path, keys):
    """Runs of earlier builds may still be active, and the history still shows them."""
    assert companion_settings(keys, "spark") == SPARK
    run = RunFolder(str(tmp_path))
    names = [type(companion).__name__ for companion in make_companions(run, keys, Journal(run), str)._members]
    assert names == ["GpuMonitor", "UsageMonitor", "SparkMonitor", "ExternalMetricsMonitor", "PackageRecorder"]
    data = {name: value for name, value in plan(PARTS, "run-1", "k", 0).to_json().items() if name != "companions"}
    assert RunSpec.from_json({**data, **keys}).companions == {"spark": SPARK}


@pytest.mark.parametrize("keys", [{}, {"spark": None}, {"companions": {}}])
def test_other_runs_have_no_spark_companion(keys):
    assert companion_settings(keys, "spark") is None
    data = {name: value for name, value in plan(PARTS, "run-1", "k", 0).to_json().items() if name != "companions"}
    assert RunSpec.from_json({**data, **keys}).companions == {}
