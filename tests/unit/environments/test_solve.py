"""Locks: real resolvers, a channel of our own, small packages of the real index."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlworkbench.environments import pip
from mlworkbench.environments import solve as solving
from mlworkbench.environments.channels import channels_of, index_place, indexes_of, known_words, mask, without_secret
from mlworkbench.environments.dependencies import Dependencies, Line, Option, Requirement
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.lockfiles import read_lockfile
from mlworkbench.environments.named_secrets import NamedSecrets
from mlworkbench.environments.pip import run_uv
from mlworkbench.environments.platforms import Platform, platform_of
from mlworkbench.environments.pythons import satisfies, uv_python
from mlworkbench.environments.reading import conda_entry, pip_entry
from mlworkbench.environments.solve import Request, solve
from mlworkbench.environments.supply import packages, stock
from mlworkbench.errors import ConfigError, MlwError, NotFetched, SolveError
from mlworkbench.hosts.facts import Facts
from mlworkbench.preflight.tables import NEWEST_PYTHON, UV_PYTHON_FROM
from mlworkbench.remote.environments.supplies import lacking
from mlworkbench.remote.shared.cuda_drivers import cuda_of
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root
from tests.machines.channel import PYTHON, VERSION, Channel, usual

HERE = (str(PYTHON), VERSION)
LINUX = Platform("linux-64", "2.36")


@pytest.fixture(scope="session")
def channel(tmp_path_factory) -> Channel:
    return usual(tmp_path_factory.mktemp("channel") / "channel")


@pytest.fixture
def environ(tmp_path_factory):
    """No settings of whoever runs the tests but the way to the index."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


class Desk:
    """Somebody who solves things in a project."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.cache = folder / "cache"
        self.environ = environ

    def dependencies(self, conda=(), pip=(), channels=(), **more) -> Dependencies:
        file = "aml_config/conda_dependencies.yml"
        entries = [conda_entry(text, file, 3) for text in conda]
        python = next((one for one in entries if one.name == "python"), None)
        return Dependencies(
            file=file,
            python=python.version.lstrip("=") if python else None,
            conda=tuple(entries),
            channels=tuple(channels),
            pip=tuple(pip_entry(Line(text, file, 9), self.root, self.root) for text in pip),
            **more,
        )

    def solve(self, dependencies: Dependencies, platform: Platform = LINUX, **more):
        refresh = more.pop("refresh", False)
        more.setdefault("folders", tuple(self.root.parents[1:3]))  # where channels and wheels of the tests are
        request = Request(dependencies, platform, self.root, installer=VERSION, **more)
        return solve(request, self.cache, self.environ, refresh=refresh)


@pytest.fixture
def desk(tmp_path, environ) -> Desk:
    return Desk(tmp_path, environ)


@contextmanager
def serving(folder: Path, key: str | None = None) -> Iterator[int]:
    """The port of a server on loopback that hands out a folder, to who knows the key."""
    word = "Basic " + base64.b64encode(key.encode()).decode() if key else None

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *words):
            super().__init__(*words, directory=str(folder))

        def log_message(self, *_):
            pass

        def do_GET(self):
            return super().do_GET() if self.knows() else None

        def do_HEAD(self):
            return super().do_HEAD() if self.knows() else None

        def knows(self):
            if word in (None, self.headers.get("Authorization")):
                return True
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def names(packages):
    return {one["name"]: one["version"] for one in packages}


# -- conda ---------------------------------------------------------------------------------------------


def test_conda_packages_of_a_folder(desk, channel):
    solved = desk.solve(desk.dependencies(["hello-py", f"python={VERSION}"], channels=[channel.url]))
    assert names(solved.lock["conda"]) == {"python": VERSION, "hello-py": "1.2", "words": "2.0"}
    assert solved.lock["python"] == {"source": "conda", "version": VERSION}
    assert solved.lock["conda"][0]["name"] == "python"
    # the channel is a folder here, so its packages travel, and the lock does not say from where
    assert str(channel.folder) not in json.dumps(solved.lock)
    for one in solved.lock["conda"]:
        assert hashlib.sha256(solved.files[one["sha256"]].read_bytes()).hexdigest() == one["sha256"]


def test_conda_packages_over_http(desk, channel):
    with serving(channel.folder) as port:
        plain = f"http://127.0.0.1:{port}"
        solved = desk.solve(desk.dependencies(["words=1.0"], channels=[plain]))
        with pytest.raises(SolveError) as caught:  # the token is part of the path, and this server knows none
            desk.solve(desk.dependencies(["words=1.0"], channels=[f"http://somebody:hush@127.0.0.1:{port}/t/to-ken"]))
    words = next(one for one in solved.lock["conda"] if one["name"] == "words")
    assert words["url"] == f"{plain}/noarch/words-1.0-0.tar.bz2"
    assert "python" not in names(solved.lock["pip"]) and solved.files == {}
    assert "hush" not in caught.value.message and "to-ken" not in caught.value.message


@pytest.mark.parametrize(
    ("platform", "build"),
    [
        (Platform("linux-64", "2.36", "12.4"), "cuda_0"),
        (LINUX, "cpu_0"),
        (Platform("linux-64", "2.36", "11.8"), "cpu_0"),
    ],
)
def test_builds_are_those_that_the_targets_driver_runs(desk, channel, platform, build):
    solved = desk.solve(desk.dependencies(["fast"], channels=[channel.url]), platform)
    assert next(one["build"] for one in solved.lock["conda"] if one["name"] == "fast") == build


def test_what_needs_a_newer_c_library_is_refused_with_the_reason(desk, channel):
    with pytest.raises(SolveError) as caught:
        desk.solve(desk.dependencies(["modern"], channels=[channel.url]))
    assert "__glibc" in caught.value.message and "2.40" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 13


def test_what_cannot_be_together_is_explained(desk, channel):
    with pytest.raises(SolveError) as caught:
        desk.solve(desk.dependencies(["first", "second"], channels=[channel.url]))
    assert "first" in caught.value.message and "words" in caught.value.message
    assert "conda_dependencies.yml" in caught.value.message


def test_no_channels_means_conda_forge():
    assert channels_of(Dependencies()) == ("conda-forge",)
    asked = Dependencies(channels=("mine", "nodefaults"), conda=(Requirement("x::y", "f", 1, "y", "x"),))
    assert channels_of(asked) == ("mine", "x")
    assert channels_of(Dependencies(channels=("defaults", "anaconda"))) == ("main", "anaconda")
    assert (known_words("defaults::numpy=1.13"), known_words("x::numpy")) == ("main::numpy=1.13", "x::numpy")


# -- pip -----------------------------------------------------------------------------------------------


def test_pip_packages_with_their_digests(desk):
    solved = desk.solve(desk.dependencies(pip=["six==1.16.0", "numpy<2 ; python_version < '3.12'"]), host=HERE)
    lock = solved.lock
    assert names(lock["pip"])["six"] == "1.16.0"
    assert all(len(one["sha256"]) == 64 and one["url"].endswith(".whl") for one in lock["pip"])
    assert lock["python"] == {"source": "host", "version": VERSION, "path": str(PYTHON)}
    assert lock["digest"] == digest_of(lock)
    assert [one["name"] for one in lock["tools"]] == ["uv"]


def test_wheels_are_the_targets_not_this_machines(desk):
    platform = Platform("linux-aarch64", "2.31")
    solved = desk.solve(desk.dependencies(pip=["numpy==2.0.2"]), platform, host=("/usr/bin/python3", "3.9.2"))
    assert "cp39" in solved.lock["pip"][0]["url"] and "aarch64" in solved.lock["pip"][0]["url"]


def test_pip_fits_what_conda_brings_and_does_not_bring_it_again(desk, channel, tmp_path):
    numpy = Channel(tmp_path / "more")
    numpy.add("numpy", "1.26.4", {"site-packages/numpy/__init__.py": b""}, noarch="python", depends=["python"])
    asked = desk.dependencies(["numpy"], ["pandas==2.2.0"], [numpy.write().url, channel.url])
    lock = desk.solve(asked).lock
    assert names(lock["conda"])["numpy"] == "1.26.4"
    assert "numpy" not in names(lock["pip"]) and "pandas" in names(lock["pip"])
    with pytest.raises(SolveError, match=r"numpy==1\.26\.4"):
        desk.solve(desk.dependencies(["numpy"], ["numpy>=2"], [numpy.url, channel.url]))


def test_a_wheel_of_the_project_travels(desk):
    wheel = desk.root / "greet-1.0-py3-none-any.whl"
    write_wheel(wheel, "greet", "1.0")
    solved = desk.solve(desk.dependencies(pip=["./greet-1.0-py3-none-any.whl"]), host=HERE)
    (one,) = solved.lock["pip"]
    assert one == {**one, "name": "greet", "version": "1.0", "file": wheel.name, "size": wheel.stat().st_size}
    assert solved.files == {one["sha256"]: wheel}
    assert str(desk.root) not in json.dumps(solved.lock)


def test_what_no_index_has_is_explained_in_few_lines(desk):
    with pytest.raises(SolveError) as caught:
        desk.solve(desk.dependencies(pip=["six==99.0"]), host=HERE)
    assert "six==99.0" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 13
    assert "warning" not in caught.value.message and "mlw-solve-" not in caught.value.message


def test_no_password_enters_a_lock(desk, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    with serving(links) as port:
        address = f"http://somebody:hush@127.0.0.1:{port}/"
        option = Option(f"--find-links {address}", "f", 1, "--find-links", address)
        asked = desk.dependencies(pip=["greet"], options=(option, Option("--no-index", "f", 2, "--no-index", "")))
        (one,) = desk.solve(asked, host=HERE).lock["pip"]
    assert one["private"] and one["url"] == f"http://127.0.0.1:{port}/greet-1.0-py3-none-any.whl"
    kept = b"".join(path.read_bytes() for path in desk.cache.rglob("*") if path.is_file())
    assert b"hush" not in kept


@pytest.mark.parametrize(
    ("address", "clean"),
    [
        ("https://me:pw@host/simple/x.whl", "https://host/simple/x.whl"),
        ("https://host/t/abc/chan/noarch/x.conda", "https://host/chan/noarch/x.conda"),
        ("https://host/x.whl?X-Amz-Signature=1&a=2", "https://host/x.whl"),
        ("https://host/x.whl?a=2", "https://host/x.whl?a=2"),
        ("file:///a/b.whl", "file:///a/b.whl"),
    ],
)
def test_addresses_lose_their_secrets(address, clean):
    assert without_secret(address) == (clean, address != clean)


def test_a_resolvers_words_lose_them_too():
    said = "cannot fetch https://me:pw@host/simple and https://host/t/abc/chan/noarch"
    assert mask(said) == "cannot fetch https://host/simple and https://host/chan/noarch"


def test_pips_own_settings_count_unless_uv_has_some(tmp_path, environ):
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = https://index.example/simple\nfind-links = {tmp_path} /no/such/folder\n")
    found = indexes_of(Dependencies(), {**environ, "PIP_CONFIG_FILE": str(file)}, tmp_path)
    assert (found.index_url, found.find_links) == ("https://index.example/simple", (str(tmp_path),))
    assert indexes_of(
        Dependencies(), {**environ, "PIP_CONFIG_FILE": str(file), "UV_INDEX_URL": "x"}, tmp_path
    ).lines() == ["--index-url x"]


# -- the interpreter -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subdir", ["linux-64", "linux-aarch64", "linux-ppc64le", "osx-arm64"])
def test_uv_has_pythons_for_machines_of_other_kinds(desk, environ, subdir):
    found = uv_python(Platform(subdir, "2.36" if subdir.startswith("linux") else None), "3.12", environ, desk.root)
    assert found is not None and found["version"].startswith("3.12.")


def test_uv_has_the_pythons_that_the_rules_say(desk, environ):
    assert uv_python(LINUX, ".".join(map(str, UV_PYTHON_FROM)), environ, desk.root) is not None
    assert uv_python(LINUX, f"3.{UV_PYTHON_FROM[1] - 1}", environ, desk.root) is None
    assert uv_python(LINUX, ".".join(map(str, NEWEST_PYTHON)), environ, desk.root) is not None


def test_uv_brings_a_python_where_the_host_has_none(desk):
    lock = desk.solve(desk.dependencies(["python=3.11"], ["six"])).lock
    assert lock["python"]["source"] == "uv" and lock["python"]["version"].startswith("3.11.")
    assert "linux-x86_64-gnu" in lock["python"]["key"] and lock["conda"] == []


def test_a_python_of_the_host_that_is_another_version_does_not_serve(desk):
    lock = desk.solve(desk.dependencies(["python=3.9"], ["six"]), host=HERE).lock
    assert lock["python"]["source"] == "uv" and lock["python"]["version"].startswith("3.9.")


def test_the_channel_brings_a_python_that_uv_has_not(desk, environ, channel):
    assert uv_python(LINUX, "3.5.2", environ, desk.root) is None
    with pytest.raises(SolveError, match=r"python"):
        desk.solve(desk.dependencies(["python=3.5.2"], channels=[channel.url]))


def test_pip_packages_for_a_python_that_uv_does_not_know_are_refused(desk, tmp_path):
    old = Channel(tmp_path / "old")
    old.add("python", "3.5.2", {"bin/python": b""}, "linux-64")
    with pytest.raises(ConfigError, match=r"conda_dependencies.yml:9: cannot resolve pip packages for Python 3.5.2"):
        desk.solve(desk.dependencies(["python=3.5.2"], ["six"], [old.write().url]))


@pytest.mark.parametrize(
    ("version", "pin", "answer"),
    [
        ("3.6.15", "3.6", True),
        ("3.6.15", "3.6.*", True),
        ("3.6.15", "3.6.1", False),
        ("3.16.0", "3.1", False),
        ("3.9.2", ">=3.6,<3.9", False),
        ("3.8.1", ">=3.6,<3.9", True),
        ("3.8.1", "3.7|3.8", True),
        ("3.8.1", None, True),
    ],
)
def test_pins(version, pin, answer):
    assert satisfies(version, pin) is answer


def test_a_pin_that_is_none():
    with pytest.raises(ConfigError, match="not a Python version"):
        satisfies("3.8.1", "three")


# -- the C library -------------------------------------------------------------------------------------


def links(folder: Path, *names: str) -> tuple[Option, Option]:
    """A folder of wheels with these names, and the options that make it the only index."""
    folder.mkdir(exist_ok=True)
    for name in names:
        write_wheel(folder / name, *name.split("-")[:2])
    return (
        Option(f"--find-links {folder}", "f", 1, "--find-links", str(folder)),
        Option("--no-index", "f", 2, "--no-index", ""),
    )


AIM, MACHINE = Platform("linux-64", "2.28"), Platform("linux-64", "2.36")


@pytest.mark.parametrize(
    ("tag", "glibc"),
    [
        ("manylinux_2_34_x86_64", "2.34"),  # cannot be had for the aim
        ("manylinux_2_28_x86_64", "2.28"),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", "2.17"),
        ("manylinux1_x86_64.manylinux_2_28_x86_64", "2.17"),  # the oldest of its tags, and what a Python needs
        ("any", "2.17"),
        ("linux_x86_64", "2.28"),  # does not say: the aim is believed
    ],
)
def test_the_lock_says_the_c_library_that_its_packages_need(desk, tmp_path, tag, glibc):
    options = links(tmp_path / "links", f"greet-1.0-py3-none-{tag}.whl", "words-1.0-py3-none-any.whl")
    asked = desk.dependencies(["python=3.11"], ["greet", "words"], options=options)
    assert desk.solve(asked, AIM, machine=MACHINE, fallback=MACHINE).lock["glibc"] == glibc


def test_a_wheel_is_better_than_an_older_c_library(desk, tmp_path):
    """Where only sources would do for the aim, a compiler would be needed there."""
    folder = tmp_path / "links"
    options = links(folder, "greet-1.0-py3-none-manylinux_2_34_x86_64.whl")
    with tarfile.open(folder / "greet-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("PKG-INFO", "Metadata-Version: 2.2\nName: greet\nVersion: 1.0\n"), ("setup.py", "")):
            entry = tarfile.TarInfo(f"greet-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    asked = desk.dependencies(["python=3.11"], ["greet"], options=options)
    for fallback, ending in ((None, ".tar.gz"), (MACHINE, ".whl"), (Platform("linux-64", "2.31"), ".tar.gz")):
        (one,) = desk.solve(asked, AIM, fallback=fallback).lock["pip"]
        assert one["file"].endswith(ending)


def test_what_neither_aim_nor_machine_can_run_is_refused_with_the_machines_reason(desk, tmp_path):
    options = links(tmp_path / "links", "greet-1.0-py3-none-manylinux_2_38_x86_64.whl")
    with pytest.raises(SolveError, match="manylinux_2_36"):
        desk.solve(desk.dependencies(["python=3.11"], ["greet"], options=options), AIM, fallback=MACHINE)


def test_conda_packages_say_it_too(desk, channel):
    asked = desk.dependencies(["modern"], channels=[channel.url])
    machine = Platform("linux-64", "2.41")
    assert desk.solve(asked, AIM, fallback=machine).lock["glibc"] == "2.40"
    # The Python of this channel says 2.17, fast says nothing.
    assert desk.solve(desk.dependencies(["words"], channels=[channel.url]), AIM).lock["glibc"] == "2.17"
    assert desk.solve(desk.dependencies(["fast"], channels=[channel.url]), AIM).lock["glibc"] == "2.28"


def test_an_index_of_a_project_names_files_of_allowed_folders_only(desk, tmp_path):
    """Also if the project itself names the folder, or one above it, as a source of packages."""
    private, simple = tmp_path / "private", tmp_path / "server" / "simple" / "greet"
    no_index = links(private, "greet-1.0-py3-none-any.whl")
    simple.mkdir(parents=True)
    wheel = private / "greet-1.0-py3-none-any.whl"
    (simple / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    with serving(tmp_path / "server") as port:
        address = f"http://127.0.0.1:{port}/simple"
        index = Option(f"--index-url {address}", "f", 1, "--index-url", address)
        everything = Option("--find-links /", "f", 2, "--find-links", "/")
        for options, error in (
            ((index,), SolveError),
            ((index, everything), ConfigError),
            (no_index, ConfigError),
        ):
            asked = desk.dependencies(pip=["greet"], options=options)
            with pytest.raises(error, match="outside the project") as caught:
                desk.solve(asked, host=HERE, folders=())
            assert "mlw settings add package-folders" in caught.value.hint or options[-1] is everything
        for options in ((index,), no_index):
            asked = desk.dependencies(pip=["greet"], options=options)
            solved = desk.solve(asked, host=HERE, folders=(private,))
            assert list(solved.files.values()) == [wheel]
            with pytest.raises(MlwError, match="outside the project"):  # the setting was taken back
                desk.solve(asked, host=HERE, folders=())


# -- what is kept --------------------------------------------------------------------------------------


def test_an_answer_is_kept_for_a_while(desk, channel, monkeypatch):
    asked = desk.dependencies(["words"], channels=[channel.url])
    first = desk.solve(asked)
    again = desk.solve(asked)
    assert (first.kept, again.kept, again.lock, again.files) == (False, True, first.lock, first.files)
    assert not desk.solve(asked, refresh=True).kept
    assert not desk.solve(asked, Platform("linux-64", "2.28")).kept
    monkeypatch.setattr(solving.time, "time", lambda: time.monotonic() + 1e10)
    assert not desk.solve(asked).kept


def test_a_damaged_answer_is_asked_for_again(desk, channel):
    asked = desk.dependencies(["words"], channels=[channel.url])
    desk.solve(asked)
    (note,) = (desk.cache / "locks").iterdir()
    note.write_text(note.read_text().replace('"2.0"', '"2.1"'))
    assert not desk.solve(asked).kept


def test_a_changed_wheel_is_another_request(desk):
    wheel = desk.root / "greet-1.0-py3-none-any.whl"
    write_wheel(wheel, "greet", "1.0")
    asked = desk.dependencies(pip=["./greet-1.0-py3-none-any.whl"])
    first = desk.solve(asked, host=HERE)
    write_wheel(wheel, "greet", "1.0", b"changed = True\n")
    second = desk.solve(asked, host=HERE)
    assert not second.kept and second.lock["digest"] != first.lock["digest"]


@pytest.mark.parametrize("address", ["./simple", "simple"])
def test_a_copy_of_a_project_does_not_answer_for_it(desk, tmp_path, environ, address):
    """A fork names the same folder by the same relative path, and has other packages there."""
    (tmp_path / "fork").mkdir()
    fork = Desk(tmp_path / "fork", environ)
    fork.cache = desk.cache
    option = Option(f"--index-url {address}", "f", 1, "--index-url", address)
    locks = []
    for one, code in ((fork, b"evil = True\n"), (desk, b"")):
        folder = one.root / "simple" / "greet"
        folder.mkdir(parents=True)
        wheel = folder / "greet-1.0-py3-none-any.whl"
        write_wheel(wheel, "greet", "1.0", code)
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        solved = one.solve(one.dependencies(pip=["greet"], options=(option,)), host=HERE)
        (package,) = solved.lock["pip"]
        assert package["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert solved.files == {package["sha256"]: wheel}
        locks.append(solved)
    assert not locks[1].kept
    assert desk.solve(desk.dependencies(pip=["greet"], options=(option,)), host=HERE).kept


@pytest.mark.parametrize(
    ("asked", "shared"),
    [
        ({"channels": ["./channel"]}, False),
        ({"channels": ["conda-forge", "../channel"]}, False),
        ({"channels": ["file:///srv/channel"]}, False),
        ({"conda": ["./channel::words"]}, False),
        ({"conda": ["./words-1.0-0.conda"]}, False),
        ({"options": (Option("", "f", 1, "--index-url", "file:simple"),)}, False),
        ({"options": (Option("", "f", 1, "--index-url", "file:///srv/simple"),)}, False),
        ({"channels": ["conda-forge", "pytorch/label/test", "https://channel.example/main"]}, True),
        ({"pip": ["six"]}, True),
    ],
)
def test_copies_share_an_answer_only_where_servers_have_the_packages(desk, tmp_path, asked, shared):
    dependencies = desk.dependencies(**asked)
    keys = {
        solving._key(Request(dependencies, LINUX, root), indexes_of(dependencies, {}, root), {})
        for root in (tmp_path / "owner", tmp_path / "fork")
    }
    assert len(keys) == (1 if shared else 2)


@pytest.mark.parametrize(("place", "shared"), [("wheels", False), ("/srv", True), ("https://simple.example", True)])
def test_the_users_own_folders_are_the_same_in_every_project(tmp_path, place, shared):
    settings = {"UV_DEFAULT_INDEX": place, "PIP_CONFIG_FILE": os.devnull}
    keys = {
        solving._key(Request(Dependencies(), LINUX, root), indexes_of(Dependencies(), settings, root), settings)
        for root in (tmp_path / "owner", tmp_path / "fork")
    }
    assert len(keys) == (1 if shared else 2)


def test_where_a_package_comes_from_is_not_its_identity(desk):
    lock = desk.solve(desk.dependencies(pip=["six==1.16.0"]), host=HERE).lock
    moved = {**lock, "glibc": "2.31", "pip": [{**one, "url": "https://mirror.example/x.whl"} for one in lock["pip"]]}
    other = {**lock, "pip": [{**one, "sha256": "0" * 64} for one in lock["pip"]]}
    assert digest_of(moved) == lock["digest"] != digest_of(other)


# -- platforms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("550.54.14", "12.4"),
        ("535.183.01", "12.2"),
        ("470.256.02", "11.4"),
        ("340.108", None),
        (None, None),
        ("x", None),
    ],
)
def test_a_driver_runs_up_to_a_cuda(driver, cuda):
    assert cuda_of(driver) == cuda


def test_facts_become_a_platform():
    system = {"system": "Linux", "arch": "x86_64", "libc": "glibc 2.31", "kernel": "5.10.0-28-amd64"}
    facts = Facts.from_json({"os": system, "nvidia": {"driver": "550.54.14"}})
    platform = platform_of(facts)
    assert (platform.subdir, platform.libc, platform.cuda) == ("linux-64", "2.31", "12.4")
    assert platform.uv == "x86_64-manylinux_2_31"
    assert ("__linux", "5.10.0", "0") in platform.virtual_packages()
    assert platform_of(facts, glibc="2.30", cuda=False).uv == "x86_64-manylinux_2_28"
    assert platform_of(facts, cuda=False).cuda is None


def test_a_platform_that_nobody_builds_for():
    with pytest.raises(ConfigError, match="environments are not supported for Plan9"):
        platform_of(Facts.from_json({"os": {"system": "Plan9", "arch": "mips"}}))


# -- locks that are there ------------------------------------------------------------------------------

UV_PROJECT = '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = [\n    "six",\n]\n'


def test_a_uv_lock_is_read_not_solved(desk, environ):
    (desk.root / "pyproject.toml").write_text(UV_PROJECT.replace('"six"', '"six==1.15.0"'))
    done = run_uv(["lock", "--quiet"], environ, desk.root)
    assert done.returncode == 0, done.stderr
    (desk.root / "pyproject.toml").write_text(UV_PROJECT)  # would be six 1.17 now
    asked = read_lockfile(desk.root / "uv.lock", desk.root)
    assert [one.text for one in asked.pip] == ["six==1.15.0"]
    lock = desk.solve(asked, host=HERE).lock
    assert names(lock["pip"]) == {"six": "1.15.0"}


@pytest.mark.parametrize("here", [".", "project", "project/deep", "elsewhere"])
def test_a_uv_lock_is_found_from_any_folder(desk, environ, tmp_path, monkeypatch, here):
    (desk.root / "pyproject.toml").write_text(UV_PROJECT)
    done = run_uv(["lock", "--quiet"], environ, desk.root)
    assert done.returncode == 0, done.stderr
    (tmp_path / here).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / here)
    root = Path(os.path.relpath(desk.root))
    asked = read_dependencies(root / "pyproject.toml", root)
    request = Request(asked, LINUX, root, host=HERE, installer=VERSION)
    assert names(solve(request, desk.cache, desk.environ).lock["pip"]).keys() == {"six"}


def test_a_uv_lock_in_a_folder_of_the_project(desk, environ, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (desk.root / "trainer").mkdir()
    (desk.root / "trainer" / "pyproject.toml").write_text(UV_PROJECT)
    assert run_uv(["lock", "--quiet"], environ, desk.root / "trainer").returncode == 0
    asked = read_dependencies(desk.root / "trainer" / "uv.lock", desk.root)
    assert names(desk.solve(asked, host=HERE).lock["pip"]).keys() == {"six"}


def test_a_pyproject_alone_is_solved(desk):
    (desk.root / "pyproject.toml").write_text(UV_PROJECT)
    asked = read_lockfile(desk.root / "pyproject.toml", desk.root)
    assert (asked.python, asked.pip[0].line) == (">=3.9", 6)
    assert names(desk.solve(asked, host=HERE).lock["pip"]).keys() == {"six"}


def test_a_pixi_lock_is_read(desk, channel):
    solved = desk.solve(desk.dependencies(["hello-py", "python"], channels=[channel.url]))
    write_pixi_lock(desk, solved, "https://channel.example")
    asked = read_lockfile(desk.root / "pixi.lock", desk.root)
    assert (asked.python, {one.name for one in asked.conda}) == (VERSION, {"python", "hello-py", "words"})
    lock = desk.solve(asked).lock
    assert names(lock["conda"]) == names(solved.lock["conda"]) and lock["digest"] == solved.lock["digest"]
    with pytest.raises(SolveError, match="not locked for linux-aarch64; available: linux-64"):
        desk.solve(asked, Platform("linux-aarch64", "2.36"))


def test_a_pixi_lock_names_files_of_allowed_folders_only(desk, channel):
    solved = desk.solve(desk.dependencies(["hello-py", "python"], channels=[channel.url]))
    write_pixi_lock(desk, solved, channel.url)
    asked = read_lockfile(desk.root / "pixi.lock", desk.root)
    assert desk.solve(asked).files.items() >= solved.files.items() - tool_files(solved)
    for named in (channel.url, "https://channel.example"):
        write_pixi_lock(desk, solved, channel.url, named)
        with pytest.raises(SolveError, match="outside the project"):
            desk.solve(asked, folders=())


def test_a_package_of_a_channel_is_a_regular_file(desk, channel):
    """A link to a device in a project's own channel: copying it would fill the disk."""
    solved = desk.solve(desk.dependencies(["hello-py", "python"], channels=[channel.url]))
    folder = desk.root / "channel"
    shutil.copytree(channel.folder, folder)
    write_pixi_lock(desk, solved, folder.as_uri())
    asked = read_lockfile(desk.root / "pixi.lock", desk.root)
    assert desk.solve(asked).lock["digest"] == solved.lock["digest"]
    words = next(path for path in folder.rglob("words-2.0*"))
    words.unlink()
    words.symlink_to("/dev/zero")
    for dependencies in (asked, desk.dependencies(["hello-py", "python"], channels=["./channel"])):
        with pytest.raises(SolveError, match="words resolves to .* which is not a package"):
            desk.solve(dependencies, refresh=True)


def test_packages_of_a_folder_are_known_by_their_content(desk, channel):
    """Old channels have MD5 only, which is neither a name in the store nor an identity."""
    folder = desk.root / "channel"
    shutil.copytree(channel.folder, folder)
    for path in folder.glob("*/repodata.json"):
        data = json.loads(path.read_text())
        for record in (*data["packages"].values(), *data["packages.conda"].values()):
            del record["sha256"]
        path.write_text(json.dumps(data))
    solved = desk.solve(desk.dependencies(["hello-py", "python"], channels=["./channel"]))
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.glob("*/*") if path.is_file()}
    conda = {one["sha256"] for one in solved.lock["conda"]}
    assert len(conda) == len(solved.lock["conda"]) > 1 and conda <= set(digests)
    assert {sha256: digests[sha256] for sha256 in conda}.items() <= solved.files.items()
    same = desk.solve(desk.dependencies(["hello-py", "python"], channels=[channel.url]))
    assert same.lock["digest"] == solved.lock["digest"]


def tool_files(solved):
    return {(one["sha256"], solved.files.get(one["sha256"])) for one in solved.lock["tools"]}


def write_pixi_lock(desk, solved, place, named=None):
    """The packages of a lock at the address of a channel; ``named``: the channel that the file names."""
    packages, refs = [], []
    for one in solved.lock["conda"]:
        address = f"{place}/{one['subdir']}/{one['file']}"
        refs.append(f"      - conda: {address}\n")
        noarch = f"  noarch: {one['noarch']}\n" if one.get("noarch") else ""
        depends = "".join(f"  - {text}\n" for text in one["depends"])
        packages.append(
            f"- conda: {address}\n  name: {one['name']}\n  version: '{one['version']}'\n  build: '{one['build']}'\n"
            f"  build_number: 0\n  subdir: {one['subdir']}\n"
            f"  sha256: {one['sha256']}\n  md5: {one['md5']}\n{noarch}"
            + (f"  depends:\n{depends}" if depends else "")
            + f"  size: {one['size']}\n"
        )
    text = (
        f"version: 6\nenvironments:\n  default:\n    channels:\n    - url: {named or place}/\n    packages:\n"
        f"      linux-64:\n{''.join(refs)}packages:\n{''.join(packages)}"
    )
    (desk.root / "pixi.lock").write_text(text)


def write_wheel(path: Path, name: str, version: str, code: bytes = b"") -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


# -- no way to where they are -----------------------------------------------------------------------------

NOBODY = "http://127.0.0.1:9"  # no service is at this port


@pytest.mark.parametrize(
    ("asked", "words", "hint"),
    [
        ({"pip": ["six"]}, "cannot reach the package index:", "proxy"),
        (
            {"conda": ["six"], "channels": [f"{NOBODY}/own"]},
            f"cannot read the conda channels ({NOBODY}/own):",
            "mirror",
        ),
    ],
)
def test_a_place_that_is_not_reached_is_no_fault_of_the_project(desk, asked, words, hint):
    desk.environ |= {"PIP_INDEX_URL": f"{NOBODY}/simple", "UV_HTTP_RETRIES": "0"}
    with pytest.raises(NotFetched) as caught:
        desk.solve(desk.dependencies(**asked), host=HERE)
    assert words in caught.value.message and "Connection refused" in caught.value.message
    assert caught.value.exit_code == 69 and hint in caught.value.hint


def test_who_answers_that_there_is_no_such_thing_was_reached(desk, tmp_path):
    """Also of packages whose names are words of the network."""
    with serving(tmp_path) as port:
        desk.environ |= {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "UV_HTTP_RETRIES": "0"}
        for asked in (
            {"pip": ["connection-refused-timed-out"]},
            {"conda": ["six"], "channels": [f"http://127.0.0.1:{port}/misspelt"]},
        ):
            with pytest.raises(SolveError) as caught:
                desk.solve(desk.dependencies(**asked), host=HERE)
            assert caught.value.exit_code == 78, caught.value.message
            assert re.match("check the (spelling|names)", caught.value.hint) and "internet" not in caught.value.hint


@pytest.mark.parametrize("space", [" ", "\n           "])
def test_lines_may_be_broken_anywhere(space, tmp_path):
    """How long uv's lines are depends on the names in them."""
    wanted = SimpleNamespace(python="3.11", file="aml_config/conda_dependencies.yml")
    said = f"error: Because connection-refused was not found in the{space}package registry and you require it, …"
    error = pip._explain(said, wanted, tmp_path, None)
    assert error.exit_code == 78 and error.hint.startswith("check the spelling in aml_config"), error.hint


def test_a_python_that_is_not_reached_names_the_one_that_is_there(desk):
    """In one sentence; the lock says what is there, and is the same lock without it."""
    asked = desk.dependencies(conda=["python=3.9"])
    lock = desk.solve(asked, host=HERE).lock
    assert lock["python"]["source"] == "uv" and lock["digest"] == digest_of(lock)
    lock["python"]["url"] = f"{NOBODY}/1/cpython.tar.gz"
    store = Root(str(desk.cache / "store"))
    with pytest.raises(NotFetched) as caught:
        packages(lock, {"python": True}, store)
    assert caught.value.message == f"Python {lock['python']['version']} cannot be fetched: Connection refused"
    short = ".".join(VERSION.split(".")[:2])
    assert caught.value.hint.startswith(f"the machine has Python {VERSION}: write python={short} in {asked.file}, or ")
    assert caught.value.exit_code == 69 and caught.value.more == "environment-failed"
    del lock["instead"]  # a container's, or an older client's
    with pytest.raises(NotFetched) as caught:
        packages(lock, {"python": True}, store)
    assert "internet connection" in caught.value.hint and "mirror" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({}, None),
        ({"PIP_INDEX_URL": "https://ada:hush@mirror.example/simple"}, "mirror.example"),
        ({"PIP_INDEX_URL": "http://mirror.example/simple"}, "mirror.example:80"),
        ({"PIP_INDEX_URL": "https://mirror.example:8443/simple"}, "mirror.example:8443"),
        ({"PIP_INDEX_URL": "http://[::1]:3141/simple"}, None),
        ({"UV_DEFAULT_INDEX": "own=https://own.example/simple", "PIP_INDEX_URL": "https://x.example"}, "own.example"),
        ({"PIP_INDEX_URL": "file:///srv/index"}, None),
        ({"PIP_INDEX_URL": "https://mirror.example:port/"}, None),
    ],
)
def test_the_place_of_the_index_in_the_users_settings(environ, settings, place):
    assert index_place({**environ, **settings}) == place


# -- what travels --------------------------------------------------------------------------------------


def test_for_a_target_without_a_way_everything_travels(desk):
    asked = desk.dependencies(pip=["six==1.16.0"])
    lock = desk.solve(asked, host=HERE).lock
    store = Root(str(desk.cache / "store"))
    every = [one["sha256"] for one in (*lock["pip"], *lock["tools"])]
    found = packages(lock, {"digests": [*every, "f" * 64]}, store)
    assert set(found) == set(every), "only what the lock names"
    for sha256, package in found.items():
        assert hashlib.sha256(package.path.read_bytes()).hexdigest() == sha256 == package.sha256
    assert packages(lock, {"digests": []}, store) == {}


def test_what_wants_a_password_is_fetched_here_with_it(desk, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    store = Root(str(desk.cache / "store"))
    with serving(links, "somebody:hush") as port:
        address = f"http://somebody:hush@127.0.0.1:{port}/"
        option = Option(f"--find-links {address}", "f", 1, "--find-links", address)
        asked = desk.dependencies(pip=["greet"], options=(option,))
        solved = desk.solve(asked, host=HERE)
        (one,) = solved.lock["pip"]
        stock(solved, asked, store, desk.environ)
        assert os.path.isfile(store.package(one["sha256"])) and "hush" not in json.dumps(solved.lock)
        os.unlink(store.package(one["sha256"]))
        with pytest.raises(SolveError, match="cannot be fetched from this machine"):
            stock(solved, desk.dependencies(pip=["greet"]), store, desk.environ)


@pytest.mark.parametrize("kept", [False, True])
def test_a_token_in_the_path_of_an_index_stays_here(desk, tmp_path, kept):
    """The server repeats it in the addresses of packages: these are fetched here, and the lock names the variable."""
    links = tmp_path / "links" / "hush-5d1e"
    links.mkdir(parents=True)
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    store = Root(str(desk.cache / "store"))
    with serving(links.parent) as port:
        place = f"http://127.0.0.1:{port}"
        desk.environ |= {"PIP_FIND_LINKS": place + "/${TOK}/", "TOK": "hush-5d1e"}
        asked = desk.dependencies(pip=["greet"])
        solved = desk.solve(asked, host=HERE)
        if kept:
            solved = desk.solve(asked, host=HERE)
        (one,) = solved.lock["pip"]
        assert one["url"] == place + "/${TOK}/greet-1.0-py3-none-any.whl" and one["private"]
        assert "hush" not in json.dumps(solved.lock) and solved.kept is kept
        target = Root(str(tmp_path / "target"))
        assert one["sha256"] in lacking(target, solved.lock)["digests"]
        stock(solved, asked, store, desk.environ)
        assert os.path.isfile(store.package(one["sha256"]))
        os.unlink(store.package(one["sha256"]))
    with pytest.raises(SolveError, match="cannot be fetched from this machine") as failed:
        stock(solved, asked, store, desk.environ)
    assert "hush" not in failed.value.message and "${TOK}" in failed.value.message


def test_a_lock_gets_a_token_for_no_other_server(desk):
    """A lock may come from anywhere."""
    desk.environ |= {"PIP_INDEX_URL": "https://ada:${PW}@index.example/${TOK}/simple", "TOK": "hush", "PW": "word"}
    secrets = NamedSecrets.of({**desk.environ, "OTHER": "private"})
    assert secrets.fill("https://index.example/${TOK}/x.whl") == "https://index.example/hush/x.whl"
    for evil in (
        *("https://evil.example/${TOK}/x", "http://index.example/${TOK}/x", "https://index.example:1/${TOK}/x"),
        *("https://index.example/${OTHER}/x", "https://index.example/${PW}/x"),
    ):
        assert secrets.fill(evil) == evil


def test_the_python_itself_can_travel(desk, tmp_path):
    """Under its own name, by which the builder there finds it."""
    name = "cpython-3.12.1+20240107-x86_64-install_only.tar.gz"
    (tmp_path / "20240107").mkdir()
    (tmp_path / "20240107" / name).write_bytes(b"an archive")
    store = Root(str(desk.cache / "store"))
    with serving(tmp_path) as port:
        url = f"http://127.0.0.1:{port}/20240107/{name.replace('+', '%2B')}"
        lock = {"python": {"source": "uv", "url": url}, "conda": [], "pip": []}
        found = packages(lock, {"digests": [], "python": True}, store)
    assert [*found] == [f"pythons/{name}"] and found[f"pythons/{name}"].path.read_bytes() == b"an archive"
    assert packages(lock, {"digests": [], "python": True}, store) == found, (
        "fetched once, served from here from then on"
    )
