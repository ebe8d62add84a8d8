"""An edit changes the requested keys and no other byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.config.config_files import read_runconfig
from mlworkbench.config.file_editor import apply_changes, replace_file
from mlworkbench.config.yaml_tree import display_path, read_bytes
from mlworkbench.errors import ConfigError

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

FILE = """\
# How to run on the big machine
"ArgumentVector":   # what to run
  # the script first
  - train.py
  - --lr   # a float
  - 0.10

Target: 'my_dsvm'   # see my_dsvm.compute
# our own key, which mlw does not know
x-owner: {team:  vision,  since: 2017-11-02}

Framework: "PySpark"
EnvironmentVariables:
TrackedRun: yes
# the end
"""


def rewrite(path: Path, changes: dict[str, object]) -> None:
    filename = display_path(path)
    replace_file(path, apply_changes(read_bytes(path, filename), filename, changes), filename, path.parent)


def apply_and_read(folder: Path, text: str, **changes: object) -> str:
    path = folder / "x.runconfig"
    path.write_bytes(text.encode())
    rewrite(path, changes)
    return path.read_bytes().decode()


CASES = {
    "same quotes": ({"Target": "other"}, "Target: 'my_dsvm'", "Target: 'other'"),
    "same quotes, double": ({"Framework": "Python"}, 'Framework: "PySpark"', 'Framework: "Python"'),
    "plain": ({"TrackedRun": False}, "TrackedRun: yes", "TrackedRun: false"),
    "first letter": ({"trackedRun": False}, "TrackedRun: yes", "TrackedRun: false"),
    "empty to mapping": (
        {"EnvironmentVariables": {"A": "1"}},
        "EnvironmentVariables:",
        'EnvironmentVariables: {A: "1"}',
    ),
    "list": (
        {"ArgumentVector": ["a.py", "x y"]},
        "  - train.py\n  - --lr   # a float\n  - 0.10\n",
        '  - a.py\n  - "x y"\n',
    ),
    "list to empty": (
        {"ArgumentVector": []},
        '"ArgumentVector":   # what to run\n  # the script first\n  - train.py\n  - --lr   # a float\n  - 0.10\n',
        '"ArgumentVector": []   # what to run\n  # the script first\n',
    ),
    "remove": ({"Target": None}, "Target: 'my_dsvm'   # see my_dsvm.compute\n", ""),
    "remove what is not there": ({"UseSampling": None}, "", ""),
    "add": ({"UseSampling": True}, "TrackedRun: yes\n", "TrackedRun: yes\nUseSampling: true\n"),
    "add a list": ({"a": ["b"]}, "TrackedRun: yes\n", "TrackedRun: yes\na:\n  - b\n"),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(("changes", "old", "new"), CASES.values(), ids=CASES.keys())
def test_changes_only_the_value(
    tmp_path: Path, changes: dict[str, object], old: str, new: str, mark: str, newline: str
) -> None:
    before = mark + FILE.replace("\n", newline)
    expected = before.replace(old.replace("\n", newline), new.replace("\n", newline), 1) if old else before
    assert apply_and_read(tmp_path, before, **changes) == expected


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("", {"type": "local"}, "type: local\n"),
        ("# empty so far", {"type": "local"}, "# empty so far\ntype: local\n"),
        ("a: 1", {"b": 2}, "a: 1\nb: 2\n"),
        ("a: 1", {"a": None}, ""),
        ("  a: 1\n  b: 2\n", {"c": 3}, "  a: 1\n  b: 2\n  c: 3\n"),
        ("a:  # why\n  long\nb: 2\n", {"a": "x"}, "a: x  # why\nb: 2\n"),
        ("a: |\n  text\n\n# about b\nb: 2\n", {"a": None}, "\n# about b\nb: 2\n"),
        ("a: &x [1]\nb: *x\n", {"b": "c"}, "a: &x [1]\nb: c\n"),
        ("a: true\n", {"a": "true"}, 'a: "true"\n'),
    ],
)
def test_forms(tmp_path: Path, before: str, changes: dict[str, object], after: str) -> None:
    assert apply_and_read(tmp_path, before, **changes) == after


@pytest.mark.parametrize(
    ("before", "changes", "message"),
    [
        ('{"a": 1}', {"a": 2}, "x.runconfig:1: cannot edit a file in YAML flow style"),
        ("a: &x 1\nb: *x\n", {"a": None}, "x.runconfig: cannot change a without affecting"),
        ("? a\n", {"a": 1}, "x.runconfig: cannot change a without affecting"),
        ("a: 1\n", {"a": "x\0y"}, "x.runconfig: cannot change a without affecting"),
        ("a: 1\n", {"a": "\ud800"}, "x.runconfig: cannot change a without affecting"),
        ("a: 1\na: 2\n", {"a": 3}, "x.runconfig:2: duplicate key 'a'"),
    ],
)
def test_rejected_change_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, changes: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.runconfig"
    path.write_text(before)
    with pytest.raises(ConfigError) as caught:
        rewrite(path, changes)
    assert caught.value.message.startswith(message)
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["x.runconfig"]


def test_mode_and_link_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.compute"
    real.write_text("type: local\n")
    real.chmod(0o640)
    link = tmp_path / "link.compute"
    link.symlink_to(real)
    rewrite(link, {"type": "docker"})
    assert link.is_symlink() and real.read_text() == "type: docker\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@QUICK
@given(items=st.lists(TEXT, max_size=5))
def test_arguments_round_trip(tmp_path: Path, items: list[str]) -> None:
    after = apply_and_read(tmp_path, FILE, ArgumentVector=items)
    assert read_runconfig(tmp_path / "x.runconfig").argument_vector == tuple(items)
    assert yaml.safe_load(after)["ArgumentVector"] == items  # other YAML parsers read the same value
    for line in FILE.splitlines():
        assert line in after or line.startswith("  - ") or line.startswith('"Arg')
    assert after.count("#") >= FILE.count("#") - 1  # the comment of an item is removed with the item


@QUICK
@given(variables=st.dictionaries(NAMES, TEXT, max_size=5))
def test_variables_round_trip(tmp_path: Path, variables: dict[str, str]) -> None:
    after = apply_and_read(tmp_path, FILE, EnvironmentVariables=variables)
    assert read_runconfig(tmp_path / "x.runconfig").environment_variables == variables
    assert (yaml.safe_load(after)["EnvironmentVariables"] or {}) == variables
    expected = FILE.splitlines()
    expected.remove("EnvironmentVariables:")
    assert [line for line in after.splitlines() if not line.startswith("EnvironmentVariables:")] == expected


COMMENT = st.sampled_from(["", "  # why", " # é: [x"])
SCALAR = st.sampled_from(
    ["1", "0.10", "'it''s'", '"a\\tb"', "yes", "[a,  b]", "{a:  b}", "2017-11-02", "", "~", "0o17"]
)
LINE = st.tuples(SCALAR, COMMENT).map(lambda pair: f" {pair[0]}{pair[1]}")
BLOCK = st.sampled_from(
    ["\n  - a # first\n  # second\n  - b", "\n- a", "\n  x: 1\n  y:\n    - z", " |\n  text\n  more"]
)
FILES = st.lists(st.tuples(st.sampled_from(["", "# about it\n", "\n"]), st.one_of(LINE, BLOCK)), min_size=1, max_size=5)
NEW = st.one_of(
    st.none(), st.booleans(), st.integers(), TEXT, st.lists(TEXT, max_size=3), st.dictionaries(TEXT, TEXT, max_size=3)
)


@QUICK
@given(entries=FILES, which=st.integers(0, 5), value=NEW)
def test_all_other_entries_keep_every_byte(
    tmp_path: Path, entries: list[tuple[str, str]], which: int, value: object
) -> None:
    chunks = [f"{comment}key{index}:{text}\n" for index, (comment, text) in enumerate(entries)]
    after = apply_and_read(tmp_path, "".join(chunks), **{f"key{which}": value})
    for index, chunk in enumerate(chunks):
        if index != which:
            assert chunk in after
        else:
            assert after.startswith("".join(chunks[:index]) + entries[index][0])
    read = yaml.load(after, Loader=yaml.BaseLoader) or {}
    if value is None:
        assert f"key{which}" not in read
    elif not isinstance(value, bool | int):
        assert read[f"key{which}"] == value
