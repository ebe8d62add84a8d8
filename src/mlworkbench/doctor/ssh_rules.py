"""ssh, its files and agent, and the keyring → findings. Pure."""

from __future__ import annotations

from shlex import join

from ..targets.check import ERROR, OK, WARNING, Finding
from .facts import Laptop, Ssh


def judge_access(laptop: Laptop) -> list[Finding]:
    """Runs on this machine need none of it: what is missing is an error where a machine is attached."""
    ssh = laptop.ssh
    if ssh.program is None:
        return [_no_ssh(ssh), _keyring(laptop)]
    return [_client(ssh), *_files(ssh), _agent(ssh), _keyring(laptop)]


def _no_ssh(ssh: Ssh) -> Finding:
    found = "the program ssh is not installed on this machine"
    if ssh.attached:
        count = f"{ssh.attached} attached machine{'s' * (ssh.attached != 1)}"
        return Finding("ssh", ERROR, f"{found}, and {count} cannot be reached", "install the OpenSSH client", "no-ssh")
    return Finding("ssh", WARNING, f"{found}; only needed for remote machines", "install the OpenSSH client", "no-ssh")


def _client(ssh: Ssh) -> Finding:
    found = f"{ssh.version or 'unknown version of ssh'}, {ssh.program}"
    if ssh.keygen is None:
        words = f"{found}; the program ssh-keygen is not installed on this machine"
        return Finding("ssh", WARNING, words, "install the OpenSSH client", "no-ssh")
    if ssh.config:
        words = f"{found}; ssh rejects its configuration: {ssh.config}"
        return Finding("ssh", ERROR, words, "correct ~/.ssh/config", "no-contact")
    if not ssh.multiplexes:
        hint = "no action needed; every command opens a new connection"
        return Finding("ssh", WARNING, f"{found}; this system cannot share SSH connections", hint)
    if ssh.sockets:
        hint = "delete that folder, or set XDG_RUNTIME_DIR to a private folder with a short path"
        return Finding("ssh", ERROR if ssh.attached else WARNING, f"{found}; {ssh.sockets}", hint)
    return Finding("ssh", OK, f"{found}; SSH connection sharing is available")


def _files(ssh: Ssh) -> list[Finding]:
    found = []
    if ssh.loose:
        words = f"writable by other users, so ssh does not use it: {', '.join(ssh.loose)}"
        found.append(Finding("ssh files", ERROR, words, f"chmod go-w {join(ssh.loose)}", "permission-denied"))
    if ssh.shown:
        names = ", ".join(ssh.shown)
        words = f"private key readable by other users, so ssh does not use it: {names}"
        found.append(Finding("ssh files", WARNING, words, f"chmod 600 {join(ssh.shown)}", "permission-denied"))
    if ssh.unreadable:
        words = f"cannot be read: {', '.join(ssh.unreadable)}"
        found.append(
            Finding("ssh files", WARNING, words, "check the owner and mode with 'ls -l ~/.ssh'", "permission-denied")
        )
    return found


def _agent(ssh: Ssh) -> Finding:
    if ssh.agent == "dead":
        hint = "unset SSH_AUTH_SOCK, or log in again"
        return Finding(
            "ssh agent", WARNING, "SSH_AUTH_SOCK does not point to a running agent", hint, "permission-denied"
        )
    words = {
        "none": "none; not needed for keys without a passphrase",
        "empty": "no keys; add one with 'ssh-add'",
        "": "could not be queried",
    }
    return Finding("ssh agent", OK, words.get(ssh.agent) or f"{ssh.agent} key{'s' * (ssh.agent != '1')}")


def _keyring(laptop: Laptop) -> Finding:
    if laptop.keyring:
        return Finding("keyring", OK, laptop.keyring)
    if laptop.ssh.passwords:
        words = f"none, but {laptop.ssh.passwords} attached machines have their password in a keyring"
        return Finding(
            "keyring", WARNING, words, "log in to the desktop, or attach the machines with a key", "permission-denied"
        )
    return Finding("keyring", OK, "none; mlw asks for passwords and secrets each time")
