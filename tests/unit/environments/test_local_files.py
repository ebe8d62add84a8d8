"""Local files and repositories outside the project, requested by a project or its index, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.local_files import (
    allowed_file,
    check_repository,
    check_sources,
    local_folders,
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
    path = wheel
    if where == "link":
        path = root / wheel.name
        path.symlink_to(wheel)
    with pytest.raises(SolveError, match="outside the project"):
        allowed_file("private", path, [root])
    assert allowed_file("private", path, [root, tmp_path]) == wheel.resolve()


def test_a_package_of_the_project_is_taken(root: Path):
    wheel = root / "own-1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    assert allowed_file("own", root / "aml_config" / ".." / wheel.name, [root]) == wheel.resolve()


def test_folders_among_addresses():
    places = ("https://packages.example.com/simple", "file:///srv/wheels", "/opt/wheels", "")
    assert local_folders((*places, "wheels"), Path("/project")) == [
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
def test_requirements_cannot_inject_options(root: Path, text: str, message: str):
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
def test_folder_outside_the_project_needs_consent(root: Path, tmp_path: Path, text: str, place: str):
    (tmp_path / "wheels").mkdir()
    file = root / "aml_config" / "conda_dependencies.yml"
    file.write_text(text.format(f"{tmp_path}{place}"))
    dependencies = read_dependencies(file, root)
    with pytest.raises(ConfigError, match="outside the project") as caught:
        check_sources(dependencies, root, [tmp_path / "other", tmp_path / "wheels" / "deeper"])
    assert "mlw settings add package-folders" in str(caught.value.hint) and caught.value.path == str(file)
    check_sources(dependencies, root, [tmp_path])


@pytest.mark.parametrize("text", SOURCES)
def test_folder_of_the_project_needs_no_consent(root: Path, text: str):
    (root / "wheels").mkdir()
    (root / "a.yml").write_text(text.format(root / "wheels"))
    check_sources(read_dependencies(root / "a.yml", root), root, [])


def test_link_in_the_project_is_no_consent(root: Path, tmp_path: Path):
    (root / "channel").symlink_to(tmp_path)
    (root / "a.yml").write_text("channels:\n  - ./channel\ndependencies: []\n")
    with pytest.raises(ConfigError, match="outside the project"):
        check_sources(read_dependencies(root / "a.yml", root), root, [])
