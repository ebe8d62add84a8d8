"""``mlw doctor``: what is said of a machine, from facts alone; and what is seen of one."""

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

from mlworkbench.errors import HistoryError
from mlworkbench.history.door import History
from mlworkbench.hosts.facts import Engine, Facts, Store, System
from mlworkbench.hosts.master import usable_folder
from mlworkbench.laptop import gather, installed, past, secureshell
from mlworkbench.laptop.facts import Home, Laptop, Parts, Past, Program, Shell, Ssh, Terminal, Tools
from mlworkbench.laptop.judge import judge
from mlworkbench.paths import UserPaths, data_folder
from mlworkbench.report import units
from mlworkbench.targets.check import ERROR, OK, WARNING

GB = 10**9
NOW = 1_800_000_000.0
WELL = Laptop(
    program=Program("0.1.0", (3, 12, 4), "/opt/mlw/bin/python", sqlite="3.54.1"),
    machine=Facts(os=System(system="Linux", title="Debian"), store=Store("/home/ada/mlw", True, 50 * GB, 100 * GB)),
    home=Home("/home/ada/mlw"),
    past=Past("/home/ada/mlw/history.db", runs=3, unfinished=1, version=3, known=3, size=40_000, written=NOW - 60),
    ssh=Ssh("/usr/bin/ssh", "/usr/bin/ssh-keygen", "OpenSSH_9.2p1", agent="2"),
    keyring="keyring.backends.SecretService",
    tools=Tools("/opt/mlw/bin/uv", "0.9.0", True, "/usr/bin/python3"),
    terminal=Terminal(True, 120, True, "utf-8"),
    login_shell=Shell("bash", True, "mlw completion bash"),
    parts=Parts(),
    now=NOW,
    built=NOW - 1000,
)


def found(laptop, what):
    rows = [one for one in judge(laptop, units.size) if one.what == what]
    assert len(rows) == 1, rows
    return rows[0]


def test_a_machine_that_is_well():
    findings = judge(WELL, units.size)
    assert {one.state for one in findings} == {OK}
    assert not any(one.hint or one.more for one in findings)
    looked = ["mlw", "python", "system", "data folder", "history", "ssh", "ssh agent", "keyring", "docker"]
    looked += ["environments", "scripts", "network", "clock", "terminal", "completion", "browser"]
    assert [one.what for one in findings] == looked


def with_part(name, **changes):
    return replace(WELL, **{name: replace(getattr(WELL, name), **changes)})


TROUBLES = [
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
    (with_part("home", mine=False), "data folder", ERROR, "belongs to another user", "history-unusable"),
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
    (with_part("past", damage="row 3 missing"), "history", ERROR, "damaged: row 3 missing", "history-damaged"),
    (with_part("past", problem="it cannot be read"), "history", ERROR, "it cannot be read", "history-damaged"),
    (with_part("past", version=9), "history", ERROR, "was written by a newer mlw", "history-unusable"),
    (with_part("past", busy=True), "history", WARNING, "locked by another program", "history-unusable"),
    (with_part("past", stranded=2), "leftovers", WARNING, "2 submissions were interrupted", "submit-interrupted"),
    (with_part("past", aside=("/h/history.db.damaged-1",)), "leftovers", WARNING, "was renamed to", "history-damaged"),
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
    (with_part("ssh", loose=("/h/.ssh/config",)), "ssh files", ERROR, "writable by other users", "permission-denied"),
    (
        with_part("ssh", shown=("/h/.ssh/id_rsa",)),
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
    # the rest
    (replace(WELL, now=NOW - 90_000), "clock", WARNING, "earlier than the installation of mlw", None),
    (with_part("past", written=NOW + 9000), "clock", WARNING, "earlier than the last write to the history", None),
    (with_part("terminal", encoding="ascii"), "terminal", WARNING, "encoding ascii", None),
    (with_part("terminal", locale_problem="unsupported"), "terminal", WARNING, "is not installed (unsupported)", None),
]


@pytest.mark.parametrize(("laptop", "what", "state", "words", "more"), TROUBLES, ids=[one[3] for one in TROUBLES])
def test_a_trouble_is_told_with_its_remedy(laptop, what, state, words, more):
    one = found(laptop, what)
    assert one.state == state and words in one.found
    assert one.hint and one.more == more
    others = [other for other in judge(laptop, units.size) if other is not one and other.what != what]
    assert {other.state for other in others} == {OK}, "one trouble is told once"


def test_what_is_only_a_note():
    bare = replace(
        WELL,
        past=None,
        keyring=None,
        home=Home("/home/ada/mlw", there=False),
        ssh=replace(WELL.ssh, agent="none"),
        login_shell=Shell("tcsh"),
        parts=Parts(("nicegui",), "python -m pip install nicegui"),
        terminal=Terminal(),
    )
    assert {one.state for one in judge(bare, units.size)} == {OK}
    assert "does not exist yet" in found(bare, "data folder").found
    assert found(bare, "browser").found == "mlw ui is not installed; install it with: python -m pip install nicegui"
    assert found(bare, "docker").found.startswith("not installed")
    assert "bash, zsh, and fish" in found(bare, "completion").found
    undone = replace(WELL, login_shell=Shell("zsh", False, "mlw completion zsh"))
    assert found(undone, "completion").found == "not set up for zsh; see 'mlw completion zsh'"


def test_settings_of_the_network_are_told_without_their_secrets():
    told = {"https_proxy": "http://ada:secret@gate.there:8080", "PIP_INDEX_URL": "https://x:secret@index/simple"}
    one = found(replace(WELL, variables=told), "network")
    assert one.state == OK and one.found == "set: https_proxy (gate.there), PIP_INDEX_URL"
    for address in ("http://ada:a/b@gate:80", "ada:a//b@gate", "http://ada:a@b@gate/", "socks5://gate:1080", "gate:80"):
        assert found(replace(WELL, variables={"all_proxy": address}), "network").found == "set: all_proxy (gate)"
    assert found(replace(WELL, variables={"all_proxy": "http://u:p@[::1]:80"}), "network").found.endswith(" (::1)")
    clash = replace(WELL, variables={"HTTPS_PROXY": "http://a", "https_proxy": "http://b"})
    assert found(clash, "network").state == WARNING
    lost = replace(WELL, variables={"SSL_CERT_FILE": "/no/ca.pem"}, absent=("SSL_CERT_FILE",))
    assert found(lost, "network").state == ERROR and "SSL_CERT_FILE (/no/ca.pem)" in found(lost, "network").found


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
    assert found(replace(WELL, variables={name: value}), name).state == state


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("unix:///run/user@1000/docker.sock", "unix:///run/user@1000/docker.sock"),
        ("ssh://ada:se/cret@engine:22", "ssh://engine:22"),
        ("ada:se://cret@engine", "engine"),
        ("tcp://engine:2375", "tcp://engine:2375"),
    ],
)
def test_logins_of_an_engine_are_not_told(address, shown):
    broken = Engine("docker", "/bin/docker", error=f"DOCKER_HOST is {address}, and more")
    laptop = replace(WELL, variables={"DOCKER_HOST": address}, machine=replace(WELL.machine, docker=broken))
    assert found(laptop, "DOCKER_HOST").found == f"{shown}: container engine used on this machine"
    assert found(laptop, "docker").found == f"/bin/docker cannot be used: DOCKER_HOST is {shown}, and more"


def test_variables_that_change_nothing_are_not_told():
    quiet = replace(WELL, variables={"CUDA_VISIBLE_DEVICES": "0", "VIRTUAL_ENV": "/opt/mlw", "MLW_HOME": "/x"})
    assert len(judge(quiet, units.size)) == len(judge(WELL, units.size))
    active = replace(WELL, variables={"VIRTUAL_ENV": "/home/ada/venv"})
    assert "target local uses its Python" in found(active, "environment").found


# -- looking ---------------------------------------------------------------------------------------


def test_the_index_is_looked_at_and_left_as_it_is(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    assert past.look(paths.database, NOW) == Past(str(paths.database), there=False)
    list(History(paths).list())
    seen = past.look(paths.database, NOW)
    assert (seen.runs, seen.damage, seen.busy, seen.problem, seen.version) == (0, None, False, None, seen.known)
    before = paths.database.read_bytes()
    past.look(paths.database, NOW)
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize("left", [(), ("-wal",), ("-wal", "-shm")])
def test_looking_at_an_index_makes_no_files(tmp_path, left):
    """Also where a program was killed: what it left holds the newest rows, and stays."""
    made = UserPaths(tmp_path / "made")
    (made.home / "runs").mkdir(parents=True)
    list(History(made).list())
    other = apsw.Connection(str(made.database))
    other.execute("UPDATE account SET runs = 7")
    place = tmp_path / "killed"
    place.mkdir()
    for ending in ("", *left):
        shutil.copy(f"{made.database}{ending}", place)
    other.close()
    before = {path.name: path.stat().st_size for path in place.iterdir()}
    seen = past.look(place / made.database.name, NOW)
    assert {path.name: path.stat().st_size for path in place.iterdir()} == before
    assert (seen.runs, seen.damage, seen.problem, seen.busy) == (7 if left else 0, None, None, False)


def test_a_writer_that_comes_while_we_look_is_not_taken_for_damage(tmp_path, monkeypatch):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    real, asked, others = past._ask, [], []

    def ask(*words):
        asked.append(words)
        if len(asked) == 1:
            others.append(apsw.Connection(str(paths.database)))
            others[0].execute("UPDATE account SET runs = 7")
            raise apsw.CorruptError("half of it is new")
        return real(*words)

    monkeypatch.setattr(past, "_ask", ask)
    seen = past.look(paths.database, NOW)
    assert (seen.damage, seen.runs, len(asked)) == (None, 7, 2)
    others[0].close()


def test_where_connections_would_be_kept_is_looked_at_only(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # a socket's name may not be long
        place = Path(short)
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        assert secureshell._sockets() is None and os.listdir(place) == []
        (place / "mlw").mkdir(mode=0o700)
        assert usable_folder() == place / "mlw"
        (place / "mlw").chmod(0o755)
        assert usable_folder() != place / "mlw"


def test_settings_of_ssh_are_asked_for_without_looking_up_names(monkeypatch):
    asked = []
    monkeypatch.setattr(secureshell, "ask", lambda words, environ=None: asked.append(words))
    secureshell.SshQuestions(os.environ)
    (words,) = [one for one in asked if one and "-G" in one]
    assert words[1:] == ["-G", "-o", "CanonicalizeHostname=no", "--", "mlw-doctor.invalid"]


def test_damage_is_told_in_words(tmp_path):
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
        assert past.look(paths.database, NOW).damage, damaged[:20]


def test_writes_that_were_lost_are_damage(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    past.Mark(f"{paths.database}.mark").write(10**6)
    assert past.look(paths.database, NOW).damage == "the last writes are lost"


def test_a_program_that_writes_is_noticed(tmp_path):
    paths = UserPaths(tmp_path)
    (tmp_path / "runs").mkdir()
    list(History(paths).list())
    other = apsw.Connection(str(paths.database))
    other.execute("BEGIN IMMEDIATE")
    assert past.look(paths.database, NOW).busy
    other.execute("ROLLBACK")
    other.close()
    assert not past.look(paths.database, NOW).busy


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
    loose, shown, _ = secureshell._files(folder)
    assert {"loose": loose, "shown": shown}.get(field, (str(path),)) == (str(path),)
    assert bool(loose) == (field == "loose") and bool(shown) == (field == "shown")


def test_a_folder_that_could_not_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in gather._home(tmp_path / "file", {}, None).problem
    assert "is a file, not a folder" in gather._home(tmp_path / "file" / "below", {}, None).problem
    assert gather._home(tmp_path / "new" / "folder", {}, None) == Home(str(tmp_path / "new" / "folder"), there=False)
    assert os.listdir(tmp_path) == ["file"]


def test_a_data_folder_that_begins_where_nothing_is(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("MLW_HOME", "here")
    with pytest.raises(HistoryError, match="MLW_HOME is here, but the current folder cannot be used: No such file"):
        data_folder()
    assert gather._place()[1].startswith("MLW_HOME is here")


@pytest.mark.parametrize(
    ("shell", "path", "text"),
    [
        ("bash", ".bashrc", 'eval "$(mlw completion bash)"'),
        ("bash", ".bashrc", "_mlw_completion() {"),
        ("zsh", ".zshrc", 'eval "$(mlw completion zsh)"'),
        ("fish", ".config/fish/completions/mlw.fish", "function __mlw_complete"),
    ],
)
def test_whether_tab_is_set_up(tmp_path, shell, path, text):
    environ = {"SHELL": f"/bin/{shell}", "HOME": str(tmp_path)}
    assert not gather._shell(environ).completes
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    assert gather._shell(environ).completes


# -- how it was installed --------------------------------------------------------------------------


class Told:
    """A distribution as its metadata tell."""

    def __init__(self, place=None, editable=False):
        self.url = json.dumps({"url": f"file://{place}", "dir_info": {"editable": editable}}) if place else None
        self.requires = ["click>=8", 'nicegui>=3.18; extra == "ui"', "python-multipart; extra == 'ui'"]

    def read_text(self, name):
        return self.url


@pytest.mark.parametrize("editable", [False, True])
def test_the_browser_is_installed_from_where_mlw_was(tmp_path, monkeypatch, editable):
    source = tmp_path / "my code"
    source.mkdir()
    (source / "pyproject.toml").write_text("")
    monkeypatch.setattr(installed, "_distribution", lambda: Told(str(source).replace(" ", "%20"), editable))
    words = f"{sys.executable} -m pip install {'--editable ' if editable else ''}'{source}[ui]'"
    assert installed.install_ui() == words


def test_without_the_source_the_packages_are_named_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "_distribution", lambda: Told(tmp_path / "gone"))
    assert installed.install_ui() == f"{sys.executable} -m pip install 'nicegui>=3.18' python-multipart"
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    assert installed.install_ui().startswith(f"uv pip install --python {sys.executable} ")
    monkeypatch.setattr(installed.sys, "prefix", "/home/ada/.local/share/pipx/venvs/mlworkbench")
    assert installed.install_ui() == "pipx inject mlworkbench 'nicegui>=3.18' python-multipart"
