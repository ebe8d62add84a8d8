"""``mlw doctor`` and ``mlw explain`` as people meet them: a machine that is well, and one that is broken for real."""

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

TOOLS = ("ssh", "ssh-keygen", "ssh-add")


def findings(done):
    assert done.code in (0, 1), done
    return {row["what"]: row for row in json.loads(done.out)}


@pytest.fixture
def quiet(user):
    """A user whose PATH has what mlw needs and no engine: what is told is about the breakage alone."""
    place = user.home / "bin"
    place.mkdir()
    for name in TOOLS:
        (place / name).symlink_to(need(name))
    (place / "python3").symlink_to(REAL_PYTHON)
    user.env["PATH"] = str(place)
    user.env["SHELL"] = "/bin/bash"
    return user


def doctor(user, *words, **more):
    return user.mlw("doctor", *words, **more)


@pytest.mark.installed  # as a user starts it
def test_a_laptop_that_is_well(quiet):
    quiet.mlw("history", "list", "--all")
    done = doctor(quiet)
    assert done.code == 0, done
    assert re.search(r"^Check +State +Result$", done.out, re.MULTILINE)
    rows = findings(doctor(quiet, "-o", "json"))
    assert {row["state"] for row in rows.values()} == {"ok"}, rows
    assert str(quiet.store) in rows["data folder"]["found"] and "MLW_HOME" in rows["data folder"]["found"]
    assert rows["history"]["found"].startswith("0 runs, 0 not finished")
    assert rows["completion"]["found"] == "not set up for bash; see 'mlw completion bash'"
    assert done.err == "", "nothing to be done"


def test_a_laptop_where_nothing_was_ever_done_is_left_so(quiet):
    rows = findings(doctor(quiet, "-o", "json"))
    assert "does not exist yet" in rows["data folder"]["found"] and "history" not in rows
    assert not quiet.store.exists()


@pytest.mark.installed  # it is the start that could run it
def test_code_of_the_folder_is_not_run(quiet):
    """A project that somebody sent may have modules with the names of ours."""
    place = quiet.home / "sent"
    place.mkdir()
    for name in ("keyring", "apsw", "sqlite3", "site", "json", "mlworkbench"):
        (place / f"{name}.py").write_text(f"open({str(place / 'ran')!r}, 'a').write({name!r})\n")
    for name in ("ssh", "docker", "uv"):
        (place / name).write_text(f"#!/bin/sh\necho {name} >> '{place}/ran'\n")
        (place / name).chmod(0o755)
    quiet.mlw("history", "list", "--all")
    rows = findings(doctor(quiet, "-o", "json", cwd=place))
    assert not (place / "ran").exists(), (place / "ran").read_text()
    assert rows["ssh"]["state"] == "ok"


def test_a_program_that_leaves_others_behind_does_not_hold_it_up(quiet):
    """They keep its end of the pipe: nobody waits for them."""
    sleep = need("sleep")
    for words in (f"{sleep} 600 &\n{sleep} 600\n", f"{sleep} 601 &\necho here\n"):
        (quiet.home / "bin" / "ssh").unlink()
        (quiet.home / "bin" / "ssh").write_text(f"#!/bin/sh\n{words}")
        (quiet.home / "bin" / "ssh").chmod(0o755)
        rows = findings(doctor(quiet, "-o", "json"))
        assert "unknown version of ssh" in rows["ssh"]["found"]
    left = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/environ") if _is_ours(path, quiet)]
    assert left == [], "what it left behind is ended, too"


def _is_ours(path, user):
    try:
        return f"MLW_HOME={user.store}\0".encode() in path.read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return False


@pytest.mark.installed  # it is the end of Python that closes files
def test_nothing_is_left_behind(quiet):
    runtime = quiet.home / "runtime"
    runtime.mkdir(mode=0o700)
    quiet.env["XDG_RUNTIME_DIR"] = str(runtime)
    quiet.mlw("submit", "train.py", cwd=quiet.project("demo", train="print(1)"))

    def there():
        return sorted(str(path) for place in (quiet.store, runtime) for path in place.rglob("*"))

    for ending in ("-wal", "-shm"):
        assert not (quiet.store / f"history.db{ending}").exists()
    before = there()
    rows = findings(doctor(quiet, "-o", "json"))
    assert there() == before
    assert rows["history"]["found"].startswith("1 run, 0 not finished")
    assert rows["ssh"]["found"].endswith("SSH connection sharing is available")


def test_a_home_of_nobody(quiet):
    env = {"MLW_HOME": "~nosuchuser/x"}
    done = broken(quiet, "data folder", env=env)
    assert "~nosuchuser/x" in done.out and "no such user" in done.out
    other = quiet.mlw("history", "list", "--all", env=env)
    assert other.code == 74 and other.err.splitlines() == [
        "error: MLW_HOME is ~nosuchuser/x, but there is no such user",
        "hint: set MLW_HOME to a writable folder",
        "hint: for details run 'mlw explain history-unusable'",
    ]


def test_logins_in_variables_are_not_told(quiet):
    env = {"DOCKER_HOST": "ssh://ada:hunter2/x@engine.there", "https_proxy": "http://ada:hunter2/x@gate.there:8080"}
    fake = quiet.home / "bin" / "docker"
    fake.write_text('#!/bin/sh\necho "no answer from $DOCKER_HOST" >&2\nexit 1\n')
    fake.chmod(0o755)
    for words in ((), ("-o", "json"), ("-o", "tsv")):
        done = doctor(quiet, *words, env=env)
        assert "hunter2" not in done.out + done.err and "ada" not in done.out + done.err
        assert "ssh://engine.there" in done.out and "https_proxy (gate.there)" in done.out


def test_variables_are_shown_and_not_obeyed(quiet):
    env = dict.fromkeys(("PYTHONWARNINGS", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PIP_CERT"), "/x\x1b[2J\x9b1m\u202ey")
    for words in ((), ("-o", "tsv"), ("-o", "json")):
        done = doctor(quiet, *words, env={**env, "SHELL": "/bin/\x1b[2Jsh"})
        assert not set("\x1b\x9b\u202e") & set(done.out + done.err), done
        assert "x1b[2J" in done.out


def test_programs_can_ask_it(quiet):
    assert doctor(quiet, "-o", "tsv", "--query", "[?what=='python'].state").out == "ok\n"
    assert doctor(quiet, "--query", "[?state!='ok']", "-o", "json").out == "[]\n"


def test_nobody_is_called(quiet):
    """Not one socket of the network is made, by mlw or a program that it asks."""
    quiet.project("demo")
    log = quiet.home / "trace"
    done = subprocess.run(
        [need("strace"), "-f", "-e", "trace=socket,connect", "-o", str(log), str(MLW), "doctor"],
        env=quiet.env,
        cwd=quiet.home,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    calls = [line for line in log.read_text().splitlines() if re.search(r"socket\(|connect\(", line)]
    assert not [line for line in calls if re.search(r"AF_INET", line)], calls


def test_the_way_to_a_gpu_is_still_there(quiet):
    done = quiet.mlw("doctor", "gpu", "-o", "json", cwd=quiet.project("demo"))
    assert done.code == 75 and json.loads(done.out)[0]["what"] == "driver"
    assert quiet.mlw("doctor", "gpuu").err.endswith("hint: did you mean 'mlw doctor gpu'?\n")


# -- broken for real -------------------------------------------------------------------------------


def broken(user, what, **more):
    """Exits with 1, and tells the remedy and where there is more."""
    done = doctor(user, **more)
    assert done.code == 1, done
    assert re.search(rf"^{what} +error ", done.out, re.MULTILINE), done
    assert f"hint: {what}: " in done.err
    assert "Traceback" not in done.err
    return done


def test_a_data_folder_that_cannot_be_written(quiet):
    quiet.store.write_text("a file")
    assert "it is a file, not a folder" in broken(quiet, "data folder").out


def test_a_data_folder_that_others_may_write(quiet):
    quiet.store.mkdir()
    quiet.store.chmod(0o777)
    done = broken(quiet, "data folder")
    assert f"hint: data folder: chmod 700 {quiet.store}\n" in done.err
    assert "hint: data folder: for details run 'mlw explain history-unusable'\n" in done.err


def mounted(user, options, *, before="true"):
    """doctor with the data folder on a file system of its own."""
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


def test_a_disk_without_space(quiet):
    done = mounted(
        quiet, "size=64k,mode=700", before=f"dd if=/dev/zero of='{quiet.store}/big' bs=1k count=64 2>/dev/null; true"
    )
    assert done.returncode == 1, done
    assert "No space left on device" in done.stdout
    assert "hint: data folder: for details run 'mlw explain disk-full'" in done.stderr


def test_a_disk_for_reading_only(quiet):
    done = mounted(quiet, "ro,size=64k,mode=700")
    assert done.returncode == 1, done
    assert "Read-only file system" in done.stdout


def test_a_small_disk(quiet):
    done = mounted(quiet, "size=500m,mode=700")
    assert done.returncode == 0, done
    assert re.search(r"^data folder +warning .* MB free", done.stdout, re.MULTILINE), done


def test_a_damaged_history_is_told_and_left_to_the_commands_that_mend_it(quiet):
    project = quiet.project("demo", train="print(1)")
    run = quiet.mlw("submit", "train.py", cwd=project).run
    database = quiet.store / "history.db"
    assert "1 run, 0 not finished" in findings(doctor(quiet, "-o", "json"))["history"]["found"]
    for ending in ("-wal", "-shm"):
        (quiet.store / f"history.db{ending}").unlink(missing_ok=True)
    database.write_bytes(b"\x00garbage" * 4000)
    done = broken(quiet, "history")
    assert "the index of the history is damaged" in done.out
    assert "hint: history: for details run 'mlw explain history-damaged'" in done.err
    assert database.read_bytes().startswith(b"\x00garbage"), "it only looks"
    assert run in quiet.mlw("history", "list", cwd=project).out
    after = findings(doctor(quiet, "-o", "json"))
    assert after["history"]["state"] == "ok"
    assert "renamed to" in after["leftovers"]["found"] and after["leftovers"]["state"] == "warning"


def test_a_history_of_a_newer_mlw(quiet):
    quiet.mlw("history", "list", "--all")
    connection = apsw.Connection(str(quiet.store / "history.db"))
    connection.execute("PRAGMA user_version = 40")
    connection.close()
    done = broken(quiet, "history")
    assert "was written by a newer mlw" in done.out
    other = quiet.mlw("history", "list", "--all")
    assert other.code == 74 and other.err.endswith("\nhint: for details run 'mlw explain history-unusable'\n")


def test_no_ssh(quiet):
    for name in TOOLS:
        (quiet.home / "bin" / name).unlink()
    done = doctor(quiet)
    assert done.code == 0, "runs on this machine need none"
    assert re.search(r"^ssh +warning +the program ssh is not installed on this machine", done.out, re.MULTILINE)
    assert "hint: ssh: for details run 'mlw explain no-ssh'" in done.err
    assert "ssh agent" not in done.out


def test_settings_of_ssh_that_ssh_refuses(quiet):
    folder = quiet.home / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "id_ed25519").write_text("a key")
    (folder / "id_ed25519").chmod(0o644)
    rows = findings(doctor(quiet, "-o", "json"))
    assert rows["ssh files"]["hint"] == f"chmod 600 {folder}/id_ed25519"
    # ssh takes the home folder from the password file: only that of the person who runs the tests counts there.
    (folder / "config").write_text("Host x\n")
    (folder / "config").chmod(0o666)
    rows = findings(doctor(quiet, "-o", "json"))
    assert rows["ssh files"]["state"] in ("warning", "error")


def test_an_agent_that_is_gone(quiet):
    dead = quiet.home / "agent"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(dead))
    done = doctor(quiet, env={"SSH_AUTH_SOCK": str(dead)})
    assert re.search(r"^ssh agent +warning +SSH_AUTH_SOCK does not point to a running agent", done.out, re.MULTILINE), (
        done
    )


def test_an_agent_with_a_key(quiet):
    key = quiet.home / "key"
    subprocess.run([need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    place = quiet.home / "s"
    agent = subprocess.Popen([need("ssh-agent"), "-D", "-a", str(place)], stdout=subprocess.PIPE)
    try:
        agent.stdout.readline()
        env = {**quiet.env, "SSH_AUTH_SOCK": str(place)}
        subprocess.run([need("ssh-add"), "-q", str(key)], env=env, check=True)
        assert findings(doctor(quiet, "-o", "json", env=env))["ssh agent"]["found"] == "1 key"
    finally:
        agent.terminate()
        agent.communicate()


def test_an_engine_that_may_not_be_used(quiet):
    fake = quiet.home / "bin" / "docker"
    fake.write_text("#!/bin/sh\necho permission denied while trying to connect >&2\nexit 1\n")
    fake.chmod(0o755)
    done = doctor(quiet)
    assert done.code == 0
    assert re.search(r"^docker +warning .* permission denied", done.out, re.MULTILINE)
    assert "hint: docker: for details run 'mlw explain docker-not-permitted'" in done.err


def test_variables_that_lead_nowhere_or_hide_things(quiet):
    done = broken(quiet, "network", env={"SSL_CERT_FILE": "/no/such.pem", "https_proxy": "http://ada:hunter2@gate"})
    assert "SSL_CERT_FILE (/no/such.pem)" in done.out and "hunter2" not in done.out + done.err
    place = quiet.home / "modules"
    place.mkdir()
    done = doctor(quiet, env={"PYTHONPATH": str(place), "CUDA_VISIBLE_DEVICES": "-1"})
    assert done.code == 0
    assert re.search(r"^PYTHONPATH +warning ", done.out, re.MULTILINE)
    assert re.search(r"^CUDA_VISIBLE_DEVICES +warning ", done.out, re.MULTILINE)


def test_a_terminal_without_letters(quiet):
    done = doctor(quiet, env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.code == 0, done
    assert re.search(r"^terminal +warning +encoding ", done.out, re.MULTILINE), done


def test_without_a_home(quiet):
    env = {name: value for name, value in quiet.env.items() if name not in ("HOME", "MLW_HOME")}
    done = subprocess.run([str(MLW), "doctor"], env=env, cwd=quiet.home, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr


# -- explain ---------------------------------------------------------------------------------------


def test_explain_lists_and_tells(user):
    listed = json.loads(user.mlw("explain", "-o", "json").out)
    assert len(listed) >= 50 and set(listed[0]) == {"name", "about", "group"}
    topics = user.mlw("explain").out.split("\n\n")
    (topic,) = [one for one in topics if one.startswith("Attaching and connecting\n")]
    assert re.search(r"^  host-key-changed +The host key of a machine has changed$", topic, re.MULTILINE)
    told = user.mlw("explain", "host-key-changed")
    assert told.code == 0 and told.err == ""
    assert told.out.startswith("The host key of a machine has changed\n\nYou see:\n")
    assert "mlw computetarget reset-key NAME" in told.out and "](" not in told.out
    one = json.loads(user.mlw("explain", "gpu-not-used", "-o", "json").out)
    assert one["name"] == "gpu-not-used" and "GPU used: no" in one["seen"]


def test_a_message_finds_its_text(user):
    words = "error: the host key of ada@there:22 has changed: it was SHA256:x, now it is SHA256:y; nothing was sent"
    assert user.mlw("explain", words).out == user.mlw("explain", "host-key-changed").out
    expected = user.mlw("explain", "module-not-found").out
    assert user.mlw("explain", "No module named torch").out == expected
    assert user.mlw("explain", "No", "module", "named", "torch").out == expected


def test_a_wrong_name_proposes(user):
    done = user.mlw("explain", "gpu-not-usd")
    assert done.code == 66 and done.err.endswith("hint: did you mean 'gpu-not-used'? 'mlw explain' lists all pages\n")
    assert user.mlw("explian").err.endswith("hint: did you mean 'mlw explain'?\n")


def test_explain_in_a_terminal_of_few_letters(user):
    done = user.mlw("explain", "disk-full", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0 and done.stdout.isascii()


def test_tab_proposes_the_names(user):
    done = user.mlw("explain", "host-", env={"_MLW_COMPLETE": "fish"})
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["host-key-changed", "host-key-unknown"]


# -- messages that name one ------------------------------------------------------------------------


def test_a_failed_run_names_the_text_of_its_cause(user):
    project = user.project("demo", train="import nosuchmodule\n")
    done = user.mlw("submit", "train.py", cwd=project)
    assert re.search(r"^Cause: +ModuleNotFoundError.*\nMore: +mlw explain module-not-found$", done.err, re.MULTILINE)
    assert re.search(r"^More +mlw explain module-not-found$", user.mlw("show", cwd=project).out, re.MULTILINE)
    (project / "train.py").write_text("raise ValueError('does not answer')\n")
    assert "mlw explain" not in user.mlw("submit", "train.py", cwd=project).err


def test_an_error_that_needs_more_than_a_hint_has_a_third_line(user):
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


def test_mlw_ui_without_its_parts_says_what_installs_them(user, tmp_path):
    """With the packages hidden: the command names the Python that mlw runs in."""
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


def test_other_commands_load_nothing_of_it(user):
    code = (
        "import sys\nfrom mlworkbench.cli.main import _run\n"
        "try:\n    _run(['project', 'sample', 'list'])\nfinally:\n    print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([MLW.parent / "python", "-c", code], capture_output=True, text=True, env=user.env, timeout=60)
    assert done.returncode == 0, done
    assert "mlworkbench.explain" not in done.stderr and "mlworkbench.laptop" not in done.stderr
