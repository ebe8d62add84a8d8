"""The content of the wheel and of the sdist."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.building import REPOSITORY, Archives, build_all

SOURCE = REPOSITORY / "src"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return build_all(tmp_path_factory.mktemp("archives"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="module")
def wheel(archives: Archives) -> dict[str, bytes]:
    return contents(archives.wheel)


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    (name,) = [name for name in wheel if re.fullmatch(r"mlworkbench-[^/]+\.dist-info/METADATA", name)]
    return Parser().parsestr(wheel[name].decode())


def sources() -> set[str]:
    """Return all files of the package except bytecode."""
    files = {path for path in SOURCE.rglob("*") if path.is_file()}
    return {path.relative_to(SOURCE).as_posix() for path in files if "__pycache__" not in path.parts}


def package_files(names: set[str]) -> set[str]:
    """Return the names of the package's files, without the metadata of the wheel."""
    return {name for name in names if not re.match(r"mlworkbench-[^/]+\.dist-info/", name)}


def test_the_wheel_is_the_package_and_nothing_else(wheel):
    assert package_files(set(wheel)) == sources()
    assert {name: data for name, data in wheel.items() if package_files({name})} == {
        name: (SOURCE / name).read_bytes() for name in package_files(set(wheel))
    }


def test_what_is_no_code_is_in_the_wheel(wheel):
    for name in (
        "py.typed",
        "samples/shared/base/.mlwignore",
        "samples/default/readme.md",
        "samples/default/sample.json",
        "remote/__main__.py",
        "remote/inrun/mlworkbench_inrun-1.dist-info/entry_points.txt",
        "cli/completion_data.json",
        "ui/static/mlw.css",
        "ui/components/chart.js",
        "ui/bash.rc",
    ):
        assert f"mlworkbench/{name}" in wheel, name
    assert any(re.search(r"-[^/]+\.dist-info/licenses/LICENSE$", name) for name in wheel)


def test_nothing_of_this_machine_is_in_the_wheel(wheel):
    assert [name for name in wheel if re.search(r"__pycache__|\.pyc$|node_modules|(^|/)tests?/|\.orig$|~$", name)] == []
    marks = [str(place).encode() for place in (REPOSITORY, Path.home() / ".pyenv", SOURCE)]
    assert [name for name, data in wheel.items() if any(mark in data for mark in marks)] == []


def test_the_sdist_builds_the_same_wheel(archives):
    assert contents(archives.again) == contents(archives.wheel)


def test_the_sdist_has_what_a_build_needs(archives):
    with tarfile.open(archives.sdist) as file:
        names = {member.name.partition("/")[2] for member in file if not member.isdir()}
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} == sources()
    beside = {name for name in names if not name.startswith("src/")}
    assert beside == {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"}


def test_an_index_would_take_them(archives):
    words = [sys.executable, "-m", "twine", "check", "--strict", archives.sdist, archives.wheel]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_metadata_says_what_it_is(metadata):
    assert metadata["Name"] == "mlworkbench"
    assert metadata["License-Expression"] == "MIT" and metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Summary"] and metadata["Keywords"]
    classifiers = metadata.get_all("Classifier")
    oldest = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in classifiers
    assert "Typing :: Typed" in classifiers


def test_every_extra_that_the_documentation_names_is_one(metadata):
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    named = {
        word for page in pages for words in re.findall(r"\.\[([\w,]+)\]", page.read_text()) for word in words.split(",")
    }
    assert {"ui", "mlflow"} <= named <= set(metadata.get_all("Provides-Extra"))
