"""Where packages come from, in all the ways that a project can say it; against an index of the tests' own."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.elsewhere import Away
from tests.e2e.package_index import serving, wheel
from tests.e2e.test_environment import manage
from tests.machines.channel import SHORT, allow_packages
from tests.machines.tools import give_tools, give_tools_to

SAY = """
import importlib, sys

for name in sys.argv[1:]:
    try:
        print(name, "from", importlib.import_module(name).ORIGIN)
    except ImportError:
        print(name, "is not there")
"""


class Here:
    """`local`, with a managed environment."""

    client = "127.0.0.1"

    def __init__(self, user):
        self.user, self.address = user, "127.0.0.1"
        self.root = user.project("demo", say=SAY)
        manage(self.root, "local")
        give_tools(user.store)
        self.homes = [user.home.parent]

    def submit(self, *words, **more):
        return self.user.mlw("submit", "-c", "local", *words, cwd=self.root, **more)


class There:
    """`remote`, the same; the machine reaches the index of the tests, and nothing else of the world."""

    def __init__(self, laptop, host, gateway):
        self.user, self.address, self.client = laptop, gateway, host.address
        self.root = laptop.project("far", say=SAY)
        self._away = Away(laptop, host, "remote", project=self.root)
        manage(self.root, self._away.name)
        give_tools_to(host)
        self.homes = [laptop.home.parent, host.home]

    def submit(self, *words, **more):
        return self._away.submit(*words, **more)


@pytest.fixture(params=["local", "remote"])
def place(request, laptop):
    if request.param == "local":
        return Here(laptop)
    host = request.getfixturevalue("machine")()
    return There(laptop, host, request.getfixturevalue("switch").place.address(1))


def ask(root, *pip):
    lines = ["name: project_environment", "dependencies:", "  - pip:", *(f"    - {one}" for one in pip)]
    (root / "aml_config" / "conda_dependencies.yml").write_text("\n".join([*lines, ""]))


def told(done):
    assert done.code == 0, done
    return dict(re.split(r" (?:from|is) ", line, maxsplit=1) for line in done.out.splitlines())


def test_every_way_to_name_a_package(place, tmp_path):
    """Indexes, a page of links, an address, a wheel of the project, extras and markers."""
    files = tmp_path / "index"
    wheel(files / "main", "six", "1.0", "the index that is named")  # elsewhere there is a newer one
    wheel(files / "main", "both", "1.0", "the first index")
    wheel(files / "main", "basis", "1.5", "the index", 'speed>=2; extra == "fast"', extra="fast")
    wheel(files / "main", "speed", "2.0", "the extra")
    wheel(files / "main", "linux", "1.0", "the marker")
    wheel(files / "more", "both", "2.0", "the second index")
    wheel(files / "links", "linked", "1.0", "the page of links")
    wheel(files / "loose", "direct", "1.0", "its address")
    wheel(place.root / "wheels", "ours", "1.0", "the project")
    with serving(files, place.address) as index:
        ask(
            place.root,
            f"--index-url {index.url}/main/simple",
            f"--extra-index-url {index.url}/more/simple",
            f"--find-links {index.url}/links/",
            *("six", "both", "basis[fast]>=1,<2", "linked", f"{index.url}/loose/direct-1.0-py3-none-any.whl"),
            *("wheels/ours-1.0-py3-none-any.whl", 'linux; sys_platform == "linux"', 'doors; sys_platform == "win32"'),
        )
        done = place.submit("say.py", "six", "both", "basis", "speed", "linked", "direct", "ours", "linux", "doors")
    assert told(done) == {
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
    assert len(index.fetched(place.client)) == 7, "the target fetches what it can reach"


# -- passwords -----------------------------------------------------------------------------------------


SECRET = "hush-5f1c"


def holders(folder):
    """Contents that have the secret in them, each with a file that has it."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {text: path for path in files if SECRET.encode() in (text := path.read_bytes())}


def closed_index(tmp_path, place):
    wheel(tmp_path / "index/main", "closed", "1.0", "behind the door")
    return serving(tmp_path / "index", place.address, key=f"reader:{SECRET}")


def must_have_kept_quiet(index, place, done):
    assert told(done) == {"closed": "behind the door"}
    assert index.seen == [], "command lines"
    assert index.fetched(place.client) <= index.fetched(index.host), "only this machine knows the password"
    assert SECRET not in done.err


def test_a_password_in_the_users_settings_stays_there(place, tmp_path):
    """It is used on this machine; no file has it, and no command line, here or there."""
    with closed_index(tmp_path, place) as index:
        ask(place.root, "closed")
        done = place.submit("say.py", "closed", env={"PIP_INDEX_URL": f"{index.url_with_key}/main/simple"})
    must_have_kept_quiet(index, place, done)
    assert [holders(home) for home in place.homes] == [{}] * len(place.homes)


@pytest.mark.parametrize(
    "lines", [["--index-url {}/main/simple", "closed"], ["{}/main/closed-1.0-py3-none-any.whl"]], ids=["index", "wheel"]
)
def test_a_password_in_the_projects_file_goes_no_further_than_that_file(place, tmp_path, lines):
    """The file is a part of the code, and travels as it is. Nothing that is made of it has the password."""
    with closed_index(tmp_path, place) as index:
        ask(place.root, *(line.format(index.url_with_key) for line in lines))
        done = place.submit("say.py", "closed")
    must_have_kept_quiet(index, place, done)
    own = (place.root / "aml_config" / "conda_dependencies.yml").read_bytes()
    assert [set(holders(home)) for home in place.homes] == [{own}] * len(place.homes)


# -- other files ---------------------------------------------------------------------------------------


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
    """Locked with an older package than the index has now."""
    pyproject_toml(root, index, channel)
    uv = Path(sys.executable).with_name("uv")
    words = [str(uv), "lock", "--python", sys.executable, "--no-cache"]
    subprocess.run(words, cwd=root, env={"HOME": str(root)}, capture_output=True, check=True)
    wheel(index.folder / "main", "basis", "3.0", "the index, later")
    return "pyproject.toml"


def pixi_lock(root, index, channel):
    """As pixi writes it, from a channel over HTTP."""
    (index.folder / "conda").symlink_to(channel.folder)
    conda = {}
    for path in channel.folder.glob("*/repodata.json"):
        data = json.loads(path.read_bytes())
        for file, one in {**data["packages"], **data["packages.conda"]}.items():
            if one["name"] in ("python", "hello-py", "words"):
                conda[one["name"]] = (f"{index.url}/conda/{path.parent.name}/{file}", one)
    pip = {name: sorted((index.folder / "main").glob(f"{name}-*"))[0] for name in ("basis", "speed")}
    addresses = {name: f"{index.url}/main/{path.name}" for name, path in pip.items()}
    lines = ["version: 6", "environments:", "  default:", "    channels:", f"    - url: {index.url}/conda/"]
    lines += ["    packages:", "      linux-64:", *(f"      - conda: {url}" for url, _ in conda.values())]
    lines += [*(f"      - pypi: {url}" for url in addresses.values()), "packages:"]
    for url, one in conda.values():
        lines += [f"- conda: {url}", f"  sha256: {one['sha256']}", f"  md5: {one['md5']}"]
        lines += [f"  noarch: {one['noarch']}"] if "noarch" in one else []
        lines += ["  depends:", *(f"  - {text}" for text in one["depends"])] if one["depends"] else []
        lines += [f"  size: {one['size']}"]
    for name, path in pip.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines += [f"- pypi: {addresses[name]}", f"  name: {name}", f"  version: '{path.name.split('-')[1]}'"]
        lines += [f"  sha256: {digest}"]
    (root / "pixi.lock").write_text("\n".join([*lines, ""]))
    return "pixi.lock"


@pytest.mark.parametrize("write", [environment_yml, requirements_txt, pyproject_toml, uv_lock, pixi_lock])
def test_packages_may_stand_in_another_file(laptop, channel, tmp_path, write):
    place = Here(laptop)
    wheel(tmp_path / "index/main", "basis", "1.5", "the index", 'speed>=2; extra == "fast"', extra="fast")
    wheel(tmp_path / "index/main", "speed", "2.0", "the index as well")
    with serving(tmp_path / "index") as index:
        file = write(place.root, index, channel)
        runconfig = place.root / "aml_config" / "local.runconfig"
        line = "CondaDependenciesFile: "
        runconfig.write_text(re.sub(rf"(?m)^{line}.*", line + file, runconfig.read_text()))
        done = place.submit("say.py", "basis", "speed", "six")
    assert told(done) == {"basis": "the index", "speed": "the index as well", "six": "not there"}
    lock = laptop.info(done.run)["environment"]
    by_conda = write in (environment_yml, pixi_lock)
    assert lock["python"]["source"] == ("conda" if by_conda else "host") and bool(lock["conda"]) == by_conda
