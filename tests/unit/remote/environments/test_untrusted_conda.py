"""Conda environments for containers: hostile packages write nothing outside of them, and bytecode is not shared."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rattler

from mlworkbench.remote.environments import bytecode, conda_install, untrusted_conda
from mlworkbench.remote.environments.build_tools import NoEnvironment
from mlworkbench.remote.environments.interpreter_stub import replace_facts
from mlworkbench.remote.environments.source_builds import check_build_location
from tests.machines.channel import Channel


def lock(**python: Any) -> dict[str, Any]:
    package = {"name": "python", "version": "3.12.4", **python}
    return {"python": {"source": "conda", "version": "3.12.4"}, "conda": [package], "pip": []}


def test_library_folder_is_in_the_prefix():
    assert untrusted_conda.library_of(lock()) == "lib/python3.12"
    assert (
        untrusted_conda.library_of(lock(python_site_packages_path="lib/python3.13t/site-packages")) == "lib/python3.13t"
    )
    with pytest.raises(NoEnvironment, match="invalid site-packages folder"):
        untrusted_conda.library_of(lock(python_site_packages_path="../../../.config/site-packages"))


@pytest.mark.parametrize(
    "path", ["a/../../../outside/keys", "/outside/keys", "__clobbers__/other/x", "./share/y", "share//y"]
)
def test_package_with_an_outside_path_is_refused(tmp_path, path):
    channel = Channel(tmp_path / "channel")
    file = channel.add("good", "1.0", {"share/x": b"x"}, noarch="generic")
    good = package(channel.folder / "noarch" / file, "good")
    file = channel.add("bad", "1.0", {"share/x": b"x"}, noarch="generic", listed={"share/x": path})
    bad = package(channel.folder / "noarch" / file, "bad")
    check(tmp_path, good)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad contains a path outside the environment"):
            check(tmp_path, bad)
    assert [path.name for path in (tmp_path / "cache").glob("*.paths-*")] == [good["sha256"] + ".paths-1"]


def test_metadata_size_is_limited(tmp_path, monkeypatch):
    channel = Channel(tmp_path / "channel")
    file = channel.add("bad", "1.0", {f"share/{number}": b"x" for number in range(100)}, noarch="generic")
    bad = package(channel.folder / "noarch" / file, "bad")
    monkeypatch.setattr(conda_install, "_MAX_METADATA", 1000)
    with pytest.raises(ValueError, match=r"bad contains invalid metadata: info/paths.json is too large"):
        check(tmp_path, bad)


def check(tmp_path: Path, package: dict[str, Any]) -> dict[str, Any]:
    """Unpack a package and check its paths."""
    (tmp_path / "cache" / "work").mkdir(parents=True, exist_ok=True)
    asyncio.run(conda_install.unpack_files([package], str(tmp_path / "cache"), str(tmp_path / "cache" / "work")))
    return conda_install.check_paths(rattler, package, str(tmp_path / "cache"))


def package(path: Path, name: str) -> dict[str, str]:
    return {"name": name, "from": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def install(tmp_path: Path, *packages: tuple[str, dict[str, Any]]) -> tuple[int, str]:
    """Install packages as for a container target; return exit status and output."""
    channel = Channel(tmp_path / "channel")
    entries = []
    for name, parts in packages:
        parts = {"files": {}, "noarch": "generic", **parts}
        path = channel.folder / "noarch" / channel.add(name, "1.0", **parts)
        record = {"version": "1.0", "build": "0", "build_number": 0, "subdir": "noarch", "depends": []}
        entries.append({**package(path, name), **record, "noarch": parts["noarch"], "url": path.as_uri()})
    request = {
        "path": str(Path(rattler.__file__).parents[1]),
        "prefix": str(tmp_path / "home" / "envs" / "prefix"),
        "cache": str(tmp_path / "cache"),
        "packages": entries,
        "work": str(tmp_path / "cache" / "work"),
        "check": True,
        "library": "lib/python3.12",
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [sys.executable, "-I", "-S", conda_install.__file__, str(tmp_path / "request.json")]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


LARGE = os.urandom(2_000_000)  # large, so that the other package is installed first
FILE = {"files": {"share/z/.bashrc": b"hostile", "share/large": LARGE}}
HOSTILE_LINKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dot": ({"links": {"share/z": "../../../.."}, "listed": {"share/z": "./share/z"}}, FILE),
    "dot below": (
        {"links": {"share/z": "../../../.."}},
        {**FILE, "listed": {path: "./" + path for path in FILE["files"]}},
    ),
    "relative": ({"links": {"share/z": "../../../.."}}, {}),
    "absolute": ({"links": {"share/z": "/etc"}}, {}),
    "by way of another link": ({"links": {"a/b/c": "../..", "share/z": "../a/b/c/../../x"}}, {}),
    "of another package": ({"links": {"a/b/c": "../.."}}, {"links": {"share/z": "../a/b/c/../../x"}}),
    "endless": ({"links": {"share/z": "z/z/z"}}, {}),
}


@pytest.mark.parametrize("case", HOSTILE_LINKS)
def test_hostile_links_are_refused_before_the_installation(tmp_path, case):
    (tmp_path / "home").mkdir()
    bashrc = tmp_path / "home" / ".bashrc"
    bashrc.write_text("mine")
    first, second = HOSTILE_LINKS[case]
    status, output = install(tmp_path, ("first", first), ("second", second))
    assert bashrc.read_text() == "mine", output
    assert status and "contains a path outside the environment: " in output, output
    assert not (tmp_path / "home" / "envs").exists(), "the check precedes the installation"


def test_paths_below_a_link_of_another_package_are_refused(tmp_path):
    second = {"files": {"site-packages/words/x.py": b"x"}, "noarch": "python"}
    link = {"links": {"lib/python3.12/site-packages/words": "../../../share"}}
    status, output = install(tmp_path, ("first", link), ("second", second))
    text = "second contains paths under lib/python3.12/site-packages/words, which is a link in first"
    assert status and text in output, output


PLACEHOLDER = {"prefix_placeholder": "/opt/" + "placeholder_" * 5, "file_mode": "text"}


@pytest.mark.parametrize("case", ["file", "file with prefix", "folder", "metadata"])
def test_packages_cannot_copy_files_of_the_host(tmp_path, case):
    secret = tmp_path / "home" / "key"
    secret.parent.mkdir()
    secret.write_text("secret")
    parts: dict[str, Any] = {"links": {"lib/x": str(secret)}, "as_files": {"lib/x": {}}}
    if case == "file with prefix":
        parts["as_files"] = {"lib/x": PLACEHOLDER}
    if case == "folder":
        parts = {"files": {"x": b"x"}, "unlisted": {"lib": str(secret.parent)}, "listed": {"x": "lib/key"}}
    if case == "metadata":
        parts = {"files": {"x": b"x"}, "unlisted": {"info/no_link": str(secret)}}
    status, output = install(tmp_path, ("bad", parts))
    copies = [
        path for path in (tmp_path / "home" / "envs").rglob("*") if path.is_file() and b"secret" in path.read_bytes()
    ]
    assert copies == [] and os.stat(secret).st_nlink == 1, output
    expected = {"folder": "path under a link", "metadata": "invalid metadata"}.get(case, "a different file type")
    assert status and expected in output, output


def test_valid_links_are_installed(tmp_path):
    files = {"lib/libx.so.1": b"x", "share/terminfo/v/vt100": b"x", "python-scripts/tool": b"x"}
    links = {
        "lib/libx.so": "libx.so.1",
        "lib/terminfo": "../share/terminfo",
        "share/vt": "../lib/terminfo/v/../v/vt100",
        "share/dangling": "../lib/./missing",
        "share/self": "self",
    }
    pure = {"files": {"site-packages/x.py": b"x"}, "links": {"site-packages/y.py": "x.py"}, "noarch": "python"}
    pure["links"]["site-packages/top"] = "../../../share/vt"  # stays inside the prefix after installation
    packages = (("first", {"files": files, "links": links}), ("other", {"links": {"share/same": "vt"}}))
    for _ in range(2):  # the second time, cached check results are used
        status, output = install(tmp_path, *packages)
        assert status == 0, output
    prefix = tmp_path / "home" / "envs" / "prefix"
    assert {path: os.readlink(prefix / path) for path in links} == links
    channel = Channel(tmp_path / "channel")
    entry = package(channel.folder / "noarch" / channel.add("pure", "1.0", **pure), "pure")
    content = check(tmp_path, entry)
    conda_install.check_together([({**entry, "noarch": "python"}, content)], "lib/python3.12")


def test_link_out_of_the_prefix_is_refused(tmp_path):
    prefix = tmp_path / "prefix"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib64").symlink_to("lib")
    untrusted_conda.check_links(str(prefix))
    (prefix / "lib" / "python3.12").symlink_to(tmp_path)
    with pytest.raises(NoEnvironment, match=r"points outside the environment: lib/python3\.12 -> "):
        untrusted_conda.check_links(str(prefix))


def test_uv_gets_facts_of_the_prefix_from_another_python(tmp_path):
    """The Python of the prefix is never started: the host's Python answers uv's query in its place."""
    facts: dict[str, Any] = {
        "markers": {"python_version": "3.9", "sys_platform": "linux"},
        "scheme": {"purelib": "/usr/lib/python3.9/site-packages"},
        "virtualenv": {},
        "sys_executable": "/usr/bin/python3",
        "sys_base_executable": "/usr/bin/python3",
        "sys_prefix": "/usr",
        "sys_path": ["/usr/lib/python3.9"],
    }
    program = tmp_path / "print.py"
    program.write_text(f"print({json.dumps(json.dumps(facts))})")
    python = untrusted_conda.write_interpreter(str(tmp_path), "/prefix", lock())
    result = subprocess.run([python, str(program)], stdout=subprocess.PIPE, check=True)
    answer = json.loads(result.stdout)
    assert answer["sys_executable"] == "/prefix/bin/python" and answer["markers"]["python_full_version"] == "3.12.4"
    assert answer["markers"]["sys_platform"] == "linux"
    assert answer["scheme"]["purelib"] == "/prefix/lib/python3.12/site-packages"
    with pytest.raises(ValueError, match="a path that mlw does not provide: /usr/new"):
        replace_facts({**facts, "new": ["/usr/new"]}, "/prefix", "3.12.4", "lib/python3.12")


def test_bytecode_of_a_container_is_moved_without_following_links(tmp_path):
    library, out, outside = tmp_path / "library", tmp_path / "out", tmp_path / "outside"
    for folder in (library / "a", out / "a" / "__pycache__", out / "new" / "__pycache__", outside / "__pycache__"):
        folder.mkdir(parents=True)
    (library / "link").symlink_to(outside)
    (out / "link" / "__pycache__").mkdir(parents=True)
    for name in ("a/__pycache__/x.cpython-312.pyc", "new/__pycache__/x.pyc", "link/__pycache__/x.pyc", "a/x.pyc"):
        (out / name).write_bytes(b"code")
    (out / "a" / "__pycache__" / "y.pyc").symlink_to("/etc/passwd")
    (outside / "__pycache__" / "mine.pyc").write_bytes(b"mine")
    (out / "b").symlink_to(outside)
    (library / "b").mkdir()
    bytecode.move_compiled(str(library), str(out))
    assert [str(path.relative_to(library)) for path in library.rglob("*.pyc")] == ["a/__pycache__/x.cpython-312.pyc"]
    assert [path.name for path in outside.rglob("*.pyc")] == ["mine.pyc"]


def test_bytecode_compiled_in_a_container_is_not_shared():
    conda, uv = {"source": "conda"}, {"source": "uv"}
    assert bytecode._can_share_bytecode({"python": conda, "image": None})
    assert bytecode._can_share_bytecode({"python": uv, "image": "some/image"})
    assert not bytecode._can_share_bytecode({"python": conda, "image": "some/image"})
    assert not bytecode._can_share_bytecode({"python": conda}), "an older version may have compiled it in a container"


def test_conda_python_runs_only_in_the_image_of_its_lock():
    check_build_location({**lock(), "built_in": "one:1"}, "one:1")
    check_build_location(lock(), None)
    for built_in, image in ((None, "one:1"), ("one:1", "two:2"), ("one:1", None)):
        with pytest.raises(NoEnvironment, match="the environment uses Python from conda"):
            check_build_location({**lock(), "built_in": built_in}, image)
