"""mlworkbench.testing for plugin authors: its fakes work, and its contract suites detect a wrong host."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mlworkbench.errors import Unreachable
from mlworkbench.hosts.host_facts import Cpu, Facts
from mlworkbench.targets.target import Target
from mlworkbench.testing import CompilerNotFound, FakeClock, FakeGpus, FakeHost, TargetFolder, fake_gpus, wait_until
from mlworkbench.testing.host_contract import HostFilesContract


@pytest.fixture
def folder(tmp_path):
    return TargetFolder(tmp_path)


@pytest.fixture
def host(folder):
    return FakeHost(folder.root, Facts(cpu=Cpu(count=4)))


def test_the_fake_host_records_calls_and_gives_the_prepared_answers(host):
    host.answers["adopt"] = [{"ok": True, "state": "elsewhere", "heartbeat": 5.0}, {"ok": True, "state": "finished"}]
    target = Target(host)
    assert [target.adopt("r", "root")[0] for _ in range(3)] == ["elsewhere", "finished", "finished"]
    assert target.cancel("r", "ada", 5.0) == "asked"
    assert [(call.verb, call.words) for call in host.calls] == [("adopt", ())] * 3 + [("cancel", ("ada", "5.0"))]
    assert host.calls[0].message == {"root": "root"}
    assert host.facts().cpu.count == 4


def test_the_fake_host_loses_contact_and_comes_back(host, folder):
    folder.add_run("r", "")
    host.error = Unreachable("no contact")
    for ask in (lambda: host.news("r", {}, 1), host.facts, host.warm_up, lambda: host.call("start", "r", ["n"], {})):
        with pytest.raises(Unreachable):
            ask()
    assert host.calls == []
    host.error = None
    assert host.news("r", {}, 1).exists


def test_a_host_that_ignores_offsets_fails_the_contract(folder):
    class OffsetIgnoringHost(FakeHost):
        def news(self, run_id, offsets, limit, wait=0.0):
            return super().news(run_id, dict.fromkeys(offsets, 0), limit)

    # The message contains both values, because pytest rewrites the assertions of the suites.
    with pytest.raises(AssertionError, match="assert b'012' == b'456'"):
        HostFilesContract().test_news_begins_at_the_offset_and_ends_at_the_limit(
            OffsetIgnoringHost(folder.root), folder
        )


def test_the_fake_clock_moves_only_when_told(monkeypatch):
    clock, module = FakeClock(100.0), SimpleNamespace(time=time)
    clock.install(monkeypatch, module)
    assert (module.time.time(), module.time.monotonic()) == (100.0, 100.0)
    module.time.sleep(5)
    clock.advance(-10)
    assert (clock(), module.time.time()) == (95.0, 95.0)
    monkeypatch.undo()
    assert module.time is time


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    fake_gpus._compiled.cache_clear()
    monkeypatch.setattr(fake_gpus.shutil, "which", lambda name: None)
    with pytest.raises(CompilerNotFound, match="'cc' is not on PATH; hint: install one"):
        FakeGpus(tmp_path)


def test_a_missing_pytest_is_named():
    code = "import sys; sys.modules['pytest'] = None; import mlworkbench.cli.main; import mlworkbench.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: mlworkbench.testing needs pytest; hint: run 'pip install mlworkbench[testing]'"
    )


def test_waiting_ends_with_the_condition_or_the_time():
    assert wait_until(lambda: "value") == "value"
    with pytest.raises(AssertionError, match=r"not met within 0\.05 s"):
        wait_until(lambda: None, timeout=0.05)
