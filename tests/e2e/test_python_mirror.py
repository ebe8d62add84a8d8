"""Python downloads and build requirements through the user's mirrors, on a machine without other network access."""

from __future__ import annotations

import json

import pytest

from tests.e2e.package_index import about, sdist, serve_index, wheel
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import enable_managed_environment
from tests.e2e.test_environment_sources import write_requirements
from tests.machines.channel import VERSION
from tests.machines.python_mirror import KEY, NAME, write_mirror
from tests.machines.tools import give_tools_to

SECRET = "hush-77a0"
SCRIPT = "import sys\nprint(sys.base_prefix)\n"
EVIL = "http://127.0.0.1:9/chosen-by-the-project"


def write_fake_settings(root):
    """Write settings into the project that imitate user settings. They must have no effect."""
    (root / "uv.toml").write_text(f'python-install-mirror = "{EVIL}"\npython-downloads-json-url = "{EVIL}.json"\n')
    config = root / "aml_config" / "box.runconfig"
    config.write_text(
        config.read_text()
        + f"EnvironmentVariables:\n  UV_PYTHON_INSTALL_MIRROR: {EVIL}\n  UV_PYTHON_DOWNLOADS_JSON_URL: {EVIL}.json\n"
    )


@pytest.mark.parametrize("key", [None, f"reader:{SECRET}"], ids=["open", "password"])
def test_target_gets_python_from_user_mirror(laptop, machine, switch, tmp_path, key):
    """The target downloads Python itself, or this machine does if a password is needed. Failures can be retried."""
    host = machine()
    root = laptop.project("far", say=SCRIPT)
    remote = RemoteTarget(laptop, host, "remote", project=root)
    enable_managed_environment(root, remote.name)
    give_tools_to(host)
    write_fake_settings(root)
    (root / "aml_config" / "conda_dependencies.yml").write_text(f"dependencies:\n  - python={VERSION}\n")
    place = tmp_path / "mirror" / "pythons"
    place.mkdir(parents=True)
    with serve_index(tmp_path / "mirror", switch.sandbox.address(1), key=key) as mirror:
        write_mirror(place, f"{mirror.url}/pythons")
        address = mirror.url_with_key if key else mirror.url
        settings = {"UV_PYTHON_DOWNLOADS_JSON_URL": f"{address}/pythons/downloads.json", "UV_HTTP_RETRIES": "0"}
        archive = place / "20240107" / NAME
        archive.rename(place / "not yet")
        failed = remote.submit("say.py", env=settings)
        assert f"Python {VERSION} cannot be fetched: " in failed.err and "Not Found" in failed.err, failed
        assert failed.code in (69, 75, 78), failed
        (place / "not yet").rename(archive)
        done = remote.submit("say.py", env=settings)
        assert done.out == f"{host.home}/.mlw/tools/python/{KEY}\n", done
        fetched_by = {client for client, path in mirror.got if path.endswith(".tar.gz")}
    assert fetched_by == {mirror.host if key else host.address}
    record = json.dumps(laptop.info(done.run))
    assert EVIL not in record and SECRET not in record and SECRET not in done.err + failed.err
    assert mirror.seen == [], "command lines"
    held = (path for path in host.home.rglob("*") if path.is_file() and not path.is_symlink())
    assert [path for path in held if key and SECRET.encode() in path.read_bytes()] == []


BACKEND = """
import os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "odd-1.0.dist-info"
    files = {"odd.py": "", info + "/METADATA": "Metadata-Version: 2.2\\nName: odd\\nVersion: 1.0\\n"}
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in files)
    with zipfile.ZipFile(os.path.join(folder, "odd-1.0-py3-none-any.whl"), "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return "odd-1.0-py3-none-any.whl"
"""
PROJECT = (
    '[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n[project]\nname = "odd"\nversion = "1.0"\n'
)


def test_source_package_is_built_with_index_from_user_settings(laptop, machine, switch, tmp_path):
    """Only that index has the build requirements, and the machine reaches no other index."""
    host = machine()
    root = laptop.project("far", say="import odd\nprint('built')\n")
    remote = RemoteTarget(laptop, host, "remote", project=root)
    enable_managed_environment(root, remote.name)
    give_tools_to(host)
    write_requirements(root, "odd")
    wheel(tmp_path / "index/main", "backend", "1.0", "the index", code=BACKEND)
    files = {"PKG-INFO": about("odd", "1.0", metadata="2.2"), "pyproject.toml": PROJECT}
    sdist(tmp_path / "index/main", "odd", "1.0", files)
    with serve_index(tmp_path / "index", switch.sandbox.address(1)) as index:
        settings = {"PIP_INDEX_URL": f"http://ada:{SECRET}@{index.host}:{index.port}/main/simple"}
        done = remote.submit("say.py", env={**settings, "UV_HTTP_RETRIES": "0"})
        assert done.out == "built\n", done
        checked = json.loads(remote.mlw("computetarget", "check", "box", "-o", "json", env=settings).out)
        assert "odd-1.0.tar.gz" not in index.fetched(host.address), "as the check says"
    [packages] = [check["found"] for check in checked if check["what"] == "packages"]
    place = f"{index.host}:{index.port} (your settings)"
    assert (
        packages
        == f"downloaded by this machine and sent to the target: {place} needs a password, which stays on this machine"
    )
    assert "backend-1.0-py3-none-any.whl" in index.fetched(host.address), "by the machine itself"
    assert SECRET not in json.dumps(laptop.info(done.run))
    held = (path for path in host.home.rglob("*") if path.is_file() and not path.is_symlink())
    assert [path for path in held if SECRET.encode() in path.read_bytes()] == []
