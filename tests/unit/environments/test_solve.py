"""Locks from real resolvers, with a test channel and small packages of the real index."""

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

from mlworkbench.environments import pip_solve
from mlworkbench.environments import solve as solving
from mlworkbench.environments.dependencies import Dependencies, Line, Option, Requirement
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.dependency_parser import parse_conda_entry, parse_pip_entry
from mlworkbench.environments.index_variables import SecretVariables
from mlworkbench.environments.interpreter_choice import find_uv_python, satisfies
from mlworkbench.environments.lock_readers import read_lockfile
from mlworkbench.environments.package_sources import (
    channels_of,
    index_host,
    indexes_of,
    mask,
    normalize_channel,
    strip_secret,
)
from mlworkbench.environments.package_supply import collect_packages, store_packages
from mlworkbench.environments.pip_solve import run_uv
from mlworkbench.environments.platforms import Platform, platform_of
from mlworkbench.environments.solve import Request, solve
from mlworkbench.errors import ConfigError, MlwError, NotFetched, SolveError
from mlworkbench.hosts.host_facts import Facts
from mlworkbench.preflight.rule_data import NEWEST_PYTHON, UV_PYTHON_FROM
from mlworkbench.remote.environments.missing_packages import find_missing
from mlworkbench.remote.shared.cuda_drivers import newest_cuda
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root
from tests.machines.channel import PYTHON, VERSION, Channel, usual

HOST_PYTHON = (str(PYTHON), VERSION)
LINUX = Platform("linux-64", "2.36")


@pytest.fixture(scope="session")
def channel(tmp_path_factory) -> Channel:
    return usual(tmp_path_factory.mktemp("channel") / "channel")


@pytest.fixture
def environ(tmp_path_factory):
    """The environment without the settings of the user who runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    return {**inherited, "PIP_CONFIG_FILE": os.devnull}


class ProjectSolver:
    """Resolves dependencies of a project."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.cache = folder / "cache"
        self.environ = environ

    def dependencies(self, conda=(), pip=(), channels=(), **more) -> Dependencies:
        file = "aml_config/conda_dependencies.yml"
        entries = [parse_conda_entry(text, file, 3) for text in conda]
        python = next((entry for entry in entries if entry.name == "python"), None)
        return Dependencies(
            file=file,
            python=python.version.lstrip("=") if python else None,
            conda=tuple(entries),
            channels=tuple(channels),
            pip=tuple(parse_pip_entry(Line(text, file, 9), self.root, self.root) for text in pip),
            **more,
        )

    def solve(self, dependencies: Dependencies, platform: Platform = LINUX, **more):
        refresh = more.pop("refresh", False)
        more.setdefault("folders", tuple(self.root.parents[1:3]))  # the folders of test channels and wheels
        request = Request(dependencies, platform, self.root, installer=VERSION, **more)
        return solve(request, self.cache, self.environ, refresh=refresh)


@pytest.fixture
def solver(tmp_path, environ) -> ProjectSolver:
    return ProjectSolver(tmp_path, environ)


@contextmanager
def serve_folder(folder: Path, credentials: str | None = None) -> Iterator[int]:
    """Serve a folder on loopback, optionally with a password; yield the port."""
    expected = "Basic " + base64.b64encode(credentials.encode()).decode() if credentials else None

    class QuietHandler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            pass

        def do_GET(self):
            return super().do_GET() if self.knows() else None

        def do_HEAD(self):
            return super().do_HEAD() if self.knows() else None

        def knows(self):
            if expected in (None, self.headers.get("Authorization")):
                return True
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def names(packages):
    return {package["name"]: package["version"] for package in packages}


# -- conda ---------------------------------------------------------------------------------------------


def test_conda_packages_from_folder(solver, channel):
    solved = solver.solve(solver.dependencies(["hello-py", f"python={VERSION}"], channels=[channel.url]))
    assert names(solved.lock["conda"]) == {"python": VERSION, "hello-py": "1.2", "words": "2.0"}
    assert solved.lock["python"] == {"source": "conda", "version": VERSION}
    assert solved.lock["conda"][0]["name"] == "python"
    # The channel is a local folder: its packages are uploaded, and the lock does not contain its path.
    assert str(channel.folder) not in json.dumps(solved.lock)
    for package in solved.lock["conda"]:
        assert hashlib.sha256(solved.files[package["sha256"]].read_bytes()).hexdigest() == package["sha256"]


def test_conda_packages_over_http(solver, channel):
    with serve_folder(channel.folder) as port:
        plain = f"http://127.0.0.1:{port}"
        solved = solver.solve(solver.dependencies(["words=1.0"], channels=[plain]))
        with pytest.raises(SolveError) as caught:  # the token is part of the path, and this server has no such path
            solver.solve(
                solver.dependencies(["words=1.0"], channels=[f"http://somebody:hush@127.0.0.1:{port}/t/to-ken"])
            )
    package = next(item for item in solved.lock["conda"] if item["name"] == "words")
    assert package["url"] == f"{plain}/noarch/words-1.0-0.tar.bz2"
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
def test_builds_match_the_driver_of_the_target(solver, channel, platform, build):
    solved = solver.solve(solver.dependencies(["fast"], channels=[channel.url]), platform)
    assert next(package["build"] for package in solved.lock["conda"] if package["name"] == "fast") == build


def test_newer_c_library_is_explained(solver, channel):
    with pytest.raises(SolveError) as caught:
        solver.solve(solver.dependencies(["modern"], channels=[channel.url]))
    assert "__glibc" in caught.value.message and "2.40" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 13


def test_conflict_is_explained(solver, channel):
    with pytest.raises(SolveError) as caught:
        solver.solve(solver.dependencies(["first", "second"], channels=[channel.url]))
    assert "first" in caught.value.message and "words" in caught.value.message
    assert "conda_dependencies.yml" in caught.value.message


def test_no_channels_means_conda_forge():
    assert channels_of(Dependencies()) == ("conda-forge",)
    dependencies = Dependencies(channels=("mine", "nodefaults"), conda=(Requirement("x::y", "f", 1, "y", "x"),))
    assert channels_of(dependencies) == ("mine", "x")
    assert channels_of(Dependencies(channels=("defaults", "anaconda"))) == ("main", "anaconda")
    assert (normalize_channel("defaults::numpy=1.13"), normalize_channel("x::numpy")) == (
        "main::numpy=1.13",
        "x::numpy",
    )


# -- pip -----------------------------------------------------------------------------------------------


def test_pip_packages_with_their_digests(solver):
    solved = solver.solve(
        solver.dependencies(pip=["six==1.16.0", "numpy<2 ; python_version < '3.12'"]), host=HOST_PYTHON
    )
    lock = solved.lock
    assert names(lock["pip"])["six"] == "1.16.0"
    assert all(len(package["sha256"]) == 64 and package["url"].endswith(".whl") for package in lock["pip"])
    assert lock["python"] == {"source": "host", "version": VERSION, "path": str(PYTHON)}
    assert lock["digest"] == digest_of(lock)
    assert [package["name"] for package in lock["tools"]] == ["uv"]


def test_wheels_match_the_target(solver):
    platform = Platform("linux-aarch64", "2.31")
    solved = solver.solve(solver.dependencies(pip=["numpy==2.0.2"]), platform, host=("/usr/bin/python3", "3.9.2"))
    assert "cp39" in solved.lock["pip"][0]["url"] and "aarch64" in solved.lock["pip"][0]["url"]


def test_pip_respects_conda_packages(solver, channel, tmp_path):
    numpy = Channel(tmp_path / "more")
    numpy.add("numpy", "1.26.4", {"site-packages/numpy/__init__.py": b""}, noarch="python", depends=["python"])
    dependencies = solver.dependencies(["numpy"], ["pandas==2.2.0"], [numpy.write().url, channel.url])
    lock = solver.solve(dependencies).lock
    assert names(lock["conda"])["numpy"] == "1.26.4"
    assert "numpy" not in names(lock["pip"]) and "pandas" in names(lock["pip"])
    with pytest.raises(SolveError, match=r"numpy==1\.26\.4"):
        solver.solve(solver.dependencies(["numpy"], ["numpy>=2"], [numpy.url, channel.url]))


def test_wheel_of_the_project_is_uploaded(solver):
    wheel = solver.root / "greet-1.0-py3-none-any.whl"
    write_wheel(wheel, "greet", "1.0")
    solved = solver.solve(solver.dependencies(pip=["./greet-1.0-py3-none-any.whl"]), host=HOST_PYTHON)
    (entry,) = solved.lock["pip"]
    assert entry == {**entry, "name": "greet", "version": "1.0", "file": wheel.name, "size": wheel.stat().st_size}
    assert solved.files == {entry["sha256"]: wheel}
    assert str(solver.root) not in json.dumps(solved.lock)


def test_missing_package_is_explained_briefly(solver):
    with pytest.raises(SolveError) as caught:
        solver.solve(solver.dependencies(pip=["six==99.0"]), host=HOST_PYTHON)
    assert "six==99.0" in caught.value.message
    assert len(caught.value.message.splitlines()) <= 13
    assert "warning" not in caught.value.message and "mlw-solve-" not in caught.value.message


def test_lock_contains_no_password(solver, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    with serve_folder(links) as port:
        address = f"http://somebody:hush@127.0.0.1:{port}/"
        option = Option(f"--find-links {address}", "f", 1, "--find-links", address)
        dependencies = solver.dependencies(
            pip=["greet"], options=(option, Option("--no-index", "f", 2, "--no-index", ""))
        )
        (entry,) = solver.solve(dependencies, host=HOST_PYTHON).lock["pip"]
    assert entry["private"] and entry["url"] == f"http://127.0.0.1:{port}/greet-1.0-py3-none-any.whl"
    cached = b"".join(path.read_bytes() for path in solver.cache.rglob("*") if path.is_file())
    assert b"hush" not in cached


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
    assert strip_secret(address) == (clean, address != clean)


def test_resolver_output_is_masked():
    output = "cannot fetch https://me:pw@host/simple and https://host/t/abc/chan/noarch"
    assert mask(output) == "cannot fetch https://host/simple and https://host/chan/noarch"


def test_pip_settings_apply_without_uv_settings(tmp_path, environ):
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = https://index.example/simple\nfind-links = {tmp_path} /no/such/folder\n")
    indexes = indexes_of(Dependencies(), {**environ, "PIP_CONFIG_FILE": str(file)}, tmp_path)
    assert (indexes.index_url, indexes.find_links) == ("https://index.example/simple", (str(tmp_path),))
    assert indexes_of(
        Dependencies(), {**environ, "PIP_CONFIG_FILE": str(file), "UV_INDEX_URL": "x"}, tmp_path
    ).lines() == ["--index-url x"]


# -- the interpreter -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subdir", ["linux-64", "linux-aarch64", "linux-ppc64le", "osx-arm64"])
def test_uv_has_pythons_for_other_platforms(solver, environ, subdir):
    python = find_uv_python(
        Platform(subdir, "2.36" if subdir.startswith("linux") else None), "3.12", environ, solver.root
    )
    assert python is not None and python["version"].startswith("3.12.")


def test_uv_has_the_pythons_of_the_preflight_rules(solver, environ):
    assert find_uv_python(LINUX, ".".join(map(str, UV_PYTHON_FROM)), environ, solver.root) is not None
    assert find_uv_python(LINUX, f"3.{UV_PYTHON_FROM[1] - 1}", environ, solver.root) is None
    assert find_uv_python(LINUX, ".".join(map(str, NEWEST_PYTHON)), environ, solver.root) is not None


def test_uv_provides_python_if_host_has_none(solver):
    lock = solver.solve(solver.dependencies(["python=3.11"], ["six"])).lock
    assert lock["python"]["source"] == "uv" and lock["python"]["version"].startswith("3.11.")
    assert "linux-x86_64-gnu" in lock["python"]["key"] and lock["conda"] == []


def test_host_python_with_wrong_version_is_not_used(solver):
    lock = solver.solve(solver.dependencies(["python=3.9"], ["six"]), host=HOST_PYTHON).lock
    assert lock["python"]["source"] == "uv" and lock["python"]["version"].startswith("3.9.")


def test_channel_provides_python_that_uv_lacks(solver, environ, channel):
    assert find_uv_python(LINUX, "3.5.2", environ, solver.root) is None
    with pytest.raises(SolveError, match=r"python"):
        solver.solve(solver.dependencies(["python=3.5.2"], channels=[channel.url]))


def test_pip_packages_for_unsupported_python(solver, tmp_path):
    old = Channel(tmp_path / "old")
    old.add("python", "3.5.2", {"bin/python": b""}, "linux-64")
    with pytest.raises(ConfigError, match=r"conda_dependencies.yml:9: cannot resolve pip packages for Python 3.5.2"):
        solver.solve(solver.dependencies(["python=3.5.2"], ["six"], [old.write().url]))


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


def test_invalid_pin():
    with pytest.raises(ConfigError, match="not a Python version"):
        satisfies("3.8.1", "three")


# -- the C library -------------------------------------------------------------------------------------


def link_options(folder: Path, *names: str) -> tuple[Option, Option]:
    """Write wheels with these names to a folder; return the options that make it the only index."""
    folder.mkdir(exist_ok=True)
    for name in names:
        write_wheel(folder / name, *name.split("-")[:2])
    return (
        Option(f"--find-links {folder}", "f", 1, "--find-links", str(folder)),
        Option("--no-index", "f", 2, "--no-index", ""),
    )


PREFERRED, MACHINE = Platform("linux-64", "2.28"), Platform("linux-64", "2.36")


@pytest.mark.parametrize(
    ("tag", "glibc"),
    [
        ("manylinux_2_34_x86_64", "2.34"),  # not available for the preferred platform
        ("manylinux_2_28_x86_64", "2.28"),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", "2.17"),
        (
            "manylinux1_x86_64.manylinux_2_28_x86_64",
            "2.17",
        ),  # the oldest tag, but at least what Python requires
        ("any", "2.17"),
        ("linux_x86_64", "2.28"),  # no version in the tag, so that of the preferred platform
    ],
)
def test_lock_has_required_c_library(solver, tmp_path, tag, glibc):
    options = link_options(tmp_path / "links", f"greet-1.0-py3-none-{tag}.whl", "words-1.0-py3-none-any.whl")
    dependencies = solver.dependencies(["python=3.11"], ["greet", "words"], options=options)
    assert solver.solve(dependencies, PREFERRED, machine=MACHINE, fallback=MACHINE).lock["glibc"] == glibc


def test_wheel_is_preferred_to_older_c_library(solver, tmp_path):
    """A source package for the preferred platform would require a compiler on the target."""
    folder = tmp_path / "links"
    options = link_options(folder, "greet-1.0-py3-none-manylinux_2_34_x86_64.whl")
    with tarfile.open(folder / "greet-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("PKG-INFO", "Metadata-Version: 2.2\nName: greet\nVersion: 1.0\n"), ("setup.py", "")):
            entry = tarfile.TarInfo(f"greet-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    dependencies = solver.dependencies(["python=3.11"], ["greet"], options=options)
    for fallback, ending in ((None, ".tar.gz"), (MACHINE, ".whl"), (Platform("linux-64", "2.31"), ".tar.gz")):
        (package,) = solver.solve(dependencies, PREFERRED, fallback=fallback).lock["pip"]
        assert package["file"].endswith(ending)


def test_error_is_that_of_the_machine(solver, tmp_path):
    options = link_options(tmp_path / "links", "greet-1.0-py3-none-manylinux_2_38_x86_64.whl")
    with pytest.raises(SolveError, match="manylinux_2_36"):
        solver.solve(solver.dependencies(["python=3.11"], ["greet"], options=options), PREFERRED, fallback=MACHINE)


def test_conda_packages_require_c_library(solver, channel):
    dependencies = solver.dependencies(["modern"], channels=[channel.url])
    machine = Platform("linux-64", "2.41")
    assert solver.solve(dependencies, PREFERRED, fallback=machine).lock["glibc"] == "2.40"
    # The Python of this channel requires 2.17. The package fast specifies no version.
    assert solver.solve(solver.dependencies(["words"], channels=[channel.url]), PREFERRED).lock["glibc"] == "2.17"
    assert solver.solve(solver.dependencies(["fast"], channels=[channel.url]), PREFERRED).lock["glibc"] == "2.28"


def test_an_index_of_a_project_names_files_of_allowed_folders_only(solver, tmp_path):
    """Other files are refused, even if the project lists their folder or a parent of it as a package source."""
    private, simple = tmp_path / "private", tmp_path / "server" / "simple" / "greet"
    no_index = link_options(private, "greet-1.0-py3-none-any.whl")
    simple.mkdir(parents=True)
    wheel = private / "greet-1.0-py3-none-any.whl"
    (simple / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    with serve_folder(tmp_path / "server") as port:
        address = f"http://127.0.0.1:{port}/simple"
        index = Option(f"--index-url {address}", "f", 1, "--index-url", address)
        everything = Option("--find-links /", "f", 2, "--find-links", "/")
        for options, error in (
            ((index,), SolveError),
            ((index, everything), ConfigError),
            (no_index, ConfigError),
        ):
            dependencies = solver.dependencies(pip=["greet"], options=options)
            with pytest.raises(error, match="outside the project") as caught:
                solver.solve(dependencies, host=HOST_PYTHON, folders=())
            assert "mlw settings add package-folders" in caught.value.hint or options[-1] is everything
        for options in ((index,), no_index):
            dependencies = solver.dependencies(pip=["greet"], options=options)
            solved = solver.solve(dependencies, host=HOST_PYTHON, folders=(private,))
            assert list(solved.files.values()) == [wheel]
            with pytest.raises(MlwError, match="outside the project"):  # the folder is no longer allowed
                solver.solve(dependencies, host=HOST_PYTHON, folders=())


# -- cache ---------------------------------------------------------------------------------------------


def test_result_is_cached(solver, channel, monkeypatch):
    dependencies = solver.dependencies(["words"], channels=[channel.url])
    first = solver.solve(dependencies)
    second = solver.solve(dependencies)
    assert (first.cached, second.cached, second.lock, second.files) == (False, True, first.lock, first.files)
    assert not solver.solve(dependencies, refresh=True).cached
    assert not solver.solve(dependencies, Platform("linux-64", "2.28")).cached
    monkeypatch.setattr(solving.time, "time", lambda: time.monotonic() + 1e10)
    assert not solver.solve(dependencies).cached


def test_damaged_cache_is_ignored(solver, channel):
    dependencies = solver.dependencies(["words"], channels=[channel.url])
    solver.solve(dependencies)
    (note,) = (solver.cache / "locks").iterdir()
    note.write_text(note.read_text().replace('"2.0"', '"2.1"'))
    assert not solver.solve(dependencies).cached


def test_changed_wheel_is_resolved_again(solver):
    wheel = solver.root / "greet-1.0-py3-none-any.whl"
    write_wheel(wheel, "greet", "1.0")
    dependencies = solver.dependencies(pip=["./greet-1.0-py3-none-any.whl"])
    first = solver.solve(dependencies, host=HOST_PYTHON)
    write_wheel(wheel, "greet", "1.0", b"changed = True\n")
    second = solver.solve(dependencies, host=HOST_PYTHON)
    assert not second.cached and second.lock["digest"] != first.lock["digest"]


@pytest.mark.parametrize("address", ["./simple", "simple"])
def test_copy_of_a_project_has_its_own_cache(solver, tmp_path, environ, address):
    """A fork uses the same relative path, but has other packages there."""
    (tmp_path / "fork").mkdir()
    fork = ProjectSolver(tmp_path / "fork", environ)
    fork.cache = solver.cache
    option = Option(f"--index-url {address}", "f", 1, "--index-url", address)
    locks = []
    for project, code in ((fork, b"evil = True\n"), (solver, b"")):
        folder = project.root / "simple" / "greet"
        folder.mkdir(parents=True)
        wheel = folder / "greet-1.0-py3-none-any.whl"
        write_wheel(wheel, "greet", "1.0", code)
        (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        solved = project.solve(project.dependencies(pip=["greet"], options=(option,)), host=HOST_PYTHON)
        (package,) = solved.lock["pip"]
        assert package["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert solved.files == {package["sha256"]: wheel}
        locks.append(solved)
    assert not locks[1].cached
    assert solver.solve(solver.dependencies(pip=["greet"], options=(option,)), host=HOST_PYTHON).cached


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
def test_copies_share_results_for_server_packages_only(solver, tmp_path, asked, shared):
    dependencies = solver.dependencies(**asked)
    keys = {
        solving._cache_key(Request(dependencies, LINUX, root), indexes_of(dependencies, {}, root), {})
        for root in (tmp_path / "owner", tmp_path / "fork")
    }
    assert len(keys) == (1 if shared else 2)


@pytest.mark.parametrize(("place", "shared"), [("wheels", False), ("/srv", True), ("https://simple.example", True)])
def test_folders_in_user_settings_are_shared(tmp_path, place, shared):
    settings = {"UV_DEFAULT_INDEX": place, "PIP_CONFIG_FILE": os.devnull}
    keys = {
        solving._cache_key(Request(Dependencies(), LINUX, root), indexes_of(Dependencies(), settings, root), settings)
        for root in (tmp_path / "owner", tmp_path / "fork")
    }
    assert len(keys) == (1 if shared else 2)


def test_source_of_a_package_is_not_its_identity(solver):
    lock = solver.solve(solver.dependencies(pip=["six==1.16.0"]), host=HOST_PYTHON).lock
    moved = {
        **lock,
        "glibc": "2.31",
        "pip": [{**package, "url": "https://mirror.example/x.whl"} for package in lock["pip"]],
    }
    other = {**lock, "pip": [{**package, "sha256": "0" * 64} for package in lock["pip"]]}
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
def test_newest_cuda_of_driver(driver, cuda):
    assert newest_cuda(driver) == cuda


def test_facts_become_a_platform():
    system = {"system": "Linux", "arch": "x86_64", "libc": "glibc 2.31", "kernel": "5.10.0-28-amd64"}
    facts = Facts.from_json({"os": system, "nvidia": {"driver": "550.54.14"}})
    platform = platform_of(facts)
    assert (platform.subdir, platform.libc, platform.cuda) == ("linux-64", "2.31", "12.4")
    assert platform.uv_name == "x86_64-manylinux_2_31"
    assert ("__linux", "5.10.0", "0") in platform.virtual_packages()
    assert platform_of(facts, glibc="2.30", cuda=False).uv_name == "x86_64-manylinux_2_28"
    assert platform_of(facts, cuda=False).cuda is None


def test_unsupported_platform():
    with pytest.raises(ConfigError, match="environments are not supported for Plan9"):
        platform_of(Facts.from_json({"os": {"system": "Plan9", "arch": "mips"}}))


# -- existing lock files -------------------------------------------------------------------------------

UV_PROJECT = '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = [\n    "six",\n]\n'


def test_uv_lock_is_not_resolved_again(solver, environ):
    (solver.root / "pyproject.toml").write_text(UV_PROJECT.replace('"six"', '"six==1.15.0"'))
    result = run_uv(["lock", "--quiet"], environ, solver.root)
    assert result.returncode == 0, result.stderr
    (solver.root / "pyproject.toml").write_text(UV_PROJECT)  # a new resolution would select a newer six
    dependencies = read_lockfile(solver.root / "uv.lock", solver.root)
    assert [line.text for line in dependencies.pip] == ["six==1.15.0"]
    lock = solver.solve(dependencies, host=HOST_PYTHON).lock
    assert names(lock["pip"]) == {"six": "1.15.0"}


@pytest.mark.parametrize("here", [".", "project", "project/deep", "elsewhere"])
def test_a_uv_lock_is_found_from_any_folder(solver, environ, tmp_path, monkeypatch, here):
    (solver.root / "pyproject.toml").write_text(UV_PROJECT)
    result = run_uv(["lock", "--quiet"], environ, solver.root)
    assert result.returncode == 0, result.stderr
    (tmp_path / here).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / here)
    root = Path(os.path.relpath(solver.root))
    dependencies = read_dependencies(root / "pyproject.toml", root)
    request = Request(dependencies, LINUX, root, host=HOST_PYTHON, installer=VERSION)
    assert names(solve(request, solver.cache, solver.environ).lock["pip"]).keys() == {"six"}


def test_a_uv_lock_in_a_folder_of_the_project(solver, environ, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (solver.root / "trainer").mkdir()
    (solver.root / "trainer" / "pyproject.toml").write_text(UV_PROJECT)
    assert run_uv(["lock", "--quiet"], environ, solver.root / "trainer").returncode == 0
    dependencies = read_dependencies(solver.root / "trainer" / "uv.lock", solver.root)
    assert names(solver.solve(dependencies, host=HOST_PYTHON).lock["pip"]).keys() == {"six"}


def test_a_pyproject_alone_is_solved(solver):
    (solver.root / "pyproject.toml").write_text(UV_PROJECT)
    dependencies = read_lockfile(solver.root / "pyproject.toml", solver.root)
    assert (dependencies.python, dependencies.pip[0].line) == (">=3.9", 6)
    assert names(solver.solve(dependencies, host=HOST_PYTHON).lock["pip"]).keys() == {"six"}


def test_a_pixi_lock_is_read(solver, channel):
    solved = solver.solve(solver.dependencies(["hello-py", "python"], channels=[channel.url]))
    write_pixi_lock(solver, solved, "https://channel.example")
    dependencies = read_lockfile(solver.root / "pixi.lock", solver.root)
    assert (dependencies.python, {package.name for package in dependencies.conda}) == (
        VERSION,
        {"python", "hello-py", "words"},
    )
    lock = solver.solve(dependencies).lock
    assert names(lock["conda"]) == names(solved.lock["conda"]) and lock["digest"] == solved.lock["digest"]
    with pytest.raises(SolveError, match="not locked for linux-aarch64; available: linux-64"):
        solver.solve(dependencies, Platform("linux-aarch64", "2.36"))


def test_a_pixi_lock_names_files_of_allowed_folders_only(solver, channel):
    solved = solver.solve(solver.dependencies(["hello-py", "python"], channels=[channel.url]))
    write_pixi_lock(solver, solved, channel.url)
    dependencies = read_lockfile(solver.root / "pixi.lock", solver.root)
    assert solver.solve(dependencies).files.items() >= solved.files.items() - tool_files(solved)
    for listed in (channel.url, "https://channel.example"):
        write_pixi_lock(solver, solved, channel.url, listed)
        with pytest.raises(SolveError, match="outside the project"):
            solver.solve(dependencies, folders=())


def test_a_package_of_a_channel_is_a_regular_file(solver, channel):
    """A link to a device in a channel of the project is refused, because copying it would fill the disk."""
    solved = solver.solve(solver.dependencies(["hello-py", "python"], channels=[channel.url]))
    folder = solver.root / "channel"
    shutil.copytree(channel.folder, folder)
    write_pixi_lock(solver, solved, folder.as_uri())
    asked = read_lockfile(solver.root / "pixi.lock", solver.root)
    assert solver.solve(asked).lock["digest"] == solved.lock["digest"]
    package = next(path for path in folder.rglob("words-2.0*"))
    package.unlink()
    package.symlink_to("/dev/zero")
    for dependencies in (asked, solver.dependencies(["hello-py", "python"], channels=["./channel"])):
        with pytest.raises(SolveError, match="words resolves to .* which is not a package"):
            solver.solve(dependencies, refresh=True)


def test_local_packages_are_identified_by_content(solver, channel):
    """Old channels list only MD5 digests, so mlw computes the SHA-256 digests of their packages."""
    folder = solver.root / "channel"
    shutil.copytree(channel.folder, folder)
    for path in folder.glob("*/repodata.json"):
        data = json.loads(path.read_text())
        for record in (*data["packages"].values(), *data["packages.conda"].values()):
            del record["sha256"]
        path.write_text(json.dumps(data))
    solved = solver.solve(solver.dependencies(["hello-py", "python"], channels=["./channel"]))
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.glob("*/*") if path.is_file()}
    conda = {package["sha256"] for package in solved.lock["conda"]}
    assert len(conda) == len(solved.lock["conda"]) > 1 and conda <= set(digests)
    assert {sha256: digests[sha256] for sha256 in conda}.items() <= solved.files.items()
    same = solver.solve(solver.dependencies(["hello-py", "python"], channels=[channel.url]))
    assert same.lock["digest"] == solved.lock["digest"]


def tool_files(solved):
    return {(tool["sha256"], solved.files.get(tool["sha256"])) for tool in solved.lock["tools"]}


def write_pixi_lock(solver, solved, channel_url, listed=None):
    """Write a pixi.lock with packages at the URL of a channel. ``listed``: the channel URL that the file lists."""
    packages, refs = [], []
    for package in solved.lock["conda"]:
        address = f"{channel_url}/{package['subdir']}/{package['file']}"
        refs.append(f"      - conda: {address}\n")
        noarch = f"  noarch: {package['noarch']}\n" if package.get("noarch") else ""
        depends = "".join(f"  - {text}\n" for text in package["depends"])
        packages.append(
            f"- conda: {address}\n  name: {package['name']}\n  version: '{package['version']}'\n"
            f"  build: '{package['build']}'\n  build_number: 0\n  subdir: {package['subdir']}\n"
            f"  sha256: {package['sha256']}\n  md5: {package['md5']}\n{noarch}"
            + (f"  depends:\n{depends}" if depends else "")
            + f"  size: {package['size']}\n"
        )
    text = (
        f"version: 6\nenvironments:\n  default:\n    channels:\n    - url: {listed or channel_url}/\n    packages:\n"
        f"      linux-64:\n{''.join(refs)}packages:\n{''.join(packages)}"
    )
    (solver.root / "pixi.lock").write_text(text)


def write_wheel(path: Path, name: str, version: str, code: bytes = b"") -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


# -- unreachable sources ----------------------------------------------------------------------------------

NOBODY = "http://127.0.0.1:9"  # nothing listens on this port


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
def test_unreachable_index_is_no_project_error(solver, asked, words, hint):
    solver.environ |= {"PIP_INDEX_URL": f"{NOBODY}/simple", "UV_HTTP_RETRIES": "0"}
    with pytest.raises(NotFetched) as caught:
        solver.solve(solver.dependencies(**asked), host=HOST_PYTHON)
    assert words in caught.value.message and "Connection refused" in caught.value.message
    assert caught.value.exit_code == 69 and hint in caught.value.hint


def test_not_found_is_no_network_error(solver, tmp_path):
    """A missing package is reported as an error of the project, even if its name looks like a network error."""
    with serve_folder(tmp_path) as port:
        solver.environ |= {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "UV_HTTP_RETRIES": "0"}
        for dependencies in (
            {"pip": ["connection-refused-timed-out"]},
            {"conda": ["six"], "channels": [f"http://127.0.0.1:{port}/misspelt"]},
        ):
            with pytest.raises(SolveError) as caught:
                solver.solve(solver.dependencies(**dependencies), host=HOST_PYTHON)
            assert caught.value.exit_code == 78, caught.value.message
            assert re.match("check the (spelling|names)", caught.value.hint) and "internet" not in caught.value.hint


@pytest.mark.parametrize("space", [" ", "\n           "])
def test_output_may_be_wrapped_anywhere(space, tmp_path):
    """uv wraps its messages, and the positions of the line breaks depend on the names in them."""
    request = SimpleNamespace(python="3.11", file="aml_config/conda_dependencies.yml")
    stderr = f"error: Because connection-refused was not found in the{space}package registry and you require it, …"
    error = pip_solve._explain(stderr, request, tmp_path, None)
    assert error.exit_code == 78 and error.hint.startswith("check the spelling in aml_config"), error.hint


def test_alternative_to_unreachable_python(solver):
    """The hint suggests the Python of the machine. The lock contains it, but the lock's digest ignores it."""
    dependencies = solver.dependencies(conda=["python=3.9"])
    lock = solver.solve(dependencies, host=HOST_PYTHON).lock
    assert lock["python"]["source"] == "uv" and lock["digest"] == digest_of(lock)
    lock["python"]["url"] = f"{NOBODY}/1/cpython.tar.gz"
    store = Root(str(solver.cache / "store"))
    with pytest.raises(NotFetched) as caught:
        collect_packages(lock, {"python": True}, store)
    assert caught.value.message == f"Python {lock['python']['version']} cannot be fetched: Connection refused"
    short = ".".join(VERSION.split(".")[:2])
    assert caught.value.hint.startswith(
        f"the machine has Python {VERSION}: write python={short} in {dependencies.file}, or "
    )
    assert caught.value.exit_code == 69 and caught.value.more == "environment-failed"
    del lock["instead"]  # locks for containers and from older clients have no such entry
    with pytest.raises(NotFetched) as caught:
        collect_packages(lock, {"python": True}, store)
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
def test_index_host_in_user_settings(environ, settings, place):
    assert index_host({**environ, **settings}) == place


# -- uploads -------------------------------------------------------------------------------------------


def test_all_packages_for_offline_target(solver):
    dependencies = solver.dependencies(pip=["six==1.16.0"])
    lock = solver.solve(dependencies, host=HOST_PYTHON).lock
    store = Root(str(solver.cache / "store"))
    every = [entry["sha256"] for entry in (*lock["pip"], *lock["tools"])]
    packages = collect_packages(lock, {"digests": [*every, "f" * 64]}, store)
    assert set(packages) == set(every), "only what the lock names"
    for sha256, package in packages.items():
        assert hashlib.sha256(package.path.read_bytes()).hexdigest() == sha256 == package.sha256
    assert collect_packages(lock, {"digests": []}, store) == {}


def test_private_packages_are_fetched_locally(solver, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    store = Root(str(solver.cache / "store"))
    with serve_folder(links, "somebody:hush") as port:
        address = f"http://somebody:hush@127.0.0.1:{port}/"
        option = Option(f"--find-links {address}", "f", 1, "--find-links", address)
        dependencies = solver.dependencies(pip=["greet"], options=(option,))
        solved = solver.solve(dependencies, host=HOST_PYTHON)
        (entry,) = solved.lock["pip"]
        store_packages(solved, dependencies, store, solver.environ)
        assert os.path.isfile(store.package(entry["sha256"])) and "hush" not in json.dumps(solved.lock)
        os.unlink(store.package(entry["sha256"]))
        with pytest.raises(SolveError, match="cannot be fetched from this machine"):
            store_packages(solved, solver.dependencies(pip=["greet"]), store, solver.environ)


@pytest.mark.parametrize("kept", [False, True])
def test_token_in_index_path_is_not_sent(solver, tmp_path, kept):
    """The server repeats the token in package URLs. mlw uploads these packages, and the lock has only the variable."""
    links = tmp_path / "links" / "hush-5d1e"
    links.mkdir(parents=True)
    write_wheel(links / "greet-1.0-py3-none-any.whl", "greet", "1.0")
    store = Root(str(solver.cache / "store"))
    with serve_folder(links.parent) as port:
        address = f"http://127.0.0.1:{port}"
        solver.environ |= {"PIP_FIND_LINKS": address + "/${TOK}/", "TOK": "hush-5d1e"}
        dependencies = solver.dependencies(pip=["greet"])
        solved = solver.solve(dependencies, host=HOST_PYTHON)
        if kept:
            solved = solver.solve(dependencies, host=HOST_PYTHON)
        (entry,) = solved.lock["pip"]
        assert entry["url"] == address + "/${TOK}/greet-1.0-py3-none-any.whl" and entry["private"]
        assert "hush" not in json.dumps(solved.lock) and solved.cached is kept
        target = Root(str(tmp_path / "target"))
        assert entry["sha256"] in find_missing(target, solved.lock)["digests"]
        store_packages(solved, dependencies, store, solver.environ)
        assert os.path.isfile(store.package(entry["sha256"]))
        os.unlink(store.package(entry["sha256"]))
    with pytest.raises(SolveError, match="cannot be fetched from this machine") as failed:
        store_packages(solved, dependencies, store, solver.environ)
    assert "hush" not in failed.value.message and "${TOK}" in failed.value.message


def test_token_is_for_its_server_only(solver):
    """An untrusted lock must not be able to send the token to another server."""
    solver.environ |= {"PIP_INDEX_URL": "https://ada:${PW}@index.example/${TOK}/simple", "TOK": "hush", "PW": "word"}
    secrets = SecretVariables.from_environ({**solver.environ, "OTHER": "private"})
    assert secrets.fill("https://index.example/${TOK}/x.whl") == "https://index.example/hush/x.whl"
    for evil in (
        *("https://evil.example/${TOK}/x", "http://index.example/${TOK}/x", "https://index.example:1/${TOK}/x"),
        *("https://index.example/${OTHER}/x", "https://index.example/${PW}/x"),
    ):
        assert secrets.fill(evil) == evil


def test_python_archive_is_uploaded(solver, tmp_path):
    """The archive keeps its original name, which the builder on the target expects."""
    name = "cpython-3.12.1+20240107-x86_64-install_only.tar.gz"
    (tmp_path / "20240107").mkdir()
    (tmp_path / "20240107" / name).write_bytes(b"an archive")
    store = Root(str(solver.cache / "store"))
    with serve_folder(tmp_path) as port:
        url = f"http://127.0.0.1:{port}/20240107/{name.replace('+', '%2B')}"
        lock = {"python": {"source": "uv", "url": url}, "conda": [], "pip": []}
        packages = collect_packages(lock, {"digests": [], "python": True}, store)
    assert [*packages] == [f"pythons/{name}"] and packages[f"pythons/{name}"].path.read_bytes() == b"an archive"
    assert collect_packages(lock, {"digests": [], "python": True}, store) == packages, (
        "fetched once, served from here from then on"
    )
