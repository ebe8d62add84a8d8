"""User settings: stored values, and the handling of invalid values."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlworkbench.errors import HistoryError, UnknownName, UsageError
from mlworkbench.paths import UserPaths
from mlworkbench.user_settings import Settings, add_setting, read_settings, remove_setting, settings_file


@pytest.fixture
def paths(tmp_path: Path) -> UserPaths:
    return UserPaths(tmp_path)


def test_values_are_normalized_and_private(paths: UserPaths):
    assert add_setting(paths, "allowed-builds", "Py_Spark")
    assert not add_setting(paths, "allowed-builds", "py-spark")
    assert add_setting(paths, "index-hosts", "Packages.Example.com:8443")
    assert add_setting(paths, "package-folders", "/srv/new/../wheels/")
    assert read_settings(paths) == Settings(
        frozenset({"py-spark"}), frozenset({"packages.example.com:8443"}), frozenset({"/srv/wheels"})
    )
    assert stat.S_IMODE(settings_file(paths).stat().st_mode) == 0o600


def test_a_removed_value_is_gone(paths: UserPaths):
    add_setting(paths, "allowed-builds", "pyspark")
    assert remove_setting(paths, "allowed-builds", "PySpark")
    assert not remove_setting(paths, "allowed-builds", "pyspark")
    assert read_settings(paths) == Settings()


def test_changes_at_the_same_time_are_all_kept(paths: UserPaths):
    names = [f"package-{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: add_setting(paths, "allowed-builds", name), names))
    assert read_settings(paths).allowed_builds == frozenset(names)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowed-builds", "two words"),
        ("allowed-builds", "../x"),
        ("index-hosts", "https://packages.example.com/"),
        ("index-hosts", "user@host"),
        ("index-hosts", "host:99999"),
        ("index-hosts", ""),
        ("package-folders", "/"),
        ("package-folders", "/srv/.."),
        ("package-folders", "wheels"),
        ("package-folders", "~/wheels"),
        ("package-folders", ""),
        ("pass-environment", "A B"),
        ("pass-environment", "1A"),
        ("pass-environment", "A=b"),
        ("pass-environment", "HF_TOKEN"),
        ("pass-environment", "my_api_key"),
    ],
)
def test_a_bad_value_is_refused(paths: UserPaths, key: str, value: str):
    with pytest.raises(UsageError):
        add_setting(paths, key, value)


def test_an_unknown_setting_lists_the_available_ones(paths: UserPaths):
    with pytest.raises(UnknownName, match="allowed-builds, index-hosts, package-folders"):
        add_setting(paths, "allow-builds", "x")


@pytest.mark.parametrize("text", ["{", "[]", '{"allowed-builds": "pyspark"}', '{"allowed-builds": [1]}', "[" * 100_000])
def test_a_damaged_file_is_an_error_and_stays(paths: UserPaths, text: str):
    settings_file(paths).write_text(text)
    with pytest.raises(HistoryError, match=r"settings\.json"):
        add_setting(paths, "allowed-builds", "pyspark")
    assert settings_file(paths).read_text() == text
