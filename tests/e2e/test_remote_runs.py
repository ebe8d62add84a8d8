"""Runs on another machine as a user sees them: live, byte for byte, and home again (P1, P5, P6; F29, F63, F64, F77)."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.elsewhere import Away, content, digest, second_laptop, ticks
from tests.machines.network import wait_until


@pytest.fixture(params=["remote", "remotedocker"])
def away(request, shared_target):
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


def test_left_to_itself_and_looked_at_again(away):
    away.write("live.py", LIVE)
    run = away.detach("live.py", "--lr", "0.1")
    wait_until(lambda: away.laptop.info(run).get("loss") == 0.5 or not away.ps(), "a metric, while it runs", 60)
    [shown] = away.ps()
    assert (shown["run_id"], shown["status"], shown["target"]) == (run, "Running", "box")
    assert away.mlw("logs", run).out == "begun\n"
    assert away.mlw("history", "download", run).code != 0, "it has not ended"
    away.let_go()
    followed = away.mlw("logs", "-f", run)
    assert (followed.code, followed.out) == (0, "begun\ndone\n")
    assert "deep/er/model.bin (3.0 MB)" in followed.err
    record = away.laptop.info(run)
    assert (record["status"], record["loss"], record["outputs"]) == ("Completed", 0.25, 1)
    assert away.must_have_outputs(run) == 1
    assert digest(away.laptop.folder(run) / "log") == digest(away.there(run) / "log")
    assert away.ps() == []
    downloaded = away.mlw("history", "download", "-r", run, "-d", "here")
    assert downloaded.code == 0, downloaded
    assert digest(away.project / "here/deep/er/model.bin") == digest(away.there(run) / "work/outputs/deep/er/model.bin")


def test_a_run_that_left_nothing_has_nothing_to_bring_home(away):
    away.write("live.py", LIVE)
    run = away.detach("live.py")
    wait_until(lambda: away.mlw("logs", run).out == "begun\n", "its first line", 60)
    assert away.mlw("cancel", run).code == 0
    done = away.mlw("history", "download", run)
    assert (done.code, done.err) == (0, f"run {run} has no outputs\n"), done


SIZES = """
import os
for name, size in (("small", 1000), ("large", 2_000_000), ("huge", 3_000_000)):
    open("outputs/" + name, "wb").write(os.urandom(size))
"""


@pytest.mark.parametrize(("wish", "come"), [("none", []), ("1 MB", ["small"])])
def test_outputs_that_stay_there_until_asked_for(plain, wish, come):
    plain.write("sizes.py", SIZES)
    runconfig = plain.project / "aml_config" / "box.runconfig"
    text = re.sub(r"(?m)^#? ?FetchOutputs:.*\n", "", runconfig.read_text())
    runconfig.write_text(f"{text}\nFetchOutputs: {wish}\n")
    done = plain.submit("sizes.py")
    assert done.code == 0, done
    here = plain.laptop.folder(done.run) / "work" / "outputs"
    assert [path.name for path in here.rglob("*")] == come
    left = 3 - len(come)
    assert f"{left} outputs (5.0 MB) remain on box; download them with 'mlw history download -r {done.run}'" in done.err
    one = plain.mlw("history", "download", done.run, "-d", "one", "--artifact", "large")
    assert one.code == 0, one
    assert sorted(path.name for path in here.rglob("*")) == sorted([*come, "large"])
    assert [path.name for path in (plain.project / "one").iterdir()] == ["large"]
    rest = plain.mlw("history", "download", done.run, "-d", "all")
    assert rest.code == 0, rest
    assert plain.must_have_outputs(done.run) == 3
    plain.host.cut()  # now all is here, and nobody over there is asked
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


def test_two_thousand_outputs_and_odd_things_among_them(plain):
    plain.write("many.py", MANY)
    done = plain.submit("many.py")
    assert done.code == 0, done
    here = plain.laptop.folder(done.run) / "work" / "outputs"
    assert len(list(here.glob("d*/*.txt"))) == 2000
    assert (here / "link").read_text() == "1"
    assert not os.path.lexists(here / "outside") and not os.path.lexists(here / "pipe")
    names = [path.relative_to(here) for path in here.glob("d*/*.txt")]
    there = plain.there(done.run) / "work" / "outputs"
    assert [name for name in names if (here / name).read_bytes() != (there / name).read_bytes()] == []


BINARY = """
import os, random, sys
made = random.Random(7)
for _ in range(200):
    os.write(1, bytes(made.randrange(256) for _ in range(997)) + b"\\0\\x1b[2J\\x1b]0;title\\x07\\r\\n\\xe2\\x80\\xa8")
os.write(2, b"no end of line")
"""


def test_a_log_of_any_bytes(away):
    away.write("binary.py", BINARY)
    done = away.submit("binary.py")
    assert done.code == 0, done
    there = content(away.there(done.run) / "log")
    assert len(there) > 200_000 and b"\0" in there
    assert content(away.laptop.folder(done.run) / "log") == there == done.stdout
    assert away.mlw("logs", done.run).stdout == there


HUGE = """
import os
line = b"".join(b"epoch %06d loss 0.123456789\\n" % number for number in range(36_000))
for _ in range(200):
    os.write(1, line[:1 << 20])
print("end")
"""


def test_a_huge_log(plain):
    """200 MB; the client's memory does not grow with it."""
    plain.write("huge.py", HUGE)
    place = plain.laptop.home / "shown"
    with place.open("wb") as out:
        client = plain.start(*plain.words("huge.py"), stdout=out, preexec_fn=_little_memory)
        _, err = client.communicate(timeout=200)
    assert client.returncode == 0, err
    [record] = plain.runs()
    assert record["log_bytes"] == (200 << 20) + 4
    here = plain.laptop.folder(record["run_id"]) / "log"
    assert digest(here) == digest(plain.there(record["run_id"]) / "log") == digest(place)


def _little_memory():
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))


def test_fifty_runs_at_once_where_sshd_allows_few(laptop, machine):
    """One connection, at most eight channels: nobody sees the server's limits."""
    away = Away(laptop, machine(sshd="MaxSessions 10\nMaxStartups 2:100:3"))
    laptop.mlw("ps", cwd=away.project, check=True)

    def submit(number):
        return away.submit("--detach", "--key", f"k{number}", "work.py", f"k{number}", timeout=200)

    with ThreadPoolExecutor(25) as pool:
        done = list(pool.map(submit, range(50)))
    assert [one for one in done if one.code] == []
    assert len({one.run for one in done}) == 50
    for one in done:
        away.await_end(one.run)
    records = away.runs()
    assert {record["status"] for record in records} <= {"Completed", "Running", "Preparing"}
    assert away.ps() == []
    assert {record["ending"] for record in away.runs()} == {"succeeded"}
    assert [number for number in range(50) if away.count("start", f"k{number}") != 1] == []
    assert "no more sessions" not in away.host.log and "Exceeded" not in away.host.log


def test_two_laptops_and_a_project_attached_twice(laptop, machine, tmp_path):
    host = machine()
    with second_laptop(tmp_path / "second") as second:
        one = Away(laptop, host)
        aways = (one, Away(laptop, host, name="again", project=one.project), Away(second, host))
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda pair: pair[0].submit("work.py", pair[1]), zip(aways, "abc", strict=True)))
        assert [result.code for result in done] == [0, 0, 0], done
        for away, key, result in zip(aways, "abc", done, strict=True):
            away.must_be_whole(result.run, key)
        assert {record["target"] for record in one.runs()} == {"box", "again"}
        assert [record["run_id"] for record in aways[2].runs()] == [done[2].run]
        detached = one.mlw("computetarget", "detach", "again")
        assert detached.code == 0, detached
        assert one.submit("work.py", "d").code == 0, "the other name of the machine still works"


def test_logs_of_a_run_that_another_command_follows(plain):
    """Two followers and a list, all at once: the same bytes for all, one copy at home."""
    run = plain.detach("work.py", "k", "--ticks")
    plain.await_ticks(run)
    followers = [plain.start("logs", "-f", run) for _ in range(3)]
    wait_until(lambda: b"tick 9\n" in content(plain.laptop.folder(run) / "log"), "the log at home")
    assert [one["run_id"] for one in plain.ps()] == [run]
    plain.let_go()
    shown = [follower.communicate(timeout=60)[0] for follower in followers]
    log = content(plain.there(run) / "log")
    assert shown == [log] * 3
    assert ticks(log) == list(range(len(ticks(log))))
    plain.must_be_whole(run, "k")


def test_what_the_list_tells_a_program(plain):
    done = plain.submit("-o", "json", "work.py", "k")
    assert done.code == 0, done
    record = json.loads(done.out)
    assert (record["run_id"], record["target"], record["ending"]) == (done.run, "box", "succeeded")
    plain.must_be_whole(done.run, "k")
