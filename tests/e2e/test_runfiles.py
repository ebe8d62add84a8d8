"""Commands for the files of a run: download, promote, restore, diagnostics, clean."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import zipfile
from collections import Counter

import pytest

from tests.conftest import MLW, Done, need
from tests.machines.browser import browser_session
from tests.machines.network import wait_until

from . import kill_harness

SCRIPT = """
import os
os.makedirs("outputs/plots/deep")
open("outputs/model.pkl", "wb").write(b"m" * 1000)
open("outputs/plots/deep/a.png", "wb").write(b"p" * 10)
os.symlink("/etc/passwd", "outputs/evil")
os.symlink("model.pkl", "outputs/latest")
print("token is", os.environ.get("API_TOKEN"), "and", os.environ.get("MY_SECRET"))
"""


@pytest.fixture
def done(user):
    project = user.project("demo", train=SCRIPT)
    (project / "sub").mkdir()
    (project / "sub" / "tool.sh").write_text("#!/bin/sh\n")
    (project / "sub" / "tool.sh").chmod(0o755)
    (project / "link").symlink_to("sub/tool.sh")
    (project / "empty").mkdir()
    return user, project, user.mlw("submit", "train.py", cwd=project).run


# -- download ------------------------------------------------------------------------------------------


def test_download_outputs(done):
    user, project, run = done
    result = user.mlw("history", "download", "-r", run, "-d", "got", cwd=project)
    assert result.code == 0, result
    assert "copied to got: 2 files, 1 link" in result.err
    assert "not copied: evil (link that leads out of the working copy: /etc/passwd)" in result.err
    assert (project / "got" / "model.pkl").read_bytes() == b"m" * 1000
    assert os.readlink(project / "got" / "latest") == "model.pkl"
    assert not os.path.lexists(project / "got" / "evil")


def test_repeated_download_conflicts_and_overwrite(done):
    user, project, run = done
    user.mlw("history", "download", run, "-d", "got", cwd=project)
    again = user.mlw("history", "download", run, "-d", "got", cwd=project)
    assert again.code == 0 and "0 files, 1 link, 2 unchanged" in again.err
    (project / "got" / "model.pkl").write_text("my own")
    result = user.mlw("history", "download", run, "-d", "got", cwd=project)
    assert result.code == 1
    assert (
        "warning: got/model.pkl exists with different content; not replaced" in result.err
        and "with --overwrite" in result.err
    )
    assert (project / "got" / "model.pkl").read_text() == "my own"
    assert user.mlw("history", "download", run, "-d", "got", "--overwrite", cwd=project).code == 0
    assert (project / "got" / "model.pkl").read_bytes() == b"m" * 1000


def test_download_of_one_artifact_to_default_folder(done):
    user, project, run = done
    result = user.mlw("history", "download", run, "--artifact", "outputs/plots", cwd=project)
    assert result.code == 0, result
    got = project / "outputs" / run
    assert [path.name for path in got.rglob("*") if path.is_file()] == ["a.png"]
    spec = json.loads(user.mlw("submit", "--dry-run", "train.py", cwd=project).out)
    assert spec["snapshot"] == json.loads((user.folder(run) / "spec.json").read_text())["snapshot"]
    wrong = user.mlw("history", "download", run, "--artifact", "modle.pkl", cwd=project)
    assert wrong.code == 66 and "did you mean 'model.pkl'?" in wrong.err


def test_download_reports_damaged_outputs(done):
    user, project, run = done
    (user.folder(run) / "work" / "outputs" / "model.pkl").write_bytes(b"x")
    result = user.mlw("history", "download", run, "-d", "got", cwd=project)
    assert (
        result.code == 1
        and "warning: model.pkl: content differs from what was recorded when the run ended" in result.err
    )
    assert not (project / "got" / "model.pkl").exists()


# -- kill -9 -------------------------------------------------------------------------------------------

LARGE = """
import os
os.makedirs("outputs/deep")
open("outputs/deep/large", "wb").write(bytes(range(256)) * 4096 * 5 + b"the end")
open("outputs/first", "wb").write(b"1" * 1000)
open("outputs/zero", "wb").close()
os.symlink("deep/large", "outputs/latest")
"""
EXPECTED = {
    "deep": "folder",
    "deep/large": (bytes(range(256)) * 4096 * 5 + b"the end", False),
    "first": (b"1" * 1000, False),
    "zero": (b"", False),
    "latest": "deep/large",
}
# Kind of command → text that marks in a trace where the command starts to change its destination.
FIRST_NAMES = {"new": ".mlw-", "old": ".mlw-", "promote": "/.part-"}


@pytest.fixture
def large(user):
    need("strace")
    project = user.project("demo", train=LARGE)
    return user, project, user.mlw("submit", "train.py", cwd=project).run


def traced(user, project, options, *arguments):
    command = ["strace", "-q", *options, str(MLW), *arguments]
    done = subprocess.run(command, cwd=project, env=user.env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr)


def modifying_calls(trace, begins):
    """Yield the modifying system calls of an undisturbed command, from the first one that contains ``begins``."""
    counts = Counter()
    begun = False
    for line in trace.read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if name:
            counts[name.group(1)] += 1
            begun = begun or begins in line
            if begun and name.group(1) in kill_harness.MODIFYING_CALLS:
                yield kill_harness.CallPoint(name.group(1), counts[name.group(1)])


def looks_finished(kind, place):
    """Return whether the destination looks complete to a user who is unaware of the kill."""
    if kind == "old":
        assert all(EXPECTED[name] == what for name, what in file_state(place).items() if ".mlw-" not in name)
        return not (place / ".mlw-unfinished").exists() and any(place.iterdir())
    return place.exists()


@pytest.mark.parametrize("kind", ["new", "old", "promote"])
def test_kill_before_any_modifying_call(large, tmp_path, kind):
    """The destination never looks complete too early. The repeated command finishes it and leaves no extra files."""
    user, project, run = large

    def attempt(number):
        """Return a new destination and the command that fills it."""
        place = tmp_path / f"at-{number}" / "got"
        place.parent.mkdir()
        if kind == "promote":
            arguments = ["history", "promote", "-r", run, "-ap", "outputs", "-n", f"a{number}"]
            assets = next((user.store / "assets").glob("*"), None)
            return (assets / f"a{number}" / "1" / "files" if assets else place), arguments
        if kind == "old":
            place.mkdir()
        return place, ["history", "download", run, "-d", str(place)]

    trace = tmp_path / "trace"
    assert traced(user, project, ["-o", str(trace)], *attempt("calm")[1]).code == 0
    struck = 0
    for number, point in enumerate(modifying_calls(trace, FIRST_NAMES[kind])):
        place, arguments = attempt(number)
        log = tmp_path / f"{number}.strace"
        traced(user, project, point.inject(log), *arguments)
        struck += kill_harness.was_killed(log)
        if looks_finished(kind, place):
            assert file_state(place) == EXPECTED, point
        again = user.mlw(*arguments, cwd=project)
        assert again.code == 0, (point, again)
        assert file_state(place) == EXPECTED, point
        left = list((place.parents[1] if kind == "promote" else place.parent).rglob("*.part*"))
        assert left == [] and not list(place.glob(".mlw-*")), point
    assert struck > 15, "else this test tests nothing"


def test_killed_download_resumes(large, tmp_path):
    user, project, run = large
    arguments = ["history", "download", run, "-d", "got"]
    trace = tmp_path / "trace"

    def writes():
        return [line for line in trace.read_text(errors="replace").splitlines() if line.startswith("pwrite64(")]

    traced(user, project, ["-e", "trace=pwrite64", "-o", str(trace)], *arguments[:-1], "calm")
    megabytes = [number for number, line in enumerate(writes(), 1) if ", 1048576, " in line]
    assert len(megabytes) == 5
    traced(user, project, kill_harness.CallPoint("pwrite64", megabytes[4]).inject(tmp_path / "log"), *arguments)
    assert kill_harness.was_killed(tmp_path / "log") and not (project / "got").exists()
    again = traced(user, project, ["-e", "trace=pwrite64", "-o", str(trace)], *arguments)
    assert again.code == 0 and file_state(project / "got") == EXPECTED
    assert sum(", 1048576, " in line for line in writes()) == 1, "four of five were there already"


# -- assets --------------------------------------------------------------------------------------------


def test_promote_and_fetch(done):
    user, project, run = done
    result = user.mlw("history", "promote", "-r", run, "-ap", "plots", "-n", "pictures", cwd=project)
    assert result.code == 0, result
    link = project / "assets" / "pictures.link"
    assert json.loads(link.read_text()) == {"assetSource": "mlw", "name": "pictures", "version": "1"}
    assert link.read_text().count("\n") == 1
    user.mlw("history", "promote", "-r", run, "--artifact-path", "outputs/model.pkl", "-n", "pictures", cwd=project)
    assert json.loads(link.read_text())["version"] == "2"
    rows = json.loads(user.mlw("asset", "list", "-o", "json", cwd=project).out)
    assert [(row["name"], row["version"], row["run_id"], row["files"]) for row in rows] == [
        ("pictures", "2", run, 1),
        ("pictures", "1", run, 1),
    ]
    assert "pictures" in user.mlw("asset", "list", cwd=project).out
    # The asset remains after its run is deleted.
    assert user.mlw("history", "remove", "--yes", run).code == 0
    assert user.mlw("asset", "download", "-l", "assets/pictures.link", "-d", "got", cwd=project).code == 0
    assert (project / "got" / "model.pkl").read_bytes() == b"m" * 1000
    link.write_text(link.read_text().replace('"2"', '"1"'))
    assert user.mlw("asset", "download", "-l", str(link), cwd=user.home).code == 0
    assert (user.home / "pictures" / "plots" / "deep" / "a.png").read_bytes() == b"p" * 10


def test_linked_asset_of_another_project_is_not_fetched(done):
    """A cloned project must not receive the files and upload them with its next run."""
    user, project, run = done
    user.mlw("history", "promote", "-r", run, "-ap", "model.pkl", "-n", "model", cwd=project, check=True)
    link = project / "assets" / "model.link"
    clone = user.project("clone", train="")
    (clone / "assets").mkdir()
    shutil.copy(link, clone / "assets")
    fetch = ("asset", "download", "-l", "assets/model.link", "-d", "got")
    refused = user.mlw(*fetch, cwd=clone)
    assert refused.code == 2 and "version 1 of asset model belongs to another project" in refused.err, refused
    shutil.copy(project / "aml_config" / "project.json", clone / "aml_config")
    same = user.mlw(*fetch, cwd=clone)
    assert same.code == 78 and f"has the same ID as the project in {project}" in same.err, same
    assert not (clone / "got").exists()
    assert user.mlw("asset", "download", "-l", str(link), "-d", "got", cwd=clone).code == 0, (
        "the user named the project"
    )


def test_promote_refuses(done):
    user, project, run = done
    for arguments, text in [
        (["-ap", "nothing", "-n", "a"], "unknown output 'nothing'"),
        (["-ap", "../x", "-n", "a"], "the name leads outside the folder"),
        (["-ap", "model.pkl", "-n", "../a"], "is not a valid asset name"),
    ]:
        result = user.mlw("history", "promote", "-r", run, *arguments, cwd=project)
        assert result.code in (2, 66) and text in result.err, result
    (project / "assets").mkdir()
    foreign = '{"assetSource": "azureml", "name": "a", "version": "7"}'
    (project / "assets" / "a.link").write_text(foreign)
    result = user.mlw("history", "promote", "-r", run, "-ap", "model.pkl", "-n", "a", cwd=project)
    assert result.code == 2 and "was not created by mlw" in result.err
    assert (project / "assets" / "a.link").read_text() == foreign
    (user.folder(run) / "work" / "outputs" / "model.pkl").write_bytes(b"x")
    result = user.mlw("history", "promote", "-r", run, "-ap", "model.pkl", "-n", "b", cwd=project)
    assert result.code == 74 and "nothing was promoted" in result.err
    assert user.mlw("asset", "list", "-o", "json", cwd=project).out.strip() == "[]"
    assert not list((user.store / "assets").rglob("*.pkl"))


def test_broken_links_are_refused(done):
    user, project, run = done
    old = project / "old.link"
    old.write_text('{"assetSource": "azureml", "name": "a", "version": "7"}')
    result = user.mlw("asset", "download", "-l", "old.link", cwd=project)
    assert result.code == 78 and "which was retired in 2019" in result.err
    old.write_text('{"assetSource": "mlw", "name": "a", "version": "7"}')
    assert user.mlw("asset", "download", "-l", "old.link", cwd=project).code == 66
    old.write_text('{"assetSource": "mlw", "name": "../../x", "version": "7"}')
    assert user.mlw("asset", "download", "-l", "old.link", cwd=project).code == 78
    old.write_text("no json")
    assert user.mlw("asset", "download", "-l", "old.link", cwd=project).code == 78
    assert user.mlw("asset", "download", "-l", "none.link", cwd=project).code == 2


# -- restore -------------------------------------------------------------------------------------------


def file_state(folder):
    """Return every file, link, and folder below a folder, with content and mode."""
    entries = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if ".schemas" in name:
            continue  # written by mlw and not part of snapshots
        if path.is_symlink():
            entries[name] = os.readlink(path)
        elif path.is_dir():
            entries[name] = "folder"
        else:
            entries[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return entries


def test_restore_into_new_folder(done):
    user, project, run = done
    before = file_state(project)
    (project / "train.py").write_text("print('changed')")
    result = user.mlw("project", "restore", "--run-id", run, cwd=project)
    assert result.code == 0, result
    assert run.startswith("demo-")
    assert file_state(user.home / run) == before, "the name of the project is there once"
    assert (project / "train.py").read_text() == "print('changed')"
    again = user.mlw("project", "restore", "--run-id", run, cwd=project)
    assert again.code == 2 and "already exists" in again.err
    assert user.mlw("project", "restore", "--run-id", run, "--path", str(user.home / "x" / "y")).code == 0
    assert file_state(user.home / "x" / "y") == before
    assert sorted(os.listdir(user.home)) == ["demo", run, "x"], "no leftovers"


def test_restore_in_place_if_nothing_is_lost(done):
    user, project, run = done
    before = file_state(project)
    (project / "train.py").write_text("print('second')")
    (project / "new").mkdir()
    (project / "new" / "more.py").write_text("more")
    (project / "sub" / "tool.sh").unlink()
    (project / "link").unlink()
    (project / "link").symlink_to("train.py")
    user.mlw("submit", "train.py", cwd=project)
    (project / "outputs").mkdir()
    (project / "outputs" / "kept").write_text("does not travel")
    result = user.mlw("project", "restore", "--run-id", run, "--in-place", cwd=project)
    assert result.code == 0, result
    assert "1 file replaced, 1 created, 1 removed" in result.err
    after = file_state(project)
    assert after.pop("outputs") == "folder" and after.pop("outputs/kept") == (b"does not travel", False)
    assert after == before


def test_restore_in_place_refuses_to_lose_work(done):
    user, project, run = done
    (project / "train.py").write_text("work of a week")
    (project / "notes.txt").write_text("and this")
    before = file_state(project)
    result = user.mlw("project", "restore", "--run-id", run, "--in-place", cwd=project)
    assert result.code == 2
    assert "2 files would be lost, because no run has their current content: notes.txt, train.py" in result.err
    assert file_state(project) == before


def test_restore_does_not_write_through_links(done, tmp_path):
    user, project, run = done
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "sub" / "tool.sh").unlink()
    (project / "sub").rmdir()
    (project / "sub").symlink_to(outside)
    result = user.mlw("project", "restore", "--run-id", run, "--in-place", cwd=project)
    assert result.code == 2 and "sub" in result.err
    assert list(outside.iterdir()) == []


def test_failed_restore_from_damaged_store_leaves_nothing(done):
    user, project, run = done
    for blob in (user.store / "blobs").rglob("*"):
        if blob.is_file() and blob.read_bytes() == SCRIPT.encode():
            blob.write_bytes(SCRIPT.replace("png", "gif").encode())
    result = user.mlw("project", "restore", "--run-id", run, cwd=project)
    assert result.code == 74 and "damaged" in result.err
    assert sorted(os.listdir(user.home)) == ["demo"]


# -- diagnostics ---------------------------------------------------------------------------------------


def test_diagnostics(done):
    user, project, _ = done
    secret = {"MY_SECRET": "hunter2-hunter2"}
    arguments = ["--secret", "MY_SECRET", "--env", "API_TOKEN=abc-tok-123", "--env", "SHORT_KEY=xy", "train.py"]
    run = user.mlw("submit", *arguments, "--password", "opensesame", cwd=project, env=secret).run
    packages = user.folder(run) / "metrics" / "packages"
    wait_until(packages.exists, "the list of packages")  # it may be complete after the run
    result = user.mlw("experiment", "diagnostics", "-r", run, cwd=project, env=secret)
    assert result.code == 0, result
    bundle = project / f"diagnostics-{run}.zip"
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    with zipfile.ZipFile(bundle) as opened:
        names = opened.namelist()
        content = {name: opened.read(name) for name in names}
    assert names == sorted(names)
    assert all(name in result.err for name in names), "listed before it is written"
    assert {"facts.json", "spec.json", "log", "events.jsonl", "outputs.json", "project/train.py"} <= set(names)
    assert content["project/train.py"] == SCRIPT.encode()
    assert content["log"] == b"token is *** and ***\n"
    spec = json.loads(content["spec.json"])
    assert spec["environment"]["API_TOKEN"] == spec["environment"]["SHORT_KEY"] == "***"
    assert spec["entry"]["arguments"] == ["--password", "***"]
    for value in (b"hunter2", b"abc-tok-123", b"opensesame"):
        assert [name for name in names if value in content[name]] == []
    assert json.loads(content["project-links.json"])["links"] == {"link": "sub/tool.sh"}
    again = user.mlw("experiment", "diagnostics", "-r", run, cwd=project, env=secret)
    assert again.code == 2 and again.err.startswith(f"error: {bundle.name} already exists\nhint: "), again
    dry = json.loads(user.mlw("submit", "--dry-run", "train.py", cwd=project).out)
    assert dry["snapshot"] == spec["snapshot"], "the bundle does not travel with the next run"
    former = user.mlw("experiment", "diagnostics", run, "-o", "b.zip", cwd=project, env=secret)
    assert (project / "b.zip").read_bytes() == bundle.read_bytes(), "the same each time"
    assert "use '--to b.zip'" in former.err, former
    new = user.mlw("experiment", "diagnostics", run, "-o", "json", "--to", "c.zip", cwd=project, env=secret)
    assert (project / "c.zip").read_bytes() == bundle.read_bytes() and "hint:" not in new.err, new
    summary = json.loads(new.out)
    assert summary["path"] == "c.zip" and [file["name"] for file in summary["files"]] == names
    assert not list(project.glob(".*.part"))


def test_diagnostics_warning_in_browser(done, tmp_path):
    """mlw can mask only secrets that it has, so it warns the user before the bundle is shared."""
    from playwright.sync_api import expect

    user, project, _ = done
    run = user.mlw("submit", "--secret", "MY_SECRET", "train.py", cwd=project, env={"MY_SECRET": "hunter2-hunter2"}).run
    result = user.mlw("experiment", "diagnostics", "-r", run, cwd=project)
    warnings = [line.removeprefix("warning: ") for line in result.err.splitlines() if line.startswith("warning: ")]
    assert [text for text in warnings if "secret MY_SECRET is unknown here" in text], result
    assert [text for text in warnings if "review the bundle before you share it" in text], result
    with browser_session(user, project, tmp_path) as ui:
        page = ui.go(f"/runs/{run}")
        page.get_by_role("button", name="More").click()
        page.get_by_text("Diagnostics…").click()
        for warning in warnings:
            expect(page.get_by_role("dialog").get_by_text(warning)).to_be_visible()


def test_diagnostics_prompts_on_terminal(done):
    import pexpect

    user, project, run = done
    child = pexpect.spawn(
        str(MLW), ["experiment", "diagnostics", "-r", run], cwd=str(project), env=user.env, timeout=20
    )
    child.expect("spec.json")
    child.expect("Write these files to")
    child.sendline("n")
    child.expect(pexpect.EOF)
    assert not list(project.glob("*.zip"))


# -- clean, old command names ------------------------------------------------------------------------


def test_clean_lists_before_deletion(done):
    user, project, run = done
    (user.store / "history.db.damaged-20260101-000000-1").write_bytes(b"x" * 50_000)
    rows = {row["kind"]: row for row in json.loads(user.mlw("experiment", "clean", "-o", "json").out)}
    assert rows["damaged indexes"]["bytes"] >= 50_000 and rows["warm working copies"]["things"] == 1
    assert (user.store / "history.db.damaged-20260101-000000-1").exists(), "showing removes nothing"
    result = user.mlw("experiment", "clean", "--yes")
    assert result.code == 0 and "deleted " in result.err, result
    assert not (user.store / "history.db.damaged-20260101-000000-1").exists()
    assert [entry["run_id"] for entry in user.runs()] == [run]
    assert user.mlw("history", "download", run, cwd=project).code == 0
    assert user.mlw("submit", "train.py", cwd=project).code == 0
    assert user.mlw("experiment", "clean", env={"MLW_HOME": "/"}).code == 74


def test_old_command_names_work(done):
    user, project, run = done
    result = user.mlw("execute", "start", "--runconfig", "local", "train.py", "--runconfig", "x", cwd=project)
    assert result.code == 0, result
    assert "hint: 'execute start --runconfig' is now 'experiment submit --run-configuration'" in result.err
    assert json.loads((user.folder(result.run) / "spec.json").read_text())["entry"]["arguments"] == ["--runconfig", "x"]
