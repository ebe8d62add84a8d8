"""The content of a conda package decides what is installed, never its name: projects cannot replace each other's."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.remote.environments import md5_packages
from mlworkbench.remote.environments.retire import remove as retire
from mlworkbench.remote.environments.tools import NoEnvironment
from mlworkbench.remote.shared.layout import Root
from tests.machines.channel import Channel

from .building import Yard

Entry = dict[str, Any]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Channel:
    channel = Channel(tmp_path_factory.mktemp("python") / "channel")
    channel.add_python()
    return channel.write()


class Site:
    """Channels that a web server provides, and the requests that it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        handler = functools.partial(_Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.requests = self.requests  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def words(self, channel: str, text: bytes, **changes: Any) -> Entry:
        """A package that is called the same in every channel."""
        made = Channel(self.folder / channel)
        file = made.add("words", "1.0", {"share/words.txt": text}, noarch="generic")
        url = f"http://127.0.0.1:{self.server.server_address[1]}/{channel}/noarch/{file}"
        index = json.loads((made.write().folder / "noarch" / "repodata.json").read_text())
        return {**index["packages.conda"][file], "url": url, **changes}

    def path(self, entry: Entry) -> Path:
        return self.folder / "/".join(entry["url"].split("/")[3:])


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]


@pytest.fixture
def site(tmp_path, monkeypatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Site(tmp_path / "site")
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def yard(yard) -> Yard:
    yard.env["NO_PROXY"] = "127.0.0.1"
    return yard


def installed(yard: Yard, python: Channel, *packages: Entry, sent: bool = True) -> Path:
    """Build an environment of Python and packages; the file of words. ``sent``: the archive of Python is there."""
    lock = yard.lock([], [*yard.channel(python), *packages])
    if not sent:
        (yard.root / "pkgs" / lock["conda"][0]["sha256"]).unlink()
    status, output = yard.build(lock)
    assert status == 0, output + yard.log.read_text()
    return yard.prefix(lock) / "share" / "words.txt"


def test_a_package_of_the_same_name_is_not_used_for_another(yard, python, site):
    """Also where a channel lists MD5 only, whichever package was installed first."""
    hostile, other = site.words("hostile", b"hostile"), site.words("other", b"other")
    honest = site.words("honest", b"honest", sha256=None)
    assert installed(yard, python, hostile).read_bytes() == b"hostile"
    first = installed(yard, python, honest)
    assert first.read_bytes() == b"honest"
    assert installed(yard, python, other).read_bytes() == b"other"
    site.requests.clear()
    made = Channel(site.folder / "more")
    made.add("more", "1.0", {"share/more.txt": b"x"}, noarch="generic")
    again = installed(yard, python, honest, *yard.channel(made.write()), sent=False)
    assert again.read_bytes() == b"honest" and site.requests == [], "nothing is downloaded twice"
    assert os.path.samefile(first, again), "environments share files"
    assert not list((yard.root / "cache" / "conda-by-sha256").glob("build-*"))


def test_a_package_that_was_sent_along_is_verified(yard, python, site):
    words = site.words("honest", b"honest")
    words = {**words, "file": words.pop("url").rsplit("/", 1)[1]}
    hostile = site.words("hostile", b"hostile")
    (yard.root / "pkgs").mkdir()
    (yard.root / "pkgs" / words["sha256"]).write_bytes(site.path(hostile).read_bytes())
    status, output = yard.build(yard.lock([], [*yard.channel(python), words]))
    assert status == 3 and "words does not match the lock file: its SHA-256 differs; hint: " in output, output


def test_an_md5_counts_for_one_address_only(tmp_path, site):
    root = Root(str(tmp_path / "root"))
    honest = site.words("honest", b"honest")
    sha256, honest["sha256"] = honest["sha256"], None
    for _ in range(2):
        assert md5_packages.with_sha256(root, [honest])[0]["sha256"] == sha256
    assert len(site.requests) == 1, "the second answer is from the note"
    hostile = {**site.words("hostile", b"hostile", sha256=None), "md5": honest["md5"], "size": None}
    with pytest.raises(
        NoEnvironment, match="does not match the lock file: its MD5 differs; hint: re-resolve with --upgrade"
    ):
        md5_packages.with_sha256(root, [hostile])
    assert os.listdir(root.packages) == [sha256], "nothing of the other package stays"


def test_the_caches_of_earlier_versions_are_removed(tmp_path):
    root = Root(str(tmp_path))
    for name in ("conda", "conda-by-sha256"):
        (tmp_path / "cache" / name / "content").mkdir(parents=True)
    assert retire(root, {"caches": True})["others"]["cache"]["count"] == 2
    assert os.listdir(root.caches) == []
