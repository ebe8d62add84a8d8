"""What watches a run: none may cost the others anything, and what each has seen is folded into one result."""

from __future__ import annotations

from typing import Any

import pytest

from mlworkbench.model import RunSpec
from mlworkbench.plan import plan
from mlworkbench.remote.companions.companion import Companion
from mlworkbench.remote.companions.group import Companions, companions_of
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.run_spec import companion_settings
from mlworkbench.remote.shared import endings
from mlworkbench.remote.shared.layout import RunFolder

from .test_plan import PARTS

SPARK = {"master": "local[2]", "deploy": "client"}


class Failing(Companion):
    """Raises whatever it is asked."""

    task = "failing"

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("as it must")

    tick = sweep = end = explain = evidence = _fail


class Counting(Companion):
    """Notes what it is asked, and adds a word to everything that is folded."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[str] = []

    def tick(self, facts: Any) -> None:
        self.asked.append("tick")

    def end(self, facts: Any) -> None:
        self.asked.append("end")

    def explain(self, ending: str, reason: str | None, ended: Any) -> tuple[str, str | None]:
        return ending, f"{reason} {self.word}"

    def evidence(self, verdict: Any, started: bool, ending: str, reason: str | None) -> Any:
        return {"seen": [*(verdict or {"seen": []})["seen"], self.word]}


def test_one_that_fails_stops_no_other(capfd):
    failing, counting = Failing(), Counting("x")
    companions = Companions([failing, counting])
    for _ in range(3):
        companions.tick(None)
    assert capfd.readouterr().err.count("stopped failing: RuntimeError: as it must") == 1, "it is not asked again"
    companions.sweep(None, None)  # type: ignore[arg-type]
    companions.end(None)
    assert counting.asked == ["tick", "tick", "tick", "end"]


def test_what_companions_have_seen_is_folded():
    companions = Companions([Counting("a"), Failing(), Counting("b")])
    assert companions.explain(endings.FAILED, "why", {}) == (endings.FAILED, "why a b")
    assert companions.verdict(True, endings.FAILED, "why") == {"seen": ["a", "b"]}


def test_a_companion_that_leaves_everything_out_changes_nothing():
    companions = Companions([Companion()])
    companions.prepare()
    companions.tick(None)
    assert companions.explain(endings.SUCCEEDED, None, {}) == (endings.SUCCEEDED, None)
    assert companions.verdict(True, endings.SUCCEEDED, None) is None


@pytest.mark.parametrize("written", [{"companions": {"spark": SPARK}}, {"spark": SPARK}], ids=["now", "earlier builds"])
def test_the_key_of_earlier_builds_is_read(tmp_path, written):
    """A run that they recorded may still be running, or be looked at."""
    assert companion_settings(written, "spark") == SPARK
    run = RunFolder(str(tmp_path))
    names = [type(one).__name__ for one in companions_of(run, written, Journal(run), str)._members]
    assert names == ["GpuMonitor", "Usage", "Spark", "Tracking"]
    data = {name: value for name, value in plan(PARTS, "run-1", "k", 0).to_json().items() if name != "companions"}
    assert RunSpec.from_json({**data, **written}).companions == {"spark": SPARK}


@pytest.mark.parametrize("written", [{}, {"spark": None}, {"companions": {}}])
def test_other_runs_have_no_spark_companion(written):
    assert companion_settings(written, "spark") is None
    data = {name: value for name, value in plan(PARTS, "run-1", "k", 0).to_json().items() if name != "companions"}
    assert RunSpec.from_json({**data, **written}).companions == {}
