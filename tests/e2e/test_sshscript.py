"""The compute type of examples/sshscript: three short files, installed, attached, and used as documented."""

from __future__ import annotations

import pytest

from tests.e2e.example_plugins import EXAMPLES, JOB_SCRIPT_PAGE, install, write_job_script

FILES = sorted(path for path in (EXAMPLES / "sshscript").iterdir() if path.is_file())


@pytest.fixture
def lab(laptop, machine, tmp_path):
    """A project with the target `lab`, and its machine, which has the job script."""
    laptop.env.update(install("sshscript", tmp_path / "plugin"))
    host = machine()
    write_job_script(host.home)
    root = laptop.project("demo", train="import os\nprint('on', os.uname().nodename)\n")
    arguments = ("--address", host.address, "--username", host.user, "--private-key-file", str(host.key))
    attach = ("computetarget", "attach", "sshscript", "--name", "lab", *arguments)
    laptop.mlw(*attach, "--host-key", host.host_key_fingerprint, cwd=root, check=True)
    return root, host


def test_run_is_started_by_job_script(laptop, lab):
    root, host = lab
    done = laptop.mlw("submit", "-c", "lab", "train.py", cwd=root)
    assert (done.code, done.out) == (0, f"on {host.name}\n"), done
    (job,) = (host.home / "jobs").iterdir()
    stored = (host.home / ".mlw" / "runs" / done.run / "starter.json").read_text()
    assert f'"job": "{job.name}"' in stored and "plugin:mlw_sshscript_starter" in stored


def test_cancel_job(laptop, lab):
    root, _ = lab
    (root / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    run = laptop.mlw("submit", "-c", "lab", "--detach", "wait.py", cwd=root, check=True).run
    laptop.mlw("cancel", run, "--grace", "0", cwd=root, check=True)
    assert laptop.info(run, cwd=root)["status"] == "Canceled"


def test_example_is_short_and_shown_on_page():
    page = JOB_SCRIPT_PAGE.read_text()
    assert len(FILES) <= 3
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= 80
    assert [path.name for path in FILES if path.read_text() not in page] == []
