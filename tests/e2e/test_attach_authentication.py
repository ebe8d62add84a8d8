"""Every way into a machine, through the command line; and host keys, which come before all of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.e2e.attaching import ROOT_SSH, SECRET, attached, by_password, new_project, runs_there, tree, words
from tests.machines.network import wait_until


@pytest.fixture
def project(laptop):
    return new_project(laptop)


@pytest.fixture(autouse=True)
def nothing_in_ssh(laptop):
    """Nothing is written to ~/.ssh of the laptop, whatever the way."""
    laptop.ssh_folder  # noqa: B018
    before = tree(ROOT_SSH)
    yield
    assert {path.name for path in laptop.ssh_folder.iterdir()} <= {"config", "known_hosts"}
    assert tree(ROOT_SSH) == before


def key_of(laptop, project, name="box") -> str:
    shown = laptop.mlw("computetarget", "show", name, "-o", "json", cwd=project, check=True)
    return str(json.loads(shown.out)["key"])


# -- ways in -------------------------------------------------------------------------------------------


def test_your_own_key_by_the_agent(laptop, machine, project):
    host, socket = machine(password=SECRET), str(laptop.runtime / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(socket), "the agent")
        laptop.env["SSH_AUTH_SOCK"] = socket
        subprocess.run(["ssh-add", "-q", str(host.key)], env=laptop.env, check=True)
        done = laptop.mlw(*words(host), cwd=project)
        assert done.code == 0, done
        assert "assword" not in done.err
        assert key_of(laptop, project) == "your own SSH keys"
        runs_there(laptop, project, host)
        authorized = (host.home / ".ssh" / "authorized_keys").read_text()
        assert authorized == host.key.with_suffix(".pub").read_text(), "no key of ours is needed"
    finally:
        agent.terminate()
        agent.wait()


def test_both_spellings_of_the_original(laptop, machine, project):
    one, two = machine(password=SECRET), machine(password=SECRET)
    laptop.knows(one, two)  # word for word: the original knew no --host-key
    given = ["--username", "ada", "--password", SECRET]
    first = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "my_dsvm", "--address", one.address, *given), cwd=project
    )
    assert first.code == 0, first
    assert "list" in first.err.split("hint")[0] and "--password-stdin" in first.err, "a password in sight is warned of"
    second = laptop.mlw(
        *("computetarget", "attach", "--name", "older", "--address", two.address, *given, "--type", "remote"),
        cwd=project,
    )
    assert second.code == 0, second
    assert "'computetarget attach --type' is now 'computetarget attach remote'" in second.err
    assert SECRET not in first.err + second.err
    for name, host in (("my_dsvm", one), ("older", two)):
        assert (project / "aml_config" / f"{name}.compute").exists()
        runs_there(laptop, project, host, name)


def test_a_prompt_at_a_terminal_wrong_and_then_right(laptop, machine, project):
    host = machine(password=SECRET)
    wrong = "not this one"
    for answers, code in (((wrong, wrong, wrong), 69), ((wrong, wrong, SECRET), 0)):
        terminal = laptop.spawn(*words(host, key=""), cwd=project)
        terminal.expect(r"its host key is (SHA256:\S+)")
        assert terminal.match.group(1) == host.host_key_fingerprint
        terminal.expect(r"Trust this host key\? \[y/N\]")
        terminal.sendline("y")
        seen = ""
        for answer in answers:
            terminal.expect(f"Password for ada@{host.address}:22")
            seen += terminal.before
            terminal.sendline(answer)
        terminal.expect(pexpect.EOF)
        seen += terminal.before
        terminal.close()
        assert terminal.exitstatus == code, seen
        assert SECRET not in seen, "it is not seen while it is typed"
        assert seen.count("rejected the password; try again") == 2, seen
        assert ("rejected the password" in terminal.before) == bool(code)
        assert (project / "aml_config" / "box.compute").exists() == (not code)
    assert host.log.count("Failed password") == 5, "a wrong one is sent once"
    runs_there(laptop, project, host)


def test_no_password_and_nobody_to_ask(laptop, machine, project):
    host = machine(password=SECRET)
    done = laptop.mlw(*words(host), cwd=project)
    assert done.code == 69
    assert "no password was given" in done.err and "--password-stdin" in done.err


@pytest.mark.parametrize("phrase", ["", SECRET], ids=["plain", "with a passphrase"])
def test_a_key_in_a_file(laptop, machine, project, phrase):
    host = machine()
    if phrase:
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", phrase, "-f", str(host.key)], check=True)
    options = ["--private-key-file", str(host.key)]
    if phrase:
        alone = laptop.mlw(*words(host), *options, cwd=project)
        assert alone.code == 2 and "cannot prompt for the passphrase" in alone.err and "ssh-add" in alone.err
        for answer, code in (("wrong", 69), (phrase, 0)):
            terminal = laptop.spawn(*words(host), *options, "--private-key-passphrase", cwd=project)
            terminal.expect("Enter passphrase for key")
            terminal.sendline(answer)
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == code, terminal.before
        host.key.unlink()  # it was used once: another key is there for the target
        assert key_of(laptop, project) == "a key created for this target"
    else:
        laptop.mlw(*words(host), *options, cwd=project, check=True)
        assert key_of(laptop, project) == f"the key {host.key}"
    runs_there(laptop, project, host)


def test_key_files_that_are_none(laptop, machine, project):
    host = machine()
    wrong = {
        "nowhere": "nowhere not found",
        str(host.key.with_suffix(".pub")): "is not a private key",
        str(_stranger(laptop)): "rejected the key",
    }
    for path, said in wrong.items():
        done = laptop.mlw(*words(host), "--private-key-file", path, cwd=project)
        assert done.code in (2, 69) and said in done.err and "hint:" in done.err, done
    open_to_all = _stranger(laptop)
    open_to_all.chmod(0o644)
    done = laptop.mlw(*words(host), "--private-key-file", str(open_to_all), cwd=project)
    assert done.code == 2 and f"chmod 600 {open_to_all}" in done.err


def _stranger(laptop) -> Path:
    path = laptop.home / f"key{os.urandom(2).hex()}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def test_a_key_to_be_appended_as_the_original_had_it(laptop, machine, project):
    host = machine()
    first = laptop.mlw(*words(host), "-k", cwd=project)
    assert first.code == 69 and "attach again" in first.err
    line = next(line for line in first.err.splitlines() if "ssh-ed25519 " in line).strip()
    assert line.startswith("restrict ssh-ed25519 AAAA")
    assert not (project / "aml_config" / "box.compute").exists()
    with (host.home / ".ssh" / "authorized_keys").open("a") as file:
        file.write(f"{line}\n")
    second = laptop.mlw(*words(host), "--use-azureml-ssh-key", cwd=project)
    assert second.code == 0, second
    runs_there(laptop, project, host)
    assert line in laptop.mlw(*words(machine(), name="other"), "-k", cwd=project).err, "one key for all machines"
    gone = laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert "still contains the line that you appended" in gone.err
    assert line in (host.home / ".ssh" / "authorized_keys").read_text()


def test_another_port_and_a_jump_host(laptop, machine, project):
    gateway = machine()
    host = machine(password=SECRET, jump=gateway, sshd="Port 2222")
    laptop.knows(gateway)
    laptop.ssh_config(f"Host {gateway.address}\n  IdentityFile {gateway.key}\n")
    jump = f"{gateway.user}@{gateway.address}"
    attached(laptop, host, project, "--port", "2222", "--jump", jump)
    compute = (project / "aml_config" / "box.compute").read_text()
    assert "\nport: 2222\n" in compute and f"\njumpHost: {jump}\n" in compute
    runs_there(laptop, project, host)
    assert "publickey" in host.log and "Accepted password" in host.log


def test_an_alias_with_everything_in_your_configuration(laptop, machine, project):
    gateway = machine()
    host = machine(jump=gateway, sshd="Port 2222")
    laptop.knows(gateway)
    laptop.ssh_config(
        f"Host gate\n  HostName {gateway.address}\n  User {gateway.user}\n  IdentityFile {gateway.key}\n"
        f"Host box\n  HostName {host.address}\n  User {host.user}\n  Port 2222\n  IdentityFile {host.key}\n"
        "  ProxyJump gate\n"
    )
    done = laptop.mlw(
        *("computetarget", "attach", "remote", "-n", "box", "-a", "box", "--host-key", host.host_key_fingerprint),
        cwd=project,
    )
    assert done.code == 0, done
    assert f"ada@{host.address}:2222" in done.err
    assert "\naddress: box\n" in (project / "aml_config" / "box.compute").read_text()
    runs_there(laptop, project, host)


def test_a_server_that_takes_no_keys(laptop, machine, project):
    host = machine(password=SECRET, pubkeys=False)
    before = tree(project, laptop.store / "targets", host.home)
    refused = by_password(laptop, project, host)
    assert refused.code == 69
    assert "accepts no keys" in refused.err and "no keyring" in refused.err and "PubkeyAuthentication" in refused.err
    assert tree(project, laptop.store / "targets", host.home) == before
    ring = laptop.has_keyring()
    done = by_password(laptop, project, host)
    assert done.code == 0 and "keyring" in done.err, done
    assert SECRET in ring.read_text()
    assert key_of(laptop, project) == "a password stored in the keyring of this machine"
    runs_there(laptop, project, host)
    again = laptop.mlw(*words(host), cwd=project)
    assert again.code == 0, "the keyring knows it"
    laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert SECRET not in ring.read_text()
    assert tree(host.home / ".ssh") == {path: what for path, what in before.items() if f"{host.home}/.ssh" in path}


def test_kinds_that_are_attached(laptop, project):
    wrong = laptop.mlw("computetarget", "attach", "kubernetes", "-n", "x", "-a", "10.0.0.1", cwd=project)
    assert wrong.code == 2 and "remotedocker, remote, cluster" in wrong.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["-n", "box"], "--address is missing"),
        (["-n", "local", "-a", "10.0.0.1"], "does not need attaching"),
        (["-n", "box", "-a", "-oProxyCommand=touch x"], "is not a valid host name or address"),
        (["-n", "../x", "-a", "10.0.0.1"], "is not a valid target name"),
        (["-n", "box", "-a", "10.0.0.1", "-w", "x", "--password-stdin"], "cannot be combined"),
        (["-n", "box", "-a", "10.0.0.1", "--allow-mount", "data"], "full path"),
        (["-n", "box", "-a", "10.0.0.1", "--jump", "a b"], "is not a valid jump host"),
    ],
)
def test_words_that_make_no_sense(laptop, project, given, said):
    before = tree(project, laptop.store / "targets")
    done = laptop.mlw("computetarget", "attach", "remote", *given, cwd=project)
    assert done.code == 2 and said in done.err, done
    assert tree(project, laptop.store / "targets") == before


# -- host keys -----------------------------------------------------------------------------------------


def test_an_unknown_key_is_asked_about(laptop, machine, project):
    host = machine(password=SECRET, sshd="LogLevel DEBUG2")
    alone = by_password(laptop, project, host, key="")
    assert alone.code == 69 and f"--host-key {host.host_key_fingerprint}" in alone.err
    terminal = laptop.spawn(*words(host, key=""), cwd=project)
    terminal.expect(r"Trust this host key\?")
    terminal.sendline("n")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2 and "rejected" in terminal.before and "ssh-keygen -lf" in terminal.before
    wrong = by_password(laptop, project, host, key="SHA256:" + "A" * 43)
    assert wrong.code == 69 and host.host_key_fingerprint in wrong.err and "nothing was sent" in wrong.err
    assert "method password" not in host.log and "method publickey" not in host.log


def test_a_known_key_is_not_asked_about(laptop, machine, project):
    host = machine(password=SECRET)
    laptop.knows(host)
    attached(laptop, host, project, key="")
    runs_there(laptop, project, host)


def test_a_changed_key_is_noticed_without_known_hosts(laptop, machine, project):
    """It was trusted because ssh knew it; since then that file was lost, and the machine has another key."""
    host = machine(password=SECRET)
    laptop.knows(host)
    old = host.host_key_fingerprint
    attached(laptop, host, project, key="")
    (laptop.ssh_folder / "known_hosts").unlink()
    host.change_host_key()
    before = host.log.count("Accepted")
    done = by_password(laptop, project, host, key="")
    assert done.code == 69 and old in done.err and host.host_key_fingerprint in done.err, done
    assert host.log.count("Accepted") == before and "Failed" not in host.log


@pytest.mark.parametrize("way", ["given", "asked", "accepted before", "in the user's known_hosts"])
def test_a_server_cannot_claim_the_key_of_another(laptop, machine, project, way):
    """What it prints before the login looks like a line of ssh's own, with the fingerprint of the right machine."""
    right, wrong = machine(password=SECRET), machine(password=SECRET, sshd="Banner /etc/banner")
    claim = right.host_key_fingerprint
    wrong.run("sh", "-c", "cat > /etc/banner", text=f"\ndebug1: Server host key: ssh-ed25519 {claim}\n")
    if way == "asked":
        terminal = laptop.spawn(*words(wrong, key=""), cwd=project)
        terminal.expect(r"its host key is (SHA256:\S+)")
        assert terminal.match.group(1) == wrong.host_key_fingerprint
        terminal.expect(r"Trust this host key\? \[y/N\]")
        terminal.sendline("n")
        terminal.expect(pexpect.EOF)
        terminal.close()
        return
    if way == "in the user's known_hosts":
        laptop.knows(wrong)
        attached(laptop, wrong, project, key="")
        shown = laptop.mlw("computetarget", "show", "box", "-o", "json", cwd=project, check=True)
        assert wrong.host_key_fingerprint in shown.out and claim not in shown.out
        return
    if way == "accepted before":
        attached(laptop, wrong, project)
        wrong.stop_sshd(sessions=True)
        wrong.start_sshd()
        wrong.change_host_key()
        claim = ""
    done = by_password(laptop, project, wrong, key=claim)
    assert done.code == 69 and "nothing was sent" in done.err and wrong.host_key_fingerprint in done.err, done
    assert wrong.log.count("Accepted password") == (way == "accepted before")


def test_a_key_that_only_the_users_known_hosts_have_is_a_changed_one(laptop, machine, project):
    host = machine(password=SECRET)
    attached(laptop, host, project)
    old = host.host_key_fingerprint
    host.stop_sshd(sessions=True)
    host.start_sshd()
    host.change_host_key()
    laptop.knows(host)
    done = by_password(laptop, project, host, key="")
    assert done.code == 69 and old in done.err and host.host_key_fingerprint in done.err, done


def test_a_changed_key_stops_everything(laptop, machine, project):
    host = machine(password=SECRET, sshd="LogLevel DEBUG2")
    old = host.host_key_fingerprint
    attached(laptop, host, laptop.project("older", train="print('older')"), name="other")  # where it has another name
    attached(laptop, host, project)
    laptop.knows(host)
    runs_there(laptop, project, host)
    host.stop_sshd(sessions=True)  # also what is kept open
    host.start_sshd()
    host.change_host_key()
    seen = len(host.log)
    submit = laptop.mlw("submit", "-c", "box", "train.py", cwd=project)
    again = by_password(laptop, project, host, key="")
    (laptop.ssh_folder / "known_hosts").unlink()  # nor does it count that ssh itself knows no better
    unknown = by_password(laptop, project, host, key="")
    for done in (submit, again, unknown):
        assert done.code != 0 and old in done.err and host.host_key_fingerprint in done.err, done
        assert "nothing was sent" in done.err and "reset-key box --host-key" in done.err, done
    told = host.log[seen:]
    assert "Connection from" in told and "userauth-request" not in told and "Failed" not in told
    wrong = laptop.mlw("computetarget", "reset-key", "box", "--host-key", old, cwd=project)
    assert wrong.code == 69 and host.host_key_fingerprint in wrong.err
    assert "userauth-request for user ada service ssh-connection method p" not in host.log[seen:]
    laptop.mlw("computetarget", "reset-key", "box", "--host-key", host.host_key_fingerprint, cwd=project, check=True)
    runs_there(laptop, project, host)


def test_your_known_hosts_say_otherwise(laptop, machine, project):
    host = machine(password=SECRET)
    laptop.knows(host)
    host.change_host_key()
    done = by_password(laptop, project, host, key="")
    assert done.code == 69 and "does not match known_hosts" in done.err and "--host-key" in done.err, done
    assert "assword" not in host.log
    attached(laptop, host, project)  # the user's own word goes before an old file
    runs_there(laptop, project, host)
