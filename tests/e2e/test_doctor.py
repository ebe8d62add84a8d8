"""``mlw doctor`` and ``mlw explain`` on a healthy machine and on machines with real faults."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import apsw
import pytest

from tests.conftest import MLW, REAL_PYTHON, need
from tests.machines.network import wait_until

TOOLS = ("ssh", "ssh-keygen", "ssh-add")


def findings(done):
    assert done.code in (0, 1), done
    return {row["what"]: row for row in json.loads(done.out)}


@pytest.fixture
def prepared_user(user):
    """A user whose PATH has what mlw needs but no engine, so that reports show only the fault under test."""
    place = user.home / "bin"
    place.mkdir()
    for name in TOOLS:
        (place / name).symlink_to(need(name))
    (place / "python3").symlink_to(REAL_PYTHON)
    user.env["PATH"] = str(place)
    user.env["SHELL"] = "/bin/bash"
    return user


def doctor(user, *arguments, **more):
    return user.mlw("doctor", *arguments, **more)


@pytest.mark.installed  # the installed program, as a user starts it
def test_healthy_laptop(prepared_user):
    prepared_user.mlw("history", "list", "--all")
    done = doctor(prepared_user)
    assert done.code == 0, done
    assert re.search(r"^Check +State +Result$", done.out, re.MULTILINE)
    rows = findings(doctor(prepared_user, "-o", "json"))
    assert {row["state"] for row in rows.values()} == {"ok"}, rows
    assert str(prepared_user.store) in rows["data folder"]["found"] and "MLW_HOME" in rows["data folder"]["found"]
    assert rows["history"]["found"].startswith("0 runs, 0 not finished")
    assert rows["completion"]["found"] == "not set up for bash; see 'mlw completion bash'"
    assert done.err == "", "nothing to be done"


def test_unused_laptop_stays_unchanged(prepared_user):
    rows = findings(doctor(prepared_user, "-o", "json"))
    assert "does not exist yet" in rows["data folder"]["found"] and "history" not in rows
    assert not prepared_user.store.exists()


@pytest.mark.installed  # includes Python's startup, which could run the code
def test_code_in_current_folder_is_not_run(prepared_user):
    """An untrusted project may contain modules with the names of mlw's modules."""
    place = prepared_user.home / "sent"
    place.mkdir()
    for name in ("keyring", "apsw", "sqlite3", "site", "json", "mlworkbench"):
        (place / f"{name}.py").write_text(f"open({str(place / 'ran')!r}, 'a').write({name!r})\n")
    for name in ("ssh", "docker", "uv"):
        (place / name).write_text(f"#!/bin/sh\necho {name} >> '{place}/ran'\n")
        (place / name).chmod(0o755)
    prepared_user.mlw("history", "list", "--all")
    rows = findings(doctor(prepared_user, "-o", "json", cwd=place))
    assert not (place / "ran").exists(), (place / "ran").read_text()
    assert rows["ssh"]["state"] == "ok"


def test_background_processes_do_not_block_doctor(prepared_user):
    """Background processes of ssh keep its output open. Doctor does not wait for them, and ends them."""
    sleep = need("sleep")
    for script in (f"{sleep} 600 &\n{sleep} 600\n", f"{sleep} 601 &\necho here\n"):
        (prepared_user.home / "bin" / "ssh").unlink()
        (prepared_user.home / "bin" / "ssh").write_text(f"#!/bin/sh\n{script}")
        (prepared_user.home / "bin" / "ssh").chmod(0o755)
        rows = findings(doctor(prepared_user, "-o", "json"))
        assert "unknown version of ssh" in rows["ssh"]["found"]

    def is_left() -> bool:  # a killed process exists for a moment
        return any(_is_ours(path, prepared_user) for path in Path("/proc").glob("[0-9]*/environ"))

    wait_until(lambda: not is_left(), "the end of the background processes")


def _is_ours(path, user):
    try:
        return f"MLW_HOME={user.store}\0".encode() in path.read_bytes()
    except OSError:  # the process has ended, or belongs to another user
        return False


@pytest.mark.installed  # the test expects that Python closes all files at its exit
def test_nothing_is_left_behind(prepared_user):
    runtime = prepared_user.home / "runtime"
    runtime.mkdir(mode=0o700)
    prepared_user.env["XDG_RUNTIME_DIR"] = str(runtime)
    prepared_user.mlw("submit", "train.py", cwd=prepared_user.project("demo", train="print(1)"))

    def list_files():
        return sorted(str(path) for place in (prepared_user.store, runtime) for path in place.rglob("*"))

    for ending in ("-wal", "-shm"):
        assert not (prepared_user.store / f"history.db{ending}").exists()
    before = list_files()
    rows = findings(doctor(prepared_user, "-o", "json"))
    assert list_files() == before
    assert rows["history"]["found"].startswith("1 run, 0 not finished")
    assert rows["ssh"]["found"].endswith("SSH connection sharing is available")


def test_data_folder_of_unknown_user(prepared_user):
    env = {"MLW_HOME": "~nosuchuser/x"}
    done = assert_problem_reported(prepared_user, "data folder", env=env)
    assert "~nosuchuser/x" in done.out and "no such user" in done.out
    other = prepared_user.mlw("history", "list", "--all", env=env)
    assert other.code == 74 and other.err.splitlines() == [
        "error: MLW_HOME is ~nosuchuser/x, but there is no such user",
        "hint: set MLW_HOME to a writable folder",
        "hint: for details run 'mlw explain history-unusable'",
    ]


def test_credentials_in_variables_are_hidden(prepared_user):
    env = {"DOCKER_HOST": "ssh://ada:hunter2/x@engine.there", "https_proxy": "http://ada:hunter2/x@gate.there:8080"}
    fake = prepared_user.home / "bin" / "docker"
    fake.write_text('#!/bin/sh\necho "no answer from $DOCKER_HOST" >&2\nexit 1\n')
    fake.chmod(0o755)
    for arguments in ((), ("-o", "json"), ("-o", "tsv")):
        done = doctor(prepared_user, *arguments, env=env)
        assert "hunter2" not in done.out + done.err and "ada" not in done.out + done.err
        assert "ssh://engine.there" in done.out and "https_proxy (gate.there)" in done.out


def test_variables_are_escaped_and_not_interpreted(prepared_user):
    env = dict.fromkeys(("PYTHONWARNINGS", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PIP_CERT"), "/x\x1b[2J\x9b1m\u202ey")
    for arguments in ((), ("-o", "tsv"), ("-o", "json")):
        done = doctor(prepared_user, *arguments, env={**env, "SHELL": "/bin/\x1b[2Jsh"})
        assert not set("\x1b\x9b\u202e") & set(done.out + done.err), done
        assert "^[[2J" in done.out


def test_doctor_as_json(prepared_user):
    assert doctor(prepared_user, "-o", "tsv", "--query", "[?what=='python'].state").out == "ok\n"
    assert doctor(prepared_user, "--query", "[?state!='ok']", "-o", "json").out == "[]\n"


def test_doctor_opens_no_network_connection(prepared_user):
    """Neither mlw nor the programs that it runs open a network socket."""
    prepared_user.project("demo")
    log = prepared_user.home / "trace"
    done = subprocess.run(
        [need("strace"), "-f", "-e", "trace=socket,connect", "-o", str(log), str(MLW), "doctor"],
        env=prepared_user.env,
        cwd=prepared_user.home,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    calls = [line for line in log.read_text().splitlines() if re.search(r"socket\(|connect\(", line)]
    assert not [line for line in calls if re.search(r"AF_INET", line)], calls


def test_doctor_gpu_subcommand(prepared_user):
    done = prepared_user.mlw("doctor", "gpu", "-o", "json", cwd=prepared_user.project("demo"))
    assert done.code == 75 and json.loads(done.out)[0]["what"] == "driver"
    assert prepared_user.mlw("doctor", "gpuu").err.endswith("hint: did you mean 'mlw doctor gpu'?\n")


# -- real faults -----------------------------------------------------------------------------------


def assert_problem_reported(user, what, **more):
    """Check that doctor exits with 1 and prints the problem and a hint, without a traceback."""
    done = doctor(user, **more)
    assert done.code == 1, done
    assert re.search(rf"^{what} +error ", done.out, re.MULTILINE), done
    assert f"hint: {what}: " in done.err
    assert "Traceback" not in done.err
    return done


def test_read_only_data_folder(prepared_user):
    prepared_user.store.write_text("a file")
    assert "it is a file, not a folder" in assert_problem_reported(prepared_user, "data folder").out


def test_data_folder_writable_by_others(prepared_user):
    prepared_user.store.mkdir()
    prepared_user.store.chmod(0o777)
    done = assert_problem_reported(prepared_user, "data folder")
    assert f"hint: data folder: chmod 700 {prepared_user.store}\n" in done.err
    assert "hint: data folder: for details run 'mlw explain history-unusable'\n" in done.err


def doctor_on_mount(user, options, *, before="true"):
    """Run doctor with the data folder on a separate file system."""
    user.store.mkdir(mode=0o700, exist_ok=True)
    script = f"mount -t tmpfs -o {options} tmpfs '{user.store}' && {before} && exec '{MLW}' doctor"
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    done = subprocess.run(
        [need("unshare"), "-m", "/bin/sh", "-c", script],
        env={**user.env, "PATH": f"{user.env['PATH']}:/usr/bin:/bin"},
        cwd=user.home,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done


def test_full_disk(prepared_user):
    done = doctor_on_mount(
        prepared_user,
        "size=64k,mode=700",
        before=f"dd if=/dev/zero of='{prepared_user.store}/big' bs=1k count=64 2>/dev/null; true",
    )
    assert done.returncode == 1, done
    assert "No space left on device" in done.stdout
    assert "hint: data folder: for details run 'mlw explain disk-full'" in done.stderr


def test_read_only_disk(prepared_user):
    done = doctor_on_mount(prepared_user, "ro,size=64k,mode=700")
    assert done.returncode == 1, done
    assert "Read-only file system" in done.stdout


def test_small_disk(prepared_user):
    done = doctor_on_mount(prepared_user, "size=500m,mode=700")
    assert done.returncode == 0, done
    assert re.search(r"^data folder +warning .* MB free", done.stdout, re.MULTILINE), done


def test_damaged_history_is_reported_but_not_repaired(prepared_user):
    project = prepared_user.project("demo", train="print(1)")
    run = prepared_user.mlw("submit", "train.py", cwd=project).run
    database = prepared_user.store / "history.db"
    assert "1 run, 0 not finished" in findings(doctor(prepared_user, "-o", "json"))["history"]["found"]
    for ending in ("-wal", "-shm"):
        (prepared_user.store / f"history.db{ending}").unlink(missing_ok=True)
    database.write_bytes(b"\x00garbage" * 4000)
    done = assert_problem_reported(prepared_user, "history")
    assert "the index of the history is damaged" in done.out
    assert "hint: history: for details run 'mlw explain history-damaged'" in done.err
    assert database.read_bytes().startswith(b"\x00garbage"), "it only looks"
    assert run in prepared_user.mlw("history", "list", cwd=project).out
    after = findings(doctor(prepared_user, "-o", "json"))
    assert after["history"]["state"] == "ok"
    assert "renamed to" in after["leftovers"]["found"] and after["leftovers"]["state"] == "warning"


def test_history_of_newer_mlw(prepared_user):
    prepared_user.mlw("history", "list", "--all")
    connection = apsw.Connection(str(prepared_user.store / "history.db"))
    connection.execute("PRAGMA user_version = 40")
    connection.close()
    done = assert_problem_reported(prepared_user, "history")
    assert "was written by a newer mlw" in done.out
    other = prepared_user.mlw("history", "list", "--all")
    assert other.code == 74 and other.err.endswith("\nhint: for details run 'mlw explain history-unusable'\n")


def test_no_ssh(prepared_user):
    for name in TOOLS:
        (prepared_user.home / "bin" / name).unlink()
    done = doctor(prepared_user)
    assert done.code == 0, "runs on this machine need none"
    assert re.search(r"^ssh +warning +the program ssh is not installed on this machine", done.out, re.MULTILINE)
    assert "hint: ssh: for details run 'mlw explain no-ssh'" in done.err
    assert "ssh agent" not in done.out


def test_invalid_ssh_config(prepared_user):
    folder = prepared_user.home / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "id_ed25519").write_text("a key")
    (folder / "id_ed25519").chmod(0o644)
    rows = findings(doctor(prepared_user, "-o", "json"))
    assert rows["ssh files"]["hint"] == f"chmod 600 {folder}/id_ed25519"
    # ssh ignores HOME and uses the home folder of the user who runs the tests, so it may not read this file.
    (folder / "config").write_text("Host x\n")
    (folder / "config").chmod(0o666)
    rows = findings(doctor(prepared_user, "-o", "json"))
    assert rows["ssh files"]["state"] in ("warning", "error")


def test_dead_ssh_agent(prepared_user):
    dead = prepared_user.home / "agent"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(dead))
    done = doctor(prepared_user, env={"SSH_AUTH_SOCK": str(dead)})
    assert re.search(r"^ssh agent +warning +SSH_AUTH_SOCK does not point to a running agent", done.out, re.MULTILINE), (
        done
    )


def test_ssh_agent_with_key(prepared_user):
    key = prepared_user.home / "key"
    subprocess.run([need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    place = prepared_user.home / "s"
    agent = subprocess.Popen([need("ssh-agent"), "-D", "-a", str(place)], stdout=subprocess.PIPE)
    try:
        agent.stdout.readline()
        env = {**prepared_user.env, "SSH_AUTH_SOCK": str(place)}
        subprocess.run([need("ssh-add"), "-q", str(key)], env=env, check=True)
        assert findings(doctor(prepared_user, "-o", "json", env=env))["ssh agent"]["found"] == "1 key"
    finally:
        agent.terminate()
        agent.communicate()


def test_engine_without_permission(prepared_user):
    fake = prepared_user.home / "bin" / "docker"
    fake.write_text("#!/bin/sh\necho permission denied while trying to connect >&2\nexit 1\n")
    fake.chmod(0o755)
    done = doctor(prepared_user)
    assert done.code == 0
    assert re.search(r"^docker +warning .* permission denied", done.out, re.MULTILINE)
    assert "hint: docker: for details run 'mlw explain docker-not-permitted'" in done.err


def test_invalid_or_overriding_variables(prepared_user):
    done = assert_problem_reported(
        prepared_user, "network", env={"SSL_CERT_FILE": "/no/such.pem", "https_proxy": "http://ada:hunter2@gate"}
    )
    assert "SSL_CERT_FILE (/no/such.pem)" in done.out and "hunter2" not in done.out + done.err
    place = prepared_user.home / "modules"
    place.mkdir()
    done = doctor(prepared_user, env={"PYTHONPATH": str(place), "CUDA_VISIBLE_DEVICES": "-1"})
    assert done.code == 0
    assert re.search(r"^PYTHONPATH +warning ", done.out, re.MULTILINE)
    assert re.search(r"^CUDA_VISIBLE_DEVICES +warning ", done.out, re.MULTILINE)


def test_ascii_terminal(prepared_user):
    done = doctor(prepared_user, env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.code == 0, done
    assert re.search(r"^terminal +warning +encoding ", done.out, re.MULTILINE), done


def test_missing_home(prepared_user):
    env = {name: value for name, value in prepared_user.env.items() if name not in ("HOME", "MLW_HOME")}
    done = subprocess.run(
        [str(MLW), "doctor"], env=env, cwd=prepared_user.home, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr


# -- explain ---------------------------------------------------------------------------------------


def test_explain_lists_and_shows_topics(user):
    listed = json.loads(user.mlw("explain", "-o", "json").out)
    assert len(listed) >= 50 and set(listed[0]) == {"name", "about", "group"}
    topics = user.mlw("explain").out.split("\n\n")
    (topic,) = [entry for entry in topics if entry.startswith("Attaching and connecting\n")]
    assert re.search(r"^  host-key-changed +The host key of a machine has changed$", topic, re.MULTILINE)
    explained = user.mlw("explain", "host-key-changed")
    assert explained.code == 0 and explained.err == ""
    assert explained.out.startswith("The host key of a machine has changed\n\nYou see:\n")
    assert "mlw computetarget reset-key NAME" in explained.out and "](" not in explained.out
    entry = json.loads(user.mlw("explain", "gpu-not-used", "-o", "json").out)
    assert entry["name"] == "gpu-not-used" and "GPU used: no" in entry["seen"]


def test_explain_finds_topic_by_message(user):
    message = "error: the host key of ada@there:22 has changed: it was SHA256:x, now it is SHA256:y; nothing was sent"
    assert user.mlw("explain", message).out == user.mlw("explain", "host-key-changed").out
    expected = user.mlw("explain", "module-not-found").out
    assert user.mlw("explain", "No module named torch").out == expected
    assert user.mlw("explain", "No", "module", "named", "torch").out == expected


def test_explain_suggests_similar_names(user):
    done = user.mlw("explain", "gpu-not-usd")
    assert done.code == 66 and done.err.endswith("hint: did you mean 'gpu-not-used'? 'mlw explain' lists all pages\n")
    assert user.mlw("explian").err.endswith("hint: did you mean 'mlw explain'?\n")


def test_explain_in_ascii_terminal(user):
    done = user.mlw("explain", "disk-full", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0 and done.stdout.isascii()


def test_explain_completion(user):
    done = user.mlw("explain", "host-", env={"_MLW_COMPLETE": "fish"})
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["host-key-changed", "host-key-unknown"]


# -- messages that name an explanation -------------------------------------------------------------


def test_failed_run_refers_to_explain_topic(user):
    project = user.project("demo", train="import nosuchmodule\n")
    done = user.mlw("submit", "train.py", cwd=project)
    assert re.search(r"^Cause: +ModuleNotFoundError.*\nMore: +mlw explain module-not-found$", done.err, re.MULTILINE)
    assert re.search(r"^More +mlw explain module-not-found$", user.mlw("show", cwd=project).out, re.MULTILINE)
    (project / "train.py").write_text("raise ValueError('does not answer')\n")
    assert "mlw explain" not in user.mlw("submit", "train.py", cwd=project).err


def test_error_with_explain_topic_has_second_hint(user):
    project = user.project("demo")
    (project / "aml_config" / "docker.compute").write_text("type: docker\n")
    empty = user.home / "empty"
    empty.mkdir()
    (empty / "mlw").symlink_to(MLW)
    (empty / "python3").symlink_to(REAL_PYTHON)
    done = user.mlw("submit", "-c", "docker", "train.py", cwd=project, env={"PATH": str(empty)})
    assert done.code == 75, done
    last = done.err.splitlines()[-3:]
    assert [line.partition(": ")[0] for line in last] == ["error", "hint", "hint"]
    assert last[2] == "hint: for details run 'mlw explain docker-not-running'"


def test_mlw_ui_without_dependencies_prints_install_command(user, tmp_path):
    """The printed command uses the Python that mlw runs in. The packages of the UI are hidden from mlw."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as one\n"
        "find = one.find_spec\n"
        "one.find_spec = lambda name, *more: None if name in ('nicegui', 'fastapi', 'uvicorn') else find(name, *more)\n"
    )
    done = user.mlw("ui", "--no-browser", env={"PYTHONPATH": str(hidden)})
    assert done.code == 2, done
    error, hint, more = done.err.splitlines()
    assert error == "error: packages for mlw ui are not installed: nicegui, fastapi, uvicorn"
    assert hint.startswith(f"hint: install them with: {MLW.parent}/python -m pip install ")
    assert more == "hint: for details run 'mlw explain ui-not-installed'"
    rows = findings(doctor(user, "-o", "json", env={"PYTHONPATH": str(hidden)}))
    assert rows["browser"]["state"] == "ok" and "-m pip install" in rows["browser"]["found"]


def test_other_commands_do_not_import_doctor(user):
    code = (
        "import sys\nfrom mlworkbench.cli.main import _run\n"
        "try:\n    _run(['project', 'sample', 'list'])\nfinally:\n    print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([MLW.parent / "python", "-c", code], capture_output=True, text=True, env=user.env, timeout=60)
    assert done.returncode == 0, done
    assert "mlworkbench.explain" not in done.stderr and "mlworkbench.doctor" not in done.stderr
