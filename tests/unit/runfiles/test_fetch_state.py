"""Whether everything of a run elsewhere is here: only then may its folder there be deleted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.inferred_state import forget
from mlworkbench.model import Run, Status
from mlworkbench.remote.shared import endings
from mlworkbench.remote.shared.kept_reasons import GOING, UNCOLLECTED, UNFETCHED
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.home_state import why_not_home
from tests.unit.test_fold import SPEC

ENDED = replace(Run(SPEC), status=Status.COMPLETED, started=1.0, log_size=3, outputs=0)


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(str(tmp_path))
    Path(found.log).write_text("log")
    return found


def put_list(folder, kind, **home):
    entry = {"path": "a", "size": 1, "sha256": None, "kind": kind}
    Path(folder.manifest).write_text(json.dumps({"outputs": [entry]}))
    Path(folder.home).write_text(json.dumps({"outputs": 1, **home}))


def test_log_and_end(folder):
    assert why_not_home(ENDED, folder) is None
    assert why_not_home(replace(ENDED, status=Status.RUNNING), folder) == GOING
    os.truncate(folder.log, 2)
    assert why_not_home(ENDED, folder) == UNFETCHED


def test_outputs_that_were_never_listed(folder):
    """After a failed collection, and of a run that was given up with cancel --forget."""
    assert why_not_home(replace(ENDED, outputs=None), folder) == UNCOLLECTED
    assert why_not_home(replace(ENDED, outputs=None, started=None), folder) is None, "it never started"


def test_a_run_that_was_given_up_may_have_started(folder):
    """Contact was lost before "started" arrived, then came cancel --forget: the target may have results."""
    for run in (Run(SPEC), Run(SPEC, accepted=1.0), Run(SPEC, accepted=1.0, started=2.0)):
        assert why_not_home(forget(run), folder) == UNCOLLECTED


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (endings.COULD_NOT_START, None),
        (endings.ENVIRONMENT_FAILED, None),
        (endings.CANCELLED, None),
        (endings.TARGET_REBOOTED, None),
        (endings.EXIT_UNKNOWN, UNCOLLECTED),
        (endings.SUCCEEDED, UNCOLLECTED),
    ],
)
def test_only_a_target_can_report_that_an_accepted_run_never_started(folder, ending, why):
    run = replace(Run(SPEC), status=Status.FAILED, accepted=1.0, ending=ending)
    assert why_not_home(run, folder) == why


@pytest.mark.parametrize("home", [{}, {"only_there": 1}])
@pytest.mark.parametrize("one", [replace(ENDED, outputs=1), replace(ENDED, outputs=0, uncollected=1)])
def test_outputs_that_never_come(folder, home, one):
    """An older mlw has not counted them when it fetched the rest, and counted them as outputs."""
    assert why_not_home(one, folder) == UNFETCHED
    put_list(folder, "unreadable", **home)
    assert why_not_home(one, folder) == UNCOLLECTED


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "link that leads out of the working copy", "broken link"])
def test_what_is_nowhere_in_its_folder_keeps_nothing_there(folder, kind):
    put_list(folder, kind)
    assert why_not_home(replace(ENDED, outputs=1), folder) is None
