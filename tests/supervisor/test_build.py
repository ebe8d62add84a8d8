"""Environments are built once, completely or not at all, and do not change afterwards."""

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

from mlworkbench.environments.pip_solve import run_uv
from mlworkbench.remote.disk_usage import free_space, report_usage
from mlworkbench.remote.environments.build import Cancelled, ensure
from mlworkbench.remote.environments.environment_state import find_damage, is_intact, list_environments, unprotect
from mlworkbench.remote.environments.missing_packages import find_missing, python_archive
from mlworkbench.remote.shared.environment_layout import mounts
from mlworkbench.remote.shared.layout import Root
from tests.e2e.package_index import serve_index
from tests.machines.python_mirror import write_mirror

from ..interpreters import oldest_and_newest
from .conftest import alive, until
from .environment_builder import PYTHON, VERSION, EnvironmentBuilder

GREET = "def main():\n    print('hello')\n"
POINTS = ["cleared", "venv", "installing", "pip", "compiled", "protected", "published"]


@pytest.fixture
def lock(builder):
    return greeting(builder)


def greeting(builder: EnvironmentBuilder) -> dict[str, Any]:
    return builder.lock([builder.wheel("greet", {"greet.py": GREET}, scripts="greet = greet:main")])


def root(builder: EnvironmentBuilder) -> Root:
    return Root(str(builder.root))


# -- content of environments ---------------------------------------------------------------------------


def test_an_environment_around_the_hosts_python(builder, lock):
    code, output = builder.build(lock)
    assert (code, output.splitlines()[-1]) == (0, f"prefix {builder.prefix(lock)}")
    assert builder.python(lock, "import greet; greet.main()") == "hello"
    command = subprocess.run([builder.prefix(lock) / "bin" / "greet"], capture_output=True, text=True)
    assert command.stdout == "hello\n"
    assert mounts(root(builder), lock) == [str(builder.prefix(lock))]
    code, output = builder.build(lock)
    assert (code, output) == (0, f"prefix {builder.prefix(lock)}\n")  # no log lines: the environment already exists
    (environment,) = list_environments(root(builder))
    assert environment["digest"] == lock["digest"] and environment["packages"] == 1 and environment["bytes"] > 0


def test_an_environment_of_conda_packages_with_pips_in_it(builder, channel):
    conda = [package for package in builder.channel(channel) if package["name"] in ("python", "hello-py", "words")]
    conda = [package for package in conda if package["version"] != "1.0"]
    lock = builder.lock([builder.wheel("greet", {"greet.py": GREET})], conda)
    code, output = builder.build(lock)
    assert code == 0, output + builder.log.read_text()
    prefix = builder.prefix(lock)
    assert builder.python(lock, "import greet, sys; greet.main(); print(sys.prefix)") == f"hello\n{prefix}"
    command = subprocess.run([prefix / "bin" / "hello"], capture_output=True, text=True)
    assert command.stdout == f"hello from {prefix}\n"
    assert (prefix / "share" / "words.txt").read_text() == f"prefix={prefix}\n"
    assert "conda: 3 of 3 packages" in builder.log.read_text()
    assert find_damage(root(builder), lock) == []


@pytest.fixture(scope="session")
def downloads(tmp_path_factory) -> Path:
    """A list of Python downloads for uv with one entry. The tests cannot reach uv's default download site."""
    folder = tmp_path_factory.mktemp("pythons")
    return write_mirror(folder, f"file://{folder}")


@pytest.mark.parametrize("point", [None, "env-python"])
def test_an_environment_with_a_python_of_its_own(builder, downloads, point):
    builder.own_tools()
    key = f"cpython-{VERSION}-linux-x86_64-gnu"
    lock = builder.lock(
        [builder.wheel("greet", {"greet.py": GREET})], source="uv", key=key, url="https://python.example/x"
    )
    if point:
        builder.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(downloads), MLW_FAILPOINT=f"{point}:kill")
    code, output = builder.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(downloads))
    assert code == 0, output + builder.log.read_text()
    prefix, home = mounts(root(builder), lock)
    assert (prefix, home) == (str(builder.prefix(lock)), str(builder.root / "tools" / "python" / key))
    # A container needs only these two folders.
    assert os.readlink(builder.prefix(lock) / "bin" / "python").startswith(home + "/bin/")
    assert builder.python(lock, "import sys, greet; print(sys.base_prefix)") == home
    assert f"home = {home}/bin" in (builder.prefix(lock) / "pyvenv.cfg").read_text()
    assert not os.stat(home).st_mode & 0o222 and list(Path(home).glob("lib/python*/__pycache__/os.*.pyc"))
    unprotect(home)


def test_a_python_that_was_sent_along_needs_no_internet(builder, downloads):
    """uv uses the uploaded archive, although its list of downloads contains a URL that it cannot reach."""
    builder.own_tools()
    ((key, entry),) = json.loads(downloads.read_text()).items()
    archive = Path(entry["url"].removeprefix("file://"))
    path = f"{archive.parent.name}/{archive.name.replace('+', '%2B')}"
    entry["url"] = (
        f"https://github.com/astral-sh/python-build-standalone/releases/download/{path}"  # as in uv's built-in list
    )
    listing = builder.folder / "downloads.json"
    listing.write_text(json.dumps({key: entry}))
    arguments = ["python", "list", VERSION, "--only-downloads", "--output-format", "json", "--no-config"]
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS_JSON_URL": str(listing), "UV_PYTHON_DOWNLOADS": "automatic"}
    (download,) = json.loads(run_uv(arguments, environ, builder.folder).stdout)  # the URL for the lock file
    lock = builder.lock([builder.wheel("greet", {"greet.py": GREET})], source="uv", key=key, url=download["url"])
    assert find_missing(root(builder), lock, everything=True) == {"digests": [], "python": True}
    place = Path(python_archive(root(builder), lock["python"]))
    place.parent.mkdir()
    shutil.copy(archive, place)
    assert find_missing(root(builder), lock, everything=True) is None
    closed = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    code, output = builder.build(lock, UV_PYTHON_DOWNLOADS_JSON_URL=str(listing), **closed)
    assert code == 0, output + builder.log.read_text()
    assert builder.python(lock, "import greet; greet.main()") == "hello"
    unprotect(str(mounts(root(builder), lock)[1]))


def test_failed_python_download_gives_a_short_message(builder):
    """The message is one line. The full error message of the real uv is only in the log."""
    builder.own_tools()
    key = f"cpython-{VERSION}-linux-x86_64-gnu"
    lock = builder.lock([], source="uv", key=key, url="https://python.example/1/x")
    lock["instead"] = {"version": "3.11.2", "file": "aml_config/conda_dependencies.yml"}
    (builder.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
    nobody = {"UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9/mirror", "UV_HTTP_RETRIES": "0"}
    code, output = builder.build(lock, **nobody)
    (line,) = [line for line in output.splitlines() if "cannot be fetched" in line]
    assert code and f"Python {VERSION} cannot be fetched: Connection refused" in line
    assert "; hint: the machine has Python 3.11.2: write python=3.11 in aml_config/conda_dependencies.yml, or" in line
    assert "cause:" not in output and "cause:" in builder.log.read_text()


def test_the_mirror_beside_the_lock_is_asked_and_a_bad_archive_is_not_kept(builder, downloads, tmp_path):
    """An archive that does not match the digest in uv's built-in list is removed and reported as missing."""
    builder.own_tools()
    arguments = ["python", "list", "3.12", "--only-downloads", "--output-format", "json", "--no-config"]
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "automatic"}
    download = json.loads(run_uv(arguments, environ, builder.folder).stdout)[0]
    release, name = download["url"].split("/")[-2:]
    with serve_index(tmp_path / "mirror") as mirror:
        python = {"version": download["version"], "source": "uv", "key": download["key"]}
        lock = builder.lock([], **python, url=f"{mirror.url}/pythons/{release}/{name}")
        lock["mirrors"] = {"pythons": [f"{mirror.url}/pythons"]}
        (builder.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
        _, missing = builder.build(lock, UV_HTTP_RETRIES="0")
        assert f"Python {download['version']} cannot be fetched: HTTP status client error (404 Not Found)" in missing
        assert [request.split(" ")[0] for request in mirror.asked] == [f"/pythons/{release}/{name}"]
        path = Path(python_archive(root(builder), lock["python"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"<html>the company's proxy says hello</html>")
        refused = hashlib.sha256(path.read_bytes()).hexdigest()
        _, bad = builder.build(lock, UV_HTTP_RETRIES="0")
    assert f"Python {download['version']} cannot be fetched: " in bad and not path.exists(), bad
    assert find_missing(root(builder), lock, everything=True) == {"digests": [], "python": True, "refused": refused}


def test_failed_package_download_gives_a_short_message(builder):
    package = {
        "name": "six",
        "version": "1.0",
        "url": "http://127.0.0.1:9/six-1.0-py3-none-any.whl",
        "sha256": "0" * 64,
    }
    code, output = builder.build(builder.lock([package]), UV_HTTP_RETRIES="0")
    assert code and f"{package['url']} cannot be fetched here (Connection refused" in output, output
    assert "cause:" not in output and "--send-packages" in output


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_old_and_new_pythons_build(builder, lock, python):
    code, output = builder.build(lock, python=python)
    assert code == 0, output


def test_bytecode_is_there_and_is_shared_with_the_next(builder):
    many = builder.wheel("many", {f"many/part{number}.py": f"value = {number}\n" for number in range(20)})
    greet = builder.wheel("greet", {"greet.py": GREET})
    first, second = builder.lock([many]), builder.lock([greet, many])
    assert builder.build(first)[0] == 0
    assert builder.build(second)[0] == 0

    def compiled(lock):
        return sorted(builder.prefix(lock).glob("lib/python*/site-packages/many/__pycache__/*.pyc"))

    assert len(compiled(first)) == 20
    assert [path.stat().st_ino for path in compiled(first)] == [path.stat().st_ino for path in compiled(second)]
    path = builder.python(second, "import many.part3, sys; print(many.part3.__file__, many.part3.value)")
    assert path == f"{builder.prefix(second)}/lib/python{VERSION.rpartition('.')[0]}/site-packages/many/part3.py 3"


# -- write protection and damage -----------------------------------------------------------------------


def test_nothing_in_it_can_be_written(builder, lock):
    builder.build(lock)
    for path in [builder.prefix(lock), *builder.prefix(lock).rglob("*")]:
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_a_user_can_neither_change_it_nor_install_into_it(toolbox, open_folder):
    builder = EnvironmentBuilder(open_folder, toolbox)
    lock = greeting(builder)
    builder.build(lock)
    for folder in (builder.root, builder.root / "envs"):
        folder.chmod(0o755)
    site = next(builder.prefix(lock).glob("lib/python*/site-packages"))
    for path in [builder.prefix(lock), *builder.prefix(lock).rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)

    def try_to(arguments):
        return subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", *map(str, arguments)], capture_output=True
        )

    assert try_to(["cat", site / "greet.py"]).returncode == 0
    assert try_to(["sh", "-c", f"echo x >> {site / 'greet.py'}"]).returncode
    assert try_to(["sh", "-c", f"echo x > {site / 'new.py'}"]).returncode
    assert try_to(["rm", "-rf", site / "greet.py"]).returncode
    assert is_intact(root(builder), lock)
    # The owner can still remove the whole environment.
    os.chown(builder.root / "envs", 65534, 65534)
    # That user may not be able to read the clone of this repository.
    modules = open_folder / "modules"
    shutil.copytree(Path(__file__).parents[2] / "src" / "mlworkbench" / "remote", modules / "mlworkbench" / "remote")
    code = f"import sys; sys.path.insert(0, {str(modules)!r})\n"
    code += (
        f"from mlworkbench.remote.environments.environment_state import discard; discard({str(builder.prefix(lock))!r})"
    )
    done = try_to([shutil.which("python3", path="/usr/bin"), "-c", code])
    assert done.returncode == 0, done.stderr
    assert not builder.prefix(lock).exists()


def in_place(path: Path) -> None:
    path.write_text("raise SystemExit('broken')\n")


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def add(path: Path) -> None:
    (path.parent / "extra.py").write_text("")


@pytest.mark.parametrize("harm", [in_place, truncate, add, Path.unlink])
def test_damaged_environment_is_detected_and_rebuilt(builder, lock, harm):
    builder.build(lock)
    harm(next(builder.prefix(lock).glob("lib/python*/site-packages/greet.py")))
    assert not is_intact(root(builder), lock)
    code, output = builder.build(lock)
    assert code == 0 and "rebuilding the damaged environment: lib/python" in output
    assert builder.python(lock, "import greet; greet.main()") == "hello"
    assert not list(builder.prefix(lock).glob("lib/python*/site-packages/extra.py"))
    assert find_damage(root(builder), lock) == []


def test_the_thorough_check_reads_contents(builder, lock):
    builder.build(lock)
    path = next(builder.prefix(lock).glob("lib/python*/site-packages/greet.py"))
    facts = path.stat()
    path.write_text(GREET.replace("hello", "hullo"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert is_intact(root(builder), lock)  # the quick check compares only size and time
    assert find_damage(root(builder), lock) == [f"{path.relative_to(builder.prefix(lock))} was changed"]


def test_a_python_that_is_gone_is_damage(builder, lock):
    builder.build(lock)
    python = builder.prefix(lock) / "bin" / "python"
    times = {path: path.lstat().st_mtime_ns for path in (python, python.parent)}
    target = os.readlink(python)
    python.unlink()
    python.symlink_to("/" + "x" * (len(target) - 1))  # a dangling link, as if the interpreter had been removed
    for path, changed in times.items():
        os.utime(path, ns=(changed, changed), follow_symlinks=False)
    assert not is_intact(root(builder), lock)


# -- killed builds, concurrent builds, and full disks --------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_build_leaves_nothing_that_counts(builder, lock, point):
    code, _ = builder.build(lock, MLW_FAILPOINT=f"env-{point}:kill")
    assert code == -signal.SIGKILL
    assert is_intact(root(builder), lock) == (point == "published")
    code, output = builder.build(lock)
    assert code == 0, output
    assert builder.python(lock, "import greet; greet.main()") == "hello"
    assert builder.leftovers() == []


@pytest.mark.parametrize("point", ["installing", "conda"])
def test_a_killed_build_of_conda_packages(builder, channel, point):
    conda = [package for package in builder.channel(channel) if package["name"] in ("python", "hello-py", "words")]
    lock = builder.lock([], [package for package in conda if package["version"] != "1.0"])
    code, _ = builder.build(lock, MLW_FAILPOINT=f"env-{point}:kill")
    assert code == -signal.SIGKILL and not is_intact(root(builder), lock)
    code, output = builder.build(lock)
    assert code == 0, output + builder.log.read_text()
    assert is_intact(root(builder), lock) and builder.leftovers() == []


def test_a_builder_waits_for_the_programs_of_one_that_was_killed(builder, lock, tmp_path):
    """A process of the killed build may still write to the environment, so the next build waits for it."""
    gate, running = tmp_path / "gate", tmp_path / "running"
    os.mkfifo(gate)
    builder.replace_uv(f"#!/bin/sh\ntouch {running}\ncat {gate} > /dev/null\n")
    first = builder.start(lock)
    until(running.exists)
    first.kill()
    first.communicate()
    second = builder.start(lock)
    assert second.stdout.readline() == "another run is building the same environment; waiting for it\n"
    running.unlink()
    gate.write_text("go\n")  # the second build begins only after the orphan has ended
    until(running.exists)
    second.kill()
    second.communicate()
    gate.write_text("go\n")


def test_eight_at_once_are_one_build(builder, lock):
    builders = [builder.start(lock) for _ in range(8)]
    output = [process.communicate(timeout=120)[0] for process in builders]
    assert [process.returncode for process in builders] == [0] * 8, output
    assert sum("environment ready" in text for text in output) == 1
    assert all(text.endswith(f"prefix {builder.prefix(lock)}\n") for text in output)
    assert builder.leftovers() == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs to mount a small disk")
def test_full_disk_is_reported_and_leaves_nothing(builder, tmp_path, toolbox):
    big = builder.wheel("big", {"big.py": "x = 1\n", "big.txt": "0123456789abcdef" * (1 << 19)})
    lock = builder.lock([big])
    small = builder.root / "envs"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], check=True)
    try:
        code, output = builder.build(lock)
        assert (code, "the disk that holds" in output, "is full; hint:" in output) == (3, True, True), output
        assert not is_intact(root(builder), lock) and builder.leftovers() == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert builder.build(lock)[0] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs to mount")
def test_a_disk_mounted_noexec_is_named_before_anything_is_built(builder, lock):
    subprocess.run(["mount", "--bind", str(builder.root), str(builder.root)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,noexec", str(builder.root)], check=True)
        code, output = builder.build(lock)
        assert code == 3 and f"{builder.root}/envs is on a disk mounted noexec" in output and "hint: " in output, output
        assert not (builder.root / "envs" / lock["digest"]).exists()
    finally:
        subprocess.run(["umount", str(builder.root)], check=True)


# -- other errors --------------------------------------------------------------------------------------


def test_a_package_that_was_not_sent_is_named(builder, lock):
    os.unlink(builder.root / "pkgs" / lock["pip"][0]["sha256"])
    code, output = builder.build(lock)
    assert code == 3 and "greet-1.0-py3-none-any.whl was not uploaded" in output
    assert builder.leftovers() == []


def test_a_package_whose_content_is_another_is_refused(builder, lock):
    (builder.root / "pkgs" / lock["pip"][0]["sha256"]).write_bytes(b"PK\x05\x06" + bytes(18))
    code, output = builder.build(lock)
    assert code == 3 and "failed:" in output
    assert not is_intact(root(builder), lock)


def test_a_changed_lock_is_refused(builder, lock):
    lock["pip"][0]["version"] = "2.0"
    (builder.folder / f"{lock['digest']}.json").write_text(json.dumps(lock))
    code, output = builder.build(lock)
    assert code == 3 and "its digest does not match" in output


def test_another_python_than_the_lock_says(builder):
    lock = builder.lock(source="host", path=PYTHON, version="3.2.1")
    code, output = builder.build(lock)
    assert code == 3 and f"is Python {VERSION}, but the lock file requires 3.2.1" in output


# -- disk space ----------------------------------------------------------------------------------------


def test_environments_count_and_can_be_freed(builder, lock):
    builder.build(lock)
    usage = report_usage(root(builder), {"idle": 0})["kinds"]["envs"]
    assert usage["count"] == 1 and usage["free_bytes"] == usage["bytes"] > 0
    assert free_space(root(builder), {"what": ["envs"]})["removed"]["envs"]["count"] == 0, "it was just built"
    assert free_space(root(builder), {"what": ["envs"], "idle": 0})["removed"]["envs"]["count"] == 1
    assert list_environments(root(builder)) == [] and not builder.prefix(lock).exists()


def test_a_cancelled_build_ends_at_once_with_all_that_it_started(builder, lock, tmp_path):
    running = tmp_path / "running"
    builder.replace_uv(f"#!/bin/sh\necho $$ > {running}.part; mv {running}.part {running}\nexec sleep 600\n")
    with pytest.raises(Cancelled):
        ensure(root(builder), lock, str(builder.log), lambda text: None, running.exists)
    assert not alive(int(running.read_text()))
    assert builder.leftovers() == []
