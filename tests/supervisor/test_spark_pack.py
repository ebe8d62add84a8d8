"""Environment archives: usable in any folder, created once, and removed with their environment."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

import mlworkbench.remote as remote
from mlworkbench.remote.disk_usage import free_space, report_usage
from mlworkbench.remote.environments.archive_record import is_packed
from mlworkbench.remote.environments.build import Cancelled
from mlworkbench.remote.environments.environment_state import hold_environment_lock, unprotect
from mlworkbench.remote.environments.environment_usage import describe_all, removable_leftovers
from mlworkbench.remote.environments.garbage_collection import handle_remove as retire
from mlworkbench.remote.shared.environment_layout import mounts, pack_of
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.spark.environment_archive import pack_environment
from mlworkbench.remote.spark.relocatable import collect_items

from .environment_builder import PYTHON, EnvironmentBuilder
from .test_build import downloads  # noqa: F401 - fixture

# Prints the paths of files that Python uses. All must be below the folder of the unpacked archive.
ASK = """
import sys
import ctypes, json, sqlite3, ssl
import greet, pyspark
with open("/proc/self/maps") as file:
    mapped = [line.split()[-1] for line in file if "libpython" in line or "lib-dynload" in line]
print(json.dumps({"prefix": sys.prefix, "all": [*sys.path[1:], *mapped, greet.__file__, sys.executable]}))
"""
FILES = {
    "greet.py": "def main():\n    print('hello')\n",
    "pyspark/__init__.py": "",
    "pyspark/jars/spark.jar": "j" * 100_000,
    "pyspark/examples/pi.py": "",
}
# Packs an environment as a run does.
PACKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote.shared.layout import Root
from remote.spark.environment_archive import pack_environment
with open(sys.argv[3]) as file:
    print(pack_environment(Root(sys.argv[2]), json.load(file), lambda text: print(text, flush=True)))
"""


@pytest.fixture
def root(builder) -> Root:
    return Root(str(builder.root))


@pytest.fixture
def lock(builder):
    return built(builder)


def built(builder: EnvironmentBuilder, conda=(), python=None, **variables: str):
    lock = builder.lock([builder.wheel("greet", FILES)], conda, **python or {})
    code, output = builder.build(lock, **variables)
    assert code == 0, output
    return lock


def nothing(text: str) -> None:
    pass


def start(builder: EnvironmentBuilder, lock, **variables: str) -> subprocess.Popen[str]:
    path = builder.folder / f"{lock['digest']}.json"
    arguments = ["-I", "-S", "-c", PACKER, str(Path(remote.__file__).parents[1]), str(builder.root), str(path)]
    return subprocess.Popen([PYTHON, *arguments], env={**builder.env, **variables}, stdout=subprocess.PIPE, text=True)


# -- content of the archive ----------------------------------------------------------------------------


def of_kind(kind: str, builder: EnvironmentBuilder, request):
    """Build an environment with the Python of conda, of uv, of the system, or of these tests."""
    if kind == "conda":
        packages = builder.channel(request.getfixturevalue("channel"))
        return built(builder, [package for package in packages if package["name"] == "python"])
    if kind == "uv":
        downloads = request.getfixturevalue("downloads")
        (key,) = json.loads(downloads.read_text())
        builder.own_tools()
        python = {"source": "uv", "key": key, "url": "https://python.example/x"}
        return built(builder, python=python, UV_PYTHON_DOWNLOADS_JSON_URL=str(downloads))
    command = ["/usr/bin/python3", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    if kind == "system":
        version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return built(builder, python={"source": "host", "path": command[0], "version": version})
    return built(builder)


@pytest.mark.parametrize("kind", ["host", "system", "uv", "conda"])
def test_archive_runs_without_the_original_files(kind, builder, root, tmp_path, request):
    lock = of_kind(kind, builder, request)
    place = tmp_path / "far" / "environment"
    place.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", pack_environment(root, lock, nothing), "-C", str(place)], check=True)
    away = [Path(path) for path in mounts(root, lock)]
    for path in away:  # the original environment does not exist on executors
        unprotect(str(path))
        path.rename(f"{path}.away")
    done = subprocess.run(["./environment/bin/python", "-c", ASK], cwd=place.parent, env={}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["prefix"] == str(place)
    assert [path for path in result["all"] if not path.startswith(f"{place}/")] == []


def test_what_executors_have_themselves_stays_here(builder, root, lock):
    """The archive has no Spark JARs and no local user names. Its modes allow the unpacked files to be removed."""
    path = Path(pack_environment(root, lock, nothing))
    with tarfile.open(path) as tar:
        entries = tar.getmembers()
    names = [one.name for one in entries]
    below = next(one for one in names if one.endswith("/greet.py")).removesuffix("greet.py")
    assert f"{below}pyspark/__init__.py" in names
    left = ("/jars/", "/examples/", "/test/", "include/", "pyvenv.cfg", ".opt-1.pyc", "bin/activate")
    assert [one for one in names if any(part in one for part in left)] == []
    assert names == sorted(names) and len(set(names)) == len(names)
    assert {(one.uid, one.gid, one.uname, one.gname) for one in entries} == {(0, 0, "", "")}
    assert {one.mode for one in entries if one.isfile()} == {0o644, 0o755}
    first = path.read_bytes()
    path.unlink()
    assert Path(pack_environment(root, lock, nothing)).read_bytes() == first, "the same environment makes the same file"


def test_links_point_to_packed_files(root, tmp_path):
    digest = "a" * 64
    prefix, outside = Path(root.environment(digest)), tmp_path / "outside"
    (prefix / "lib").mkdir(parents=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("from outside")
    (prefix / "lib" / "here").write_text("x")
    for name, target in {
        "relative": "lib/here",
        "absolute": prefix / "lib" / "here",
        "file": outside / "file",
        "folder": outside / "folder",
        "nowhere": tmp_path / "nowhere",
    }.items():
        (prefix / name).symlink_to(target)
    os.mkfifo(prefix / "pipe")
    items = collect_items(root, {"digest": digest, "python": {"source": "conda"}}, str(tmp_path), nothing)
    assert [(item.name, item.link, item.size) for item in items] == [
        ("absolute", "lib/here", 0),
        ("file", "", 12),
        ("lib/here", "", 1),
        ("relative", "lib/here", 0),
    ]


@pytest.fixture
def packages_only(monkeypatch):
    """Make Python look impossible to pack. Packing Python takes seconds, and most tests do not need it."""
    monkeypatch.setattr("mlworkbench.remote.spark.relocatable._TestInstallation.find_layout", lambda self: None)


@pytest.mark.usefixtures("packages_only")
def test_python_that_cannot_be_packed_is_reported(builder, root, lock):
    """Executors get the packages and need the same Python installed on their machine."""
    messages: list[str] = []
    with tarfile.open(pack_environment(root, lock, messages.append)) as tar:
        assert tar.getmember("bin/python").linkname == PYTHON
        assert "pyvenv.cfg" in tar.getnames()
    assert f"cannot be shipped: the executor machines need the same Python as {PYTHON}" in messages[0]


# -- created once, complete or not at all --------------------------------------------------------------


def test_two_runs_at_once_make_it_once(builder, root, lock):
    going = [start(builder, lock), start(builder, lock)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in going]
    assert [process[-1] for process in outputs] == [pack_of(root, lock)] * 2
    assert sum(line.startswith("packing the environment") for process in outputs for line in process) == 1, outputs


@pytest.mark.usefixtures("packages_only")
@pytest.mark.parametrize("what", ["vanished", "cut", "replaced", "environment"])
def test_changed_archive_is_recreated(builder, root, lock, what):
    path = Path(pack_environment(root, lock, nothing))
    before = path.read_bytes()
    path.chmod(0o600)
    if what == "vanished":
        path.unlink()
    elif what == "cut":
        os.truncate(path, 1000)
    elif what == "replaced":
        path.write_bytes(b"x" * len(before))
    else:
        unprotect(str(builder.prefix(lock)))
        next(builder.prefix(lock).glob("lib/*/site-packages/greet.py")).unlink()
        assert "rebuilding the damaged environment" in builder.build(lock)[1]
        assert not path.exists(), "it was of another environment"
    assert not is_packed(root, lock)
    assert pack_environment(root, lock, nothing) == str(path) and is_packed(root, lock)
    with tarfile.open(path) as tar:
        assert any(name.endswith("/greet.py") for name in tar.getnames())


@pytest.mark.usefixtures("packages_only")
def test_what_a_killed_one_left_is_found_and_removed(builder, root, lock):
    process = start(builder, lock, MLW_FAILPOINT="pack-written:kill")
    process.communicate(timeout=120)
    part = Path(pack_of(root, lock) + ".part")
    assert process.returncode != 0 and part.exists() and not is_packed(root, lock)
    assert (
        str(part) in removable_leftovers(root)
        and describe_all(root, {"sizes": True})["leftover_bytes"] >= part.stat().st_size
    )
    assert free_space(root, {"what": ["envs"]})["problems"] == []
    assert not part.exists() and builder.prefix(lock).exists(), "the environment was used lately"
    assert pack_environment(root, lock, nothing) and is_packed(root, lock)


@pytest.mark.usefixtures("packages_only")
def test_a_cancel_ends_it(builder, root, lock, monkeypatch):
    """A cancel stops the packing even in the middle of a file."""
    clock = iter(range(10**9))
    monkeypatch.setattr("mlworkbench.remote.spark.environment_archive.time.monotonic", lambda: float(next(clock)))
    looked: list[int] = []
    with pytest.raises(Cancelled):
        pack_environment(root, lock, nothing, lambda: bool(looked.append(1)) or len(looked) > 3)
    assert builder.leftovers() == [] and not Path(pack_of(root, lock)).exists()
    assert not Path(pack_of(root, lock) + ".part").exists()


# -- removed with its environment ----------------------------------------------------------------------


@pytest.mark.usefixtures("packages_only")
def test_it_is_counted_and_goes_with_its_environment(builder, root, lock):
    (bare,) = describe_all(root, {"sizes": True})["environments"]
    path = Path(pack_environment(root, lock, nothing))
    taken = path.stat().st_blocks * 512
    (environment,) = describe_all(root, {"sizes": True})["environments"]
    assert environment["own"] - bare["own"] >= taken and environment["size"] - bare["size"] >= taken
    assert report_usage(root, {"idle": 0})["kinds"]["envs"]["bytes"] >= taken
    held = hold_environment_lock(root, lock)
    assert retire(root, {"digests": [lock["digest"]]})["removed"] == [] and is_packed(root, lock)
    os.close(held)
    (shown,) = retire(root, {"digests": [lock["digest"]], "dry_run": True})["removed"]
    (gone,) = retire(root, {"digests": [lock["digest"]]})["removed"]
    assert shown["bytes"] == gone["bytes"] >= taken
    assert not path.exists() and builder.leftovers() == []


@pytest.mark.usefixtures("packages_only")
def test_clean_frees_it(builder, root, lock):
    path = Path(pack_environment(root, lock, nothing))
    taken = path.stat().st_blocks * 512
    assert free_space(root, {"what": ["envs"], "idle": 0})["removed"]["envs"]["bytes"] >= taken
    assert not path.exists() and builder.leftovers() == []
