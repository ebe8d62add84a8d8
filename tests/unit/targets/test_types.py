"""The table of compute types: built-in types, types of plugins, and the properties of a target."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlworkbench import plugin_registry
from mlworkbench.config.config_files import check_file, create_target, read_compute
from mlworkbench.config.keys import COMPUTE
from mlworkbench.errors import ConfigError, UnknownName
from mlworkbench.history.child_runs import machine_of
from mlworkbench.model import Compute, RunSpec
from mlworkbench.paths import UserPaths
from mlworkbench.targets import types
from mlworkbench.targets.target_factory import open_target
from mlworkbench.targets.types import BUILT_IN, LOCAL, REMOTE, REMOTEDOCKER, Feature, compute_type
from mlworkbench.ui.queries.config_forms import apply_field, build_form

Install = Callable[..., None]
ROW = """
from dataclasses import replace
from mlworkbench.config.key import Key
from mlworkbench.targets.types import REMOTE, REMOTEDOCKER, AttachForm, ComputeType, Feature, local_host, ssh_host

MOON = ComputeType(
    "moon",
    "Processes on the Moon",
    ssh_host,
    starter="/opt/moon/starter.py",
    keys=(*REMOTE.keys, Key("crater", "word", "Name of the crater", required=True),
          Key("rockets", "number", "Number of rockets", default="1")),
    attach=AttachForm("On the Moon"),
)
BOXED = replace(REMOTEDOCKER, name="boxed")
NAMELESS = replace(MOON, name="sun")
RELATIVE = replace(MOON, name="relative", starter="starter.py")


def make(compute, paths):
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that simulates an installed package with these entry points and the module moon_plugin."""

    def put(points: str, code: str = ROW) -> None:
        site = tmp_path / "site"
        (site / "moon-1.0.dist-info").mkdir(parents=True)
        (site / "moon-1.0.dist-info" / "entry_points.txt").write_text(points)
        (site / "moon_plugin.py").write_text(code)
        monkeypatch.syspath_prepend(str(site))
        plugin_registry._all.cache_clear()

    yield put
    plugin_registry._all.cache_clear()
    sys.modules.pop("moon_plugin", None)


def file(folder: Path, text: str) -> Path:
    path = folder / "far.compute"
    path.write_text(text)
    return path


def test_built_in_types_are_entry_points_like_any_other() -> None:
    assert plugin_registry.known("targets") == {
        row.name: f"mlworkbench.targets.types:{row.name.upper()}" for row in BUILT_IN
    }
    assert [compute_type(row.name) for row in BUILT_IN] == list(BUILT_IN)
    assert {row.starter for row in BUILT_IN} == {"detached", "slurm"}


def test_every_key_of_a_type_is_in_the_table() -> None:
    names = [key.name for key in COMPUTE]
    for row in BUILT_IN:
        assert row.own_keys == () and {key.name for key in row.keys} <= set(names) and row.summary


@pytest.mark.parametrize(
    ("compute", "elsewhere", "attach", "process"),
    [
        (Compute("a", "local"), False, False, True),
        (Compute("a", "local", address="h"), False, False, True),  # `address` has no effect on a local target
        (Compute("a", "docker"), False, False, False),
        (Compute("a", "remote", address="h"), True, True, False),
        (Compute("a", "remotedocker", address="h"), True, True, False),
        (Compute("a", "cluster", address="h"), True, True, False),
        (Compute("a", "cluster"), False, False, False),
        (Compute("a", "slurm", address="h"), True, True, False),
        (Compute("a", "not-installed"), False, False, True),
    ],
)
def test_where_a_target_is(compute: Compute, elsewhere: bool, attach: bool, process: bool) -> None:
    answers = types.is_elsewhere(compute), types.needs_attach(compute), types.is_local_process(compute)
    assert answers == (elsewhere, attach, process)


def test_attach_offers_the_default_first_and_plugins_last(install: Install) -> None:
    assert [row.name for row in types.attachable()] == ["remotedocker", "remote", "cluster", "slurm"]
    install("[mlworkbench.targets]\nmoon = moon_plugin:MOON\nabroken = nowhere:X\n")
    assert [row.name for row in types.attachable()] == ["remotedocker", "remote", "cluster", "slurm", "moon"]


def test_a_container_is_added_where_a_type_has_the_same_host() -> None:
    names = {row.name: getattr(types.in_container(row), "name", None) for row in BUILT_IN if not row.contained}
    assert names == {"local": "docker", "remote": "remotedocker", "cluster": None, "slurm": None}


def test_a_type_of_a_plugin_has_keys_of_its_own(install: Install, tmp_path: Path) -> None:
    install("[mlworkbench.targets]\nmoon = moon_plugin:MOON\n")
    path = file(tmp_path, "type: moon\naddress: h\ncrater: Tycho\n")
    compute = read_compute(path)
    assert (compute.address, compute.settings) == ("h", {"crater": "Tycho", "rockets": "1"})
    assert check_file(path) == []
    assert [one.message for one in check_file(file(tmp_path, "type: moon\nshmSize: 8g\nrockets: many\n"))] == [
        "missing key 'address', which type moon requires",
        "missing key 'crater', which type moon requires",
        "shmSize has no effect on targets of type moon",
        "rockets must be a number such as 2 or 2.5, not 'many'",
    ]
    (problem,) = check_file(file(tmp_path, "type: local\ncrater: Tycho\n"))
    assert (problem.severity, problem.message) == ("warning", "unknown key 'crater' has no effect")


def test_its_keys_are_in_the_form_and_in_new_files(install: Install, tmp_path: Path) -> None:
    install("[mlworkbench.targets]\nmoon = moon_plugin:MOON\n")
    path, text = "aml_config/far.compute", "type: moon\naddress: h\ncrater: Tycho\n"
    fields = {field.name: field for field in build_form(path, text).fields}
    assert fields["crater"].required and fields["crater"].value == "Tycho" and fields["rockets"].default == "1"
    assert "shmSize" not in fields and "crater" not in {
        field.name for field in build_form(path, "type: local\n").fields
    }
    assert apply_field(path, text, "crater", "Plato") == "type: moon\naddress: h\ncrater: Plato\n"
    written, _ = create_target(tmp_path, Compute("new", "moon", address="h", settings={"crater": "Tycho"}))
    assert "# Name of the crater.\ncrater: Tycho\n" in written.read_text()
    assert read_compute(written).settings == {"crater": "Tycho", "rockets": "1"}


def test_a_row_made_from_a_built_in_one(install: Install, tmp_path: Path) -> None:
    install("[mlworkbench.targets]\nboxed = moon_plugin:BOXED\n")
    row = compute_type("boxed")
    assert row.contained and row.has(Feature.MANAGED_ENVIRONMENTS) and row.keys == REMOTEDOCKER.keys
    (problem,) = check_file(file(tmp_path, "type: boxed\n"))
    assert problem.message == "missing key 'address', which type boxed requires"


@pytest.mark.parametrize(
    "points",
    [
        "[mlworkbench.targets]\nmoon = moon_plugin:make\n",
        "[mlworkbench.targets]\nmoon = moon_plugin:make\n[mlworkbench.like]\nmoon = remote\n",
        "[mlworkbench.targets]\nmoon = moon_plugin:MOON\n[mlworkbench.like]\nmoon = remote\n",
    ],
)
def test_an_outdated_plugin_is_named_with_the_new_form(install: Install, tmp_path: Path, points: str) -> None:
    install(points)
    said = (
        "the plugin for compute type 'moon' is outdated: its entry point in mlworkbench.targets must be a"
        " ComputeType (mlworkbench.like was removed)"
    )
    (problem,) = check_file(file(tmp_path, "\ntype: moon\n"))
    assert (problem.line, problem.severity, problem.message) == (2, "error", said)
    assert "Write a plugin" in str(problem.hint)
    with pytest.raises(ConfigError, match="is outdated"):
        open_target(Compute("far", "moon"), UserPaths(tmp_path))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere:X", "cannot be loaded: No module named 'nowhere'"),
        ("moon_plugin:STAR", "cannot be loaded: module 'moon_plugin' has no attribute 'STAR'"),
        ("moon_plugin:NAMELESS", "registers a ComputeType that is named 'sun'"),
    ],
)
def test_a_plugin_that_cannot_be_used(install: Install, place: str, said: str) -> None:
    install(f"[mlworkbench.targets]\nmoon = {place}\n")
    with pytest.raises(ConfigError) as error:
        compute_type("moon")
    assert error.value.message == f"the plugin for compute type 'moon' {said}"
    assert types.find_type("moon") is None and not types.type_of(Compute("far", "moon")).contained


def test_a_starter_of_a_plugin_is_an_absolute_path(install: Install) -> None:
    install("[mlworkbench.targets]\nmoon = moon_plugin:MOON\nrelative = moon_plugin:RELATIVE\n")
    assert compute_type("moon").starter == "/opt/moon/starter.py"
    with pytest.raises(ConfigError, match=r"has the starter 'starter\.py'"):
        compute_type("relative")


def test_a_target_holds_its_type(install: Install, tmp_path: Path) -> None:
    install("[mlworkbench.targets]\nmoon = moon_plugin:MOON\n")
    assert open_target(Compute("here", "local"), UserPaths(tmp_path)).type is LOCAL
    assert open_target(Compute("far", "remote", address="h"), UserPaths(tmp_path)).type is REMOTE
    assert open_target(Compute("far", "moon", address="h"), UserPaths(tmp_path)).type is compute_type("moon")
    with pytest.raises(UnknownName, match="unknown compute type 'sun'"):
        open_target(Compute("far", "sun"), UserPaths(tmp_path))


def test_recorded_runs_of_removed_plugins_stay_readable() -> None:
    """Such a record contains an unknown type. Records of earlier versions have the key `like` and no `settings`."""
    compute = {"name": "far", "type": "gone", "like": "remotedocker", "mounts": []}
    lists = dict.fromkeys(("commands", "inherit", "secrets", "tags"), [])
    texts = dict.fromkeys(("id", "key", "name", "project_id", "project_name", "project_path", "runconfig"), "x")
    rest = {"number": 1, "created": 1.0, "framework": "Python", "environment": {}, "snapshot": "0"}
    entry = {"kind": "script", "name": "train.py", "arguments": []}
    spec = RunSpec.from_json({**texts, **lists, **rest, "entry": entry, "compute": compute})
    assert (spec.compute.type, spec.compute.settings) == ("gone", {})
    assert RunSpec.from_json(spec.to_json()) == spec


def test_runs_are_siblings_only_on_the_same_machine() -> None:
    assert machine_of(Compute("a", "local")) == machine_of(Compute("b", "docker")) == ()
    assert machine_of(Compute("a", "moon")) == ("moon", "a") != machine_of(Compute("b", "moon"))
