"""Tests of ``mlw doctor``: findings from given facts, and the collection of facts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from mlworkbench.doctor import collect, history_check, installation, ssh_client
from mlworkbench.doctor.diagnosis_rules import diagnose
from mlworkbench.doctor.laptop_facts import HistoryState, Home, Laptop, Parts, Program, Shell, Ssh, Terminal, Tools
from mlworkbench.errors import HistoryError
from mlworkbench.history.history_api import History
from mlworkbench.hosts.host_facts import Engine, Facts, Store, System
from mlworkbench.hosts.ssh_connection import find_runtime_folder
from mlworkbench.paths import UserPaths, data_folder
from mlworkbench.report import units
from mlworkbench.targets.machine_check import ERROR, OK, WARNING

GB = 10**9
NOW = 1_800_000_000.0
HEALTHY = Laptop(
    program=Program("0.1.0", (3, 12, 4), "/opt/mlw/bin/python", sqlite="3.54.1"),
    machine=Facts(os=System(system="Linux", title="Debian"), store=Store("/home/ada/mlw", True, 50 * GB, 100 * GB)),
    home=Home("/home/ada/mlw"),
    history=HistoryState(
        "/home/ada/mlw/history.db", runs=3, unfinished=1, version=3, supported_version=3, size=40_000, written=NOW - 60
    ),
    ssh=Ssh("/usr/bin/ssh", "/usr/bin/ssh-keygen", "OpenSSH_9.2p1", agent="2"),
    keyring="keyring.backends.SecretService",
    tools=Tools("/opt/mlw/bin/uv", "0.9.0", True, "/usr/bin/python3"),
    terminal=Terminal(True, 120, True, "utf-8"),
    login_shell=Shell("bash", True, "mlw completion bash"),
    parts=Parts(),
    now=NOW,
    built=NOW - 1000,
)


def find_finding(laptop, what):
    rows = [finding for finding in diagnose(laptop, units.size) if finding.what == what]
    assert len(rows) == 1, rows
    return rows[0]


def test_healthy_machine():
    findings = diagnose(HEALTHY, units.size)
    assert {finding.state for finding in findings} == {OK}
    assert not any(finding.hint or finding.more for finding in findings)
    names = ["mlw", "python", "system", "data folder", "history", "ssh", "ssh agent", "keyring", "docker"]
    names += ["environments", "scripts", "network", "clock", "terminal", "completion", "browser"]
    assert [finding.what for finding in findings] == names


def with_part(name, **changes):
    return replace(HEALTHY, **{name: replace(getattr(HEALTHY, name), **changes)})


PROBLEMS = [
    # mlw, Python, system
    (with_part("program", missing=("rich",)), "mlw", ERROR, "required packages are missing: rich", None),
    (
        with_part("program", shadow="/usr/bin/mlw"),
        "mlw",
        WARNING,
        "another installation comes first on PATH: /usr/bin/mlw",
        None,
    ),
    (with_part("program", python=(3, 9, 2)), "python", ERROR, "3.9.2, /opt/mlw/bin/python is too old", None),
    (with_part("program", sqlite="3.40.1"), "python", WARNING, "SQLite 3.40.1 can damage", None),
    (with_part("machine", os=System(system="Darwin")), "system", WARNING, "Darwin", None),
    # the data folder
    (with_part("home", problem="Permission denied"), "data folder", ERROR, "Permission denied", "history-unusable"),
    (with_part("home", problem="No space left on device"), "data folder", ERROR, "No space left", "disk-full"),
    (with_part("home", is_own=False), "data folder", ERROR, "belongs to another user", "history-unusable"),
    (with_part("home", mode=0o770), "data folder", ERROR, "writable by other users", "history-unusable"),
    (with_part("home", mode=0o755), "data folder", WARNING, "readable by other users", None),
    (with_part("machine", store=Store("/x", True, 5 * 10**7)), "data folder", ERROR, "50.0 MB free", "disk-full"),
    (with_part("machine", store=Store("/x", True, 5 * 10**8)), "data folder", WARNING, "500 MB free", "disk-full"),
    (
        with_part("machine", store=Store("/x", True, GB * 9, inodes_free=7)),
        "data folder",
        WARNING,
        "room for only 7 more files",
        "disk-full",
    ),
    (
        with_part("machine", store=Store("/x", True, 9 * GB, filesystem="nfs4", network=True)),
        "data folder",
        WARNING,
        "network file system (nfs4)",
        "history-damaged",
    ),
    (with_part("home", folder="/home/ada/Dropbox/mlw"), "data folder", WARNING, "synchronized", "history-damaged"),
    (
        with_part("home", folder=r"C:\Users\ada\OneDrive - Work\mlw"),
        "data folder",
        WARNING,
        "(OneDrive)",
        "history-damaged",
    ),
    (with_part("home", folder="/h/Library/Mobile Documents/x"), "data folder", WARNING, "(Mobile D", "history-damaged"),
    # the history
    (with_part("history", damage="row 3 missing"), "history", ERROR, "damaged: row 3 missing", "history-damaged"),
    (with_part("history", problem="it cannot be read"), "history", ERROR, "it cannot be read", "history-damaged"),
    (with_part("history", version=9), "history", ERROR, "was written by a newer mlw", "history-unusable"),
    (with_part("history", busy=True), "history", WARNING, "locked by another program", "history-unusable"),
    (with_part("history", interrupted=2), "leftovers", WARNING, "2 submissions were interrupted", "submit-interrupted"),
    (
        with_part("history", set_aside=("/h/history.db.damaged-1",)),
        "leftovers",
        WARNING,
        "was renamed to",
        "history-damaged",
    ),
    # ssh and keyring
    (
        with_part("ssh", program=None),
        "ssh",
        WARNING,
        "not installed on this machine; only needed for remote machines",
        "no-ssh",
    ),
    (with_part("ssh", program=None, attached=2), "ssh", ERROR, "2 attached machines cannot be reached", "no-ssh"),
    (with_part("ssh", keygen=None), "ssh", WARNING, "ssh-keygen is not installed", "no-ssh"),
    (with_part("ssh", config="line 3: Bad option"), "ssh", ERROR, "line 3: Bad option", "no-contact"),
    (with_part("ssh", multiplexes=False), "ssh", WARNING, "cannot share SSH connections", None),
    (with_part("ssh", sockets="/tmp/mlw-0 cannot be used"), "ssh", WARNING, "/tmp/mlw-0 cannot be used", None),
    (
        with_part("ssh", writable_by_others=("/h/.ssh/config",)),
        "ssh files",
        ERROR,
        "writable by other users",
        "permission-denied",
    ),
    (
        with_part("ssh", readable_by_others=("/h/.ssh/id_rsa",)),
        "ssh files",
        WARNING,
        "private key readable by other users",
        "permission-denied",
    ),
    (with_part("ssh", unreadable=("/h/x",)), "ssh files", WARNING, "cannot be read: /h/x", "permission-denied"),
    (with_part("ssh", agent="dead"), "ssh agent", WARNING, "does not point to a running agent", "permission-denied"),
    (replace(with_part("ssh", passwords=1), keyring=None), "keyring", WARNING, "none, but 1", "permission-denied"),
    # engines and environments
    (
        with_part("machine", docker=Engine("docker", "/bin/docker", error="permission denied while trying")),
        "docker",
        WARNING,
        "/bin/docker cannot be used: permission denied",
        "docker-not-permitted",
    ),
    (
        with_part("machine", podman=Engine("podman", "/bin/podman", error="it did not respond in time")),
        "podman",
        WARNING,
        "did not respond",
        "docker-not-running",
    ),
    (with_part("tools", uv=None, uv_version=None), "environments", ERROR, "uv: not installed", None),
    (with_part("tools", uv_version=None), "environments", ERROR, "/opt/mlw/bin/uv does not start", None),
    (with_part("tools", rattler=False), "environments", ERROR, "py-rattler: not installed", None),
    (with_part("tools", script=None, script_problem="no Python"), "scripts", WARNING, "no Python", "no-python"),
    # clock and terminal
    (replace(HEALTHY, now=NOW - 90_000), "clock", WARNING, "earlier than the installation of mlw", None),
    (with_part("history", written=NOW + 9000), "clock", WARNING, "earlier than the last write to the history", None),
    (with_part("terminal", encoding="ascii"), "terminal", WARNING, "encoding ascii", None),
    (with_part("terminal", locale_problem="unsupported"), "terminal", WARNING, "is not installed (unsupported)", None),
]


@pytest.mark.parametrize(("laptop", "what", "state", "message", "more"), PROBLEMS, ids=[row[3] for row in PROBLEMS])
def test_problem_is_reported_with_its_remedy(laptop, what, state, message, more):
    finding = find_finding(laptop, what)
    assert finding.state == state and message in finding.found
    assert finding.hint and finding.more == more
    others = [other for other in diagnose(laptop, units.size) if other is not finding and other.what != what]
    assert {other.state for other in others} == {OK}, "only this problem is reported"


def test_optional_parts_are_only_notes():
    bare = replace(
        HEALTHY,
        history=None,
        keyring=None,
        home=Home("/home/ada/mlw", exists=False),
        ssh=replace(HEALTHY.ssh, agent="none"),
        login_shell=Shell("tcsh"),
        parts=Parts(("nicegui",), "python -m pip install nicegui"),
        terminal=Terminal(),
    )
    assert {finding.state for finding in diagnose(bare, units.size)} == {OK}
    assert "does not exist yet" in find_finding(bare, "data folder").found
    assert (
        find_finding(bare, "browser").found == "mlw ui is not installed; install it with: python -m pip install nicegui"
    )
    assert find_finding(bare, "docker").found.startswith("not installed")
    assert "bash, zsh, and fish" in find_finding(bare, "completion").found
    undone = replace(HEALTHY, login_shell=Shell("zsh", False, "mlw completion zsh"))
    assert find_finding(undone, "completion").found == "not set up for zsh; see 'mlw completion zsh'"


def test_network_settings_are_shown_without_secrets():
    variables = {"https_proxy": "http://ada:secret@gate.there:8080", "PIP_INDEX_URL": "https://x:secret@index/simple"}
    finding = find_finding(replace(HEALTHY, variables=variables), "network")
    assert finding.state == OK and finding.found == "set: https_proxy (gate.there), PIP_INDEX_URL"
    for address in ("http://ada:a/b@gate:80", "ada:a//b@gate", "http://ada:a@b@gate/", "socks5://gate:1080", "gate:80"):
        assert (
            find_finding(replace(HEALTHY, variables={"all_proxy": address}), "network").found == "set: all_proxy (gate)"
        )
    assert find_finding(replace(HEALTHY, variables={"all_proxy": "http://u:p@[::1]:80"}), "network").found.endswith(
        " (::1)"
    )
    clash = replace(HEALTHY, variables={"HTTPS_PROXY": "http://a", "https_proxy": "http://b"})
    assert find_finding(clash, "network").state == WARNING
    lost = replace(HEALTHY, variables={"SSL_CERT_FILE": "/no/ca.pem"}, missing_files=("SSL_CERT_FILE",))
    assert (
        find_finding(lost, "network").state == ERROR
        and "SSL_CERT_FILE (/no/ca.pem)" in find_finding(lost, "network").found
    )


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("PYTHONPATH", "/x", WARNING),
        ("PYTHONHOME", "/x", WARNING),
        ("LD_PRELOAD", "/x.so", WARNING),
        ("MLW_RUN_ID", "demo-1", WARNING),
        ("MLW_TRACKING", "off", WARNING),
        ("MLW_TRACKING", "on", OK),
        ("CUDA_VISIBLE_DEVICES", "-1", WARNING),
        ("DOCKER_HOST", "unix:///x", OK),
        ("LD_LIBRARY_PATH", "/x", OK),
    ],
)
def test_variables_that_hide_or_change_things(name, value, state):
    assert find_finding(replace(HEALTHY, variables={name: value}), name).state == state


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("unix:///run/user@1000/docker.sock", "unix:///run/user@1000/docker.sock"),
        ("ssh://ada:se/cret@engine:22", "ssh://engine:22"),
        ("ada:se://cret@engine", "engine"),
        ("tcp://engine:2375", "tcp://engine:2375"),
    ],
)
def test_engine_logins_are_not_shown(address, shown):
    broken = Engine("docker", "/bin/docker", error=f"DOCKER_HOST is {address}, and more")
    laptop = replace(HEALTHY, variables={"DOCKER_HOST": address}, machine=replace(HEALTHY.machine, docker=broken))
    assert find_finding(laptop, "DOCKER_HOST").found == f"{shown}: container engine used on this machine"
    assert find_finding(laptop, "docker").found == f"/bin/docker cannot be used: DOCKER_HOST is {shown}, and more"


def test_irrelevant_variables_are_not_reported():
    quiet = replace(HEALTHY, variables={"CUDA_VISIBLE_DEVICES": "0", "VIRTUAL_ENV": "/opt/mlw", "MLW_HOME": "/x"})
    assert len(diagnose(quiet, units.size)) == len(diagnose(HEALTHY, units.size))
    active = replace(HEALTHY, variables={"VIRTUAL_ENV": "/home/ada/venv"})
    assert "target local uses its Python" in find_finding(active, "environment").found


# -- collecting facts ---------------------------------------------------------------------------------------


def test_check_does_not_change_the_index(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    assert history_check.check_history(paths.database, NOW) == HistoryState(str(paths.database), exists=False)
    list(History(paths).list())
    state = history_check.check_history(paths.database, NOW)
    assert (state.runs, state.damage, state.busy, state.problem, state.version) == (
        0,
        None,
        False,
        None,
        state.supported_version,
    )
    before = paths.database.read_bytes()
    history_check.check_history(paths.database, NOW)
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize("left", [(), ("-wal",), ("-wal", "-shm")])
def test_check_creates_no_files(tmp_path, left):
    """The check must also keep the WAL of a killed program, which contains the newest rows."""
    paths = UserPaths(tmp_path / "made")
    (paths.home / "runs").mkdir(parents=True)
    list(History(paths).list())
    other = apsw.Connection(str(paths.database))
    other.execute("UPDATE account SET runs = 7")
    place = tmp_path / "killed"
    place.mkdir()
    for ending in ("", *left):
        shutil.copy(f"{paths.database}{ending}", place)
    other.close()
    before = {path.name: path.stat().st_size for path in place.iterdir()}
    state = history_check.check_history(place / paths.database.name, NOW)
    assert {path.name: path.stat().st_size for path in place.iterdir()} == before
    assert (state.runs, state.damage, state.problem, state.busy) == (7 if left else 0, None, None, False)


def test_concurrent_write_is_not_reported_as_damage(tmp_path, monkeypatch):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    real, calls, others = history_check._read_state, [], []

    def read_state(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            others.append(apsw.Connection(str(paths.database)))
            others[0].execute("UPDATE account SET runs = 7")
            raise apsw.CorruptError("half of it is new")
        return real(*arguments)

    monkeypatch.setattr(history_check, "_read_state", read_state)
    state = history_check.check_history(paths.database, NOW)
    assert (state.damage, state.runs, len(calls)) == (None, 7, 2)
    others[0].close()


def test_socket_folder_is_not_created(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # the length of socket paths is limited
        place = Path(short)
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        assert ssh_client._sockets() is None and os.listdir(place) == []
        (place / "mlw").mkdir(mode=0o700)
        assert find_runtime_folder() == place / "mlw"
        (place / "mlw").chmod(0o755)
        assert find_runtime_folder() != place / "mlw"


def test_ssh_settings_are_read_without_name_lookups(monkeypatch):
    commands = []
    monkeypatch.setattr(ssh_client, "start_program", lambda command, environ=None: commands.append(command))
    ssh_client.SshProbes(os.environ)
    (command,) = [command for command in commands if command and "-G" in command]
    assert command[1:] == ["-G", "-o", "CanonicalizeHostname=no", "--", "mlw-doctor.invalid"]


def test_damage_is_reported(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    sound = paths.database.read_bytes()
    for damaged in (
        b"no database at all" * 500,
        sound[:4096] + b"\x00" * (len(sound) - 4096),
        sound[: len(sound) // 2],
    ):
        paths.database.write_bytes(damaged)
        for ending in ("-wal", "-shm"):
            Path(f"{paths.database}{ending}").unlink(missing_ok=True)
        assert history_check.check_history(paths.database, NOW).damage, damaged[:20]


def test_lost_writes_are_damage(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    history_check.WriteCounter(f"{paths.database}.mark").write(10**6)
    assert history_check.check_history(paths.database, NOW).damage == "the last writes are lost"


def test_concurrent_writer_is_detected(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    other = apsw.Connection(str(paths.database))
    other.execute("BEGIN IMMEDIATE")
    assert history_check.check_history(paths.database, NOW).busy
    other.execute("ROLLBACK")
    other.close()
    assert not history_check.check_history(paths.database, NOW).busy


@pytest.mark.parametrize(
    ("name", "mode", "field"),
    [(".", 0o777, "loose"), ("config", 0o666, "loose"), ("id_ed25519", 0o644, "shown"), ("id_x.pub", 0o644, "")],
)
def test_files_of_ssh(tmp_path, name, mode, field):
    folder = tmp_path / ".ssh"
    folder.mkdir(mode=0o700)
    path = folder / name
    if name != ".":
        path.write_text("")
    path.chmod(mode)
    loose, shown, _ = ssh_client._files(folder)
    assert {"loose": loose, "shown": shown}.get(field, (str(path),)) == (str(path),)
    assert bool(loose) == (field == "loose") and bool(shown) == (field == "shown")


def test_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in collect._home(tmp_path / "file", {}, None).problem
    assert "is a file, not a folder" in collect._home(tmp_path / "file" / "below", {}, None).problem
    assert collect._home(tmp_path / "new" / "folder", {}, None) == Home(str(tmp_path / "new" / "folder"), exists=False)
    assert os.listdir(tmp_path) == ["file"]


def test_relative_data_folder_without_current_folder(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("MLW_HOME", "here")
    with pytest.raises(HistoryError, match="MLW_HOME is here, but the current folder cannot be used: No such file"):
        data_folder()
    assert collect._find_data_folder()[1].startswith("MLW_HOME is here")


@pytest.mark.parametrize(
    ("shell", "path", "text"),
    [
        ("bash", ".bashrc", 'eval "$(mlw completion bash)"'),
        ("bash", ".bashrc", "_mlw_completion() {"),
        ("zsh", ".zshrc", 'eval "$(mlw completion zsh)"'),
        ("fish", ".config/fish/completions/mlw.fish", "function __mlw_complete"),
    ],
)
def test_shell_completion_is_detected(tmp_path, shell, path, text):
    environ = {"SHELL": f"/bin/{shell}", "HOME": str(tmp_path)}
    assert not collect._shell(environ).completes
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    assert collect._shell(environ).completes


# -- installation method ---------------------------------------------------------------------------


class FakeDistribution:
    """An installed distribution with given metadata."""

    def __init__(self, place=None, editable=False):
        self.url = json.dumps({"url": f"file://{place}", "dir_info": {"editable": editable}}) if place else None
        self.requires = ["click>=8", 'nicegui>=3.18; extra == "ui"', "python-multipart; extra == 'ui'"]

    def read_text(self, name):
        return self.url


@pytest.mark.parametrize("editable", [False, True])
def test_ui_is_installed_from_the_source_of_mlw(tmp_path, monkeypatch, editable):
    source = tmp_path / "my code"
    source.mkdir()
    (source / "pyproject.toml").write_text("")
    monkeypatch.setattr(
        installation, "_distribution", lambda: FakeDistribution(str(source).replace(" ", "%20"), editable)
    )
    command = f"{sys.executable} -m pip install {'--editable ' if editable else ''}'{source}[ui]'"
    assert installation.install_ui() == command


def test_ui_packages_are_listed_without_source(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_distribution", lambda: FakeDistribution(tmp_path / "gone"))
    assert installation.install_ui() == f"{sys.executable} -m pip install 'nicegui>=3.18' python-multipart"
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert installation.install_ui().startswith(f"uv pip install --python {sys.executable} ")
    monkeypatch.setattr(installation.sys, "prefix", "/home/ada/.local/share/pipx/venvs/mlworkbench")
    assert installation.install_ui() == "pipx inject mlworkbench 'nicegui>=3.18' python-multipart"
