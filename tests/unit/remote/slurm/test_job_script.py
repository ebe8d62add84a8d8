from __future__ import annotations

import subprocess

import pytest

from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.slurm.job_script import InvalidRequest, job_script, sbatch_options


def options(**scheduler):
    return sbatch_options(RunFolder("/home/a da/50%/runs/r"), "r", "mlw r x", scheduler, True)


def test_options_of_a_request():
    request = {"partition": "gpu", "qos": None, "time": 61, "gpus": 2, "gpu_model": "h200", "options": ["--nice=5"]}
    found = options(**request)
    assert {"--partition=gpu", "--time=2", "--gres=gpu:h200:2", "--requeue", "--nodes=1"} <= set(found)
    assert found[-1] == "--nice=5" and not any(option.startswith("--qos") for option in found)
    assert "--output=/home/a da/50%%/runs/r/slurm.out" in found


def test_unset_values_are_left_to_slurm():
    assert not any(option.startswith(("--time", "--gres", "--mem", "--partition")) for option in options(gpus=None))


@pytest.mark.parametrize("option", ["/etc/passwd", "", "--nice=5\n--wrap=x", "--comment=\0"])
def test_an_option_that_would_be_a_file_is_refused(option):
    with pytest.raises(InvalidRequest):
        options(options=[option])


@pytest.mark.parametrize("secrets", [True, False])
def test_script_starts_the_supervisor(tmp_path, secrets):
    run = RunFolder(str(tmp_path / "it's a run"))
    (tmp_path / "it's a run").mkdir()
    if secrets:
        (tmp_path / "it's a run" / "secrets.json").write_text("from the file")
    script = job_script(run, ["sh", "-c", 'echo "$0 $SET"; cat', "two words"], ["export SET=up"])
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, env={}, check=True)
    assert done.stdout == "two words up\n" + ("from the file" if secrets else '{"secrets": {}}\n')


def test_failed_setup_ends_the_job(tmp_path):
    folder = tmp_path / "it's a run"
    folder.mkdir()
    (folder / "secrets.json").write_text("canary-canary")
    script = job_script(RunFolder(str(folder)), ["echo", "started"], ["no-such-program", "echo not this"])
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, env={})
    assert done.returncode == 127 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "setUp failed: no-such-program"
    assert not (folder / "secrets.json").exists()


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_signals_of_slurm_do_not_end_the_job_before_the_supervisor_handles_them(tmp_path, name):
    """Other programs of setUp start with the default actions."""
    setup = [f"kill -{name} $$", f"bash -c 'kill -{name} $$; echo ignored' || echo default"]
    script = job_script(RunFolder(str(tmp_path)), ["bash", "-c", f"kill -{name} $$; echo up"], setup)
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (0, "default\nup\n"), done.stderr
