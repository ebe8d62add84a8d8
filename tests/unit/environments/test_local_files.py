"""What a project or its index names of this machine: files and repositories outside of the project stay there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.local_files import (
    allowed_file,
    check_repository,
    check_sources,
    folders_of,
    local_path,
)
from mlworkbench.errors import ConfigError, SolveError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project" / "aml_config").mkdir(parents=True)
    return tmp_path / "project"


def test_a_file_that_an_index_names_is_not_taken(root: Path, tmp_path: Path):
    secret = tmp_path / "id_rsa"
    secret.write_text("PRIVATE KEY")
    path = local_path({"url": secret.as_uri(), "hashes": {}}, root)
    assert path == secret
    with pytest.raises(SolveError, match="not a package"):
        allowed_file("bait", secret, [root])


@pytest.mark.parametrize("where", ["outside", "link"])
def test_a_package_outside_of_the_project_is_not_taken(root: Path, tmp_path: Path, where: str):
    wheel = tmp_path / "private-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    place = wheel
    if where == "link":
        place = root / wheel.name
        place.symlink_to(wheel)
    with pytest.raises(SolveError, match="outside the project"):
        allowed_file("private", place, [root])
    assert allowed_file("private", place, [root, tmp_path]) == wheel.resolve()


def test_a_package_of_the_project_is_taken(root: Path):
    wheel = root / "own-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    assert allowed_file("own", root / "aml_config" / ".." / wheel.name, [root]) == wheel.resolve()


def test_folders_among_addresses():
    places = ("https://packages.example.com/simple", "file:///srv/wheels", "/opt/wheels", "")
    assert folders_of((*places, "wheels"), Path("/project")) == [
        Path("/srv/wheels"),
        Path("/opt/wheels"),
        Path("/project/wheels"),
    ]


@pytest.mark.parametrize("url", ["file:///home/ada/private", "git+file:///home/ada/private", "/home/ada/private", ""])
def test_a_repository_of_this_machine_is_refused(url: str):
    with pytest.raises(SolveError, match="not a repository on a server"):
        check_repository("bait", url)


def test_a_repository_on_a_server_is_not():
    check_repository("good", "https://git.example.com/ada/good")
    check_repository("good", "ssh://git@git.example.com/ada/good")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('- "http://h.example/a-1.0-py3-none-any.whl\\n--index-url http://evil.example"', "line break"),
        ('- "six\\u2028-r /etc/passwd"', "line break|not a pip requirement"),
        ("- \"six ; python_version > '3'\\r--pre\"", "line break|not a pip requirement"),
        ('- "--extra-index-url http://a.example\\n-r /etc/passwd"', "line break|unsupported option|control"),
        ("- bait @ git+file:///home/ada/private", "local repository"),
        ("- git+file:///home/ada/private#egg=bait", "local repository"),
        ("- bait @ git+http://git.example.org:8080/x.git", "unencrypted"),
        ("- git+git://git.example.org/x#egg=bait", "unencrypted"),
    ],
)
def test_what_a_file_of_packages_cannot_smuggle_in(root: Path, text: str, message: str):
    path = root / "aml_config" / "conda_dependencies.yml"
    path.write_text(f"name: x\ndependencies:\n  - python=3.11\n  - pip:\n    {text}\n")
    with pytest.raises(ConfigError, match=message):
        read_dependencies(path, root)


SOURCES = [
    "dependencies:\n  - pip:\n    - --find-links {}\n",
    "dependencies:\n  - pip:\n    - --index-url file://{}\n",
    "dependencies:\n  - pip:\n    - --extra-index-url {}\n",
    "channels:\n  - file://{}\ndependencies: []\n",
    "dependencies:\n  - file://{}::words\n",
]


@pytest.mark.parametrize("text", SOURCES)
@pytest.mark.parametrize("place", ["", "/wheels", "/project/../wheels"])
def test_a_folder_outside_of_the_project_needs_the_word_of_the_user(root: Path, tmp_path: Path, text: str, place: str):
    (tmp_path / "wheels").mkdir()
    file = root / "aml_config" / "conda_dependencies.yml"
    file.write_text(text.format(f"{tmp_path}{place}"))
    asked = read_dependencies(file, root)
    with pytest.raises(ConfigError, match="outside the project") as caught:
        check_sources(asked, root, [tmp_path / "other", tmp_path / "wheels" / "deeper"])
    assert "mlw settings add package-folders" in str(caught.value.hint) and caught.value.path == str(file)
    check_sources(asked, root, [tmp_path])


@pytest.mark.parametrize("text", SOURCES)
def test_a_folder_of_the_project_needs_none(root: Path, text: str):
    (root / "wheels").mkdir()
    (root / "a.yml").write_text(text.format(root / "wheels"))
    check_sources(read_dependencies(root / "a.yml", root), root, [])


def test_a_link_in_the_project_is_not_the_word_of_the_user(root: Path, tmp_path: Path):
    (root / "channel").symlink_to(tmp_path)
    (root / "a.yml").write_text("channels:\n  - ./channel\ndependencies: []\n")
    with pytest.raises(ConfigError, match="outside the project"):
        check_sources(read_dependencies(root / "a.yml", root), root, [])
