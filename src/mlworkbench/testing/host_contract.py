"""The behavior that every host must have. Subclass a suite and define the fixture ``host``:

    class TestMyHost(HostContract):
        @pytest.fixture
        def host(self, folder):
            return MyHost(str(folder.root))

``folder`` is the mlw folder on the host. The tests write to it directly, so the host must be this
machine or share a file system with it. Override ``folder`` if the host determines the path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..errors import HostError
from ..hosts.host import Host
from ..remote.shared.layout import Root
from ..remote.shared.untrusted_json import parse_json
from .processes import end_processes
from .target_folder import TargetFolder, write_snapshot
from .waiting import wait_until


class HostFilesContract:
    """Contract for reading run files and answering requests. The tests start no runs."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Iterator[TargetFolder]:
        folder = TargetFolder(tmp_path)
        folder.root.mkdir(mode=0o700)
        yield folder
        end_processes(tmp_path)

    def test_news_begins_at_the_offset_and_ends_at_the_limit(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "")
        (run / "log").write_bytes(b"0123456789")
        folder.hand_over()
        assert host.news("r", {"log": 4}, 3).parts["log"] == b"456"
        assert host.news("r", {"log": 10}, 3).parts["log"] == b""
        assert host.news("r", {"log": 11}, 3).parts["log"] == b""

    def test_news_finds_metric_files(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "")
        (run / "metrics").mkdir()
        (run / "metrics" / "17-a").write_bytes(b"{}\n")
        folder.hand_over()
        assert host.news("r", {}, 100).parts == {"metrics/17-a": b"{}\n"}
        assert host.news("r", {"metrics/17-a": 3}, 100).parts == {"metrics/17-a": b""}

    def test_news_of_a_run_that_does_not_exist(self, host: Host) -> None:
        news = host.news("nosuch", {"log": 0}, 100)
        assert (news.exists, news.claimed, news.supervised, news.parts) == (False, False, False, {"log": b""})
        assert host.news("nosuch", {"log": 0}, 100) == news

    def test_files_of_a_run(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "")
        (run / "outputs.json").write_text("0123456789")
        folder.hand_over()
        assert host.read_file("r", "outputs.json", 4, 3) == b"456"
        assert host.read_file("r", "build.log", 0, 3) == b""
        with pytest.raises((HostError, ValueError)):
            host.read_file("r", "gate.json", 0, 3)

    def test_outputs_come_file_after_file_from_their_offsets(self, host: Host, folder: TargetFolder) -> None:
        outputs = folder.add_run("r", "") / "work" / "outputs"
        (outputs / "deep").mkdir(parents=True)
        large = os.urandom(9 << 20)
        (outputs / "large").write_bytes(large)
        (outputs / "deep" / "small").write_bytes(b"small")
        (outputs / "link").symlink_to("/etc/passwd")
        folder.hand_over()
        files = [
            ("deep/small", 1, 4), ("gone", 0, 9), ("large", 5, 9 << 20), ("link", 0, 9), ("../../spec.json", 0, 9),
        ]  # fmt: skip
        received: dict[int, bytes] = {}
        for index, data in host.outputs("r", files):
            received[index] = received.get(index, b"") + data
        assert received == {0: b"mal", 2: large[5:]}  # no more than the declared size, even if the file has grown
        next(iter(host.outputs("r", files)))  # stop reading early; the host must still respond
        assert host.news("r", {}, 1).exists

    def test_other_requests(self, host: Host) -> None:
        assert host.ask({"do": "hello"})["ok"] is True
        assert host.ask({"do": "nonsense"})["ok"] is False

    def test_close_can_be_repeated_and_the_host_used_again(self, host: Host) -> None:
        host.warm_up()
        assert host.root.path and host.identity
        host.close()
        host.close()
        assert host.ask({"do": "hello"})["ok"] is True

    def test_the_in_run_library_is_installed(self, host: Host) -> None:
        host.ask({"do": "hello"})
        assert os.path.isfile(os.path.join(host.inrun(), "mlworkbench", "__init__.py"))


class HostContract(HostFilesContract):
    """Complete contract: reading, receiving code, and starting, watching, and canceling runs."""

    def test_start_runs_the_script_and_news_returns_its_log(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "print('hello')")
        assert host.call("start", "r", ["n"], {"secrets": {}})["claimed"] is True
        wait_until(lambda: b'"finished"' in host.news("r", {"events.jsonl": 0}, 1 << 20).parts["events.jsonl"])
        news = host.news("r", {"log": 0, "events.jsonl": 0}, 1 << 20)
        assert news.parts["log"] == b"hello\n"
        assert news.exists
        assert (run / "exit.json").exists()

    def test_start_and_adopt_of_a_run_that_does_not_exist(self, host: Host, folder: TargetFolder) -> None:
        assert host.call("start", "nosuch", ["n"], {})["ok"] is False
        # Without the ID of the root folder that accepted the run, a missing run may mean an unmounted home.
        assert host.call("adopt", "nosuch", [], {})["state"] == "away"
        folder.add_run("other", "")
        assert host.call("adopt", "nosuch", [], {})["state"] == "away"

    def test_supervised_while_a_supervisor_runs(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "import time; print('up'); time.sleep(1000)")
        assert not host.news("r", {}, 1).supervised
        host.call("start", "r", ["n"], {"secrets": {}})
        assert host.news("r", {}, 1).supervised
        host.call("cancel", "r", ["me", "0"], {})
        folder.wait_for_end(run)
        wait_until(lambda: not host.news("r", {}, 1).supervised)

    def test_secrets_reach_the_script_and_no_file(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "import os; print(len(os.environ['TOKEN']), os.environ.get('MLW_SUPERVISOR'))")
        host.call("start", "r", ["n"], {"secrets": {"TOKEN": "canary-canary"}})
        folder.wait_for_end(run)
        assert (run / "log").read_text() == "13 None\n"
        wait_until(lambda: not host.news("r", {}, 1).supervised)  # the supervisor moves files until then
        files = [path for path in folder.root.rglob("*") if path.is_file()]
        assert not [path for path in files if b"canary-canary" in path.read_bytes()]

    def test_news_waits_for_new_bytes(self, host: Host, folder: TargetFolder) -> None:
        folder.add_run("r", "import os, time; time.sleep(0.5); os.write(1, b'late\\n'); time.sleep(1000)")
        host.call("start", "r", ["n"], {"secrets": {}})
        for _ in range(100):
            news = host.news("r", {"log": 0}, 100, wait=30)
            if news.parts["log"]:
                break
        assert news.parts["log"] == b"late\n"
        host.call("cancel", "r", ["me", "0"], {})

    def test_start_with_a_spec_creates_the_run_once(self, host: Host, folder: TargetFolder) -> None:
        run = folder.add_run("r", "print('hello')")
        spec = parse_json((run / "spec.json").read_bytes())
        (run / "spec.json").unlink()
        run.rmdir()
        message = {"secrets": {}, "spec": spec}
        assert host.call("start", "r", ["n"], message)["claimed"] is True
        assert host.call("start", "r", ["n"], message)["claimed"] is True  # a retry, as after a lost response
        assert host.call("start", "r", ["other"], message)["claimed"] is False
        folder.wait_for_end(run)
        assert (run / "log").read_text() == "hello\n"

    def test_code_arrives(self, host: Host, folder: TargetFolder, tmp_path: Path) -> None:
        store = Root(str(tmp_path / "store" if host.is_remote else folder.root))
        files = {"a/b.py": b"print(1)", "again.py": b"print(1)", "large": os.urandom(5 << 20)}
        digest = write_snapshot(store, files)
        steps: list[tuple[int, int]] = []
        host.send_code(digest, store, lambda done, total: steps.append((done, total)))
        assert (folder.root / "snapshots" / f"{digest}.json").is_file()
        assert not host.is_remote or steps[-1] == ((5 << 20) + 8, (5 << 20) + 8)
