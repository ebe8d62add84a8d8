"""Findings about ssh, its files, its agent, and the keyring. This module has no side effects."""

from __future__ import annotations

from shlex import join

from ..targets.machine_check import ERROR, OK, WARNING, Finding
from .laptop_facts import Laptop, Ssh


def diagnose_access(laptop: Laptop) -> list[Finding]:
    """Return the findings about ssh and the keyring.

    A missing component is an error only if a machine is attached, because local runs do not need ssh.
    """
    ssh = laptop.ssh
    if ssh.program is None:
        return [_no_ssh(ssh), _keyring(laptop)]
    return [_client(ssh), *_files(ssh), _agent(ssh), _keyring(laptop)]


def _no_ssh(ssh: Ssh) -> Finding:
    description = "the program ssh is not installed on this machine"
    if ssh.attached:
        count = f"{ssh.attached} attached machine{'s' * (ssh.attached != 1)}"
        return Finding(
            "ssh", ERROR, f"{description}, and {count} cannot be reached", "install the OpenSSH client", "no-ssh"
        )
    return Finding(
        "ssh", WARNING, f"{description}; only needed for remote machines", "install the OpenSSH client", "no-ssh"
    )


def _client(ssh: Ssh) -> Finding:
    description = f"{ssh.version or 'unknown version of ssh'}, {ssh.program}"
    if ssh.keygen is None:
        message = f"{description}; the program ssh-keygen is not installed on this machine"
        return Finding("ssh", WARNING, message, "install the OpenSSH client", "no-ssh")
    if ssh.config:
        message = f"{description}; ssh rejects its configuration: {ssh.config}"
        return Finding("ssh", ERROR, message, "correct ~/.ssh/config", "no-contact")
    if not ssh.multiplexes:
        hint = "no action needed; every command opens a new connection"
        return Finding("ssh", WARNING, f"{description}; this system cannot share SSH connections", hint)
    if ssh.sockets:
        hint = "delete that folder, or set XDG_RUNTIME_DIR to a private folder with a short path"
        return Finding("ssh", ERROR if ssh.attached else WARNING, f"{description}; {ssh.sockets}", hint)
    return Finding("ssh", OK, f"{description}; SSH connection sharing is available")


def _files(ssh: Ssh) -> list[Finding]:
    findings = []
    if ssh.writable_by_others:
        message = f"writable by other users, so ssh does not use it: {', '.join(ssh.writable_by_others)}"
        findings.append(
            Finding("ssh files", ERROR, message, f"chmod go-w {join(ssh.writable_by_others)}", "permission-denied")
        )
    if ssh.readable_by_others:
        names = ", ".join(ssh.readable_by_others)
        message = f"private key readable by other users, so ssh does not use it: {names}"
        findings.append(
            Finding("ssh files", WARNING, message, f"chmod 600 {join(ssh.readable_by_others)}", "permission-denied")
        )
    if ssh.unreadable:
        message = f"cannot be read: {', '.join(ssh.unreadable)}"
        findings.append(
            Finding("ssh files", WARNING, message, "check the owner and mode with 'ls -l ~/.ssh'", "permission-denied")
        )
    return findings


def _agent(ssh: Ssh) -> Finding:
    if ssh.agent == "dead":
        hint = "unset SSH_AUTH_SOCK, or log in again"
        return Finding(
            "ssh agent", WARNING, "SSH_AUTH_SOCK does not point to a running agent", hint, "permission-denied"
        )
    messages = {
        "none": "none; not needed for keys without a passphrase",
        "empty": "no keys; add one with 'ssh-add'",
        "": "could not be queried",
    }
    return Finding("ssh agent", OK, messages.get(ssh.agent) or f"{ssh.agent} key{'s' * (ssh.agent != '1')}")


def _keyring(laptop: Laptop) -> Finding:
    if laptop.keyring:
        return Finding("keyring", OK, laptop.keyring)
    if laptop.ssh.passwords:
        message = f"none, but {laptop.ssh.passwords} attached machines have their password in a keyring"
        return Finding(
            "keyring", WARNING, message, "log in to the desktop, or attach the machines with a key", "permission-denied"
        )
    return Finding("keyring", OK, "none; mlw asks for passwords and secrets each time")
