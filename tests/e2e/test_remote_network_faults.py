"""The wire to another machine under faults: lost contact never changes the fate of a run (P1, P4, P5; F19–F31)."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.elsewhere import Away, content, digest, ticks
from tests.machines.network import read, wait_until
from tests.machines.proxy import Proxy


@pytest.fixture
def away(shared_target):
    return shared_target()


class Following:
    """``mlw logs -f`` in a terminal of its own; what it shows goes to files."""

    def __init__(self, away, run):
        self.away, self.run = away, run
        self.out, self.err = away.laptop.home / f"{run}.out", away.laptop.home / f"{run}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = away.start("logs", "-f", run, stdout=out, stderr=err)
        wait_until(lambda: len(self.shown) > 0, "its first words")

    @property
    def shown(self):
        return content(self.out)

    def await_more(self):
        """It shows what the run says from now on."""
        there = self.away.there(self.run) / "log"
        mark = len(content(there))
        wait_until(lambda: len(self.shown) > mark, "more of the log", 90)

    def must_be_whole(self):
        assert self.process.wait(90) == 0, read(self.err)
        assert self.shown == content(self.away.there(self.run) / "log")
        numbers = ticks(self.shown)
        assert numbers == list(range(len(numbers)))
        self.away.must_be_whole(self.run, "k")


def test_a_cut_longer_than_the_keepalive(away):
    """Everything that a user does meanwhile says when contact was lost, and calls nothing failed."""
    other = away.laptop.mlw("submit", "-c", "local", "--detach", "work.py", "here", "--ticks", cwd=away.project).run
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    following = Following(away, run)
    away.host.cut()
    wait_until(lambda: any(one["contact"].startswith("no contact since 20") for one in away.ps()), "word of it", 60)
    with ThreadPoolExecutor(6) as pool:  # all at once: they share the attempts to connect
        asked = [("ps", "-o", "json"), ("ps",), ("logs", run), ("logs", "-f", run), ("cancel", run)]
        jobs = [pool.submit(away.mlw, *words) for words in asked]
        jobs.append(pool.submit(away.submit, "work.py", "k2"))
        listed, table, logs, cancelled, refused = [jobs[number].result() for number in (0, 1, 2, 4, 5)]
        shown = {one["run_id"]: one for one in json.loads(listed.out)}
        assert shown[run]["status"] == "Running" and shown[run]["contact"].startswith("no contact since 20")
        assert (shown[other]["status"], shown[other]["contact"]) == ("Running", "in contact")
        assert "box: no contact since" in table.err and table.out.count("Running") >= 2
        assert content(away.there(run) / "log").startswith(logs.stdout) and ticks(logs.stdout)
        assert logs.code == 0 and "no contact since" in logs.err
        assert cancelled.code == 69 and f"cannot cancel run {run}: no contact since" in cancelled.err
        assert refused.code == 69 and "does not respond" in refused.err
        wait_until(lambda: "no contact since" in read(following.err), "word of the lost contact", 60)
        away.let_go()
        away.await_end(run)
        away.host.heal()
        late = jobs[3].result()
    following.must_be_whole()
    assert (late.code, late.stdout) == (0, following.shown)
    for said in (late.err, read(following.err)):
        assert (said.count("no contact since"), said.count("reconnected")) == (1, 1), said
    (away.laptop.home / "go").touch()
    assert [one["run_id"] for one in away.ps() if one["detail"] == "interrupted"] == [refused.run]
    assert away.count("start", "k2") == 0
    resumed = away.mlw("experiment", "resume", refused.run)
    assert resumed.code == 0, resumed
    away.must_be_whole(refused.run, "k2")


def test_a_run_that_ended_while_nobody_could_be_asked(away):
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    away.host.cut()
    away.let_go()
    away.await_end(run)
    assert away.ps()[0]["contact"].startswith("no contact since")
    away.host.heal()
    wait_until(lambda: away.ps() == [], "word of the end", 60)
    assert away.mlw("logs", "-f", run).code == 0
    away.must_be_whole(run, "k")


def test_a_short_cut_is_not_even_noticed(away):
    run = away.detach("work.py", "k", "--ticks")
    following = Following(away, run)
    before = away.host.log.count("Accepted publickey")
    away.host.cut()
    mark = len(ticks(content(away.there(run) / "log"))) + 100  # two seconds
    wait_until(lambda: len(ticks(content(away.there(run) / "log"))) > mark, "two seconds of the run")
    away.host.heal()
    following.await_more()
    away.let_go()
    following.must_be_whole()
    assert "contact" not in read(following.err)
    assert away.host.log.count("Accepted publickey") == before


def test_connections_that_are_reset_again_and_again(away):
    run = away.detach("work.py", "k", "--ticks")
    following = Following(away, run)
    for number in range(12):
        before = away.host.log.count("Accepted publickey")
        away.host.reset_connections()
        if number % 4:
            following.await_more()
        else:  # the new one is reset too, before it was of use
            wait_until(lambda known=before: away.host.log.count("Accepted publickey") > known, "a connection", 60)
    following.await_more()
    away.let_go()
    following.must_be_whole()
    said = read(following.err)
    assert said.count("no contact since") == said.count("reconnected") <= 6, said
    assert away.host.log.count("Accepted publickey") < 40


def test_a_server_that_is_away_for_a_while(away):
    """The attempts get rarer; one word when contact is lost, one when it is back."""
    run = away.detach("work.py", "k", "--ticks")
    following = Following(away, run)
    away.host.stop_sshd(sessions=True)
    wait_until(lambda: "no contact since" in read(following.err), "word of the lost contact", 60)
    [shown] = away.ps()
    assert shown["status"] == "Running" and "refused the connection" in shown["contact"]
    away.host.start_sshd()
    following.await_more()
    away.let_go()
    following.must_be_whole()
    assert read(following.err).count("no contact since") == 1


def test_a_session_that_froze(away):
    """The connection is open, and nobody is at its other end."""
    run = away.detach("work.py", "k", "--ticks")
    following = Following(away, run)
    away.host.freeze()
    [shown] = away.ps()  # over a new connection, without waiting for the keepalive
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    following.await_more()
    away.let_go()
    following.must_be_whole()
    away.host.thaw()


def submitting(away, key, stage="launching", seconds=1.5):
    """A submit that is held just before the launch request; its run, and the process."""
    known = folders(away)
    client = away.start(*away.words("--key", key, "work.py", key), env={"MLW_FAILPOINT": f"{stage}:sleep={seconds}"})
    wait_until(lambda: folders(away) > known, "the run's folder")
    return client, (folders(away) - known).pop()


def folders(away):
    return {path.parent.name for path in (away.laptop.store / "runs").glob("*/spec.json")}


def answered(host):
    """Whether an agent has said all that it has to say before the launch."""
    agents = [pid for pid, line in host.processes().items() if "agent.py" in line]
    return any(int(read(host.root / f"proc/{pid}/io").partition("wchar: ")[2].split()[0]) > 150 for pid in agents)


def test_a_cut_between_launch_and_answer(away):
    """The request gets there and its answer does not come back (F26)."""
    assert away.submit("work.py", "warm").code == 0
    client, run = submitting(away, "k")
    wait_until(lambda: answered(away.host), "the agent's first answer")
    away.host.cut("out")
    wait_until(lambda: away.count("end", "k") == 1, "the run")
    away.host.reset_connections()
    away.host.heal()
    _, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    away.must_be_whole(run, "k")


def test_a_cut_anywhere_in_the_launch(laptop, machine):
    """The line breaks after so many bytes of the request; the same command again, and it has happened once."""
    host = machine()
    door = host.proxy()
    away = Away(laptop, host, door=door)
    assert away.submit("work.py", "warm").code == 0
    for number, size in enumerate((0, 60, 700, 1500, 2500, 3500, 5000)):
        key = f"k{number}"
        client, run = submitting(away, key, seconds=0.6)
        door.cut_after = door.carried + size
        client.communicate(timeout=60)
        door.cut_after = None
        done = away.submit("--key", key, "work.py", key)
        assert (done.code, done.run) == (0, run), done
        away.must_be_whole(run, key)


def test_a_cut_in_the_middle_of_an_upload(laptop, machine):
    """The message says that the connection broke, in words of ours; the rest is sent when the machine is back."""
    host = machine()
    door = host.proxy(rate=4 << 20)
    away = Away(laptop, host, door=door)
    (away.project / "large.bin").write_bytes(os.urandom(6 << 20))
    before = door.carried
    client = away.start(*away.words("work.py", "k"))
    wait_until(lambda: door.carried > before + (2 << 20), "the middle of the upload")
    host.stop_sshd(sessions=True)  # the door still opens, and nobody is behind it
    _, err = client.communicate(timeout=60)
    said = err.decode()
    assert client.returncode == 69 and "\nerror: the connection was lost: ada@" in said, said
    assert "debug1" not in said and "mlw experiment resume" in said, said
    host.start_sshd()
    door.rate = None
    run = away.runs()[0]["run_id"]
    assert away.mlw("experiment", "resume", run).code == 0
    away.must_be_whole(run, "k")


class Counting(Proxy):
    """Counts journeys there and back: words of the client that may answer words of the server.

    Words that were sent before those of the server could arrive are no answer, however a busy machine mixes the two.
    """

    turns, heard = 0, None

    async def _carry(self, reader, writer, up):
        await super()._carry(_Heard(self, reader, up), writer, up)


class _Heard:
    def __init__(self, door, reader, up):
        self._door, self._reader, self._up = door, reader, up

    async def read(self, size):
        data = await self._reader.read(size)
        now, door = time.monotonic(), self._door
        if data and not self._up and door.heard is None:
            door.heard = now
        elif data and self._up and door.heard is not None and now >= door.heard + door.latency:
            door.turns += 1
            door.heard = None
        return data


def test_few_journeys_on_a_long_and_slow_line(laptop, machine):
    """1 Mbit/s and 300 ms there and back: a warm submit of a changed project takes ten journeys at most."""
    host = machine()
    door = Counting(host.address, host.port, 0.15, 125_000)
    host._proxies.append(door)
    away = Away(laptop, host, door=door)
    assert away.submit("work.py", "warm").code == 0
    away.write("work.py", (away.project / "work.py").read_text() + "# changed\n")
    before = door.turns
    run = away.detach("work.py", "k")
    journeys = door.turns - before
    print("journeys", journeys)
    assert journeys >= 2, "it counts"
    assert journeys <= 10
    assert away.mlw("logs", "-f", run).code == 0
    away.must_be_whole(run, "k")


def test_a_very_slow_line(away):
    """64 kbit/s."""
    away.write("data.py", "X = '" + os.urandom(8000).hex() + "'\n")
    away.host.slow("64kbit")
    done = away.submit("work.py", "k")
    assert done.code == 0, done
    away.must_be_whole(done.run, "k")


def test_another_machine_is_not_waited_for_by_turns(laptop, machine):
    """Two machines that do not answer: the list comes as quickly as with one, and shows the rest."""
    hosts = [machine() for _ in range(3)]
    away = Away(laptop, hosts[0], name="box")
    others = [Away(laptop, host, name=f"box{number}", project=away.project) for number, host in enumerate(hosts[1:])]
    runs = [one.detach("work.py", "k", "--ticks") for one in (away, *others)]
    for one in others:
        one.host.cut()
    done = laptop.mlw("ps", "-o", "json", cwd=away.project, timeout=60)
    shown = {one["run_id"]: one["contact"] for one in json.loads(done.out)}
    assert shown[runs[0]] == "in contact"
    assert [shown[run].startswith("no contact since") for run in runs[1:]] == [True, True], done
    for one in (away, *others):
        one.let_go()
        one.host.heal()


def test_the_network_goes_and_comes_while_outputs_come_home(away):
    away.write("big.py", "import os\nfor n in range(30): open(f'outputs/{n}', 'wb').write(os.urandom(1_000_000))\n")
    away.host.slow("80mbit")
    over = threading.Event()

    def disturb():
        while not over.wait(0.7):
            away.host.reset_connections()

    run = away.detach("big.py")
    away.await_end(run)
    nemesis = threading.Thread(target=disturb)
    nemesis.start()
    try:
        for _ in range(20):
            away.mlw("logs", "-f", run)
            here = away.laptop.folder(run)
            there = away.there(run) / "work" / "outputs"
            for path in (here / "work" / "outputs").glob("[0-9]*"):
                assert digest(path) == digest(there / path.name)
            if (here / "home.json").exists():
                break
    finally:
        over.set()
        nemesis.join()
    away.host.slow(None)
    assert away.mlw("history", "download", run, "-d", "got").code == 0
    assert away.must_have_outputs(run) == 30
