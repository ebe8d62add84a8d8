"""Retries: a script that crashes starts again from its last checkpoint, and users see each attempt."""

from __future__ import annotations

import json
import shutil

import pytest

from mlworkbench.testing.waiting import wait_until

TRAIN = """
import os, sys
from mlworkbench import checkpoint_dir, log
checkpoint = os.path.join(checkpoint_dir(), "step")
step = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
attempt = int(os.environ["MLW_ATTEMPT"])
print("attempt", attempt, "starts at", step)
while step < 6:
    log("loss", attempt + step / 10, step=step)
    step += 1
    if step % 2 == 0:
        open(checkpoint, "w").write(str(step))
    if step == 2 * attempt + 1 and "--crash" in sys.argv:
        raise ValueError("crashed at %d" % step)
"""


@pytest.fixture
def project(user):
    return user.project("demo", train=TRAIN)


def test_crashed_script_starts_again_from_its_checkpoint(user, project):
    submit = ("submit", "--retries", "3", "--retry-delay", "0.1s", "train.py", "--crash")
    done = user.mlw(*submit, cwd=project)
    assert done.code == 0, done
    assert [line for line in done.out.splitlines() if line.startswith("attempt")] == [
        *("attempt 1 starts at 0", "attempt 2 starts at 2", "attempt 3 starts at 4")
    ]
    assert done.err.count("attempt 1 failed (exit 1)") == 2  # when it happens, and in the summary
    assert "ValueError: crashed at 3" in done.err
    assert "Attempts:  3 of 4" in done.err
    page = user.mlw("show", done.run, cwd=project).out
    assert "3 of 4" in page and "attempt 2 failed (exit 1)" in page
    record = user.info(done.run)
    assert [(attempt["number"], attempt["ending"], attempt["exit"]) for attempt in record["attempts"]] == [
        *((1, "failed", 1), (2, "failed", 1))
    ]
    series = json.loads(user.mlw("history", "metrics", done.run, "loss", "-o", "json", cwd=project).out)
    points = [(point["step"], point["value"]) for point in series["metrics"]["loss"]]
    # Attempts 2 and 3 repeat the step after their checkpoint: their points replace those of the attempts before.
    assert points == [(0, 1.0), (1, 1.1), (2, 2.2), (3, 2.3), (4, 3.4), (5, 3.5)]
    exported = user.mlw("history", "export", done.run, "--points", cwd=project).out
    assert [line.split(",")[-1] for line in exported.splitlines()[1:]] == [str(value) for _, value in points]


# When the client is killed → text in the journal or the log of the run, from then on
MOMENTS = {"first attempt": "attempt 1 starts", "pause": '"attempt_ended"', "second attempt": "attempt 2 starts"}
GO = "import time\nwhile not os.path.exists(os.path.join(checkpoint_dir(), 'go')): time.sleep(0.01)\n"


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_client_does_not_affect_the_attempts(user, project, moment):
    pause, waiting = ("1s", "") if moment == "pause" else ("0.01s", GO)
    (project / "train.py").write_text(TRAIN.replace("while step < 6", waiting + "while step < 6"))
    submit = ("submit", "--retries", "1", "--retry-delay", pause, "train.py", "--crash")
    client = user.start(*submit, cwd=project)
    runs = user.store / "runs"
    if moment == "second attempt":
        wait_until(lambda: any("attempt 1" in path.read_text() for path in runs.glob("*/log")))
        [folder] = runs.iterdir()
        (folder / "checkpoints" / "go").touch()
    wait_until(lambda: any(MOMENTS[moment] in path.read_text() for path in runs.glob("*/[el]*[lg]")))
    client.kill()
    client.communicate()
    [folder] = runs.iterdir()
    (folder / "checkpoints" / "go").touch()
    wait_until(lambda: user.info(folder.name)["status"] == "Failed")
    assert_attempts(folder)


@pytest.mark.parametrize("stage", ["recorded", "launching", "launched-here"])
def test_client_killed_during_submit_of_a_run_with_retries(user, project, stage):
    """Submitting again with the same key starts each attempt once."""
    submit = ("submit", "--key", "k", "--retries", "1", "--retry-delay", "0.01", "train.py", "--crash")
    killed = user.mlw(*submit, cwd=project, env={"MLW_FAILPOINT": f"{stage}:kill"})
    assert killed.code == -9, killed
    again = user.mlw(*submit, cwd=project)
    assert again.code == 1, again
    [folder] = (user.store / "runs").iterdir()
    assert_attempts(folder)


def assert_attempts(folder):
    """Check that both attempts ran once, the second one from the checkpoint of the first one."""
    assert [line for line in (folder / "log").read_text().splitlines() if line.startswith("attempt")] == [
        *("attempt 1 starts at 0", "attempt 2 starts at 2")
    ]


def test_run_configuration_and_last_failure(user, project):
    configuration = project / "aml_config" / "local.runconfig"
    configuration.write_text(f"{configuration.read_text()}\nRetries: 1\nRetryDelay: 0.1\nRetryOn: [failed]\n")
    done = user.mlw("submit", "train.py", "--crash", cwd=project)
    assert done.code == 1, done
    assert "crashed at 5" in done.err.split("Execution Summary")[1].splitlines()[4]
    assert "Attempts:  2 of 2" in done.err
    assert user.mlw("submit", "--retries", "0", "train.py", "--crash", cwd=project).err.count("Attempts") == 0


def test_resume_from_another_run(user, project):
    first = user.mlw("submit", "train.py", "--crash", cwd=project)
    assert first.code == 1
    second = user.mlw("submit", "--resume", first.run, "train.py", cwd=project)
    assert (second.code, second.out) == (0, "attempt 1 starts at 2\n"), second
    assert user.info(second.run)["resumed_run_id"] == first.run
    wrong = user.mlw("submit", "--resume", "nothing", "train.py", cwd=project)
    assert wrong.code == 66 and "nothing" in wrong.err


def test_run_folder_of_an_earlier_version(user, project, tmp_path):
    """Before attempts, a folder had no checkpoints, and neither its spec nor its events mentioned them."""
    run = user.mlw("submit", "train.py", cwd=project).run
    folder = user.folder(run)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    spec = json.loads((folder / "spec.json").read_text())
    for name in ("retries", "resumed", "processes"):
        spec.pop(name, None)
    for name in ("MLW_ATTEMPT", "MLW_CHECKPOINTS"):
        del spec["environment"][name]
    (folder / "spec.json").write_text(json.dumps(spec))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    events[-1]["data"].pop("checkpoints")
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    for path in user.store.glob("*.db*"):
        path.unlink()  # mlw rebuilds it from the folders
    shown = user.mlw("show", run, cwd=project)
    assert shown.code == 0 and "Completed" in shown.out, shown
    assert not {"Attempts", "Ranks", "Checkpoints"} & set(shown.out.split()), shown
    assert user.mlw("logs", run, cwd=project).out.startswith("attempt 1 starts at 0")
    assert [record["attempts"] for record in user.runs()] == [[]]
    assert user.mlw("history", "metrics", run, "loss", cwd=project).code == 0
    assert user.mlw("history", "download", run, "-d", str(tmp_path / "results"), cwd=project).code == 0
    missing = user.mlw("history", "download", run, "--checkpoints", "-d", str(tmp_path / "saved"), cwd=project)
    assert f"run {run} has no checkpoints" in missing.err, missing
    resumed = user.mlw("submit", "--resume", run, "train.py", cwd=project)
    assert resumed.code != 0 and f"run {run} has no checkpoints" in resumed.err, resumed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--retries", "-1"), "--retries must be from 0 to 1000"),
        (("--retries", "1", "--retry-on", "faild"), "available: failed, lost, node-failure, oom"),
        (("--retries", "1", "--retry-delay", "soon"), "--retry-delay: invalid duration 'soon'"),
    ],
)
def test_mistakes(user, project, options, message):
    done = user.mlw("submit", *options, "train.py", cwd=project)
    assert done.code in (2, 66) and message in done.err, done


def test_checkpoints_of_a_machine(shared_target, tmp_path):
    """They survive attempts, are downloaded on demand with their current content, and are cleaned only then."""
    target = shared_target()
    (target.project / "train.py").write_text(TRAIN)
    user = target.laptop
    submit = ("submit", "-c", target.name, "--retries", "1", "--retry-delay", "0.1", "train.py", "--crash")
    done = user.mlw(*submit, cwd=target.project)
    assert done.code == 1 and "attempt 2 starts at 2" in done.out, done
    shown = user.mlw("show", done.run, cwd=target.project).out
    assert f"Checkpoints  1 B, on {target.name}; download: mlw history download -r {done.run} --checkpoints" in shown
    clean = user.mlw("experiment", "clean", "-t", target.name, cwd=target.project)
    assert "checkpoints not downloaded" in clean.out + clean.err, clean
    download = ("history", "download", done.run, "--checkpoints", "-d", str(tmp_path / "saved"))
    copied = user.mlw(*download, cwd=target.project)
    assert copied.code == 0 and (tmp_path / "saved" / "step").read_text() == "4", copied
    clean = user.mlw("experiment", "clean", "-t", target.name, cwd=target.project)
    assert "checkpoints not downloaded" not in clean.out + clean.err, clean
    resumed = user.mlw("submit", "-c", target.name, "--resume", done.run, "train.py", cwd=target.project)
    assert (resumed.code, resumed.out) == (0, "attempt 1 starts at 4\n"), resumed


def test_resume_on_another_machine(shared_target, tmp_path):
    """From a machine to this one, after the checkpoints were downloaded, and back."""
    target = shared_target()
    (target.project / "train.py").write_text(TRAIN)
    user = target.laptop

    def submit(name, *options):
        return user.mlw("submit", "-c", name, *options, cwd=target.project)

    crashed = submit(target.name, "train.py", "--crash")
    assert crashed.code == 1, crashed
    refused = submit("local", "--resume", crashed.run, "train.py")
    assert refused.code == 2 and f"are on target {target.name}, not on local" in refused.err, refused
    assert f"mlw history download {crashed.run} --checkpoints -d FOLDER" in refused.err, refused
    folder = str(tmp_path / "saved")
    user.mlw("history", "download", crashed.run, "--checkpoints", "-d", folder, cwd=target.project, check=True)
    written = (target.target_folder(crashed.run) / "checkpoints" / "step").stat().st_mtime_ns
    for downloaded in (user.folder(crashed.run) / "checkpoints", tmp_path / "saved"):
        assert (downloaded / "step").stat().st_mtime_ns == written
    here = submit("local", "--resume", crashed.run, "train.py", "--crash")
    assert here.code == 1 and here.out.startswith("attempt 1 starts at 2\n"), here
    checkpoints = user.folder(here.run) / "checkpoints"
    (checkpoints / "parts").mkdir()
    (checkpoints / "step").rename(checkpoints / "parts" / "1")
    (checkpoints / "step").symlink_to("parts/1")
    (checkpoints / "outputs").mkdir()
    (checkpoints / "outputs" / "best").touch(0o600)
    back = submit(target.name, "--resume", here.run, "train.py")
    assert (back.code, back.out) == (0, "attempt 1 starts at 2\n"), back
    copied = target.target_folder(back.run) / "checkpoints"
    assert (copied / "step").is_symlink()
    times = [(folder / "outputs" / "best").stat().st_mtime_ns for folder in (checkpoints, copied)]
    assert times[0] == times[1]
    assert (checkpoints / "step").read_text() == "2", "the source stays as it was"
