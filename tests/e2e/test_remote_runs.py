"""Runs on a remote machine: live output, unchanged bytes, and results on the laptop."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.remote_target import RemoteTarget, content, digest, second_laptop, ticks
from tests.machines.network import wait_until


@pytest.fixture(params=["remote", "remotedocker"])
def remote(request, shared_target):
    return shared_target(request.param)


@pytest.fixture
def plain(shared_target):
    return shared_target()


LIVE = """
import os, time
import mlworkbench
mlworkbench.log("loss", 0.5)
print("begun", flush=True)
home = os.path.expanduser("~")
while not os.path.exists(home + "/go"):
    time.sleep(0.01)
mlworkbench.log("loss", 0.25)
os.makedirs("outputs/deep/er")
open("outputs/deep/er/model.bin", "wb").write(os.urandom(3_000_000))
print("done")
"""


def test_detached_run_is_fetched_later(remote):
    remote.write("live.py", LIVE)
    run = remote.detach("live.py", "--lr", "0.1")
    wait_until(lambda: remote.laptop.info(run).get("loss") == 0.5 or not remote.ps(), "a metric, while it runs", 60)
    [shown] = remote.ps()
    assert (shown["run_id"], shown["status"], shown["target"]) == (run, "Running", "box")
    assert remote.mlw("logs", run).out == "begun\n"
    assert remote.mlw("history", "download", run).code != 0, "it has not ended"
    remote.release()
    followed = remote.mlw("logs", "-f", run)
    assert (followed.code, followed.out) == (0, "begun\ndone\n")
    assert "deep/er/model.bin (3.0 MB)" in followed.err
    record = remote.laptop.info(run)
    assert (record["status"], record["loss"], record["outputs"]) == ("Completed", 0.25, 1)
    assert remote.assert_outputs_fetched(run) == 1
    assert digest(remote.laptop.folder(run) / "log") == digest(remote.target_folder(run) / "log")
    assert remote.ps() == []
    downloaded = remote.mlw("history", "download", "-r", run, "-d", "here")
    assert downloaded.code == 0, downloaded
    assert digest(remote.project / "here/deep/er/model.bin") == digest(
        remote.target_folder(run) / "work/outputs/deep/er/model.bin"
    )


def test_run_without_outputs(remote):
    remote.write("live.py", LIVE)
    run = remote.detach("live.py")
    wait_until(lambda: remote.mlw("logs", run).out == "begun\n", "its first line", 60)
    assert remote.mlw("cancel", run).code == 0
    done = remote.mlw("history", "download", run)
    assert (done.code, done.err) == (0, f"run {run} has no outputs\n"), done


SIZES = """
import os
for name, size in (("small", 1000), ("large", 2_000_000), ("huge", 3_000_000)):
    open("outputs/" + name, "wb").write(os.urandom(size))
"""


@pytest.mark.parametrize(("setting", "fetched"), [("none", []), ("1 MB", ["small"])])
def test_outputs_stay_remote_until_downloaded(plain, setting, fetched):
    plain.write("sizes.py", SIZES)
    runconfig = plain.project / "aml_config" / "box.runconfig"
    text = re.sub(r"(?m)^#? ?FetchOutputs:.*\n", "", runconfig.read_text())
    runconfig.write_text(f"{text}\nFetchOutputs: {setting}\n")
    done = plain.submit("sizes.py")
    assert done.code == 0, done
    local_outputs = plain.laptop.folder(done.run) / "work" / "outputs"
    assert [path.name for path in local_outputs.rglob("*")] == fetched
    left = 3 - len(fetched)
    assert f"{left} outputs (5.0 MB) remain on box; download them with 'mlw history download -r {done.run}'" in done.err
    downloaded = plain.mlw("history", "download", done.run, "-d", "one", "--artifact", "large")
    assert downloaded.code == 0, downloaded
    assert sorted(path.name for path in local_outputs.rglob("*")) == sorted([*fetched, "large"])
    assert [path.name for path in (plain.project / "one").iterdir()] == ["large"]
    rest = plain.mlw("history", "download", done.run, "-d", "all")
    assert rest.code == 0, rest
    assert plain.assert_outputs_fetched(done.run) == 3
    plain.host.cut()  # everything is local now, so the machine is not contacted
    again = plain.mlw("history", "download", done.run, "-d", "again")
    assert again.code == 0, again
    assert sorted(path.name for path in (plain.project / "again").iterdir()) == ["huge", "large", "small"]


MANY = """
import os
for number in range(2000):
    os.makedirs("outputs/d%d" % (number % 20), exist_ok=True)
    open("outputs/d%d/%d.txt" % (number % 20, number), "w").write(str(number) * (number % 50))
os.symlink("d1/1.txt", "outputs/link")
os.symlink("/etc/passwd", "outputs/outside")
os.mkfifo("outputs/pipe")
"""


def test_two_thousand_outputs_with_unusual_files(plain):
    plain.write("many.py", MANY)
    done = plain.submit("many.py")
    assert done.code == 0, done
    local_outputs = plain.laptop.folder(done.run) / "work" / "outputs"
    assert len(list(local_outputs.glob("d*/*.txt"))) == 2000
    assert (local_outputs / "link").read_text() == "1"
    assert not os.path.lexists(local_outputs / "outside") and not os.path.lexists(local_outputs / "pipe")
    names = [path.relative_to(local_outputs) for path in local_outputs.glob("d*/*.txt")]
    remote_outputs = plain.target_folder(done.run) / "work" / "outputs"
    assert [name for name in names if (local_outputs / name).read_bytes() != (remote_outputs / name).read_bytes()] == []


BINARY = """
import os, random, sys
made = random.Random(7)
for _ in range(200):
    os.write(1, bytes(made.randrange(256) for _ in range(997)) + b"\\0\\x1b[2J\\x1b]0;title\\x07\\r\\n\\xe2\\x80\\xa8")
os.write(2, b"no end of line")
"""


def test_log_with_arbitrary_bytes(remote):
    remote.write("binary.py", BINARY)
    done = remote.submit("binary.py")
    assert done.code == 0, done
    remote_log = content(remote.target_folder(done.run) / "log")
    assert len(remote_log) > 200_000 and b"\0" in remote_log
    assert content(remote.laptop.folder(done.run) / "log") == remote_log == done.stdout
    assert remote.mlw("logs", done.run).stdout == remote_log


HUGE = """
import os
line = b"".join(b"epoch %06d loss 0.123456789\\n" % number for number in range(36_000))
for _ in range(200):
    os.write(1, line[:1 << 20])
print("end")
"""


def test_huge_log(plain):
    """A client with a memory limit of 150 MB shows and stores a log of 200 MB."""
    plain.write("huge.py", HUGE)
    place = plain.laptop.home / "shown"
    with place.open("wb") as out:
        client = plain.start(*plain.submit_arguments("huge.py"), stdout=out, preexec_fn=_little_memory)
        _, err = client.communicate(timeout=200)
    assert client.returncode == 0, err
    [record] = plain.runs()
    assert record["log_bytes"] == (200 << 20) + 4
    local_log = plain.laptop.folder(record["run_id"]) / "log"
    assert digest(local_log) == digest(plain.target_folder(record["run_id"]) / "log") == digest(place)


def _little_memory():
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))


def test_fifty_parallel_runs_with_low_sshd_limits(laptop, machine):
    """One connection with at most eight channels never hits the server's limits."""
    remote = RemoteTarget(laptop, machine(sshd="MaxSessions 10\nMaxStartups 2:100:3"))
    laptop.mlw("ps", cwd=remote.project, check=True)

    def submit(number):
        return remote.submit("--detach", "--key", f"k{number}", "work.py", f"k{number}", timeout=200)

    with ThreadPoolExecutor(25) as pool:
        done = list(pool.map(submit, range(50)))
    assert [result for result in done if result.code] == []
    assert len({result.run for result in done}) == 50
    for result in done:
        remote.await_end(result.run)
    records = remote.runs()
    assert {record["status"] for record in records} <= {"Completed", "Running", "Preparing"}
    assert remote.ps() == []
    assert {record["ending"] for record in remote.runs()} == {"succeeded"}
    assert [number for number in range(50) if remote.count("start", f"k{number}") != 1] == []
    assert "no more sessions" not in remote.host.log and "Exceeded" not in remote.host.log


def test_two_laptops_and_project_attached_twice(laptop, machine, tmp_path):
    host = machine()
    with second_laptop(tmp_path / "second") as second:
        first = RemoteTarget(laptop, host)
        remotes = (first, RemoteTarget(laptop, host, name="again", project=first.project), RemoteTarget(second, host))
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda pair: pair[0].submit("work.py", pair[1]), zip(remotes, "abc", strict=True)))
        assert [result.code for result in done] == [0, 0, 0], done
        for remote, key, result in zip(remotes, "abc", done, strict=True):
            remote.assert_complete(result.run, key)
        assert {record["target"] for record in first.runs()} == {"box", "again"}
        assert [record["run_id"] for record in remotes[2].runs()] == [done[2].run]
        detached = first.mlw("computetarget", "detach", "again")
        assert detached.code == 0, detached
        assert first.submit("work.py", "d").code == 0, "the other name of the machine still works"


def test_logs_while_another_command_follows(plain):
    """Three followers at the same time show the same bytes and share one local copy, also while runs are listed."""
    run = plain.detach("work.py", "k", "--ticks")
    plain.await_ticks(run)
    followers = [plain.start("logs", "-f", run) for _ in range(3)]
    wait_until(lambda: b"tick 9\n" in content(plain.laptop.folder(run) / "log"), "the log at home")
    assert [row["run_id"] for row in plain.ps()] == [run]
    plain.release()
    shown = [follower.communicate(timeout=60)[0] for follower in followers]
    log = content(plain.target_folder(run) / "log")
    assert shown == [log] * 3
    assert ticks(log) == list(range(len(ticks(log))))
    plain.assert_complete(run, "k")


def test_list_as_json(plain):
    done = plain.submit("-o", "json", "work.py", "k")
    assert done.code == 0, done
    record = json.loads(done.out)
    assert (record["run_id"], record["target"], record["ending"]) == (done.run, "box", "succeeded")
    plain.assert_complete(done.run, "k")
