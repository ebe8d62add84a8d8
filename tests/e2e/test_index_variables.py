"""A project cannot send the user's environment variables to a package index."""

from __future__ import annotations

import re

import pytest

from tests.e2e.package_index import serve_index, wheel
from tests.e2e.test_environment import enable_managed_environment
from tests.e2e.test_environment_sources import SCRIPT, write_requirements
from tests.machines.tools import give_tools

SECRETS = {"AWS_SECRET_ACCESS_KEY": "aws-71c2", "MLW_REGISTRY_PASSWORD": "registry-9b1e"}
LINES = {
    "index": ["--index-url {url}/${{MLW_REGISTRY_PASSWORD}}/simple", "closed"],
    "password": ["--index-url http://x:${{AWS_SECRET_ACCESS_KEY}}@{place}/main/simple", "closed"],
    "extra index": ["--extra-index-url {url}/main/${{AWS_SECRET_ACCESS_KEY}}", "closed"],
    "find links": ["--find-links {url}/${{AWS_SECRET_ACCESS_KEY}}/", "closed"],
    "wheel": ["closed @ {url}/main/closed-1.0-py3-none-any.whl?${{AWS_SECRET_ACCESS_KEY}}"],
    "repository": ["git+{url}/${{AWS_SECRET_ACCESS_KEY}}/closed#egg=closed"],
    "other parsers": ["--index-url http://${{AWS_SECRET_ACCESS_KEY}}.invalid\\@{place}/main/simple", "closed"],
}


@pytest.fixture
def project(user):
    root = user.project("demo", say=SCRIPT)
    enable_managed_environment(root, "local")
    give_tools(user.store)
    return root


def leaked(index):
    return [request for request in index.asked if any(value in request for value in SECRETS.values())]


def test_variables_in_project_urls_are_refused(user, project, tmp_path):
    wheel(tmp_path / "index/main", "closed", "1.0", "the index")
    with serve_index(tmp_path / "index") as index:
        for name, lines in LINES.items():
            write_requirements(
                project, *(line.format(url=index.url, place=f"{index.host}:{index.port}") for line in lines)
            )
            done = user.mlw(
                "submit", "-c", "local", "say.py", "closed", cwd=project, env={**SECRETS, "UV_HTTP_RETRIES": "0"}
            )
            assert leaked(index) == [], name
            assert done.code == 78, (name, done)
            assert re.search(r"conda_dependencies.yml:\d+: .*\$\{\w+\}", done.err), done.err
            assert "hint: " in done.err and "Traceback" not in done.err
    assert index.asked == []
    assert not any(value in done.err for value in SECRETS.values())


def test_package_metadata_and_file_names_cannot_expand_variables(user, project, tmp_path):
    """uv also expands variables in URLs of dependencies and in links on the pages of an index."""
    with serve_index(tmp_path / "index") as index:
        elsewhere = f"closed @ {index.url}/main/closed-1.0-py3-none-any.whl?${{AWS_SECRET_ACCESS_KEY}}"
        wheel(tmp_path / "index/main", "closed", "1.0", "the index")
        wheel(tmp_path / "index/main", "bait", "1.0", "the index", elsewhere)
        write_requirements(project, f"bait @ {index.url}/main/bait-1.0-py3-none-any.whl")
        index.suffix = "?${MLW_REGISTRY_PASSWORD}"
        first = user.mlw("submit", "-c", "local", "say.py", "closed", cwd=project, env=SECRETS)
        write_requirements(project, f"--index-url {index.url}/main/simple", "closed")
        second = user.mlw("submit", "-c", "local", "say.py", "closed", cwd=project, env=SECRETS)
    assert leaked(index) == []
    assert any("closed-1.0" in request and "$" in request for request in index.asked), index.asked
    assert (first.out, second.out) == ("closed from the index\n",) * 2, (first, second)


def test_host_in_user_settings_gets_credentials(user, project, tmp_path):
    wheel(tmp_path / "index/main", "closed", "1.0", "behind the door")
    with serve_index(tmp_path / "index", key="reader:registry-9b1e") as index:
        place = f"{index.host}:{index.port}"
        write_requirements(
            project, f"--index-url http://reader:${{MLW_REGISTRY_PASSWORD}}@{place}/main/simple", "closed"
        )
        arguments = ("submit", "-c", "local", "say.py", "closed")
        refused = user.mlw(*arguments, cwd=project, env=SECRETS)
        assert f"mlw settings add index-hosts {place}" in refused.err and index.asked == []
        assert user.mlw("settings", "add", "index-hosts", place).code == 0
        done = user.mlw(*arguments, cwd=project, env=SECRETS)
    assert done.out == "closed from behind the door\n", done
    assert index.seen == [], "command lines"


def test_project_cannot_use_user_folder_as_package_source(user, project):
    """A folder outside the project is refused until the user adds it to the settings."""
    private = user.home / "private"
    wheel(private, "closed", "1.0", "a folder of the user")
    arguments = ("submit", "-c", "local", "say.py", "closed")
    for folder in ("/", str(private)):
        write_requirements(project, f"--find-links {folder}", "--no-index", "closed")
        refused = user.mlw(*arguments, "--dry-run", cwd=project)
        assert refused.code == 78 and f"{folder} is outside the project" in refused.err, refused
        assert not list((user.store / "pkgs").rglob("*closed*"))
    assert f"mlw settings add package-folders {private}\n" in refused.err
    assert user.mlw("settings", "add", "package-folders", str(private)).code == 0
    assert user.mlw(*arguments, cwd=project).out == "closed from a folder of the user\n"


def test_netrc_password_is_sent_only_to_urls_of_the_user(user, project, tmp_path):
    """netrc lists only hosts, and another server may use another port of the host or plain HTTP."""
    wheel(tmp_path / "index/main", "closed", "1.0", "behind the door")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login reader password registry-9b1e\n")
    arguments = ("submit", "-c", "local", "say.py", "closed")
    given = {"NETRC": str(netrc), "UV_HTTP_RETRIES": "0"}
    with serve_index(tmp_path / "index", key="reader:registry-9b1e") as index:
        write_requirements(project, f"--index-url {index.url}/main/simple", "closed")
        refused = user.mlw(*arguments, cwd=project, env=given)
        assert index.asked and leaked(index) == [], "of a project that names the same host"
        assert refused.code == 78 and "Traceback" not in refused.err, refused
        place = index.url.partition("//")[2]
        assert f"mlw settings add index-hosts {place}" in refused.err.partition("hint:")[2], refused
        write_requirements(project, "closed")
        done = user.mlw(*arguments, cwd=project, env={**given, "PIP_INDEX_URL": f"{index.url}/main/simple"})
        assert done.out == "closed from behind the door\n", done
        assert leaked(index) and index.seen == [], "command lines"
