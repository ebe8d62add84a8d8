"""The bundle for targets: its digest covers all files, including a plugin's starter."""

from __future__ import annotations

import pytest

from mlworkbench.errors import HostError
from mlworkbench.hosts import bundle


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "scripted.py"
    path.write_text("def start(run, spec, secrets, supervision): ...\n")
    return path


def test_plugin_starter_is_in_the_bundle_and_its_digest(plugin):
    files, name = bundle.files(str(plugin)), "starters/plugins/scripted.py"
    assert files[name] == plugin.read_bytes()
    assert {key: value for key, value in files.items() if key != name} == bundle.files()
    digest = bundle.digest(str(plugin))
    assert digest != bundle.digest()
    assert name in bundle.zlib.decompress(bundle.pack(str(plugin))).decode()
    plugin.write_text("def start(run, spec, secrets, supervision): return {}\n")
    bundle.files.cache_clear()
    bundle.digest.cache_clear()
    assert bundle.digest(str(plugin)) != digest, "an upgrade of the plugin does not affect running processes"


def test_starter_has_another_name_on_the_target(plugin):
    assert bundle.starter_name(str(plugin)) == "plugin:scripted"
    assert bundle.starter_name("detached") == "detached"


@pytest.mark.parametrize("name", ["not-a-name.py", "scripted.txt", "missing.py", "latin.py"])
def test_invalid_starter_files(tmp_path, name):
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "not-a-name.py").write_text("")
    (tmp_path / "scripted.txt").write_text("")
    with pytest.raises(HostError, match="starter") as raised:
        bundle.files(str(tmp_path / name))
    assert raised.value.hint
