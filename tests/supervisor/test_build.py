"""Environments are built once, whole or not at all, and stay as they were built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.environments.pip import run_uv
from mlworkbench.remote.environments.build import Cancelled, ensure
from mlworkbench.remote.environments.environment import damage, environments, is_sound, unprotect
from mlworkbench.remote.environments.supplies import archive_of, lacking
from mlworkbench.remote.shared.environment_layout import mounts
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.space import free, space
from tests.e2e.package_index import serving
from tests.machines.python_mirror import write_mirror

from ..interpreters import oldest_and_newest
from .building import PYTHON, VERSION, Yard
from .conftest import alive, until

GREET = "def main():\n    print('hello')\n"
POINTS = ["cleared", "venv", "installing", "pip", "compiled", "protected", "published"]


@pytest.fixture
def lock(yard):
    return greeting(yard)


def greeting(yard: Yard) -> dict[str, Any]:
    return yard.lock([yard.wheel("greet", {"greet.py": GREET}, scripts="greet = greet:main")])


def root(yard: Yard) -> Root:
    return Root(str(yard.root))


# -- what is built -------------------------------------------------------------------------------------


def test_an_environment_around_the_hosts_python(yard, lock):
    code, said = yard.build(lock)
    assert (code, said.splitlines()[-1]) == (0, f"prefix {yard.prefix(lock)}")
    assert yard.python(lock, "import greet; greet.main()") == "hello"
    command = subprocess.run([yard.prefix(lock) / "bin" / "greet"], capture_output=True, text=True)
    assert command.stdout == "hello\n"
    assert mounts(root(yard), lock) == [str(yard.prefix(lock))]
    code, said = yard.build(lock)
    assert (code, said) == (0, f"prefix {yard.prefix(lock)}\n")  # it was there
    (known,) = environments(root(yard))
    assert known["digest"] == lock["digest"] and known["packages"] == 1 and known["bytes"] > 0


def test_an_environment_of_conda_packages_with_pips_in_it(yard, channel):
    conda = [one for one in yard.channel(channel) if one["name"] in ("python", "hello-py", "words")]
    conda = [one for one in conda if one["version"] != "1.0"]
    lock = yard.lock([yard.wheel("greet", {"greet.py": GREET})], conda)
    code, said = yard.build(lock)
    assert code == 0, said + yard.log.read_text()
    prefix = yard.prefix(lock)
    assert yard.python(lock, "import greet, sys; greet.main(); print(sys.prefix)") == f"hello\n{prefix}"
    command = subprocess.run([prefix / "bin" / "hello"], capture_output=True, text=True)
    assert command.stdout == f"hello from {prefix}\n"
    assert (prefix / "share" / "words.txt").read_text() == f"prefix={prefix}\n"
    assert "conda: 3 of 3 packages" in yard.log.read_text()
    assert damage(root(yard), lock) == []


@pytest.fixture(scope="session")
def downloads(tmp_path_factory) -> Path:
    """A list of Pythons for uv with one in it; the place where it has its own cannot be reached from the tests."""
    folder = tmp_path_factory.mktemp("pythons")
    return write_mirror(folder, f"file://{folder}")


@pytest.mark.parametrize("point", [None, "env-python"])
def test_an_environment_with_a_python_of_its_own(yard, downloads, point):
    yard.own_tools()
    key = f"cpython-{VERSION}-linux-x86_64-gnu"
    lock = yard.lock([yard.wheel("greet", {"greet.py": GREET})], source="uv", key=key, url="https://python.example/x")
    if point:
        yard.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(downloads), MLW_FAILPOINT=f"{point}:kill")
    code, said = yard.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(downloads))
    assert code == 0, said + yard.log.read_text()
    prefix, home = mounts(root(yard), lock)
    assert (prefix, home) == (str(yard.prefix(lock)), str(yard.root / "tools" / "python" / key))
    # the two folders are all that a container needs
    assert os.readlink(yard.prefix(lock) / "bin" / "python").startswith(home + "/bin/")
    assert yard.python(lock, "import sys, greet; print(sys.base_prefix)") == home
    assert f"home = {home}/bin" in (yard.prefix(lock) / "pyvenv.cfg").read_text()
    assert not os.stat(home).st_mode & 0o222 and list(Path(home).glob("lib/python*/__pycache__/os.*.pyc"))
    unprotect(home)


def test_a_python_that_was_sent_along_needs_no_internet(yard, downloads):
    """uv takes its archive as from a mirror, whatever address uv itself knows for it."""
    yard.own_tools()
    ((key, entry),) = json.loads(downloads.read_text()).items()
    archive = Path(entry["url"].removeprefix("file://"))
    path = f"{archive.parent.name}/{archive.name.replace('+', '%2B')}"
    entry["url"] = (
        f"https://github.com/astral-sh/python-build-standalone/releases/download/{path}"  # as in uv's own list
    )
    known = yard.folder / "downloads.json"
    known.write_text(json.dumps({key: entry}))
    words = ["python", "list", VERSION, "--only-downloads", "--output-format", "json", "--no-config"]
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS_JSON_URL": str(known), "UV_PYTHON_DOWNLOADS": "automatic"}
    (told,) = json.loads(run_uv(words, environ, yard.folder).stdout)  # as the lock has it: the place may be another
    lock = yard.lock([yard.wheel("greet", {"greet.py": GREET})], source="uv", key=key, url=told["url"])
    assert lacking(root(yard), lock, everything=True) == {"digests": [], "python": True}
    place = Path(archive_of(root(yard), lock["python"]))
    place.parent.mkdir()
    shutil.copy(archive, place)
    assert lacking(root(yard), lock, everything=True) is None
    closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    code, said = yard.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(known), **closed)
    assert code == 0, said + yard.log.read_text()
    assert yard.python(lock, "import greet; greet.main()") == "hello"
    unprotect(str(mounts(root(yard), lock)[1]))


def test_a_python_that_cannot_be_fetched_is_told_in_a_sentence(yard):
    """With the one that is there: uv's own eight lines are in the log."""
    yard.own_tools()
    key = f"cpython-{VERSION}-linux-x86_64-gnu"
    lock = yard.lock([], source="uv", key=key, url="https://python.example/1/x")
    lock["instead"] = {"version": "3.11.2", "file": "aml_config/conda_dependencies.yml"}
    (yard.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
    nobody = {"UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9/mirror", "UV_HTTP_RETRIES": "0"}
    code, said = yard.build(lock, **nobody)
    (line,) = [line for line in said.splitlines() if "cannot be fetched" in line]
    assert code and f"Python {VERSION} cannot be fetched: Connection refused" in line
    assert "; hint: the machine has Python 3.11.2: write python=3.11 in aml_config/conda_dependencies.yml, or" in line
    assert "cause:" not in said and "cause:" in yard.log.read_text()


def test_the_mirror_beside_the_lock_is_asked_and_a_bad_archive_is_not_kept(yard, downloads, tmp_path):
    """With uv's own list: the archive of the mirror is not the one that uv knows. The next build asks again."""
    yard.own_tools()
    words = ["python", "list", "3.12", "--only-downloads", "--output-format", "json", "--no-config"]
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "automatic"}
    known = json.loads(run_uv(words, environ, yard.folder).stdout)[0]
    release, name = known["url"].split("/")[-2:]
    with serving(tmp_path / "mirror") as mirror:
        python = {"version": known["version"], "source": "uv", "key": known["key"]}
        lock = yard.lock([], **python, url=f"{mirror.url}/pythons/{release}/{name}")
        lock["mirrors"] = {"pythons": [f"{mirror.url}/pythons"]}
        (yard.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
        _, missing = yard.build(lock, UV_HTTP_RETRIES="0")
        assert f"Python {known['version']} cannot be fetched: HTTP status client error (404 Not Found)" in missing
        assert [one.split(" ")[0] for one in mirror.asked] == [f"/pythons/{release}/{name}"]
        path = Path(archive_of(root(yard), lock["python"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"<html>the company's proxy says hello</html>")
        refused = hashlib.sha256(path.read_bytes()).hexdigest()
        _, bad = yard.build(lock, UV_HTTP_RETRIES="0")
    assert f"Python {known['version']} cannot be fetched: " in bad and not path.exists(), bad
    assert lacking(root(yard), lock, everything=True) == {"digests": [], "python": True, "refused": refused}


def test_a_package_that_cannot_be_fetched_is_told_in_a_sentence_too(yard):
    one = {"name": "six", "version": "1.0", "url": "http://127.0.0.1:9/six-1.0-py3-none-any.whl", "sha256": "0" * 64}
    code, said = yard.build(yard.lock([one]), UV_HTTP_RETRIES="0")
    assert code and f"{one['url']} cannot be fetched here (Connection refused" in said, said
    assert "cause:" not in said and "--send-packages" in said


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_old_and_new_pythons_build(yard, lock, python):
    code, said = yard.build(lock, python=python)
    assert code == 0, said


def test_bytecode_is_there_and_is_shared_with_the_next(yard):
    many = yard.wheel("many", {f"many/part{number}.py": f"value = {number}\n" for number in range(20)})
    greet = yard.wheel("greet", {"greet.py": GREET})
    first, second = yard.lock([many]), yard.lock([greet, many])
    assert yard.build(first)[0] == 0
    assert yard.build(second)[0] == 0

    def compiled(lock):
        return sorted(yard.prefix(lock).glob("lib/python*/site-packages/many/__pycache__/*.pyc"))

    assert len(compiled(first)) == 20
    assert [path.stat().st_ino for path in compiled(first)] == [path.stat().st_ino for path in compiled(second)]
    path = yard.python(second, "import many.part3, sys; print(many.part3.__file__, many.part3.value)")
    assert path == f"{yard.prefix(second)}/lib/python{VERSION.rpartition('.')[0]}/site-packages/many/part3.py 3"


# -- nobody changes it ---------------------------------------------------------------------------------


def test_nothing_in_it_can_be_written(yard, lock):
    yard.build(lock)
    for path in [yard.prefix(lock), *yard.prefix(lock).rglob("*")]:
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_a_user_can_neither_change_it_nor_install_into_it(toolbox, open_folder):
    yard = Yard(open_folder, toolbox)
    lock = greeting(yard)
    yard.build(lock)
    for folder in (yard.root, yard.root / "envs"):
        folder.chmod(0o755)
    site = next(yard.prefix(lock).glob("lib/python*/site-packages"))
    for path in [yard.prefix(lock), *yard.prefix(lock).rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)

    def try_to(words):
        return subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", *map(str, words)], capture_output=True)

    assert try_to(["cat", site / "greet.py"]).returncode == 0
    assert try_to(["sh", "-c", f"echo x >> {site / 'greet.py'}"]).returncode
    assert try_to(["sh", "-c", f"echo x > {site / 'new.py'}"]).returncode
    assert try_to(["rm", "-rf", site / "greet.py"]).returncode
    assert is_sound(root(yard), lock)
    # but its owner may remove it as a whole
    os.chown(yard.root / "envs", 65534, 65534)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'src')!r})\n"
    code += f"from mlworkbench.remote.environments.environment import discard; discard({str(yard.prefix(lock))!r})"
    done = try_to([shutil.which("python3", path="/usr/bin"), "-c", code])
    assert done.returncode == 0, done.stderr
    assert not yard.prefix(lock).exists()


def in_place(path: Path) -> None:
    path.write_text("raise SystemExit('broken')\n")


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def add(path: Path) -> None:
    (path.parent / "extra.py").write_text("")


@pytest.mark.parametrize("harm", [in_place, truncate, add, Path.unlink])
def test_a_damaged_one_is_noticed_and_built_anew(yard, lock, harm):
    yard.build(lock)
    harm(next(yard.prefix(lock).glob("lib/python*/site-packages/greet.py")))
    assert not is_sound(root(yard), lock)
    code, said = yard.build(lock)
    assert code == 0 and "rebuilding the damaged environment: lib/python" in said
    assert yard.python(lock, "import greet; greet.main()") == "hello"
    assert not list(yard.prefix(lock).glob("lib/python*/site-packages/extra.py"))
    assert damage(root(yard), lock) == []


def test_the_thorough_check_reads_contents(yard, lock):
    yard.build(lock)
    path = next(yard.prefix(lock).glob("lib/python*/site-packages/greet.py"))
    facts = path.stat()
    path.write_text(GREET.replace("hello", "hullo"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert is_sound(root(yard), lock)  # neither size nor time tells
    assert damage(root(yard), lock) == [f"{path.relative_to(yard.prefix(lock))} was changed"]


def test_a_python_that_is_gone_is_damage(yard, lock):
    yard.build(lock)
    python = yard.prefix(lock) / "bin" / "python"
    known = {path: path.lstat().st_mtime_ns for path in (python, python.parent)}
    there = os.readlink(python)
    python.unlink()
    python.symlink_to("/" + "x" * (len(there) - 1))  # as if that one had been removed
    for path, changed in known.items():
        os.utime(path, ns=(changed, changed), follow_symlinks=False)
    assert not is_sound(root(yard), lock)


# -- death, company, a full disk -----------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_build_leaves_nothing_that_counts(yard, lock, point):
    code, _ = yard.build(lock, MLW_FAILPOINT=f"env-{point}:kill")
    assert code == -signal.SIGKILL
    assert is_sound(root(yard), lock) == (point == "published")
    code, said = yard.build(lock)
    assert code == 0, said
    assert yard.python(lock, "import greet; greet.main()") == "hello"
    assert yard.leftovers() == []


@pytest.mark.parametrize("point", ["installing", "conda"])
def test_a_killed_build_of_conda_packages(yard, channel, point):
    conda = [one for one in yard.channel(channel) if one["name"] in ("python", "hello-py", "words")]
    lock = yard.lock([], [one for one in conda if one["version"] != "1.0"])
    code, _ = yard.build(lock, MLW_FAILPOINT=f"env-{point}:kill")
    assert code == -signal.SIGKILL and not is_sound(root(yard), lock)
    code, said = yard.build(lock)
    assert code == 0, said + yard.log.read_text()
    assert is_sound(root(yard), lock) and yard.leftovers() == []


def test_a_builder_waits_for_the_programs_of_one_that_was_killed(yard, lock, tmp_path):
    """Else they would write into each other's folder."""
    gate, running = tmp_path / "gate", tmp_path / "running"
    os.mkfifo(gate)
    yard.replace_uv(f"#!/bin/sh\ntouch {running}\ncat {gate} > /dev/null\n")
    first = yard.start(lock)
    until(running.exists)
    first.kill()
    first.communicate()
    second = yard.start(lock)
    assert second.stdout.readline() == "another run is building the same environment; waiting for it\n"
    running.unlink()
    gate.write_text("go\n")  # the orphan ends, and only now the second begins
    until(running.exists)
    second.kill()
    second.communicate()
    gate.write_text("go\n")


def test_eight_at_once_are_one_build(yard, lock):
    builders = [yard.start(lock) for _ in range(8)]
    said = [one.communicate(timeout=120)[0] for one in builders]
    assert [one.returncode for one in builders] == [0] * 8, said
    assert sum("environment ready" in one for one in said) == 1
    assert all(one.endswith(f"prefix {yard.prefix(lock)}\n") for one in said)
    assert yard.leftovers() == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs to mount a small disk")
def test_a_full_disk_is_said_and_leaves_nothing(yard, tmp_path, toolbox):
    big = yard.wheel("big", {"big.py": "x = 1\n", "big.txt": "0123456789abcdef" * (1 << 19)})
    lock = yard.lock([big])
    small = yard.root / "envs"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], check=True)
    try:
        code, said = yard.build(lock)
        assert (code, "the disk that holds" in said, "is full; hint:" in said) == (3, True, True), said
        assert not is_sound(root(yard), lock) and yard.leftovers() == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert yard.build(lock)[0] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs to mount")
def test_a_disk_mounted_noexec_is_named_before_anything_is_built(yard, lock):
    subprocess.run(["mount", "--bind", str(yard.root), str(yard.root)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,noexec", str(yard.root)], check=True)
        code, said = yard.build(lock)
        assert code == 3 and f"{yard.root}/envs is on a disk mounted noexec" in said and "hint: " in said, said
        assert not (yard.root / "envs" / lock["digest"]).exists()
    finally:
        subprocess.run(["umount", str(yard.root)], check=True)


# -- what goes wrong otherwise -------------------------------------------------------------------------


def test_a_package_that_was_not_sent_is_named(yard, lock):
    os.unlink(yard.root / "pkgs" / lock["pip"][0]["sha256"])
    code, said = yard.build(lock)
    assert code == 3 and "greet-1.0-py3-none-any.whl was not uploaded" in said
    assert yard.leftovers() == []


def test_a_package_whose_content_is_another_is_refused(yard, lock):
    (yard.root / "pkgs" / lock["pip"][0]["sha256"]).write_bytes(b"PK\x05\x06" + bytes(18))
    code, said = yard.build(lock)
    assert code == 3 and "failed:" in said
    assert not is_sound(root(yard), lock)


def test_a_changed_lock_is_refused(yard, lock):
    lock["pip"][0]["version"] = "2.0"
    (yard.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
    code, said = yard.build(lock)
    assert code == 3 and "its digest does not match" in said


def test_another_python_than_the_lock_says(yard):
    lock = yard.lock(source="host", path=PYTHON, version="3.2.1")
    code, said = yard.build(lock)
    assert code == 3 and f"is Python {VERSION}, but the lock file requires 3.2.1" in said


# -- space ---------------------------------------------------------------------------------------------


def test_environments_count_and_can_be_freed(yard, lock):
    yard.build(lock)
    found = space(root(yard), {"idle": 0})["kinds"]["envs"]
    assert found["count"] == 1 and found["free_bytes"] == found["bytes"] > 0
    assert free(root(yard), {"what": ["envs"]})["removed"]["envs"]["count"] == 0, "it was just built"
    assert free(root(yard), {"what": ["envs"], "idle": 0})["removed"]["envs"]["count"] == 1
    assert environments(root(yard)) == [] and not yard.prefix(lock).exists()


def test_a_cancelled_build_ends_at_once_with_all_that_it_started(yard, lock, tmp_path):
    running = tmp_path / "running"
    yard.replace_uv(f"#!/bin/sh\necho $$ > {running}.part; mv {running}.part {running}\nexec sleep 600\n")
    with pytest.raises(Cancelled):
        ensure(root(yard), lock, str(yard.log), lambda text: None, running.exists)
    assert not alive(int(running.read_text()))
    assert yard.leftovers() == []
