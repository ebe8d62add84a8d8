"""`mlw environment list|show|remove`, locally and on a remote machine, and how `clean` treats environments."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from mlworkbench.remote.environments.environment_state import (
    discard,
    hold_environment_lock,
    list_environments,
    mark_used,
    unprotect,
    use_lock_path,
)
from mlworkbench.remote.shared.layout import Root
from tests.e2e.attach_helpers import SECRET, attach_target, new_project
from tests.machines.network import wait_until
from tests.supervisor.environment_builder import VERSION, EnvironmentBuilder, make_toolbox

SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"
FILES = {"greet": {"greet.py": "print('hello')\n"}, "bulk": {"bulk.py": "data = '" + "x" * 400_000 + "'\n"}}


@pytest.fixture(scope="session")
def toolbox(tmp_path_factory) -> Path:
    return make_toolbox(tmp_path_factory.mktemp("toolbox"))


@pytest.fixture
def build_in(tmp_path_factory, toolbox):
    """Return build_in(folder, [packages]), which builds an environment with the real builder and returns its lock."""
    builder = EnvironmentBuilder(tmp_path_factory.mktemp("builder"), toolbox)
    wheels = {}
    builders = []

    def build(folder, names, python=None):
        builder.root = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / "tools").exists():
            (folder / "tools").symlink_to(toolbox / "tools")
        for name in names:
            wheels[name] = wheels.get(name) or builder.wheel(name, FILES[name])
        given = {"source": "host", "path": python, "version": _version(python)} if python else {}
        lock = builder.lock([wheels[name] for name in names], **given)
        code, output = builder.build(lock)
        assert code == 0, output
        builders.append(builder.prefix(lock))
        return lock

    yield build
    for prefix in builders:
        discard(str(prefix))


def _version(python):
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def rows(done):
    assert done.code == 0, done
    return json.loads(done.out)


def mark_environment_used(folder, lock, run):
    """Mark the environment as used by a run whose supervisor then dies."""
    os.close(hold_environment_lock(Root(str(folder)), lock, run))


def start_long_run(user, project, name):
    (project / "long.py").write_text(SLEEP)
    done = user.mlw("submit", "--detach", "-c", name, "long.py", cwd=project)
    assert done.code == 0, done
    wait_until(lambda: "begun" in user.mlw("logs", done.run, cwd=project).out, "the start")
    return done.run


# -- local ---------------------------------------------------------------------------------------------


def test_commands_without_environments(user):
    done = user.mlw("environment", "list")
    assert (done.code, done.out) == (0, "") and "no environments" in done.err
    assert rows(user.mlw("environment", "list", "-o", "json")) == []
    done = user.mlw("environment", "show", "abc")
    assert done.code == 66 and "unknown environment 'abc'; none exist yet" in done.err
    done = user.mlw("environment", "remove")
    assert done.code == 2 and "--unused" in done.err
    assert user.mlw("environment", "remove", "--unused", "--caches", "-y").code == 0


def test_list_and_show_are_complete(user, build_in):
    first, second = build_in(user.store, ["greet", "bulk"]), build_in(user.store, ["bulk"])
    mark_environment_used(user.store, first, "demo-swift-otter-7k2q")
    environments = {row["digest"]: row for row in rows(user.mlw("environment", "list", "-o", "json"))}
    assert set(environments) == {first["digest"], second["digest"]}
    environment = environments[first["digest"]]
    assert (environment["python"], environment["packages"], environment["runs"], environment["state"]) == (
        VERSION,
        2,
        1,
        "ready",
    )
    assert environment["bytes"] > 400_000 > environment["own_bytes"] > 0, "the other one has the bulk too"
    assert environment["last_used_utc"] >= environment["built_utc"]
    table = user.mlw("environment", "list").out
    assert first["digest"][:12] in table and "just now" in table.replace("s ago", "just now")
    queried = user.mlw("environment", "list", "--query", "[].digest", "-o", "tsv").out.split()
    assert set(queried) == set(environments)

    done = user.mlw("environment", "show", first["digest"][:9])
    assert done.code == 0, done
    for text in ("greet", "bulk", "1.0", "demo-swift-otter-7k2q", str(user.store / "envs" / first["digest"]), "yes"):
        assert text in done.out
    shown = rows(user.mlw("environment", "show", first["digest"], "--verify", "-o", "json"))
    assert [(row["name"], row["kind"]) for row in shown["packages"]] == [("greet", "pip"), ("bulk", "pip")]
    assert (shown["sound"], shown["damage"], shown["used_by"]) == (True, [], ["demo-swift-otter-7k2q"])
    done = user.mlw("environment", "show", "zz")
    assert done.code == 66 and first["digest"][:12] in done.err and second["digest"][:12] in done.err
    done = user.mlw("environment", "show", "")
    assert done.code == 66


def test_damage_is_found(user, build_in):
    lock = build_in(user.store, ["greet"])
    prefix = user.store / "envs" / lock["digest"]
    path = next(prefix.glob("lib/python*/site-packages/greet.py"))
    before = path.stat()
    path.chmod(0o644)
    path.write_text("print('jello')\n")  # same size as before; the next line restores the time
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert user.mlw("environment", "show", lock["digest"]).code == 0
    done = user.mlw("environment", "show", lock["digest"], "--verify")
    assert done.code == 75 and "greet.py was changed" in done.err and "damaged" in done.out


def test_remove_keeps_environment_in_use(user, build_in):
    first, second = build_in(user.store, ["greet"]), build_in(user.store, ["bulk"])
    project = user.project("demo")
    run = start_long_run(user, project, "local")
    mark_environment_used(user.store, first, run)
    row = next(row for row in rows(user.mlw("environment", "list", "-o", "json")) if row["digest"] == first["digest"])
    assert (row["state"], row["used_now_by"]) == ("in use", [run])
    both = [first["digest"][:12], second["digest"][:12]]
    shown = user.mlw("environment", "remove", *both, "--dry-run", "-o", "json")
    assert shown.code == 2 and [row["name"] for row in json.loads(shown.out)] == [second["digest"]]
    assert len(list_environments(Root(str(user.store)))) == 2
    prompted = user.mlw("environment", "remove", *both)
    assert prompted.code != 0 and f"Remove environments {both[1]}" in prompted.err, "nobody said yes"
    assert "\nerror: cannot prompt: no terminal\n" in prompted.err, prompted
    done = user.mlw("environment", "remove", *both, "--yes")
    assert done.code == 2 and f"environment {both[0]} is kept: in use (run {run})" in done.err
    assert f"mlw cancel {run}" in done.err and "removed " in done.err and both[1] in done.out
    assert [note["digest"] for note in list_environments(Root(str(user.store)))] == [first["digest"]]
    kept = user.mlw("environment", "remove", "--unused", "-y")
    assert kept.code == 0 and f"run {run}" in kept.err
    assert user.mlw("cancel", run, "--grace", "0", cwd=project).code == 0
    assert user.mlw("environment", "remove", "--unused", "-y").code == 0
    assert list_environments(Root(str(user.store))) == []
    assert not [path for path in (user.store / "envs").iterdir() if path.is_dir()]


def test_remove_unused_for_days(user, build_in):
    first, second = build_in(user.store, ["greet"]), build_in(user.store, ["bulk"])
    root = Root(str(user.store))
    make_old(root, first, 8)
    done = user.mlw("environment", "remove", "--unused", "--days", "7", "-y", "-o", "json")
    assert [row["name"] for row in rows(done)] == [first["digest"]]
    assert [note["digest"] for note in list_environments(root)] == [second["digest"]]
    assert user.mlw("environment", "remove", "--days", "7").code == 2


def make_old(root, lock, days):
    note = Path(root.environment(lock["digest"]) + ".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "built": time.time() - days * 86400}))
    mark_used(root, lock)
    then = time.time() - days * 86400
    os.utime(use_lock_path(root.environment(lock["digest"])), (then, then))


def test_caches_are_removed_only_on_request(user, build_in):
    lock = build_in(user.store, ["bulk"])
    assert (user.store / "cache" / "uv").exists()
    done = user.mlw("environment", "remove", "--caches", "-y", "-o", "json")
    assert [row["kind"] for row in rows(done)] == ["package caches"]
    assert not (user.store / "cache" / "uv").exists()
    assert len(list_environments(Root(str(user.store)))) == 1
    assert user.mlw("environment", "show", lock["digest"], "--verify").code == 0


def test_clean_removes_environments_unused_for_a_month(user, build_in):
    user.project("demo")
    assert user.mlw("submit", "train.py", cwd=user.home / "demo").code == 0  # without a history, clean deletes nothing
    first, second = build_in(user.store, ["greet"]), build_in(user.store, ["bulk"])
    kind = "environments unused for 30 days"

    def clean(*arguments):
        done = user.mlw("experiment", "clean", *arguments, "-o", "json")
        assert "mlw environment remove --unused" in done.err
        return {row["kind"]: row for row in rows(done)}

    assert clean()[kind]["things"] == 0
    make_old(Root(str(user.store)), first, 31)
    shown = clean()
    assert shown[kind]["things"] == 1 and shown[kind]["bytes"] > 0
    assert clean("--yes")[kind] == shown[kind]
    assert [note["digest"] for note in list_environments(Root(str(user.store)))] == [second["digest"]]
    assert (user.store / "cache" / "uv").exists()


# -- remote --------------------------------------------------------------------------------------------


def test_commands_on_remote_machine(laptop, machine, build_in):
    host = machine(password=SECRET)
    project = new_project(laptop)
    attach_target(laptop, host, project)
    root = host.home / ".mlw"
    # The machine's user cannot use the tests' own Python.
    first, second = build_in(root, ["greet"], "/usr/bin/python3"), build_in(root, ["bulk"])
    run = start_long_run(laptop, project, "box")
    mark_environment_used(root, first, run)
    python = root / "tools" / "python" / "cpython-3.12.1-x"  # used by no environment
    (root / "tools").unlink()
    (python / "lib").mkdir(parents=True)
    python.chmod(0o500)
    host.run("chown", "-R", f"{host.user}:", str(root))

    def environment_command(*arguments, **more):
        return laptop.mlw("environment", *arguments, "-t", "box", cwd=project, **more)

    environments = {row["digest"]: row for row in rows(environment_command("list", "-o", "json"))}
    assert environments[first["digest"]]["used_now_by"] == [run] and environments[second["digest"]]["state"] == "ready"
    assert environments[second["digest"]]["bytes"] > 400_000
    assert f"in use by {run}" in environment_command("list").out
    assert rows(laptop.mlw("environment", "list", "-o", "json")) == [], "here is none"
    assert "greet" in environment_command("show", first["digest"][:10], "--verify", check=True).out
    gone = environment_command("show", second["digest"])
    assert gone.code == 75 and "its Python is missing or does not start" in gone.out
    unknown = environment_command("show", "zz")
    assert unknown.code == 66 and first["digest"][:12] in unknown.err
    done = environment_command("remove", first["digest"][:10], second["digest"][:10], "-y")
    assert done.code == 2 and f"run {run}" in done.err and re.search("removed .* from box", done.err)
    assert not (root / "envs" / second["digest"]).exists()
    cleaned = laptop.mlw("experiment", "clean", "-t", "box", "-o", "json", cwd=project, check=True)
    kinds = {row["kind"]: row for row in json.loads(cleaned.out)}
    assert (kinds["environments"]["things"], kinds["environments"]["can_go"]) == (1, 0)
    assert kinds["package caches"]["things"] == 3 and kinds["package caches"]["can_go"] == 0
    assert "kept: environments, 1 (" in cleaned.err and "in use by active runs" in cleaned.err
    assert "mlw environment remove --caches -t box" in cleaned.err
    laptop.mlw("cancel", run, "--grace", "0", cwd=project, check=True)
    environment_command("remove", "--unused", "--caches", "-y", check=True)
    assert list_environments(Root(str(root))) == [] and not python.exists()


def test_detach_with_purge_removes_protected_files(laptop, machine, build_in):
    host = machine(password=SECRET)
    project = new_project(laptop)
    attach_target(laptop, host, project)
    root = host.home / ".mlw"
    build_in(root, ["greet"])
    (root / "tools").unlink()
    python = root / "tools" / "python" / "cpython-3.12.1-x"
    (python / "lib").mkdir(parents=True)
    for folder in (python / "lib", python):
        folder.chmod(0o500)
    host.run("chown", "-R", f"{host.user}:", str(root))
    try:
        laptop.mlw("computetarget", "detach", "box", "--purge", "--yes", cwd=project, check=True)
        assert not root.exists()
    finally:
        if python.exists():
            unprotect(str(python))
