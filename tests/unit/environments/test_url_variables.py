"""Variables in a project's URLs: which are expanded, for which hosts, and which environment variables uv receives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mlworkbench.environments.dependencies import Dependencies, Line, Option, Requirement
from mlworkbench.environments.dependency_parser import parse_pip_entry
from mlworkbench.environments.package_sources import indexes_of, user_indexes
from mlworkbench.environments.url_variables import AllowedVariables, expand_credentials
from mlworkbench.environments.uv_variables import uv_environment
from mlworkbench.errors import ConfigError

ENVIRON = {"WHO": "ada", "WORD": "p/w@x:y$%20", "BOTH": "ada:hush"}
ALLOWED = AllowedVariables(ENVIRON, frozenset({"index.example.org", "plain.example.org:80", "other.example.org:8443"}))


def expand(address: str) -> str:
    option = Option(address, "requirements.txt", 3, "--extra-index-url", address)
    return expand_credentials(Dependencies(options=(option,)), ALLOWED).extra_index_urls[0]


@pytest.mark.parametrize(
    ("address", "filled"),
    [
        ("https://${WHO}@index.example.org/simple", "https://ada@index.example.org/simple"),
        ("https://${BOTH}@INDEX.example.org:443/", "https://ada:hush@INDEX.example.org:443/"),
        ("https://x-${WHO}:${WORD}@index.example.org", "https://x-ada:p%2Fw%40x:y%24%20@index.example.org"),
        ("http://${WHO}@plain.example.org/simple", "http://ada@plain.example.org/simple"),
        ("git+https://${WHO}@other.example.org:8443/a@v1", "git+https://ada@other.example.org:8443/a@v1"),
        ("https://evil.example.org/$WHO/${who}/%24{WHO}", "https://evil.example.org/$WHO/${who}/%24{WHO}"),
    ],
)
def test_credentials_for_allowed_hosts(address, filled):
    assert expand(address) == filled


@pytest.mark.parametrize(
    "address",
    [
        "https://${WHO}@evil.example.org/simple",
        "https://${WHO}@index.example.org.evil.example.org/",
        "http://${WHO}@index.example.org/simple",  # not HTTPS
        "https://${WHO}@index.example.org:8443/",
        "https://${WHO}@index.example.org@evil.example.org/",
        "https://evil.example.org/${WHO}@index.example.org/",
        "https://evil.example.org\\${WHO}@index.example.org/",
        "https://evil.example.org?${WHO}@index.example.org/",
        "https://evil.example.org#${WHO}@index.example.org/",
        "https://evil.example.org\t/${WHO}@index.example.org/",
        "https://[::1]${WHO}@index.example.org/",
        "https://${WHO}@index.example.org\\.evil.example.org/",
        "https://${WHO}.index.example.org/",
        "https://${WHO}@index.example.org/${WHO}",
        "https://${WHO}@index.example.org/?q=${WHO}",
        "${WHO}://x@index.example.org/",
        "git+ssh://${WHO}@index.example.org/a",
        "/folder/${WHO}",
        "https://${UNSET}@index.example.org/",
    ],
)
def test_other_variables_are_refused(address):
    with pytest.raises(ConfigError, match=r"requirements.txt:3: variable \$\{[A-Z]+\} is not .*") as caught:
        expand(address)
    assert caught.value.hint


@pytest.mark.parametrize(
    "dependencies",
    [
        Dependencies("a.yml", channels=("https://evil.example.org/${WHO}",)),
        Dependencies("a.yml", conda=(Requirement("https://evil.example.org/${WHO}::a", "a.yml", 1, "a"),)),
        Dependencies("a.yml", pip=(parse_pip_entry(Line("./${WHO}/a-1.0.whl", "a.yml", 1), Path("/p"), Path("/p")),)),
        Dependencies("a.yml", pip=(parse_pip_entry(Line("a @ https://e.org/${WHO}.whl", "a.yml", 1), Path(), Path()),)),
        Dependencies(
            "a.yml", constraints=(parse_pip_entry(Line("https://e.org/${WHO}.whl", "a.yml", 1), Path(), Path()),)
        ),
    ],
    ids=["channel", "conda", "path", "address", "constraint"],
)
def test_every_url_of_a_project_is_checked(dependencies):
    with pytest.raises(ConfigError, match=r"\$\{WHO\}"):
        expand_credentials(dependencies, ALLOWED)


def test_uv_gets_no_secret_variables():
    needed = {"PATH": "/bin", "HOME": "/home/ada", "UV_CACHE_DIR": "/c", "UV_INDEX_STRATEGY": "first-index"}
    secret = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "UV_INDEX_OWN_PASSWORD": "x",
        "UV_INDEX_URL": "https://u:x@h/",
        "TOKEN": "x",
    }
    proxies = {"HTTPS_PROXY": "http://u:x@proxy:1", "no_proxy": "localhost"}
    passed = {"https_proxy": "http://u:x@proxy:1", "no_proxy": "localhost"}
    given = uv_environment({**needed, **secret, **proxies, "NETRC": "/secret", "GIT_CONFIG_PARAMETERS": "'a.b'='c'"})
    of_git = {name for name in given if name.startswith("GIT_CONFIG_")}
    assert {name: given[name] for name in given.keys() - of_git} == {**needed, **passed, "NETRC": os.devnull}
    assert {name.rstrip("0123456789") for name in of_git} == {
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_",
        "GIT_CONFIG_VALUE_",
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a hook, and with another local repository as submodule."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        (folder / "a.txt").write_text("a")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
            subprocess.run([*git, *arguments], cwd=folder, env=environ, check=True)
    for arguments in (["submodule", "--quiet", "add", str(inner), "part"], ["commit", "-qm", "y"]):
        subprocess.run([*git, *arguments], cwd=outer, env=environ, check=True)
    hook = outer / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/fired\n")
    hook.chmod(0o755)
    return outer


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("checkout -q -b other", None),
        ("clone -q --no-hardlinks . {place}/copy", None),  # like uv's clones from its cache
        ("-C {place}/outer submodule update --init --force part", "transport 'file' not allowed"),
        ("clone -q ext::{place}/outer/.git/hooks/post-checkout {place}/copy", "transport 'ext' not allowed"),
    ],
)
def test_git_of_uv_runs_no_hooks_and_clones_from_servers(repository: Path, tmp_path: Path, words: str, refused):
    shutil.rmtree(repository / ".git" / "modules")
    subprocess.run(["git", "submodule", "-q", "deinit", "-f", "part"], cwd=repository, check=True)
    environ = uv_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    command = ["git", *words.format(place=tmp_path).split()]
    result = subprocess.run(command, cwd=repository, env=environ, capture_output=True, text=True, check=False)
    assert not (tmp_path / "fired").exists()
    assert (result.returncode == 0) == (refused is None) and (refused or "") in result.stderr, result


def test_uv_settings_become_requirement_lines():
    environ = {
        "UV_DEFAULT_INDEX": "own-1=https://own.example.org/simple",
        "UV_INDEX_OWN_1_USERNAME": "ada",
        "UV_INDEX_OWN_1_PASSWORD": "a/b",
        "UV_INDEX": "https://${WHO}@one.example.org/ two=https://two.example.org/",
        "UV_EXTRA_INDEX_URL": "https://three.example.org/",
        "UV_FIND_LINKS": "https://four.example.org/,https://five.example.org/",
        "PIP_INDEX_URL": "https://pip.example.org",
        **ENVIRON,
    }
    option = Option("", "r.txt", 1, "--index-url", "https://project.example.org/")
    more = Option("", "r.txt", 2, "--extra-index-url", "https://${WHO}.project.example.org/")
    assert indexes_of(Dependencies(options=(option, more)), environ, Path()).lines() == [
        "--index-url https://ada:a%2Fb@own.example.org/simple",
        "--extra-index-url https://ada@one.example.org/",
        "--extra-index-url https://two.example.org/",
        "--extra-index-url https://three.example.org/",
        "--extra-index-url https://${WHO}.project.example.org/",
        "-f https://four.example.org/",
        "-f https://five.example.org/",
    ]
    assert "project" not in "".join(user_indexes(environ, Path()).lines())


def test_relative_folders(tmp_path, monkeypatch):
    """Relative folders are not resolved against the current folder, because uv runs in the project."""
    project, elsewhere, settings = (tmp_path / name for name in ("project", "elsewhere", "settings"))
    for folder in (project / "index", elsewhere / "typed", settings / "wheels"):
        folder.mkdir(parents=True)
    (settings / "pip.conf").write_text("[global]\nfind-links = wheels typed https://links.example.org/\n")
    environ = {"PIP_CONFIG_FILE": str(settings / "pip.conf"), "PIP_EXTRA_INDEX_URL": "typed"}
    options = tuple(Option("", "f", 1, "--extra-index-url", address) for address in ("index", "typed", "file:index"))
    monkeypatch.chdir(elsewhere)
    indexes = indexes_of(Dependencies(options=options), environ, project)
    assert indexes.extra == ("index", "file:index")
    assert indexes.find_links == (str(settings / "wheels"), "https://links.example.org/")
