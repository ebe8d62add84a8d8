"""An environment in one file: it runs anywhere, is made once, and goes when the environment goes."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

import mlworkbench.remote as remote
from mlworkbench.remote.environments.build import Cancelled
from mlworkbench.remote.environments.environment import hold, unprotect
from mlworkbench.remote.environments.packed import is_packed
from mlworkbench.remote.environments.retire import remove as retire
from mlworkbench.remote.environments.stock import broken, every
from mlworkbench.remote.shared.environment_layout import mounts, pack_of
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.space import free, space
from mlworkbench.remote.spark.movable import items_of
from mlworkbench.remote.spark.pack import pack

from .building import PYTHON, Yard
from .test_build import downloads  # noqa: F401 - a fixture

# Whatever a Python uses of itself has to be below the folder that it is unpacked in.
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
# Two runs at once, in short.
PACKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from remote.shared.layout import Root
from remote.spark.pack import pack
with open(sys.argv[3]) as file:
    print(pack(Root(sys.argv[2]), json.load(file), lambda text: print(text, flush=True)))
"""


@pytest.fixture
def root(yard) -> Root:
    return Root(str(yard.root))


@pytest.fixture
def lock(yard):
    return built(yard)


def built(yard: Yard, conda=(), python=None, **variables: str):
    lock = yard.lock([yard.wheel("greet", FILES)], conda, **python or {})
    code, said = yard.build(lock, **variables)
    assert code == 0, said
    return lock


def nothing(text: str) -> None:
    pass


def start(yard: Yard, lock, **variables: str) -> subprocess.Popen[str]:
    path = yard.folder / f"{lock['digest']}.json"
    words = ["-I", "-S", "-c", PACKER, str(Path(remote.__file__).parents[1]), str(yard.root), str(path)]
    return subprocess.Popen([PYTHON, *words], env={**yard.env, **variables}, stdout=subprocess.PIPE, text=True)


# -- what is in it -------------------------------------------------------------------------------------


def of_kind(kind: str, yard: Yard, request):
    """An environment beside a Python of the machine, beside one of uv's, or with conda's in it."""
    if kind == "conda":
        found = yard.channel(request.getfixturevalue("channel"))
        return built(yard, [one for one in found if one["name"] == "python"])
    if kind == "uv":
        known = request.getfixturevalue("downloads")
        (key,) = json.loads(known.read_text())
        yard.own_tools()
        python = {"source": "uv", "key": key, "url": "https://python.example/x"}
        return built(yard, python=python, UV_PYTHON_DOWNLOADS_JSON_URL=str(known))
    words = ["/usr/bin/python3", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    if kind == "system":
        version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        return built(yard, python={"source": "host", "path": words[0], "version": version})
    return built(yard)


@pytest.mark.parametrize("kind", ["host", "system", "uv", "conda"])
def test_it_runs_where_nothing_of_ours_is(kind, yard, root, tmp_path, request):
    lock = of_kind(kind, yard, request)
    place = tmp_path / "far" / "environment"
    place.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", pack(root, lock, nothing), "-C", str(place)], check=True)
    away = [Path(one) for one in mounts(root, lock)]
    for one in away:  # as on another machine
        unprotect(str(one))
        one.rename(f"{one}.away")
    done = subprocess.run(["./environment/bin/python", "-c", ASK], cwd=place.parent, env={}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert told["prefix"] == str(place)
    assert [one for one in told["all"] if not one.startswith(f"{place}/")] == []


def test_what_executors_have_themselves_stays_here(yard, root, lock):
    """Spark's jars, and all that names this machine's users; what is unpacked can be removed again."""
    path = Path(pack(root, lock, nothing))
    with tarfile.open(path) as tar:
        entries = tar.getmembers()
    names = [one.name for one in entries]
    below = next(one for one in names if one.endswith("/greet.py")).removesuffix("greet.py")
    assert f"{below}pyspark/__init__.py" in names
    left = ("/jars/", "/examples/", "/test/", "include/", "pyvenv.cfg", ".opt-1.pyc", "bin/activate")
    assert [one for one in names if any(word in one for word in left)] == []
    assert names == sorted(names) and len(set(names)) == len(names)
    assert {(one.uid, one.gid, one.uname, one.gname) for one in entries} == {(0, 0, "", "")}
    assert {one.mode for one in entries if one.isfile()} == {0o644, 0o755}
    first = path.read_bytes()
    path.unlink()
    assert Path(pack(root, lock, nothing)).read_bytes() == first, "the same environment makes the same file"


def test_links_lead_to_what_goes_along(root, tmp_path):
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
    found = items_of(root, {"digest": digest, "python": {"source": "conda"}}, str(tmp_path), nothing)
    assert [(one.name, one.link, one.size) for one in found] == [
        ("absolute", "lib/here", 0),
        ("file", "", 12),
        ("lib/here", "", 1),
        ("relative", "lib/here", 0),
    ]


@pytest.fixture
def packages_only(monkeypatch):
    """The Python cannot go along. Where a test is not about what is in the file: to pack a Python takes seconds."""
    monkeypatch.setattr("mlworkbench.remote.spark.movable._Try.find", lambda self: None)


@pytest.mark.usefixtures("packages_only")
def test_a_python_that_cannot_go_along_is_told(yard, root, lock):
    """Executors get the packages, and use the same Python as here, which has to be there."""
    said: list[str] = []
    with tarfile.open(pack(root, lock, said.append)) as tar:
        assert tar.getmember("bin/python").linkname == PYTHON
        assert "pyvenv.cfg" in tar.getnames()
    assert f"cannot be shipped: the executor machines need the same Python as {PYTHON}" in said[0]


# -- made once, whole or not at all --------------------------------------------------------------------


def test_two_runs_at_once_make_it_once(yard, root, lock):
    going = [start(yard, lock), start(yard, lock)]
    told = [one.communicate(timeout=120)[0].splitlines() for one in going]
    assert [one[-1] for one in told] == [pack_of(root, lock)] * 2
    assert sum(line.startswith("packing the environment") for one in told for line in one) == 1, told


@pytest.mark.usefixtures("packages_only")
@pytest.mark.parametrize("what", ["vanished", "cut", "replaced", "environment"])
def test_it_is_made_anew_if_it_is_not_as_it_was(yard, root, lock, what):
    path = Path(pack(root, lock, nothing))
    before = path.read_bytes()
    path.chmod(0o600)
    if what == "vanished":
        path.unlink()
    elif what == "cut":
        os.truncate(path, 1000)
    elif what == "replaced":
        path.write_bytes(b"x" * len(before))
    else:
        unprotect(str(yard.prefix(lock)))
        next(yard.prefix(lock).glob("lib/*/site-packages/greet.py")).unlink()
        assert "rebuilding the damaged environment" in yard.build(lock)[1]
        assert not path.exists(), "it was of another environment"
    assert not is_packed(root, lock)
    assert pack(root, lock, nothing) == str(path) and is_packed(root, lock)
    with tarfile.open(path) as tar:
        assert any(one.endswith("/greet.py") for one in tar.getnames())


@pytest.mark.usefixtures("packages_only")
def test_what_a_killed_one_left_is_found_and_removed(yard, root, lock):
    process = start(yard, lock, MLW_FAILPOINT="pack-written:kill")
    process.communicate(timeout=120)
    part = Path(pack_of(root, lock) + ".part")
    assert process.returncode != 0 and part.exists() and not is_packed(root, lock)
    assert str(part) in broken(root) and every(root, {"sizes": True})["leftover_bytes"] >= part.stat().st_size
    assert free(root, {"what": ["envs"]})["problems"] == []
    assert not part.exists() and yard.prefix(lock).exists(), "the environment was used lately"
    assert pack(root, lock, nothing) and is_packed(root, lock)


@pytest.mark.usefixtures("packages_only")
def test_a_cancel_ends_it(yard, root, lock, monkeypatch):
    """Also in the midst of a file."""
    clock = iter(range(10**9))
    monkeypatch.setattr("mlworkbench.remote.spark.pack.time.monotonic", lambda: float(next(clock)))
    looked: list[int] = []
    with pytest.raises(Cancelled):
        pack(root, lock, nothing, lambda: bool(looked.append(1)) or len(looked) > 3)
    assert yard.leftovers() == [] and not Path(pack_of(root, lock)).exists()
    assert not Path(pack_of(root, lock) + ".part").exists()


# -- it goes with its environment ----------------------------------------------------------------------


@pytest.mark.usefixtures("packages_only")
def test_it_is_counted_and_goes_with_its_environment(yard, root, lock):
    (bare,) = every(root, {"sizes": True})["environments"]
    path = Path(pack(root, lock, nothing))
    taken = path.stat().st_blocks * 512
    (found,) = every(root, {"sizes": True})["environments"]
    assert found["own"] - bare["own"] >= taken and found["size"] - bare["size"] >= taken
    assert space(root, {"idle": 0})["kinds"]["envs"]["bytes"] >= taken
    held = hold(root, lock)
    assert retire(root, {"digests": [lock["digest"]]})["removed"] == [] and is_packed(root, lock)
    os.close(held)
    (shown,) = retire(root, {"digests": [lock["digest"]], "dry_run": True})["removed"]
    (gone,) = retire(root, {"digests": [lock["digest"]]})["removed"]
    assert shown["bytes"] == gone["bytes"] >= taken
    assert not path.exists() and yard.leftovers() == []


@pytest.mark.usefixtures("packages_only")
def test_clean_frees_it(yard, root, lock):
    path = Path(pack(root, lock, nothing))
    taken = path.stat().st_blocks * 512
    assert free(root, {"what": ["envs"], "idle": 0})["removed"]["envs"]["bytes"] >= taken
    assert not path.exists() and yard.leftovers() == []
