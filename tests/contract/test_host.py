"""What every host must do. One suite, run on every implementation; today there is `local`."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mlworkbench.hosts.local import LocalHost
from mlworkbench.remote.folder import Root
from tests.supervisor.conftest import Place, until


@pytest.fixture(params=["local"])
def there(request, tmp_path):
    """A host and the place behind it."""
    place = Place(tmp_path)
    place.root.mkdir(mode=0o700)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MLW_RUN_ID": "an-outer-run"}
    return LocalHost(Root(str(place.root)), environment), place


def test_call_starts_a_run_and_news_tells_of_it(there):
    host, place = there
    folder = place.run("r", "print('hello')")
    assert host.call("start", "r", ["n"], {"secrets": {}})["claimed"] is True
    until(lambda: b'"finished"' in host.news("r", {"events.jsonl": 0}, 1 << 20).parts["events.jsonl"])
    news = host.news("r", {"log": 0, "events.jsonl": 0}, 1 << 20)
    assert news.parts["log"] == b"hello\n"
    assert news.exists
    assert (folder / "exit.json").exists()


def test_news_begins_at_the_offset_and_ends_at_the_limit(there):
    host, place = there
    folder = place.run("r", "")
    (folder / "log").write_bytes(b"0123456789")
    assert host.news("r", {"log": 4}, 3).parts["log"] == b"456"
    assert host.news("r", {"log": 10}, 3).parts["log"] == b""
    assert host.news("r", {"log": 11}, 3).parts["log"] == b""


def test_news_finds_metric_files(there):
    host, place = there
    folder = place.run("r", "")
    (folder / "metrics").mkdir()
    (folder / "metrics" / "17-a").write_bytes(b"{}\n")
    assert host.news("r", {}, 100).parts == {"metrics/17-a": b"{}\n"}
    assert host.news("r", {"metrics/17-a": 3}, 100).parts == {"metrics/17-a": b""}


def test_a_run_that_is_not_there(there):
    host, _ = there
    news = host.news("nosuch", {"log": 0}, 100)
    assert (news.exists, news.claimed, news.supervised, news.parts) == (False, False, False, {"log": b""})
    assert host.call("start", "nosuch", ["n"], {})["ok"] is False
    assert host.call("adopt", "nosuch", [], {})["state"] == "lost"


def test_supervised_as_long_as_somebody_watches(there):
    host, place = there
    folder = place.run("r", "import time; print('up'); time.sleep(1000)")
    assert not host.news("r", {}, 1).supervised
    host.call("start", "r", ["n"], {"secrets": {}})
    assert host.news("r", {}, 1).supervised
    host.call("cancel", "r", ["me", "0"], {})
    place.ended(folder)
    until(lambda: not host.news("r", {}, 1).supervised)


def test_secrets_reach_the_child_and_no_file(there):
    host, place = there
    folder = place.run("r", "import os; print(len(os.environ['TOKEN']), os.environ.get('MLW_SUPERVISOR'))")
    host.call("start", "r", ["n"], {"secrets": {"TOKEN": "canary-canary"}})
    place.ended(folder)
    assert (folder / "log").read_text() == "13 None\n"
    assert not [one for one in place.root.rglob("*") if one.is_file() and b"canary-canary" in one.read_bytes()]


def test_the_in_run_library_is_there(there):
    host, _ = there
    assert os.path.isfile(os.path.join(host.inrun(), "mlworkbench", "__init__.py"))


def test_news_is_a_value(there):
    host, _ = there
    news = host.news("nosuch", {}, 1)
    assert replace(news, exists=True) != news
