"""``mlw history fetch``: import runs that another laptop of the same account submitted."""

from __future__ import annotations

import json
import re
import shutil

from tests.e2e.remote_target import RemoteTarget, content, digest, final_output, second_laptop


def fetch(remote, *arguments):
    done = remote.mlw("history", "fetch", "-t", remote.name, "-o", "json", *arguments)
    assert done.code == 0, done
    return {row["run_id"]: row for row in json.loads(done.out)}


def test_history_is_recovered_after_laptop_loss(shared_target, tmp_path):
    first = shared_target()
    over = first.submit("--name", "baseline", "work.py", "one", check=True).run
    with second_laptop(tmp_path / "second") as other:
        project = other.home / "far"
        shutil.copytree(first.project, project)  # like a clone: the same project
        for name in ("box.compute", "box.runconfig"):
            (project / "aml_config" / name).unlink()
        second = RemoteTarget(other, first.host, name="my_dsvm", project=project)
        assert fetch(first) == {}, "its own runs are not of another laptop"
        going = first.detach("work.py", "two", "--ticks")
        first.await_ticks(going)
        shutil.rmtree(first.laptop.store)  # the first laptop is lost

        taken = fetch(second)
        assert set(taken) == {over, going} and all(row["new"] for row in taken.values()), taken
        assert taken[over]["status"] == "Completed" and taken[going]["status"] == "Running"
        record = other.info(over)
        assert (record["name"], record["target"]) == ("baseline", "my_dsvm")
        assert record["submitted_from"] == taken[over]["laptop"] != ""
        assert digest(other.folder(over) / "log") == digest(first.target_folder(over) / "log")
        assert {row["run_id"] for row in second.runs()} == {over, going}
        assert second.mlw("logs", over, check=True).out.encode() == final_output("one")
        assert not (other.folder(over) / "work/outputs/result.txt").exists()
        assert not any(row["new"] for row in fetch(second, "--outputs").values())
        assert content(other.folder(over) / "work/outputs/result.txt") == b"one" * 1000

        journal = content(first.target_folder(going) / "events.jsonl")
        refused = second.mlw("experiment", "resume", going)
        assert refused.code == 2 and "submitted from" in refused.err, refused
        assert content(first.target_folder(going) / "events.jsonl") == journal, "nothing was written there"
        canceled = second.mlw("cancel", going, "--grace", "0")
        assert canceled.code == 0 and other.info(going)["status"] == "Canceled", canceled
        assert (first.count("start", "one"), first.count("start", "two")) == (1, 1)

        shown = second.mlw("computetarget", "detach", "my_dsvm", "--purge", "--yes")
        assert shown.code == 75 and over not in shown.err and going in shown.err, "they stay the other laptop's"
        table = second.mlw("history", "fetch", "-t", "my_dsvm", check=True).out
        assert re.search(r"\d\d:\d\d:\d\d(?![.\d])", table), table
        cleaned = second.mlw("experiment", "clean", "-t", "my_dsvm", "--yes", check=True)
        assert first.target_folder(going).exists() and first.target_folder(over).exists(), cleaned
        assert over in cleaned.err and "--purge" not in cleaned.err and "history fetch -t my_dsvm" in cleaned.err
