"""What attach leaves behind: nothing on failure, two files and a key on success. Also detach and settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pexpect
import pytest

from mlworkbench.config.keys import COMPUTE, RUNCONFIG
from mlworkbench.config.project_folder import find_project
from mlworkbench.targets.types import compute_type
from tests.e2e.attach_helpers import (
    SCRIPT,
    SECRET,
    attach_arguments,
    attach_state,
    attach_target,
    attach_with_password,
    files_containing,
    new_project,
    submit_and_check,
    tree,
    watch_for_secrets,
)
from tests.golden.test_golden import compare
from tests.machines.network import wait_until


@pytest.fixture
def project(laptop):
    return new_project(laptop)


def authorized(host) -> bytes:
    return (host.home / ".ssh" / "authorized_keys").read_bytes()


# -- a failed attach changes nothing -------------------------------------------------------------------

FAILURES = {
    "wrong password": ({"password": "another"}, "remote", "rejected the password"),
    "no Python": ({"python": "no"}, "remote", "no Python 3.8"),
    "nologin": ({"shell": "/usr/sbin/nologin"}, "remote", "not available"),
    "no Docker": ({}, "remotedocker", "neither docker nor podman"),
    "Docker denied": ({"docker": "denied"}, "remotedocker", "permission denied"),
    "podman without IDs": ({"docker": "podman"}, "remotedocker", "no subordinate IDs for ada in /etc/subuid"),
    "a full disk": ({"disk": "12M"}, "remote", "No space left"),
}


@pytest.mark.parametrize("stage", FAILURES)
def test_failed_attach_changes_nothing(laptop, machine, project, stage):
    options, kind, message = FAILURES[stage]
    host = machine(**{"password": SECRET, **options})
    if "disk" in options:
        host.run("sh", "-c", f"cat /dev/zero >{host.home}/big", user=host.user, check=False)
    if stage == "podman without IDs":
        host.run("sh", "-c", ": >/etc/subuid")
    before = attach_state(laptop, host, project)
    done = attach_with_password(laptop, project, host, kind=kind)
    assert done.code in (69, 75) and message in done.err and "\nhint: " in done.err, done
    if stage == "no Docker":
        assert "install Docker" in done.err
    if stage == "Docker denied":
        assert "usermod -aG docker" in done.err and "rootless" in done.err
    assert attach_state(laptop, host, project) == before
    assert not list(laptop.runtime.glob("mlw/" + "?" * 16)), "no connection is kept"
    assert host.processes() == {}


def test_attach_with_read_only_home(laptop, machine, project):
    host = machine(password=SECRET)
    host.run("mount", "-o", "remount,bind,ro", str(host.home))
    before = attach_state(laptop, host, project)
    done = attach_with_password(laptop, project, host)
    assert done.code == 69 and "Read-only file system" in done.err and "hint:" in done.err, done
    assert attach_state(laptop, host, project) == before


def test_attach_with_noexec_home(laptop, machine, project):
    """Attach and check print a warning. Scripts run with the machine's Python, but project programs are refused."""
    host = machine(password=SECRET)
    host.run("mount", "-o", "remount,bind,noexec", str(host.home))
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    done = attach_target(laptop, host, project)
    assert "warning: store: " in done.err and "is mounted noexec" in done.err and "ln -s " in done.err, done
    submit_and_check(laptop, project, host)
    refused = laptop.mlw("submit", "-c", "box", "--", "./run.sh", cwd=project)
    assert refused.code == 75 and "mounted noexec" in refused.err, refused
    row = _check_target(laptop, project)["store"]
    assert row["state"] == "warning" and "is mounted noexec" in row["found"] and "ln -s " in row["hint"], row


def test_failed_attach_keeps_existing_files(laptop, machine, project):
    """A failed attach must not remove an existing shared folder."""
    host = machine(password=SECRET)
    share = host.home / ".mlw" / "share" / "data"
    share.mkdir(parents=True)
    share.joinpath("precious").write_text("x")
    for path in (share, share.parent, share.parent.parent):
        os.chown(path, host.uid, host.uid)
    done = attach_with_password(laptop, project, host, kind="remotedocker")
    assert done.code == 75, done
    assert share.joinpath("precious").read_text() == "x"


@pytest.mark.parametrize("stage", ["connected", "key-installed", "attaching", "files-written"])
def test_ctrl_c_changes_nothing(laptop, machine, project, stage):
    host = machine(password=SECRET)
    before = attach_state(laptop, host, project)
    terminal = laptop.spawn(*attach_arguments(host), cwd=project, MLW_FAILPOINT=f"{stage}:sleep=60")
    terminal.expect("Password for")
    terminal.sendline(SECRET)
    reached = {
        "connected": lambda: "Accepted password" in host.log,
        "key-installed": lambda: b"mlw-" in authorized(host),
        "attaching": lambda: "Accepted publickey" in host.log and host.log.count("Disconnected") > 1,
        "files-written": (project / "aml_config" / "box.compute").exists,
    }
    wait_until(reached[stage], stage)
    wait_until(lambda: _sleeps(terminal.pid), "the pause")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.signalstatus == signal.SIGINT
    assert attach_state(laptop, host, project) == before, terminal.before
    assert host.processes() == {}


def _sleeps(pid: int) -> bool:
    return "clock_nanosleep" in Path(f"/proc/{pid}/wchan").read_text() or Path(
        f"/proc/{pid}/syscall"
    ).read_text().split(" ")[0] in ("230", "35")


@pytest.mark.parametrize("stage", ["connected", "key-installed", "attaching", "files-written"])
def test_second_attach_after_kill_9(laptop, machine, project, stage):
    host = machine(password=SECRET)
    before = authorized(host)
    killed = laptop.mlw(
        *attach_arguments(host),
        "--password-stdin",
        cwd=project,
        input=f"{SECRET}\n",
        env={"MLW_FAILPOINT": f"{stage}:kill"},
    )
    assert killed.code == -signal.SIGKILL
    attach_target(laptop, host, project)
    submit_and_check(laptop, project, host)
    left = {path.name for path in (laptop.store / "targets").iterdir()}
    assert len(left) == 1 and not any(name.startswith(".") for name in left), left
    assert authorized(host).startswith(before) and authorized(host).count(b"mlw-") == 1
    assert list(Path(laptop.env["TMPDIR"]).iterdir()) == []
    sockets = [path for path in (laptop.runtime / "mlw").iterdir() if path.is_socket()]
    assert len(sockets) == 1, "the killed command's connection is closed too"
    laptop.mlw("computetarget", "detach", "box", "--purge", "--yes", cwd=project, check=True)
    assert authorized(host) == before and not (host.home / ".mlw").exists()


# -- kinds of machines ---------------------------------------------------------------------------------

NOISY = {
    "/bin/bash": "echo Welcome; echo oops >&2; printf 'no end'",
    "/usr/bin/zsh": "echo Welcome; echo oops >&2",
    "/usr/bin/fish": "echo Welcome; echo oops >&2",
    "/usr/bin/tcsh": "echo Welcome",
}


@pytest.mark.parametrize("shell", NOISY)
def test_login_shells(laptop, machine, project, shell):
    if not os.path.exists(shell):
        pytest.skip(f"{shell} is not installed")
    host = machine(password=SECRET, shell=shell, rc=NOISY[shell])
    attach_target(laptop, host, project)
    submit_and_check(laptop, project, host)


def test_attach_names_startup_file_that_exits(laptop, machine, project):
    """Attach, check, and submit name the file; the usual guard for interactive shells fixes it."""
    host = machine(password=SECRET, rc="echo Welcome\nexit 0")
    refused = attach_with_password(laptop, project, host)
    assert refused.code == 69 and "~/.bashrc" in refused.err and "case $- in *i*)" in refused.err, refused
    (host.home / ".bashrc").write_text("case $- in *i*) ;; *) return;; esac\nexit 0\n")
    attach_target(laptop, host, project)
    submit_and_check(laptop, project, host)
    (host.home / ".bashrc").write_text("exit 0\n")
    for typed in (("computetarget", "check", "box"), ("submit", "-c", "box", "train.py")):
        done = laptop.mlw(*typed, cwd=project)
        assert done.code == 69 and "startup file such as ~/.bashrc" in done.err, done
        assert "case $- in *i*)" in done.err, done


@pytest.mark.parametrize("engines", ["podman", "both"])
def test_podman_check_leaves_nothing_behind(laptop, machine, project, engines):
    """No storage, runtime folder, lock in /dev/shm, or pause process remains, with or without Docker."""
    host = machine(password=SECRET, docker=engines)
    laptop.trust_host_keys(host)
    before = _owned(host)
    attach_target(laptop, host, project, kind="remotedocker")
    rows = _check_target(laptop, project)
    assert rows["podman"]["state"] == "ok" and "rootless" in rows["podman"]["found"]
    assert ("docker" in rows) == (engines == "both")
    assert _owned(host) == before
    assert [line for line in host.processes().values() if "agent.py" not in line] == []


def _owned(host) -> set[str]:
    """Return the paths that the user owns on the host, except those in ~/.mlw and ~/.ssh."""
    places = [str(host.home), "/tmp", "/run", "/var/tmp", "/dev/shm", "/var/lib/containers"]
    owned = host.run("find", *places, "-xdev", "-user", host.user, check=False).stdout.splitlines()
    return {path for path in owned if not path.startswith((f"{host.home}/.mlw", f"{host.home}/.ssh"))}


def test_python_too_old_is_refused(laptop, machine, project, tmp_path):
    host = machine(password=SECRET, python="no")
    for name in ("python3", "python3.8"):
        old = host.root / "usr/local/bin" / name
        old.write_text("#!/bin/sh\ncase $1 in --version) echo Python 3.6.9;; *) exit 1;; esac\n")
        old.chmod(0o755)
    done = attach_with_password(laptop, project, host)
    assert done.code == 69 and "no Python 3.8 or newer" in done.err and "hint:" in done.err


def test_detected_python_is_recorded_without_python3(laptop, machine, project):
    host = machine(password=SECRET)
    for path in (*(host.root / "usr/bin").glob("python*"), *(host.root / "usr/local/bin").glob("python*")):
        if path.name in ("python3", "python"):
            path.unlink()
    conda = host.root / "opt/conda/bin"
    conda.mkdir(parents=True)
    shutil.move(host.root / "usr/bin/python3.11", conda / "python")
    done = attach_with_password(laptop, project, host)
    assert done.code == 0, done
    assert '\npythonLocation: "/opt/conda/bin/python"\n' in (project / "aml_config" / "box.compute").read_text()
    checked = laptop.mlw("computetarget", "check", "box", cwd=project)
    assert checked.code == 0 and "/opt/conda/bin/python (runs scripts; from pythonLocation, not tested)" in " ".join(
        checked.out.split()
    ), checked
    submit_and_check(laptop, project, host)


LOGINCTL = """#!/bin/sh
mark=/var/tmp/linger
case $1 in
show-user) if [ -e $mark ]; then echo Linger=yes; else echo Linger=no; fi;;
enable-linger) [ -e /etc/refuse ] && { echo "Could not enable linger: Access denied" >&2; exit 1; }; : >$mark;;
disable-linger) rm $mark;;
esac
"""


def _with_logind(host) -> Path:
    """Add logind settings and a loginctl stub. Return the path of a file that exists while lingering is enabled."""
    (host.root / "run/systemd/system").mkdir(parents=True)
    (host.root / "etc/systemd").mkdir(exist_ok=True)
    (host.root / "etc/systemd/logind.conf").write_text("[Login]\nKillUserProcesses=yes\n")
    program = host.root / "usr/local/bin/loginctl"
    program.write_text(LOGINCTL)
    program.chmod(0o755)
    return host.root / "var/tmp/linger"


def test_host_that_kills_processes_at_logout(laptop, machine, project):
    host = machine(password=SECRET)
    mark = _with_logind(host)
    (host.root / "etc/refuse").write_text("")
    before = attach_state(laptop, host, project)
    refused = attach_with_password(laptop, project, host)
    assert refused.code == 75 and "KillUserProcesses" in refused.err and "Access denied" in refused.err, refused
    assert "loginctl enable-linger ada" in refused.err and attach_state(laptop, host, project) == before
    (host.root / "etc/refuse").unlink()
    docker = attach_with_password(laptop, project, host, kind="remotedocker")
    assert docker.code == 75 and not mark.exists(), "taken back with the rest"
    done = attach_target(laptop, host, project)
    assert mark.exists() and "enabled lingering so that runs survive logout" in done.err
    assert "lingering is enabled" in _check_target(laptop, project)["sessions"]["found"]
    gone = laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert not mark.exists() and "disabled lingering" in gone.err


# -- attach again, other projects, and detach ----------------------------------------------------------


def test_attach_same_machine_again(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project, "--allow-mount", "/data")
    before, files = authorized(host), tree(project)
    again = attach_with_password(laptop, project, host, "--allow-mount", "/scratch", key="")
    assert again.code == 0, again
    assert authorized(host) == before and tree(project) == files, "key and files are kept"
    shown = _show_target(laptop, project)
    assert shown["allowedMounts"] == ["/data", "/scratch"]
    without = laptop.mlw("computetarget", "attach", "--name", "box", cwd=project)
    assert without.code == 0 and _show_target(laptop, project)["allowedMounts"] == ["/data", "/scratch"]
    (host.home / ".ssh" / "authorized_keys").write_bytes(b"")  # as after a manual cleanup
    lost = laptop.mlw("submit", "-c", "box", "train.py", cwd=project)
    _end_connections(laptop)
    lost = laptop.mlw("submit", "-c", "box", "train.py", cwd=project)
    assert lost.code == 69 and "was refused" in lost.err and "hint:" in lost.err, lost
    attach_target(laptop, host, project)
    assert authorized(host).count(b"mlw-") == 1
    submit_and_check(laptop, project, host)
    key = laptop.mlw(*attach_arguments(host), "--private-key-file", str(host.key), cwd=project)
    assert key.code == 69, "its line is gone"


def _end_connections(laptop) -> None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(laptop.runtime) in line:
                with contextlib.suppress(ProcessLookupError):  # the process ended after it was listed
                    os.kill(int(entry.name), signal.SIGKILL)
                wait_until(lambda entry=entry: not entry.exists(), "its end")


def _show_target(laptop, project, name="box") -> dict[str, object]:
    return dict(json.loads(laptop.mlw("computetarget", "show", name, "-o", "json", cwd=project, check=True).out))


def _check_target(laptop, project, name="box", code=0) -> dict[str, dict[str, str]]:
    done = laptop.mlw("computetarget", "check", name, "-o", "json", cwd=project)
    assert done.code == code, done
    return {row["what"]: row for row in json.loads(done.out)}


def test_cloned_project_is_not_trusted(laptop, machine, project):
    gateway = machine()
    host = machine(password=SECRET, jump=gateway, sshd="Port 2222")
    laptop.trust_host_keys(gateway)
    laptop.ssh_config(f"Host {gateway.address}\n  IdentityFile {gateway.key}\n")
    attach_target(laptop, host, project, "--port", "2222", "--jump", f"ada@{gateway.address}")
    run = submit_and_check(laptop, project, host).run
    machine_there = f"ada@{host.address}:2222 through ada@{gateway.address}"
    clone = laptop.home / "clone"
    shutil.copytree(project, clone)
    laptop.env["MLW_HOME"] = str(laptop.store.with_name("another"))  # another user's laptop
    log = host.log
    for command in (
        ["submit", "-c", "box", "train.py"],
        ["computetarget", "check", "box"],
        ["submit", "-t", "box", "train.py"],
    ):
        done = laptop.mlw(*command, cwd=clone)
        assert done.code == 69 and "mlw computetarget attach remote --name box" in done.err, done
        assert f"box is {machine_there}, which you have not attached" in done.err
    assert laptop.mlw("logs", run, cwd=clone).code == 66, "nobody here knows the run"
    listed = laptop.mlw("computetarget", "list", cwd=clone, check=True).out
    assert re.search(rf"box +remote +{host.address} +no ", listed)
    assert host.log == log, "nobody was called"
    files, before = tree(clone), gateway.log
    short = ("computetarget", "attach", "--name", "box", "--host-key", host.host_key_fingerprint)
    refused = laptop.mlw(*short, "--password-stdin", cwd=clone, input=f"{SECRET}\n")
    assert (
        refused.code == 2
        and f"box.compute contains the address {machine_there}, and there is no terminal" in refused.err
    ), refused
    typed = ["--address", host.address, "--port", "2222", "--jump", f"ada@{gateway.address}"]
    assert f"add: {shlex.join(typed)}" in refused.err
    terminal = laptop.spawn(*short, cwd=clone)
    terminal.expect_exact(f"Connect to {machine_there}, the address in aml_config/box.compute? [y/N]")
    terminal.sendline("n")
    terminal.expect(pexpect.EOF)
    assert gateway.log == before, "nobody was called, neither there nor on the way"
    terminal = laptop.spawn(*short, cwd=clone)
    terminal.expect_exact("box.compute? [y/N]")
    terminal.sendline("y")
    terminal.expect_exact(f"Password for {machine_there}")
    terminal.sendline(SECRET)
    terminal.expect(pexpect.EOF)
    assert tree(clone) == files
    submit_and_check(laptop, clone, host)
    laptop.mlw("computetarget", "detach", "box", "--keep-files", cwd=clone, check=True)
    done = laptop.mlw(*short, *typed, "--password-stdin", cwd=clone, input=f"{SECRET}\n")
    assert done.code == 0 and tree(clone) == files, done


def test_two_projects_on_one_machine(laptop, machine, project):
    host = machine(password=SECRET)
    before = authorized(host)
    attach_target(laptop, host, project)
    other = laptop.project("other", train=SCRIPT)
    second = laptop.mlw(*attach_arguments(host, name="gpu"), cwd=other)
    assert second.code == 0 and authorized(host).count(b"mlw-") == 1, second
    submit_and_check(laptop, other, host, "gpu")
    gone = laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert f"{other} uses it as gpu" in gone.err
    assert not (project / "aml_config" / "box.compute").exists()
    submit_and_check(laptop, other, host, "gpu")
    laptop.ssh_config(f"Host lab\n  HostName {host.address}\n  User ada\n")
    attach_target(laptop, host, project, name="lab", address="lab")  # the same machine under another name
    submit_and_check(laptop, other, host, "gpu")
    submit_and_check(laptop, project, host, "lab")
    shutil.rmtree(project)
    for name in ("gpu",):
        laptop.mlw("computetarget", "detach", name, cwd=other, check=True)
    assert authorized(host).startswith(before) and authorized(host).count(b"mlw-") == 1, "that of the lost project"


@pytest.mark.parametrize(
    "lines",
    [
        b"# mine\nssh-rsa AAAAB3 me@home\n\n",
        b"ssh-rsa AAAAB3 no end of line",
        b"\r\nssh-rsa AAAAB3 windows\r\n",
        b"",
        None,
    ],
)
def test_detach_restores_authorized_keys_exactly(laptop, machine, project, lines):
    host = machine(password=SECRET)
    keys = host.home / ".ssh" / "authorized_keys"
    if lines is None:
        shutil.rmtree(host.home / ".ssh")
    else:
        keys.write_bytes(lines)
    before = tree(host.home / ".ssh")
    attach_target(laptop, host, project)
    assert keys.read_bytes().startswith(lines or b"restrict ssh-ed25519 ") and b"mlw-" in keys.read_bytes()
    gone = laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert "removed the SSH key" in gone.err
    assert tree(host.home / ".ssh") == before
    assert (host.home / ".mlw" / "lib").exists(), "only --purge goes further"
    assert not list((project / "aml_config").glob("box.*")) and not (laptop.store / "targets").exists()
    assert laptop.mlw("computetarget", "detach", "box", cwd=project).code != 0


def test_detach_unreachable_machine(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    host.stop_sshd(sessions=True)
    files, targets = tree(project), tree(laptop.store / "targets")
    refused = laptop.mlw("computetarget", "detach", "box", cwd=project)
    assert refused.code == 69 and "nothing was detached" in refused.err and "--force" in refused.err, refused
    assert tree(project) == files and set(tree(laptop.store / "targets")) == set(targets)
    forced = laptop.mlw("computetarget", "detach", "box", "--force", "--keep-files", cwd=project)
    assert forced.code == 0 and "still contains a line that ends in mlw-" in forced.err, forced
    assert tree(project) == files and not (laptop.store / "targets").exists()
    lost = laptop.mlw("submit", "-c", "box", "train.py", cwd=project)
    assert lost.code == 69 and "mlw computetarget attach remote --name box" in lost.err


def test_purge_waits_for_runs(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    (project / "long.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    run = laptop.mlw("submit", "--detach", "-c", "box", "long.py", cwd=project, check=True).run
    before = tree(project, host.home / ".ssh")
    refused = laptop.mlw("computetarget", "detach", "box", "--purge", "--yes", "--force", cwd=project)
    assert refused.code == 75 and run in refused.err and "mlw cancel" in refused.err, refused
    assert tree(project, host.home / ".ssh") == before
    prompted = laptop.mlw("computetarget", "detach", "box", "--purge", cwd=project)
    assert prompted.code == 2 and "--yes" in prompted.err
    laptop.mlw("cancel", run, cwd=project, check=True)
    detach = ("computetarget", "detach", "box", "--purge", "--yes")
    wait_until(lambda: laptop.mlw(*detach, cwd=project).code == 0, "the end of the run")
    assert not (host.home / ".mlw").exists()


def test_replace_installed_key(laptop, machine, project):
    host = machine(password=SECRET)
    before = authorized(host)
    attach_target(laptop, host, project)
    old = laptop.home / "old"
    shutil.copy2(next((laptop.store / "targets").glob("*/key")), old)
    laptop.mlw("computetarget", "reset-key", "box", cwd=project, check=True)
    assert authorized(host).startswith(before) and authorized(host).count(b"mlw-") == 1
    laptop.trust_host_keys(host)
    options = ("-o", "IdentityAgent=none", "-i", str(old))
    shutil.move(host.key, laptop.home / "hidden")
    assert "Permission denied" in laptop.ssh(host, "true", options=options, check=False).err
    submit_and_check(laptop, project, host)
    killed = laptop.mlw("computetarget", "reset-key", "box", cwd=project, env={"MLW_FAILPOINT": "key-added:kill"})
    assert killed.code == -signal.SIGKILL
    submit_and_check(laptop, project, host)
    attach_target(laptop, host, project)
    assert authorized(host).count(b"mlw-") == 1
    laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert authorized(host) == before


def test_allowed_mounts(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    before = tree(project)
    allowed = laptop.mlw(
        "computetarget", "update", "box", "--allow-mount", "/data/", "--allow-mount", "/x", cwd=project
    )
    where = f"ada@{host.address}:22"  # a project can choose the name, so the message shows the address
    assert f"containers of all your projects on box ({where}) may mount: /data, /x" in allowed.err
    laptop.mlw("computetarget", "update", "box", "--forbid-mount", "/x", cwd=project, check=True)
    assert _show_target(laptop, project)["allowedMounts"] == ["/data"]
    for words_, message in ((["--forbid-mount", "/y"], "was not allowed"), (["--allow-mount", "/"], "full path")):
        wrong = laptop.mlw("computetarget", "update", "box", *words_, cwd=project)
        assert wrong.code == 2 and message in wrong.err
    terminal = laptop.spawn("computetarget", "detach", "box", "--purge", cwd=project)
    terminal.expect_exact(f"Delete ~/.mlw on box ({where}), including 0 runs? [y/N]")
    terminal.sendline("n")
    terminal.expect(pexpect.EOF)
    assert tree(project) == before, "outside the project"


# -- check and show ------------------------------------------------------------------------------------


def test_check_reports_target_capabilities(laptop, machine, project):
    host = machine(password=SECRET, docker="yes")
    attach_target(laptop, host, project, kind="remotedocker")
    rows = _check_target(laptop, project)
    assert list(rows)[:4] == ["connection", "system", "clock", "agent"] and "python" not in rows
    assert f"ada@{host.address}:22" in rows["connection"]["found"] and "ms round trip" in rows["connection"]["found"]
    assert rows["clock"]["found"] == "in sync" and "Python 3." in rows["agent"]["found"]
    assert rows["docker"]["state"] == "ok" and str(host.home) in rows["store"]["found"]
    assert rows["network"]["state"] == "warning"
    assert "cannot reach" in rows["network"]["found"] and "packages" not in rows["network"]["hint"]
    assert "downloaded by this machine and sent to the target: the target cannot reach" in rows["packages"]["found"]
    host.run("deluser", "ada", "docker", check=False)
    host.run("sed", "-i", "s/^docker:.*/docker:x:20999:/", "/etc/group")
    rows = _check_target(laptop, project, code=75)
    assert rows["docker"]["state"] == "error" and "usermod" in rows["docker"]["hint"], "by a login of its own"
    assert "permission denied" in str(_show_target(laptop, project)["facts"]), "and remembered"
    host.run("sed", "-i", "s/^docker:.*/docker:x:20999:ada/", "/etc/group")
    assert _check_target(laptop, project)["docker"]["state"] == "ok"
    checked = laptop.mlw("computetarget", "check", "box", cwd=project)
    assert "hint: network: " in checked.err
    listed = laptop.mlw("computetarget", "list", cwd=project, check=True).out
    assert re.search(rf"box +remotedocker +{host.address} +yes +ada@{host.address}:22 +box", listed)
    names = laptop.mlw("computetarget", "list", "-o", "json", cwd=project).out
    assert json.loads(names) == ["box", "docker", "local"]
    shown = _show_target(laptop, project)
    assert (shown["attached"], shown["hostKey"]) == (True, host.host_key_fingerprint)
    assert shown["facts"]["docker"]["version"] and shown["facts"]["hostname"] == host.name
    assert "Debian" in laptop.mlw("computetarget", "show", "box", cwd=project, check=True).out


def test_check_reports_clock_skew(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    # All processes share the kernel's clock, so the laptop's mlw runs three days in the future instead.
    late = laptop.home / "late"
    late.mkdir()
    late.joinpath("sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() + 259200\n")
    laptop.env["PYTHONPATH"] = str(late)
    row = _check_target(laptop, project)["clock"]
    assert row["state"] == "warning" and row["found"] == "its clock is 3 days behind this machine's"
    assert "timedatectl" in row["hint"]


def test_check_of_unreachable_machine(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    host.stop_sshd(sessions=True)
    done = laptop.mlw("computetarget", "check", "box", cwd=project)
    assert done.code == 69 and done.out == ""
    assert done.err == (
        f"error: ada@{host.address}:22 refused the connection\n"
        "hint: check that sshd is running on the machine and listens on port 22\n"
        "hint: for details run 'mlw explain no-contact'\n"
    )


# -- configuration files -------------------------------------------------------------------------------


def test_attach_writes_compute_and_runconfig(laptop, machine, project, engine):
    engine.stop()
    engine.start(False, True, "--add-runtime", "nvidia=/usr/bin/runc")
    host = machine(password=SECRET, docker="yes")
    driver = host.root / "tmp/version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n")
    host.run("sh", "-c", "mkdir -p /tmp/nvidia && mv /tmp/version /tmp/nvidia/version")
    _show_driver(host)
    attach_target(laptop, host, project, kind="remotedocker", name="my_dsvm")
    attach_target(laptop, host, project, kind="remote", name="plain")
    texts = {}
    for name in ("my_dsvm.compute", "my_dsvm.runconfig", "plain.compute"):
        texts[name] = (project / "aml_config" / name).read_text().replace(host.address, "ADDRESS")
        compare(f"attached-{name}", texts[name])
    assert "\nnvidiaDocker: true\n" in texts["my_dsvm.compute"]
    kind = {"my_dsvm.compute": "remotedocker", "plain.compute": "remote"}
    for name, type_ in kind.items():
        for key in COMPUTE:
            if key.field and compute_type(type_).has_key(key):
                assert re.search(rf"^# .+\n(# .+\n)*#?{key.name}:", texts[name], re.MULTILINE), key.name
    for key in RUNCONFIG:
        if key.field:
            assert re.search(rf"^# .+\n#?{key.name}:", texts["my_dsvm.runconfig"], re.MULTILINE), key.name
    assert laptop.mlw("project", "validate", cwd=project, check=True).err == "no problems found\n"
    loaded = find_project(project)
    compute, runconfig = loaded.compute("my_dsvm"), loaded.runconfig("my_dsvm")
    assert (compute.type, compute.address, compute.username) == ("remotedocker", host.address, "ada")
    assert compute.nvidia_docker and compute.shared_volumes and compute.base_docker_image
    assert (runconfig.target, runconfig.framework, runconfig.prepare_environment) == ("my_dsvm", "Python", True)
    assert loaded.compute("plain").user_managed_environment
    assert "535.104.05" in _check_target(laptop, project, "my_dsvm")["gpu"]["found"]
    assert runconfig.conda_dependencies_file == "aml_config/conda_dependencies.yml"
    packages = project / "aml_config" / "conda_dependencies_gpu.yml"
    packages.write_text("name: gpu\ndependencies:\n  - python=3.11\n")
    done = attach_target(laptop, host, project, kind="remotedocker", name="second")
    assert find_project(project).runconfig("second").conda_dependencies_file == f"aml_config/{packages.name}"
    assert f"NVIDIA GPUs detected: runs use the packages in aml_config/{packages.name}\n" in done.err, done


def _show_driver(host) -> None:
    """Simulate the driver's /proc/driver/nvidia/version."""
    host.run("mount", "-t", "tmpfs", "tmpfs", "/proc/driver")  # folders cannot be created in procfs
    host.run("cp", "-R", "/tmp/nvidia", "/proc/driver/nvidia")


def test_managed_packages_setting_applies_to_attached_target(laptop, machine):
    """A script that runs on `local` must find its packages on `remote`: both install them, or neither."""
    host = machine(password=SECRET)
    laptop.mlw("project", "create", "--name", "iris", "--template", "iris-sklearn", check=True)
    root = laptop.home / "iris"
    done = attach_target(laptop, host, root, name="gpu box")
    assert "\nuserManagedEnvironment: false\n" in (root / "aml_config" / "gpu box.compute").read_text()
    assert done.err.endswith("hint: run a script with: mlw submit -c 'gpu box' iris_sklearn.py\n"), done
    slip = laptop.mlw("computetarget", "attach", "remotdocker", "--name", "x", "--address", host.address, cwd=root)
    assert slip.code == 2 and "hint: did you mean 'remotedocker'?" in slip.err, slip


# -- secrets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["--password", "--password-stdin", "passphrase"])
def test_secrets_are_not_stored_or_exposed(laptop, machine, project, tmp_path, way):
    import subprocess

    host = machine(**({} if way == "passphrase" else {"password": SECRET}))
    with watch_for_secrets(SECRET) as leaks:
        if way == "passphrase":
            subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", SECRET, "-f", str(host.key)], check=True)
            leaks.clear()  # the command line above contains the secret
            terminal = laptop.spawn(*attach_arguments(host), "--private-key-file", str(host.key), cwd=project)
            terminal.expect("Enter passphrase")
            terminal.sendline(SECRET)
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == 0
        else:
            more = ["--password", SECRET] if way == "--password" else ["--password-stdin"]
            text = None if way == "--password" else f"{SECRET}\n"
            done = laptop.mlw(*attach_arguments(host), *more, cwd=project, input=text)
            assert done.code == 0 and SECRET not in done.out + done.err
        run = submit_and_check(laptop, project, host).run
        laptop.mlw("experiment", "diagnostics", run, "-o", str(laptop.home / "all.zip"), cwd=project, check=True)
    assert leaks == []
    shutil.unpack_archive(laptop.home / "all.zip", laptop.home / "unzipped")
    remote_places = [host.root / folder for folder in ("tmp", "var/log", "var/tmp", "dev/shm")]
    places = [tmp_path, laptop.runtime, host.home, *remote_places]
    assert files_containing(SECRET, *places) == []
    assert not (laptop.home / ".ssh").exists()
