"""Computing the state of a run from its events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.errors import NotFetched
from mlworkbench.failure import Failure
from mlworkbench.history import rows
from mlworkbench.history.journal_parsing import parse_events, parse_metric_lines
from mlworkbench.history.run_state import fold, format_ending, parse_event
from mlworkbench.model import Command, Compute, Entry, Event, Git, Run, RunSpec, Status
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.failure import text_of
from mlworkbench.remote.sweep_log import outcome_text as child_outcome
from mlworkbench.remote.sweep_log import summarize_failures
from mlworkbench.report.failure_report import failure_of
from mlworkbench.report.run_records import REMEDY, cause_lines, exit_code, record, to_display
from mlworkbench.runs.run_messages import RunMessages

SPEC = RunSpec(
    id="demo-swift-otter-7k2q",
    key="k",
    number=1,
    name=None,
    project_id="p",
    project_name="demo",
    project_path="/demo",
    created=1000.0,
    compute=Compute("local", "local"),
    runconfig="local",
    framework="Python",
    entry=Entry("script", "train.py", ("a",)),
    commands=(Command("run", ("python", "train.py", "a")),),
    environment={"A": "b"},
    inherit=("PATH",),
    secrets=("TOKEN",),
    snapshot="0" * 64,
    git=Git("abc", "main", True),
)


def events(*kinds):
    return [Event("sup", n, 1000.0 + n, kind, data) for n, (kind, data) in enumerate(kinds, 1)]


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([], Status.SUBMITTING),
        ([("accepted", {})], Status.PREPARING),
        ([("accepted", {}), ("step", {"step": "code"})], Status.PREPARING),
        ([("accepted", {}), ("queued", {"reason": "GPU 0 held"})], Status.QUEUED),
        ([("accepted", {}), ("started", {})], Status.RUNNING),
        ([("started", {}), ("stopping", {"why": "cancel"})], Status.RUNNING),
        ([("started", {}), ("finished", {"ending": "succeeded", "exit": 0})], Status.COMPLETED),
        ([("started", {}), ("finished", {"ending": "cancelled (forced)"})], Status.CANCELED),
        ([("finished", {"ending": "an ending of a newer version"})], Status.FAILED),
        ([("a kind of a newer version", {})], Status.SUBMITTING),
    ],
)
def test_status(kinds, status):
    assert fold(Run(SPEC), events(*kinds)).status is status


ASSIGNED = {"gpus": [{"index": 0, "name": "NVIDIA H200", "memory_total": 5, "odd": 1}], "held": True, "driver": "580"}


def test_a_run_waits_for_a_gpu_and_gets_a_verdict():
    queued = ("queued", {"reason": "GPU 0 held by run a"})
    run = fold(Run(SPEC), events(("accepted", {}), queued))
    assert (run.status, run.detail) == (Status.QUEUED, "GPU 0 held by run a")
    run = fold(run, events(("gpus", ASSIGNED)))
    assert (run.status, run.detail) == (Status.PREPARING, None)
    assert run.gpu is not None
    assert run.gpu["got"]["gpus"][0]["name"] == "NVIDIA H200"
    run = fold(run, events(("started", {}), ("gpus", ASSIGNED), ("gpu_idle", {"warning": "idle", "diagnosis": None})))
    assert (run.status, run.gpu["idle"]["warning"]) == (Status.RUNNING, "idle")
    verdict = {"used": "yes", "line": "GPU used: yes – NVIDIA H200", "diagnosis": None, "gpus": []}
    run = fold(run, events(("finished", {"ending": "succeeded", "gpu": verdict})))
    assert run.gpu is not None
    assert (run.gpu["used"], run.gpu["line"]) == ("yes", "GPU used: yes – NVIDIA H200")
    assert run.gpu["got"]["driver"] == "580"


@pytest.mark.parametrize(
    "verdict",
    [
        "yes",
        ["yes"],
        {"used": "<b>", "line": 7, "diagnosis": "x", "gpus": 3},
        {"used": "no", "line": "x" * 100_000, "diagnosis": {"cause": [1], "remedy": {}}},
        {"used": "no", "gpus": [{"pids": {str(n): {"name": "a" * 9999} for n in range(9999)}}] * 9999},
        {"used": "no", "evidence": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}, "n": float("nan")}},
    ],
)
def test_gpu_data_of_a_target_is_bounded(verdict):
    odd = ("gpus", {"gpus": [{"memory_total": "much", "name": ["x"]}, 7], "held": "y", "driver": {}})
    run = fold(Run(SPEC), events(odd, ("gpu_idle", {"warning": 3}), ("finished", {"ending": "failed", "gpu": verdict})))
    assert len(json.dumps(run.gpu, allow_nan=False)) < 5_000_000
    if run.gpu and "used" in run.gpu:
        assert run.gpu["used"] in ("yes", "partly", "no", "unknown")


@pytest.mark.parametrize("ending", run_endings.ALL)
def test_every_ending_is_final(ending):
    run = fold(Run(SPEC), events(("started", {}), ("finished", {"ending": ending})))
    assert run.status.final
    assert run.ending == ending


def test_nothing_changes_after_the_end():
    run = fold(
        Run(SPEC),
        events(("finished", {"ending": "succeeded", "exit": 0}), ("started", {}), ("finished", {"ending": "failed"})),
    )
    assert (run.status, run.ending) == (Status.COMPLETED, "succeeded")


def test_duration_uses_the_monotonic_clock_of_the_target():
    """The wall clock was set back by an hour during the run."""
    run = fold(
        Run(SPEC),
        events(("started", {"time": 5000.0}), ("finished", {"ending": "succeeded", "ended": 1400.0, "elapsed": 12.5})),
    )
    assert run.duration == 12.5


def test_duration_is_never_negative():
    run = fold(
        Run(SPEC), events(("started", {"time": 5000.0}), ("finished", {"ending": "exit unknown", "ended": 1400.0}))
    )
    assert run.duration == 0


HUGE = 10**4000


@pytest.mark.parametrize(
    "how", [{"exit": HUGE}, {"exit": 256}, {"exit": -1}, {"exit": "3"}, {"signal": HUGE}, {"signal": 0}]
)
@pytest.mark.parametrize("ending", ["failed", "succeeded"])
def test_an_invalid_exit_code_is_unknown(ending, how):
    run = fold(Run(SPEC), events(("started", {}), ("finished", {"ending": ending, **how})))
    assert (run.status, run.ending, run.exit, run.signal) == (Status.FAILED, "exit unknown", None, None)
    assert child_outcome({"ending": ending, **how}) == "Failed (exit unknown)"


@pytest.mark.parametrize(
    ("how", "words"), [({"exit": 255}, "exit 255"), ({"exit": None, "signal": 9}, "signal 9"), ({"exit": 1}, "exit 1")]
)
def test_a_valid_exit_code_is_shown(how, words):
    run = fold(Run(SPEC), events(("finished", {"ending": "failed", **how})))
    assert format_ending(run) == f"failed ({words})"
    assert child_outcome({"ending": "failed", **how}) == f"Failed ({words})"


def test_numbers_and_texts_are_bounded():
    data = {
        "outputs": HUGE,
        "output_bytes": -HUGE,
        "log_size": HUGE,
        "leftovers": [-HUGE, -1, HUGE, 7],
        "cause": "x" * 10**6,
    }
    run = fold(
        Run(SPEC), events(("step", {"step": "y" * 10**6}), ("finished", {"ending": "failed", "exit": 1, **data}))
    )
    assert (run.outputs, run.output_bytes, run.log_size, run.leftovers) == (None, None, None, (7,))
    assert len(run.cause) < 10**5
    failed = [("a", {"ending": "failed", "exit": 1, "cause": "x" * 10**6})]
    assert len(text_of(summarize_failures(failed))) < 10**4 and len(child_outcome({"ending": "z" * 10**6})) < 100


def test_a_variable_that_the_target_replaced_is_shown_once():
    run = fold(Run(SPEC), events(("gpus", {"gpus": [], "held": True, "replaced": "1"})))
    lines = []
    messages = RunMessages(lines.append)
    messages.state_changed(run)
    messages.state_changed(run)
    assert lines == ['note: CUDA_VISIBLE_DEVICES="1" is replaced by the GPUs allocated to the run']
    run = fold(Run(SPEC), events(("gpus", {"gpus": [], "held": False, "asked": "none", "replaced": "3"})))
    messages.state_changed(run)
    assert lines[1:] == ['note: CUDA_VISIBLE_DEVICES="3" is replaced: the run requested no GPU']


def test_format_ending():
    assert format_ending(Run(SPEC, ending="failed", exit=3)) == "failed (exit 3)"
    assert format_ending(Run(SPEC, ending="failed", signal=9)) == "failed (signal 9)"
    assert format_ending(Run(SPEC, ending="timeout")) == "timeout"


def test_spec_survives_json():
    assert RunSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_spec_of_a_newer_version_is_still_read():
    assert RunSpec.from_json({**SPEC.to_json(), "something": "new"}) == SPEC


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
hostile = st.dictionaries(
    st.sampled_from(["w", "seq", "t", "kind", "data", "x"]),
    json_values | st.sampled_from(["accepted", "started", "finished", "stopping", "queued", "step"]),
)
fields = [
    "ending",
    "exit",
    "signal",
    "cause",
    "ended",
    "elapsed",
    "outputs",
    "leftovers",
    "time",
    "why",
    "stuck",
    "step",
]
hostile_data = st.dictionaries(st.sampled_from(fields), json_values)


@given(
    st.lists(
        st.tuples(st.sampled_from(["accepted", "started", "finished", "stopping", "queued", "step"]), hostile_data)
    )
)
def test_a_hostile_target_cannot_break_the_fold(kinds):
    run = fold(Run(SPEC), events(*kinds))
    assert isinstance(run.status, Status)
    assert run.exit is None or isinstance(run.exit, int)
    assert run.cause is None or isinstance(run.cause, str)


@given(st.lists(hostile | json_values).map(lambda rows: b"".join(json.dumps(row).encode() + b"\n" for row in rows)))
def test_hostile_lines_are_skipped(data):
    events, used = parse_events(data)
    assert used == len(data)
    assert all(isinstance(event, Event) for event in events)
    assert parse_metric_lines(data)[1] == len(data)


@given(st.binary(max_size=300))
def test_any_bytes(data):
    assert parse_events(data)[1] <= len(data)
    assert parse_metric_lines(data)[1] <= len(data)


@given(st.integers(0, 400))
def test_only_complete_lines_are_parsed(cut):
    line = json.dumps({"w": "sup", "seq": 1, "t": 1.0, "kind": "accepted", "data": {}}).encode() + b"\n"
    data = (line * 4)[:cut]
    events, used = parse_events(data)
    assert (len(events), used) == (
        cut // len(line) if cut <= 4 * len(line) else 4,
        min(cut, 4 * len(line)) // len(line) * len(line),
    )


def test_event_needs_all_its_parts():
    with pytest.raises(KeyError):
        parse_event({"w": "sup", "seq": 1, "t": 1.0, "kind": "accepted"} | {})
    with pytest.raises(TypeError):
        parse_event({"w": "sup", "seq": 1, "t": 1.0, "kind": "accepted", "data": []})


# -- causes of failures ----------------------------------------------------------------------------


FAILURE = {
    "code": "not-fetched",
    "message": "x cannot be fetched here",
    "hint": "try again",
    "explain": "no-internet-there",
}


def ended(**data) -> Run:
    return fold(Run(SPEC), events(("finished", {"ending": run_endings.ENVIRONMENT_FAILED, **data})))


def test_a_failure_is_data_from_the_event_to_the_exit_code():
    run = ended(cause="x cannot be fetched here; hint: try again", failure=FAILURE)
    assert run.failure == Failure(**FAILURE)
    assert rows.decode(*rows.encode(run, rows.ReadPosition(), {}).body[:2]).failure == run.failure
    assert record(run)["failure"] == FAILURE and "failure" not in to_display(record(run))
    assert cause_lines(run) == [("Cause", "x cannot be fetched here"), (REMEDY, "try again")]
    assert exit_code(run) == NotFetched.exit_code
    assert (
        exit_code(ended(cause="the wheel cannot be fetched", failure={**FAILURE, "code": "environment-failed"})) == 75
    )


def test_a_run_of_an_earlier_version_has_its_failure_in_its_cause():
    run = ended(cause="x cannot be fetched here (y); hint: try again")
    assert run.failure is None
    assert failure_of(run) == Failure("not-fetched", "x cannot be fetched here (y)", "try again", "no-internet-there")
    assert cause_lines(run) == [("Cause", "x cannot be fetched here (y)"), (REMEDY, "try again")]
    assert exit_code(run) == NotFetched.exit_code
    assert failure_of(Run(SPEC)) is None and failure_of(Run(SPEC, ending=run_endings.SUCCEEDED, cause="x")) is None


@pytest.mark.parametrize(
    "failure",
    [None, [], {}, {"code": "x"}, {"code": 1, "message": "x"}, {"code": "A B", "message": "x"}, {"message": "x"}],
)
def test_an_invalid_failure_is_ignored(failure):
    assert ended(cause="boom", failure=failure).failure is None


def test_a_hostile_failure_is_bounded():
    hostile = {"code": "x", "message": "m" * 10**6, "hint": "h" * 10**6, "explain": "../x; rm -rf"}
    failure = ended(cause="boom", failure=hostile).failure
    assert len(failure.message) < 10**5 and len(failure.hint) < 10**5 and failure.explain is None


@pytest.mark.parametrize("ending", [one for one in run_endings.ALL if one != run_endings.SUCCEEDED])
def test_every_ending_but_success_is_a_failure(ending):
    outcome = run_endings.outcome(ending, "boom")
    assert outcome["cause"] == outcome["failure"]["message"] == "boom"
    assert Failure.from_json(outcome["failure"]) is not None
    failure = {"code": "x", "message": "m", "hint": "h", "explain": None}
    assert run_endings.outcome(ending, failure) == {"ending": ending, "cause": "m; hint: h", "failure": failure}


def test_success_is_not_a_failure():
    assert run_endings.outcome(run_endings.SUCCEEDED, None) == {"ending": "succeeded", "cause": None, "failure": None}
    assert run_endings.outcome(run_endings.SUCCEEDED, "1 of 2")["failure"] is None


@pytest.mark.parametrize("damaged", [{}, {"code": 1}, {"message": "x"}, 7, ["x"]])
def test_a_damaged_reason_does_not_lose_the_ending(damaged):
    outcome = run_endings.outcome(run_endings.COULD_NOT_START, damaged)
    assert isinstance(outcome["cause"], str) and outcome["failure"]["code"] == "could-not-start"
