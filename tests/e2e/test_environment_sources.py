"""Package sources in every form that a project can declare, with the tests' own index."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.package_index import serve_index, wheel
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import enable_managed_environment
from tests.machines.channel import SHORT, allow_packages
from tests.machines.tools import give_tools, give_tools_to

SCRIPT = """
import importlib, sys

for name in sys.argv[1:]:
    try:
        print(name, "from", importlib.import_module(name).ORIGIN)
    except ImportError:
        print(name, "is not there")
"""


class LocalTarget:
    """`local` with a managed environment."""

    client = "127.0.0.1"

    def __init__(self, user):
        self.user, self.address = user, "127.0.0.1"
        self.root = user.project("demo", say=SCRIPT)
        enable_managed_environment(self.root, "local")
        give_tools(user.store)
        self.homes = [user.home.parent]

    def submit(self, *arguments, **more):
        return self.user.mlw("submit", "-c", "local", *arguments, cwd=self.root, **more)


class OfflineTarget:
    """`remote` with a managed environment; the machine reaches only the index of the tests."""

    def __init__(self, laptop, host, gateway):
        self.user, self.address, self.client = laptop, gateway, host.address
        self.root = laptop.project("far", say=SCRIPT)
        self._target = RemoteTarget(laptop, host, "remote", project=self.root)
        enable_managed_environment(self.root, self._target.name)
        give_tools_to(host)
        self.homes = [laptop.home.parent, host.home]

    def submit(self, *arguments, **more):
        return self._target.submit(*arguments, **more)


@pytest.fixture(params=["local", "remote"])
def target(request, laptop):
    if request.param == "local":
        return LocalTarget(laptop)
    host = request.getfixturevalue("machine")()
    return OfflineTarget(laptop, host, request.getfixturevalue("switch").sandbox.address(1))


def write_requirements(root, *pip):
    lines = ["name: project_environment", "dependencies:", "  - pip:", *(f"    - {requirement}" for requirement in pip)]
    (root / "aml_config" / "conda_dependencies.yml").write_text("\n".join([*lines, ""]))


def printed_origins(done):
    assert done.code == 0, done
    return dict(re.split(r" (?:from|is) ", line, maxsplit=1) for line in done.out.splitlines())


def test_all_package_sources(target, tmp_path):
    """Indexes, a page of links, a URL, a wheel of the project, extras, and markers."""
    files = tmp_path / "index"
    wheel(files / "main", "six", "1.0", "the index that is named")  # the default index has a newer version
    wheel(files / "main", "both", "1.0", "the first index")
    wheel(files / "main", "basis", "1.5", "the index", 'speed>=2; extra == "fast"', extra="fast")
    wheel(files / "main", "speed", "2.0", "the extra")
    wheel(files / "main", "linux", "1.0", "the marker")
    wheel(files / "more", "both", "2.0", "the second index")
    wheel(files / "links", "linked", "1.0", "the page of links")
    wheel(files / "loose", "direct", "1.0", "its address")
    wheel(target.root / "wheels", "ours", "1.0", "the project")
    with serve_index(files, target.address) as index:
        write_requirements(
            target.root,
            f"--index-url {index.url}/main/simple",
            f"--extra-index-url {index.url}/more/simple",
            f"--find-links {index.url}/links/",
            *("six", "both", "basis[fast]>=1,<2", "linked", f"{index.url}/loose/direct-1.0-py3-none-any.whl"),
            *("wheels/ours-1.0-py3-none-any.whl", 'linux; sys_platform == "linux"', 'doors; sys_platform == "win32"'),
        )
        done = target.submit("say.py", "six", "both", "basis", "speed", "linked", "direct", "ours", "linux", "doors")
    assert printed_origins(done) == {
        "six": "the index that is named",
        "both": "the second index",
        "basis": "the index",
        "speed": "the extra",
        "linked": "the page of links",
        "direct": "its address",
        "ours": "the project",
        "linux": "the marker",
        "doors": "not there",
    }
    assert len(index.fetched(target.client)) == 7, "the target fetches what it can reach"


# -- passwords -----------------------------------------------------------------------------------------


SECRET = "hush-5f1c"


def files_with_secret(folder):
    """Map the content of each file that contains the secret to the path of one such file."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {text: path for path in files if SECRET.encode() in (text := path.read_bytes())}


def closed_index(tmp_path, target):
    wheel(tmp_path / "index/main", "closed", "1.0", "behind the door")
    return serve_index(tmp_path / "index", target.address, key=f"reader:{SECRET}")


def assert_password_not_leaked(index, target, done):
    assert printed_origins(done) == {"closed": "behind the door"}
    assert index.seen == [], "command lines"
    assert index.fetched(target.client) <= index.fetched(index.host), "only this machine knows the password"
    assert SECRET not in done.err


def test_password_in_user_settings_is_not_copied(target, tmp_path):
    """The password is used on this machine only; no file or command line contains it, locally or remotely."""
    with closed_index(tmp_path, target) as index:
        write_requirements(target.root, "closed")
        done = target.submit("say.py", "closed", env={"PIP_INDEX_URL": f"{index.url_with_key}/main/simple"})
    assert_password_not_leaked(index, target, done)
    assert [files_with_secret(home) for home in target.homes] == [{}] * len(target.homes)


@pytest.mark.parametrize(
    "lines", [["--index-url {}/main/simple", "closed"], ["{}/main/closed-1.0-py3-none-any.whl"]], ids=["index", "wheel"]
)
def test_password_in_project_file_is_not_copied_elsewhere(target, tmp_path, lines):
    """The file is part of the code and is uploaded unchanged. Nothing derived from it contains the password."""
    with closed_index(tmp_path, target) as index:
        write_requirements(target.root, *(line.format(index.url_with_key) for line in lines))
        done = target.submit("say.py", "closed")
    assert_password_not_leaked(index, target, done)
    project_file = (target.root / "aml_config" / "conda_dependencies.yml").read_bytes()
    assert [set(files_with_secret(home)) for home in target.homes] == [{project_file}] * len(target.homes)


# -- other package files -------------------------------------------------------------------------------


def environment_yml(root, index, channel):
    allow_packages(root, channel.folder)
    (root / "environment.yml").write_text(
        f"name: other\nchannels:\n  - {channel.url}\ndependencies:\n  - python={SHORT}\n  - first\n"
        f"  - pip:\n    - --index-url {index.url}/main/simple\n    - basis[fast]\n"
    )
    return "environment.yml"


def requirements_txt(root, index, channel):
    (root / "needs").mkdir()
    (root / "needs" / "base.txt").write_text("speed>=2\n")
    (root / "needs" / "requirements.txt").write_text(
        f"--index-url {index.url}/main/simple  # ours\n-r base.txt\nbasis \\\n  >=1\n"
    )
    return "needs/requirements.txt"


PROJECT = """
[project]
name = "demo"
version = "0.1"
requires-python = ">=3.8"
dependencies = ["basis[fast]"]

[[tool.uv.index]]
url = "{url}/main/simple"
default = true
"""


def pyproject_toml(root, index, channel):
    (root / "pyproject.toml").write_text(PROJECT.format(url=index.url))
    return "pyproject.toml"


def uv_lock(root, index, channel):
    """Write a lock file with an older package than the index has now."""
    pyproject_toml(root, index, channel)
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "lock", "--python", sys.executable, "--no-cache"]
    subprocess.run(command, cwd=root, env={"HOME": str(root)}, capture_output=True, check=True)
    wheel(index.folder / "main", "basis", "3.0", "the index, later")
    return "pyproject.toml"


def pixi_lock(root, index, channel):
    """Write a lock file as pixi does, from a channel over HTTP."""
    (index.folder / "conda").symlink_to(channel.folder)
    conda = {}
    for path in channel.folder.glob("*/repodata.json"):
        data = json.loads(path.read_bytes())
        for file, package in {**data["packages"], **data["packages.conda"]}.items():
            if package["name"] in ("python", "hello-py", "words"):
                conda[package["name"]] = (f"{index.url}/conda/{path.parent.name}/{file}", package)
    pip = {name: sorted((index.folder / "main").glob(f"{name}-*"))[0] for name in ("basis", "speed")}
    addresses = {name: f"{index.url}/main/{path.name}" for name, path in pip.items()}
    lines = ["version: 6", "environments:", "  default:", "    channels:", f"    - url: {index.url}/conda/"]
    lines += ["    packages:", "      linux-64:", *(f"      - conda: {url}" for url, _ in conda.values())]
    lines += [*(f"      - pypi: {url}" for url in addresses.values()), "packages:"]
    for url, package in conda.values():
        lines += [f"- conda: {url}", f"  sha256: {package['sha256']}", f"  md5: {package['md5']}"]
        lines += [f"  noarch: {package['noarch']}"] if "noarch" in package else []
        lines += ["  depends:", *(f"  - {text}" for text in package["depends"])] if package["depends"] else []
        lines += [f"  size: {package['size']}"]
    for name, path in pip.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines += [f"- pypi: {addresses[name]}", f"  name: {name}", f"  version: '{path.name.split('-')[1]}'"]
        lines += [f"  sha256: {digest}"]
    (root / "pixi.lock").write_text("\n".join([*lines, ""]))
    return "pixi.lock"


@pytest.mark.parametrize("write", [environment_yml, requirements_txt, pyproject_toml, uv_lock, pixi_lock])
def test_other_package_files(laptop, channel, tmp_path, write):
    target = LocalTarget(laptop)
    wheel(tmp_path / "index/main", "basis", "1.5", "the index", 'speed>=2; extra == "fast"', extra="fast")
    wheel(tmp_path / "index/main", "speed", "2.0", "the index as well")
    with serve_index(tmp_path / "index") as index:
        file = write(target.root, index, channel)
        runconfig = target.root / "aml_config" / "local.runconfig"
        line = "CondaDependenciesFile: "
        runconfig.write_text(re.sub(rf"(?m)^{line}.*", line + file, runconfig.read_text()))
        done = target.submit("say.py", "basis", "speed", "six")
    assert printed_origins(done) == {"basis": "the index", "speed": "the index as well", "six": "not there"}
    lock = laptop.info(done.run)["environment"]
    by_conda = write in (environment_yml, pixi_lock)
    assert lock["python"]["source"] == ("conda" if by_conda else "host") and bool(lock["conda"]) == by_conda
