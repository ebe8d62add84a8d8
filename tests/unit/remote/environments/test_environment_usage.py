from __future__ import annotations

import pytest

from mlworkbench.remote.environments.environment_usage import unfinished_runs
from mlworkbench.remote.shared.layout import Root


@pytest.mark.parametrize(("has_job", "ended", "expected"), [(True, False, ["r"]), (True, True, []), (False, False, [])])
def test_run_whose_script_has_ended_uses_its_environment_while_it_has_a_job(tmp_path, has_job, ended, expected):
    """A scheduler may requeue the job for another attempt."""
    run = tmp_path / "runs" / "r"
    (run / "claim").mkdir(parents=True)
    for name in ("claim/owner.json", "exit.json", *(["starter.json"] if has_job else [])):
        (run / name).write_text("{}")
    (run / "events.jsonl").write_text('{"kind": "finished"}\n' if ended else "")
    assert unfinished_runs(Root(str(tmp_path)), ["r"]) == expected
