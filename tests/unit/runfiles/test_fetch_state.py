"""A run's folder on the target may be deleted only if all of its files are on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.inferred_state import forget
from mlworkbench.model import Run, Status
from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.shared.kept_reasons import GOING, UNCOLLECTED, UNFETCHED
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.fetch_state import unfetched_reason
from tests.unit.history.test_run_state import SPEC

ENDED = replace(Run(SPEC), status=Status.COMPLETED, started=1.0, log_size=3, outputs=0)


@pytest.fixture
def folder(tmp_path):
    run_folder = RunFolder(str(tmp_path))
    Path(run_folder.log).write_text("log")
    return run_folder


def write_manifest(folder, kind, **home):
    entry = {"path": "a", "size": 1, "sha256": None, "kind": kind}
    Path(folder.manifest).write_text(json.dumps({"outputs": [entry]}))
    Path(folder.fetch_marker).write_text(json.dumps({"outputs": 1, **home}))


def test_log_and_status(folder):
    assert unfetched_reason(ENDED, folder) is None
    assert unfetched_reason(replace(ENDED, status=Status.RUNNING), folder) == GOING
    os.truncate(folder.log, 2)
    assert unfetched_reason(ENDED, folder) == UNFETCHED


def test_outputs_that_were_never_listed(folder):
    """The collection of outputs failed, or the run was forgotten with cancel --forget."""
    assert unfetched_reason(replace(ENDED, outputs=None), folder) == UNCOLLECTED
    assert unfetched_reason(replace(ENDED, outputs=None, started=None), folder) is None, "it never started"


def test_a_run_that_was_given_up_may_have_started(folder):
    """The target may have results even if the event "started" has not arrived, because the connection was lost."""
    for run in (Run(SPEC), Run(SPEC, accepted=1.0), Run(SPEC, accepted=1.0, started=2.0)):
        assert unfetched_reason(forget(run), folder) == UNCOLLECTED


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (run_endings.COULD_NOT_START, None),
        (run_endings.ENVIRONMENT_FAILED, None),
        (run_endings.CANCELLED, None),
        (run_endings.TARGET_REBOOTED, None),
        (run_endings.EXIT_UNKNOWN, UNCOLLECTED),
        (run_endings.SUCCEEDED, UNCOLLECTED),
    ],
)
def test_only_a_target_can_report_that_an_accepted_run_never_started(folder, ending, why):
    run = replace(Run(SPEC), status=Status.FAILED, accepted=1.0, ending=ending)
    assert unfetched_reason(run, folder) == why


@pytest.mark.parametrize("home", [{}, {"only_there": 1}])
@pytest.mark.parametrize("one", [replace(ENDED, outputs=1), replace(ENDED, outputs=0, uncollected=1)])
def test_uncollected_outputs(folder, home, one):
    """Older versions of mlw did not count uncollected outputs in the fetched list, or counted them as outputs."""
    assert unfetched_reason(one, folder) == UNFETCHED
    write_manifest(folder, "unreadable", **home)
    assert unfetched_reason(one, folder) == UNCOLLECTED


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "link that leads out of the working copy", "broken link"])
def test_other_kinds_do_not_block_deletion(folder, kind):
    write_manifest(folder, kind)
    assert unfetched_reason(replace(ENDED, outputs=1), folder) is None
