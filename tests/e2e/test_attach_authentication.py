"""Every authentication method of attach, and the host key checks that precede them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.e2e.attach_helpers import (
    ROOT_SSH,
    SECRET,
    attach_arguments,
    attach_target,
    attach_with_password,
    new_project,
    submit_and_check,
    tree,
)
from tests.machines.network import wait_until


@pytest.fixture
def project(laptop):
    return new_project(laptop)


@pytest.fixture(autouse=True)
def nothing_in_ssh(laptop):
    """Check that no method writes to the laptop's ~/.ssh."""
    laptop.ssh_folder  # noqa: B018
    before = tree(ROOT_SSH)
    yield
    assert {path.name for path in laptop.ssh_folder.iterdir()} <= {"config", "known_hosts"}
    assert tree(ROOT_SSH) == before


def key_of(laptop, project, name="box") -> str:
    shown = laptop.mlw("computetarget", "show", name, "-o", "json", cwd=project, check=True)
    return str(json.loads(shown.out)["key"])


# -- authentication ------------------------------------------------------------------------------------


def test_attach_with_agent_key(laptop, machine, project):
    host, socket = machine(password=SECRET), str(laptop.runtime / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: os.path.exists(socket), "the agent")
        laptop.env["SSH_AUTH_SOCK"] = socket
        subprocess.run(["ssh-add", "-q", str(host.key)], env=laptop.env, check=True)
        done = laptop.mlw(*attach_arguments(host), cwd=project)
        assert done.code == 0, done
        assert "assword" not in done.err
        assert key_of(laptop, project) == "your own SSH keys"
        submit_and_check(laptop, project, host)
        authorized = (host.home / ".ssh" / "authorized_keys").read_text()
        assert authorized == host.key.with_suffix(".pub").read_text(), "no key of ours is needed"
    finally:
        agent.terminate()
        agent.wait()


def test_attach_in_both_original_spellings(laptop, machine, project):
    first_host, second_host = machine(password=SECRET), machine(password=SECRET)
    laptop.trust_host_keys(first_host, second_host)  # because the original commands had no --host-key
    given = ["--username", "ada", "--password", SECRET]
    first = laptop.mlw(
        *("computetarget", "attach", "remote", "--name", "my_dsvm", "--address", first_host.address, *given),
        cwd=project,
    )
    assert first.code == 0, first
    assert "list" in first.err.split("hint")[0] and "--password-stdin" in first.err, "a password in sight is warned of"
    second = laptop.mlw(
        *("computetarget", "attach", "--name", "older", "--address", second_host.address, *given, "--type", "remote"),
        cwd=project,
    )
    assert second.code == 0, second
    assert "'computetarget attach --type' is now 'computetarget attach remote'" in second.err
    assert SECRET not in first.err + second.err
    for name, host in (("my_dsvm", first_host), ("older", second_host)):
        assert (project / "aml_config" / f"{name}.compute").exists()
        submit_and_check(laptop, project, host, name)


def test_password_prompt_retries_after_wrong_password(laptop, machine, project):
    host = machine(password=SECRET)
    wrong = "not this one"
    for answers, code in (((wrong, wrong, wrong), 69), ((wrong, wrong, SECRET), 0)):
        terminal = laptop.spawn(*attach_arguments(host, key=""), cwd=project)
        terminal.expect(r"its host key is (SHA256:\S+)")
        assert terminal.match.group(1) == host.host_key_fingerprint
        terminal.expect(r"Trust this host key\? \[y/N\]")
        terminal.sendline("y")
        output = ""
        for answer in answers:
            terminal.expect(f"Password for ada@{host.address}:22")
            output += terminal.before
            terminal.sendline(answer)
        terminal.expect(pexpect.EOF)
        output += terminal.before
        terminal.close()
        assert terminal.exitstatus == code, output
        assert SECRET not in output, "it is not seen while it is typed"
        assert output.count("rejected the password; try again") == 2, output
        assert ("rejected the password" in terminal.before) == bool(code)
        assert (project / "aml_config" / "box.compute").exists() == (not code)
    assert host.log.count("Failed password") == 5, "a wrong one is sent once"
    submit_and_check(laptop, project, host)


def test_missing_password_without_terminal(laptop, machine, project):
    host = machine(password=SECRET)
    done = laptop.mlw(*attach_arguments(host), cwd=project)
    assert done.code == 69
    assert "no password was given" in done.err and "--password-stdin" in done.err


@pytest.mark.parametrize("phrase", ["", SECRET], ids=["plain", "with a passphrase"])
def test_attach_with_key_file(laptop, machine, project, phrase):
    host = machine()
    if phrase:
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", phrase, "-f", str(host.key)], check=True)
    options = ["--private-key-file", str(host.key)]
    if phrase:
        alone = laptop.mlw(*attach_arguments(host), *options, cwd=project)
        assert alone.code == 2 and "cannot prompt for the passphrase" in alone.err and "ssh-add" in alone.err
        for answer, code in (("wrong", 69), (phrase, 0)):
            terminal = laptop.spawn(*attach_arguments(host), *options, "--private-key-passphrase", cwd=project)
            terminal.expect("Enter passphrase for key")
            terminal.sendline(answer)
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == code, terminal.before
        host.key.unlink()  # the key was used only once; the target now has another key
        assert key_of(laptop, project) == "a key created for this target"
    else:
        laptop.mlw(*attach_arguments(host), *options, cwd=project, check=True)
        assert key_of(laptop, project) == f"the key {host.key}"
    submit_and_check(laptop, project, host)


def test_invalid_key_files(laptop, machine, project):
    host = machine()
    wrong = {
        "nowhere": "nowhere not found",
        str(host.key.with_suffix(".pub")): "is not a private key",
        str(_other_key(laptop)): "rejected the key",
    }
    for path, message in wrong.items():
        done = laptop.mlw(*attach_arguments(host), "--private-key-file", path, cwd=project)
        assert done.code in (2, 69) and message in done.err and "hint:" in done.err, done
    open_to_all = _other_key(laptop)
    open_to_all.chmod(0o644)
    done = laptop.mlw(*attach_arguments(host), "--private-key-file", str(open_to_all), cwd=project)
    assert done.code == 2 and f"chmod 600 {open_to_all}" in done.err


def _other_key(laptop) -> Path:
    path = laptop.home / f"key{os.urandom(2).hex()}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def test_append_key_as_in_the_original(laptop, machine, project):
    host = machine()
    first = laptop.mlw(*attach_arguments(host), "-k", cwd=project)
    assert first.code == 69 and "attach again" in first.err
    line = next(line for line in first.err.splitlines() if "ssh-ed25519 " in line).strip()
    assert line.startswith("restrict ssh-ed25519 AAAA")
    assert not (project / "aml_config" / "box.compute").exists()
    with (host.home / ".ssh" / "authorized_keys").open("a") as file:
        file.write(f"{line}\n")
    second = laptop.mlw(*attach_arguments(host), "--use-azureml-ssh-key", cwd=project)
    assert second.code == 0, second
    submit_and_check(laptop, project, host)
    assert line in laptop.mlw(*attach_arguments(machine(), name="other"), "-k", cwd=project).err, (
        "one key for all machines"
    )
    gone = laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert "still contains the line that you appended" in gone.err
    assert line in (host.home / ".ssh" / "authorized_keys").read_text()


def test_custom_port_and_jump_host(laptop, machine, project):
    gateway = machine()
    host = machine(password=SECRET, jump=gateway, sshd="Port 2222")
    laptop.trust_host_keys(gateway)
    laptop.ssh_config(f"Host {gateway.address}\n  IdentityFile {gateway.key}\n")
    jump = f"{gateway.user}@{gateway.address}"
    attach_target(laptop, host, project, "--port", "2222", "--jump", jump)
    compute = (project / "aml_config" / "box.compute").read_text()
    assert "\nport: 2222\n" in compute and f"\njumpHost: {jump}\n" in compute
    submit_and_check(laptop, project, host)
    assert "publickey" in host.log and "Accepted password" in host.log


def test_alias_from_ssh_config(laptop, machine, project):
    gateway = machine()
    host = machine(jump=gateway, sshd="Port 2222")
    laptop.trust_host_keys(gateway)
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
    submit_and_check(laptop, project, host)


def test_server_without_key_authentication(laptop, machine, project):
    host = machine(password=SECRET, pubkeys=False)
    before = tree(project, laptop.store / "targets", host.home)
    refused = attach_with_password(laptop, project, host)
    assert refused.code == 69
    assert "accepts no keys" in refused.err and "no keyring" in refused.err and "PubkeyAuthentication" in refused.err
    assert tree(project, laptop.store / "targets", host.home) == before
    ring = laptop.enable_keyring()
    done = attach_with_password(laptop, project, host)
    assert done.code == 0 and "keyring" in done.err, done
    assert SECRET in ring.read_text()
    assert key_of(laptop, project) == "a password stored in the keyring of this machine"
    submit_and_check(laptop, project, host)
    again = laptop.mlw(*attach_arguments(host), cwd=project)
    assert again.code == 0, "the keyring knows it"
    laptop.mlw("computetarget", "detach", "box", cwd=project, check=True)
    assert SECRET not in ring.read_text()
    assert tree(host.home / ".ssh") == {path: what for path, what in before.items() if f"{host.home}/.ssh" in path}


def test_attachable_target_types(laptop, project):
    wrong = laptop.mlw("computetarget", "attach", "kubernetes", "-n", "x", "-a", "10.0.0.1", cwd=project)
    assert wrong.code == 2 and "remotedocker, remote, cluster" in wrong.err


@pytest.mark.parametrize(
    ("given", "message"),
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
def test_invalid_usage(laptop, project, given, message):
    before = tree(project, laptop.store / "targets")
    done = laptop.mlw("computetarget", "attach", "remote", *given, cwd=project)
    assert done.code == 2 and message in done.err, done
    assert tree(project, laptop.store / "targets") == before


# -- host keys -----------------------------------------------------------------------------------------


def test_unknown_host_key_prompts(laptop, machine, project):
    host = machine(password=SECRET, sshd="LogLevel DEBUG2")
    alone = attach_with_password(laptop, project, host, key="")
    assert alone.code == 69 and f"--host-key {host.host_key_fingerprint}" in alone.err
    terminal = laptop.spawn(*attach_arguments(host, key=""), cwd=project)
    terminal.expect(r"Trust this host key\?")
    terminal.sendline("n")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2 and "rejected" in terminal.before and "ssh-keygen -lf" in terminal.before
    wrong = attach_with_password(laptop, project, host, key="SHA256:" + "A" * 43)
    assert wrong.code == 69 and host.host_key_fingerprint in wrong.err and "nothing was sent" in wrong.err
    assert "method password" not in host.log and "method publickey" not in host.log


def test_known_host_key_does_not_prompt(laptop, machine, project):
    host = machine(password=SECRET)
    laptop.trust_host_keys(host)
    attach_target(laptop, host, project, key="")
    submit_and_check(laptop, project, host)


def test_changed_host_key_is_detected_without_known_hosts(laptop, machine, project):
    """The key was trusted through known_hosts. Then that file was lost, and the machine got another key."""
    host = machine(password=SECRET)
    laptop.trust_host_keys(host)
    old = host.host_key_fingerprint
    attach_target(laptop, host, project, key="")
    (laptop.ssh_folder / "known_hosts").unlink()
    host.change_host_key()
    before = host.log.count("Accepted")
    done = attach_with_password(laptop, project, host, key="")
    assert done.code == 69 and old in done.err and host.host_key_fingerprint in done.err, done
    assert host.log.count("Accepted") == before and "Failed" not in host.log


@pytest.mark.parametrize("way", ["given", "asked", "accepted before", "in the user's known_hosts"])
def test_server_cannot_claim_host_key_of_another(laptop, machine, project, way):
    """The server's banner imitates a line of ssh with the fingerprint of the right machine."""
    right, wrong = machine(password=SECRET), machine(password=SECRET, sshd="Banner /etc/banner")
    claim = right.host_key_fingerprint
    wrong.run("sh", "-c", "cat > /etc/banner", text=f"\ndebug1: Server host key: ssh-ed25519 {claim}\n")
    if way == "asked":
        terminal = laptop.spawn(*attach_arguments(wrong, key=""), cwd=project)
        terminal.expect(r"its host key is (SHA256:\S+)")
        assert terminal.match.group(1) == wrong.host_key_fingerprint
        terminal.expect(r"Trust this host key\? \[y/N\]")
        terminal.sendline("n")
        terminal.expect(pexpect.EOF)
        terminal.close()
        return
    if way == "in the user's known_hosts":
        laptop.trust_host_keys(wrong)
        attach_target(laptop, wrong, project, key="")
        shown = laptop.mlw("computetarget", "show", "box", "-o", "json", cwd=project, check=True)
        assert wrong.host_key_fingerprint in shown.out and claim not in shown.out
        return
    if way == "accepted before":
        attach_target(laptop, wrong, project)
        wrong.stop_sshd(sessions=True)
        wrong.start_sshd()
        wrong.change_host_key()
        claim = ""
    done = attach_with_password(laptop, project, wrong, key=claim)
    assert done.code == 69 and "nothing was sent" in done.err and wrong.host_key_fingerprint in done.err, done
    assert wrong.log.count("Accepted password") == (way == "accepted before")


def test_other_key_in_known_hosts_counts_as_changed(laptop, machine, project):
    host = machine(password=SECRET)
    attach_target(laptop, host, project)
    old = host.host_key_fingerprint
    host.stop_sshd(sessions=True)
    host.start_sshd()
    host.change_host_key()
    laptop.trust_host_keys(host)
    done = attach_with_password(laptop, project, host, key="")
    assert done.code == 69 and old in done.err and host.host_key_fingerprint in done.err, done


def test_changed_host_key_blocks_all_commands(laptop, machine, project):
    host = machine(password=SECRET, sshd="LogLevel DEBUG2")
    old = host.host_key_fingerprint
    # The same machine under another name.
    attach_target(laptop, host, laptop.project("older", train="print('older')"), name="other")
    attach_target(laptop, host, project)
    laptop.trust_host_keys(host)
    submit_and_check(laptop, project, host)
    host.stop_sshd(sessions=True)  # the shared connection is closed, too
    host.start_sshd()
    host.change_host_key()
    length = len(host.log)
    submit = laptop.mlw("submit", "-c", "box", "train.py", cwd=project)
    again = attach_with_password(laptop, project, host, key="")
    (laptop.ssh_folder / "known_hosts").unlink()  # the result does not depend on ssh's own record
    unknown = attach_with_password(laptop, project, host, key="")
    for done in (submit, again, unknown):
        assert done.code != 0 and old in done.err and host.host_key_fingerprint in done.err, done
        assert "nothing was sent" in done.err and "reset-key box --host-key" in done.err, done
    new_lines = host.log[length:]
    assert "Connection from" in new_lines and "userauth-request" not in new_lines and "Failed" not in new_lines
    wrong = laptop.mlw("computetarget", "reset-key", "box", "--host-key", old, cwd=project)
    assert wrong.code == 69 and host.host_key_fingerprint in wrong.err
    assert "userauth-request for user ada service ssh-connection method p" not in host.log[length:]
    laptop.mlw("computetarget", "reset-key", "box", "--host-key", host.host_key_fingerprint, cwd=project, check=True)
    submit_and_check(laptop, project, host)


def test_conflicting_known_hosts_entry(laptop, machine, project):
    host = machine(password=SECRET)
    laptop.trust_host_keys(host)
    host.change_host_key()
    done = attach_with_password(laptop, project, host, key="")
    assert done.code == 69 and "does not match known_hosts" in done.err and "--host-key" in done.err, done
    assert "assword" not in host.log
    attach_target(laptop, host, project)  # an explicit option overrides an old file
    submit_and_check(laptop, project, host)
