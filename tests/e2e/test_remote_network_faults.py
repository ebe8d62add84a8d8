"""Network faults between laptop and machine: lost contact never changes the result of a run."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.remote_target import RemoteTarget, content, digest, ticks
from tests.machines.network import read, wait_until
from tests.machines.proxy import Proxy


@pytest.fixture
def remote(shared_target):
    return shared_target()


class LogFollower:
    """``mlw logs -f`` in a separate terminal, with its output in files."""

    def __init__(self, remote, run):
        self.remote, self.run = remote, run
        self.out, self.err = remote.laptop.home / f"{run}.out", remote.laptop.home / f"{run}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = remote.start("logs", "-f", run, stdout=out, stderr=err)
        wait_until(lambda: len(self.shown) > 0, "its first words")

    @property
    def shown(self):
        return content(self.out)

    def await_more(self):
        """Wait until the follower shows new output of the run."""
        remote_log = self.remote.target_folder(self.run) / "log"
        mark = len(content(remote_log))
        wait_until(lambda: len(self.shown) > mark, "more of the log", 90)

    def assert_complete(self):
        assert self.process.wait(90) == 0, read(self.err)
        assert self.shown == content(self.remote.target_folder(self.run) / "log")
        numbers = ticks(self.shown)
        assert numbers == list(range(len(numbers)))
        self.remote.assert_complete(self.run, "k")


def test_outage_longer_than_keepalive(remote):
    """Every command reports when contact was lost, and none reports the run as failed."""
    other = remote.laptop.mlw("submit", "-c", "local", "--detach", "work.py", "here", "--ticks", cwd=remote.project).run
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    following = LogFollower(remote, run)
    remote.host.cut()
    wait_until(lambda: any(row["contact"].startswith("no contact since 20") for row in remote.ps()), "word of it", 60)
    with ThreadPoolExecutor(6) as pool:  # in parallel, because they share the connection attempts
        commands = [("ps", "-o", "json"), ("ps",), ("logs", run), ("logs", "-f", run), ("cancel", run)]
        jobs = [pool.submit(remote.mlw, *arguments) for arguments in commands]
        jobs.append(pool.submit(remote.submit, "work.py", "k2"))
        listed, table, logs, cancelled, refused = [jobs[number].result() for number in (0, 1, 2, 4, 5)]
        shown = {row["run_id"]: row for row in json.loads(listed.out)}
        assert shown[run]["status"] == "Running" and shown[run]["contact"].startswith("no contact since 20")
        assert (shown[other]["status"], shown[other]["contact"]) == ("Running", "in contact")
        assert "box: no contact since" in table.err and table.out.count("Running") >= 2
        assert content(remote.target_folder(run) / "log").startswith(logs.stdout) and ticks(logs.stdout)
        assert logs.code == 0 and "no contact since" in logs.err
        assert cancelled.code == 69 and f"cannot cancel run {run}: no contact since" in cancelled.err
        assert refused.code == 69 and "does not respond" in refused.err
        wait_until(lambda: "no contact since" in read(following.err), "word of the lost contact", 60)
        remote.release()
        remote.await_end(run)
        remote.host.heal()
        late = jobs[3].result()
    following.assert_complete()
    assert (late.code, late.stdout) == (0, following.shown)
    for message in (late.err, read(following.err)):
        assert (message.count("no contact since"), message.count("reconnected")) == (1, 1), message
    (remote.laptop.home / "go").touch()
    assert [row["run_id"] for row in remote.ps() if row["detail"] == "interrupted"] == [refused.run]
    assert remote.count("start", "k2") == 0
    resumed = remote.mlw("experiment", "resume", refused.run)
    assert resumed.code == 0, resumed
    remote.assert_complete(refused.run, "k2")


def test_run_that_ended_during_outage(remote):
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    remote.host.cut()
    remote.release()
    remote.await_end(run)
    assert remote.ps()[0]["contact"].startswith("no contact since")
    remote.host.heal()
    wait_until(lambda: remote.ps() == [], "word of the end", 60)
    assert remote.mlw("logs", "-f", run).code == 0
    remote.assert_complete(run, "k")


def test_short_outage_is_not_reported(remote):
    run = remote.detach("work.py", "k", "--ticks")
    following = LogFollower(remote, run)
    before = remote.host.log.count("Accepted publickey")
    remote.host.cut()
    mark = len(ticks(content(remote.target_folder(run) / "log"))) + 100  # 100 ticks take two seconds
    wait_until(lambda: len(ticks(content(remote.target_folder(run) / "log"))) > mark, "two seconds of the run")
    remote.host.heal()
    following.await_more()
    remote.release()
    following.assert_complete()
    assert "contact" not in read(following.err)
    assert remote.host.log.count("Accepted publickey") == before


def test_repeated_connection_resets(remote):
    run = remote.detach("work.py", "k", "--ticks")
    following = LogFollower(remote, run)
    for number in range(12):
        before = remote.host.log.count("Accepted publickey")
        remote.host.reset_connections()
        if number % 4:
            following.await_more()
        else:  # the new connection is reset, too, before its first use
            wait_until(lambda count=before: remote.host.log.count("Accepted publickey") > count, "a connection", 60)
    following.await_more()
    remote.release()
    following.assert_complete()
    message = read(following.err)
    assert message.count("no contact since") == message.count("reconnected") <= 6, message
    assert remote.host.log.count("Accepted publickey") < 40


def test_temporarily_unavailable_server(remote):
    """The follower reports the lost contact once and continues when sshd is available again."""
    run = remote.detach("work.py", "k", "--ticks")
    following = LogFollower(remote, run)
    remote.host.stop_sshd(sessions=True)
    wait_until(lambda: "no contact since" in read(following.err), "word of the lost contact", 60)
    [shown] = remote.ps()
    assert shown["status"] == "Running" and "refused the connection" in shown["contact"]
    remote.host.start_sshd()
    following.await_more()
    remote.release()
    following.assert_complete()
    assert read(following.err).count("no contact since") == 1


def test_frozen_session(remote):
    """The connection is open, but the other end does not respond."""
    run = remote.detach("work.py", "k", "--ticks")
    following = LogFollower(remote, run)
    remote.host.freeze()
    [shown] = remote.ps()  # over a new connection, without waiting for the keepalive
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    following.await_more()
    remote.release()
    following.assert_complete()
    remote.host.thaw()


def submitting(remote, key, stage="launching", seconds=1.5):
    """Start a submit that pauses just before the launch request. Return its process and run ID."""
    earlier = folders(remote)
    client = remote.start(
        *remote.submit_arguments("--key", key, "work.py", key), env={"MLW_FAILPOINT": f"{stage}:sleep={seconds}"}
    )
    wait_until(lambda: folders(remote) > earlier, "the run's folder")
    return client, (folders(remote) - earlier).pop()


def folders(remote):
    return {path.parent.name for path in (remote.laptop.store / "runs").glob("*/spec.json")}


def answered(host):
    """Return whether an agent has sent everything that precedes the launch."""
    agents = [pid for pid, line in host.processes().items() if "agent.py" in line]
    return any(int(read(host.root / f"proc/{pid}/io").partition("wchar: ")[2].split()[0]) > 150 for pid in agents)


def test_outage_between_launch_and_response(remote):
    """The launch request arrives, but its response is lost."""
    assert remote.submit("work.py", "warm").code == 0
    client, run = submitting(remote, "k")
    wait_until(lambda: answered(remote.host), "the agent's first answer")
    remote.host.cut("out")
    wait_until(lambda: remote.count("end", "k") == 1, "the run")
    remote.host.reset_connections()
    remote.host.heal()
    _, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    remote.assert_complete(run, "k")


def test_outage_anywhere_in_launch_request(laptop, machine):
    """The connection breaks after some bytes of the request. Repeating the command results in exactly one run."""
    host = machine()
    proxy = host.proxy()
    remote = RemoteTarget(laptop, host, proxy=proxy)
    assert remote.submit("work.py", "warm").code == 0
    for number, size in enumerate((0, 60, 700, 1500, 2500, 3500, 5000)):
        key = f"k{number}"
        client, run = submitting(remote, key, seconds=0.6)
        proxy.cut_after = proxy.carried + size
        client.communicate(timeout=60)
        proxy.cut_after = None
        done = remote.submit("--key", key, "work.py", key)
        assert (done.code, done.run) == (0, run), done
        remote.assert_complete(run, key)


def test_outage_during_upload(laptop, machine):
    """The message reports the lost connection; `mlw experiment resume` uploads the rest later."""
    host = machine()
    proxy = host.proxy(rate=4 << 20)
    remote = RemoteTarget(laptop, host, proxy=proxy)
    (remote.project / "large.bin").write_bytes(os.urandom(6 << 20))
    before = proxy.carried
    client = remote.start(*remote.submit_arguments("work.py", "k"))
    wait_until(lambda: proxy.carried > before + (2 << 20), "the middle of the upload")
    host.stop_sshd(sessions=True)  # the port still accepts connections, but the machine does not respond
    _, err = client.communicate(timeout=60)
    message = err.decode()
    assert client.returncode == 69 and "\nerror: the connection was lost: ada@" in message, message
    assert "debug1" not in message and "mlw experiment resume" in message, message
    host.start_sshd()
    proxy.rate = None
    run = remote.runs()[0]["run_id"]
    assert remote.mlw("experiment", "resume", run).code == 0
    remote.assert_complete(run, "k")


class RoundTripCounter(Proxy):
    """Count round trips: client messages that may respond to server messages.

    A client message that is sent before the server's message can arrive does not count as a response, even if a busy
    machine handles the two in another order.
    """

    round_trips, received = 0, None

    async def _carry(self, reader, writer, up):
        await super()._carry(_CountingReader(self, reader, up), writer, up)


class _CountingReader:
    def __init__(self, proxy, reader, up):
        self._proxy, self._reader, self._up = proxy, reader, up

    async def read(self, size):
        data = await self._reader.read(size)
        now, proxy = time.monotonic(), self._proxy
        if data and not self._up and proxy.received is None:
            proxy.received = now
        elif data and self._up and proxy.received is not None and now >= proxy.received + proxy.latency:
            proxy.round_trips += 1
            proxy.received = None
        return data


def test_few_round_trips_on_slow_connection(laptop, machine):
    """1 Mbit/s and 300 ms latency: a warm submit of a changed project takes at most ten round trips."""
    host = machine()
    proxy = RoundTripCounter(host.address, host.port, 0.15, 125_000)
    host._proxies.append(proxy)
    remote = RemoteTarget(laptop, host, proxy=proxy)
    assert remote.submit("work.py", "warm").code == 0
    remote.write("work.py", (remote.project / "work.py").read_text() + "# changed\n")
    before = proxy.round_trips
    run = remote.detach("work.py", "k")
    round_trips = proxy.round_trips - before
    print("journeys", round_trips)
    assert round_trips >= 2, "it counts"
    assert round_trips <= 10
    assert remote.mlw("logs", "-f", run).code == 0
    remote.assert_complete(run, "k")


def test_very_slow_connection(remote):
    """A submit works at 64 kbit/s."""
    remote.write("data.py", "X = '" + os.urandom(8000).hex() + "'\n")
    remote.host.slow("64kbit")
    done = remote.submit("work.py", "k")
    assert done.code == 0, done
    remote.assert_complete(done.run, "k")


def test_unresponsive_machines_are_contacted_in_parallel(laptop, machine):
    """With two unresponsive machines, the list still shows all runs and the state of each contact."""
    hosts = [machine() for _ in range(3)]
    remote = RemoteTarget(laptop, hosts[0], name="box")
    others = [
        RemoteTarget(laptop, host, name=f"box{number}", project=remote.project) for number, host in enumerate(hosts[1:])
    ]
    runs = [target.detach("work.py", "k", "--ticks") for target in (remote, *others)]
    for target in others:
        target.host.cut()
    done = laptop.mlw("ps", "-o", "json", cwd=remote.project, timeout=60)
    shown = {target["run_id"]: target["contact"] for target in json.loads(done.out)}
    assert shown[runs[0]] == "in contact"
    assert [shown[run].startswith("no contact since") for run in runs[1:]] == [True, True], done
    for target in (remote, *others):
        target.release()
        target.host.heal()


def test_repeated_outages_during_output_fetch(remote):
    remote.write("big.py", "import os\nfor n in range(30): open(f'outputs/{n}', 'wb').write(os.urandom(1_000_000))\n")
    remote.host.slow("80mbit")
    over = threading.Event()

    def disturb():
        while not over.wait(0.7):
            remote.host.reset_connections()

    run = remote.detach("big.py")
    remote.await_end(run)
    nemesis = threading.Thread(target=disturb)
    nemesis.start()
    try:
        for _ in range(20):
            remote.mlw("logs", "-f", run)
            local_folder = remote.laptop.folder(run)
            remote_outputs = remote.target_folder(run) / "work" / "outputs"
            for path in (local_folder / "work" / "outputs").glob("[0-9]*"):
                assert digest(path) == digest(remote_outputs / path.name)
            if (local_folder / "home.json").exists():
                break
    finally:
        over.set()
        nemesis.join()
    remote.host.slow(None)
    assert remote.mlw("history", "download", run, "-d", "got").code == 0
    assert remote.assert_outputs_fetched(run) == 30
