"""Cached conda packages are identified by content, not by name: projects cannot replace each other's packages."""

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
from mlworkbench.remote.environments.build_tools import NoEnvironment
from mlworkbench.remote.environments.garbage_collection import handle_remove as retire
from mlworkbench.remote.shared.layout import Root
from tests.machines.channel import Channel

from .environment_builder import EnvironmentBuilder

Entry = dict[str, Any]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Channel:
    channel = Channel(tmp_path_factory.mktemp("python") / "channel")
    channel.add_python()
    return channel.write()


class PackageServer:
    """Channels on a web server, and the requests that it received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        handler = functools.partial(_Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.requests = self.requests  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def words(self, channel: str, text: bytes, **changes: Any) -> Entry:
        """Create a package that has the same name in every channel."""
        built = Channel(self.folder / channel)
        file = built.add("words", "1.0", {"share/words.txt": text}, noarch="generic")
        url = f"http://127.0.0.1:{self.server.server_address[1]}/{channel}/noarch/{file}"
        index = json.loads((built.write().folder / "noarch" / "repodata.json").read_text())
        return {**index["packages.conda"][file], "url": url, **changes}

    def path(self, entry: Entry) -> Path:
        return self.folder / "/".join(entry["url"].split("/")[3:])


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]


@pytest.fixture
def package_server(tmp_path, monkeypatch) -> Iterator[PackageServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    channels = PackageServer(tmp_path / "site")
    yield channels
    channels.server.shutdown()
    channels.server.server_close()


@pytest.fixture
def builder(builder) -> EnvironmentBuilder:
    builder.env["NO_PROXY"] = "127.0.0.1"
    return builder


def installed(builder: EnvironmentBuilder, python: Channel, *packages: Entry, sent: bool = True) -> Path:
    """Build an environment and return its file words.txt. ``sent``: whether the archive of Python was uploaded."""
    lock = builder.lock([], [*builder.channel(python), *packages])
    if not sent:
        (builder.root / "pkgs" / lock["conda"][0]["sha256"]).unlink()
    status, output = builder.build(lock)
    assert status == 0, output + builder.log.read_text()
    return builder.prefix(lock) / "share" / "words.txt"


def test_a_package_of_the_same_name_is_not_used_for_another(builder, python, package_server):
    """Packages with the same name stay separate, even if a channel lists only an MD5 digest."""
    hostile, other = package_server.words("hostile", b"hostile"), package_server.words("other", b"other")
    honest = package_server.words("honest", b"honest", sha256=None)
    assert installed(builder, python, hostile).read_bytes() == b"hostile"
    first = installed(builder, python, honest)
    assert first.read_bytes() == b"honest"
    assert installed(builder, python, other).read_bytes() == b"other"
    package_server.requests.clear()
    channel = Channel(package_server.folder / "more")
    channel.add("more", "1.0", {"share/more.txt": b"x"}, noarch="generic")
    again = installed(builder, python, honest, *builder.channel(channel.write()), sent=False)
    assert again.read_bytes() == b"honest" and package_server.requests == [], "nothing is downloaded twice"
    assert os.path.samefile(first, again), "environments share files"
    assert not list((builder.root / "cache" / "conda-by-sha256").glob("build-*"))


def test_a_package_that_was_sent_along_is_verified(builder, python, package_server):
    package = package_server.words("honest", b"honest")
    package = {**package, "file": package.pop("url").rsplit("/", 1)[1]}
    hostile = package_server.words("hostile", b"hostile")
    (builder.root / "pkgs").mkdir()
    (builder.root / "pkgs" / package["sha256"]).write_bytes(package_server.path(hostile).read_bytes())
    status, output = builder.build(builder.lock([], [*builder.channel(python), package]))
    assert status == 3 and "words does not match the lock file: its SHA-256 differs; hint: " in output, output


def test_an_md5_counts_for_one_address_only(tmp_path, package_server):
    root = Root(str(tmp_path / "root"))
    honest = package_server.words("honest", b"honest")
    sha256, honest["sha256"] = honest["sha256"], None
    for _ in range(2):
        assert md5_packages.with_sha256(root, [honest])[0]["sha256"] == sha256
    assert len(package_server.requests) == 1, "the second answer is from the note"
    hostile = {**package_server.words("hostile", b"hostile", sha256=None), "md5": honest["md5"], "size": None}
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
