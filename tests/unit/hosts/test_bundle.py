"""What travels to targets: its digest stands for all of it, a plugin's starter included."""

from __future__ import annotations

import pytest

from mlworkbench.errors import HostError
from mlworkbench.hosts import library


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "scripted.py"
    path.write_text("def start(run, spec, secrets, supervision): ...\n")
    return path


def test_a_plugins_starter_travels_and_counts_in_the_digest(plugin):
    files, name = library.files(str(plugin)), "starters/plugins/scripted.py"
    assert files[name] == plugin.read_bytes()
    assert {key: value for key, value in files.items() if key != name} == library.files()
    digest = library.digest(str(plugin))
    assert digest != library.digest()
    assert name in library.zlib.decompress(library.packed(str(plugin))).decode()
    plugin.write_text("def start(run, spec, secrets, supervision): return {}\n")
    library.files.cache_clear()
    library.digest.cache_clear()
    assert library.digest(str(plugin)) != digest, "an upgrade of the plugin does not touch what is running"


def test_the_target_knows_it_by_another_name(plugin):
    assert library.starter_name(str(plugin)) == "plugin:scripted"
    assert library.starter_name("detached") == "detached"


@pytest.mark.parametrize("name", ["not-a-name.py", "scripted.txt", "missing.py", "latin.py"])
def test_a_file_that_cannot_travel(tmp_path, name):
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "not-a-name.py").write_text("")
    (tmp_path / "scripted.txt").write_text("")
    with pytest.raises(HostError, match="starter") as told:
        library.files(str(tmp_path / name))
    assert told.value.hint
