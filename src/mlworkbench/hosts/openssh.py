"""OpenSSH's client: the file of options, command lines, and what its complaints mean."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ..attachments import Attachment
from ..errors import HostError, Unreachable, UsageError
from ..remote.programs import safe_path, which
from ..remote.tree import NEW
from .replies import printable

MULTIPLEXES = os.name != "nt"
_HOST = re.compile(r"(?:[A-Za-z0-9_]|::)(?:[A-Za-z0-9._:%-]*[A-Za-z0-9_.])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*")


class LoginRefused(HostError):
    """The server knows us not. ``methods`` is what it would take."""

    more = "permission-denied"

    def __init__(self, message: str, hint: str | None, methods: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.methods = methods


JUMP_HOST = "jump host"  # in MLW_ASKPASS_OF: whose questions the helper passes on


class HostKeyChanged(Unreachable):
    """Somebody else answers, or the machine was set up anew. Nothing was sent."""

    more = "host-key-changed"

    def __init__(self, message: str, hint: str | None, fingerprint: str) -> None:
        super().__init__(message, hint)
        self.fingerprint = fingerprint  # the one that was offered


class HostKeyUnknown(HostError):
    """The machine's key was never accepted."""

    more = "host-key-unknown"


@lru_cache
def program(name: str = "ssh") -> str:
    found = which(name)
    if found is None:
        what = f"the program {name} is not installed on this machine"
        raise HostError(what, "install the OpenSSH client", more="no-ssh")
    return found


def check_names(address: str, username: str | None = None, jump: str | None = None) -> None:
    """Names go into option files and, by ~/.ssh/config, into command lines: nothing but plain names passes."""
    if not _HOST.fullmatch(address):
        raise UsageError(f"{address!r} is not a valid host name or address")
    if username is not None and not _USER.fullmatch(username):
        raise UsageError(f"{username!r} is not a valid user name")
    for hop in (jump or "").split(",") if jump else ():
        user, host, port = split_hop(hop)
        if not _HOST.fullmatch(host) or (user and not _USER.fullmatch(user)) or not 0 < port < 65536:
            raise UsageError(f"{hop!r} is not a valid jump host", "for example: --jump user@gateway:2222")


def split_hop(hop: str) -> tuple[str, str, int]:
    """user@host:port → its parts; "" and 22 where they are missing."""
    user, _, host = hop.rpartition("@")
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.startswith("[")):
        return user, name.strip("[]"), int(port)
    return user, host.strip("[]"), 22


# -- the file ------------------------------------------------------------------------------------------


def write_config(attachment: Attachment) -> Path:
    """The -F file for this target, next to what it was made from."""
    path = attachment.folder / "ssh_config"
    _write(attachment.folder / "jump_config", users_config())
    _write(path, config_text(attachment))
    return path


def config_text(attachment: Attachment) -> str:
    """Our options first, for the target only: the first value wins. Then what the user's own ssh would read."""
    ours = [
        f"User {attachment.username}",
        f"Port {attachment.port}",
        "BatchMode yes",
        "StrictHostKeyChecking yes",
        f"UserKnownHostsFile {quoted(attachment.known_hosts)} {_known_hosts()}",
        "UpdateHostKeys no",
        "CheckHostIP no",
        "RemoteCommand none",
        "RequestTTY no",
        "ClearAllForwardings yes",
        "ForwardAgent no",
        "ForwardX11 no",
        "Tunnel no",
        "PermitLocalCommand no",
        "EscapeChar none",
        "Compression no",  # what is worth it is compressed before it gets here
        "ServerAliveInterval 5",
        "ServerAliveCountMax 3",
        "ConnectTimeout 10",
        "ConnectionAttempts 1",
        "NumberOfPasswordPrompts 1",
        "ControlMaster no",
        "ControlPersist 10m",
        "LogLevel ERROR",
    ]
    if attachment.key_file:
        ours += [f"IdentityFile {quoted(attachment.key_file)}", "IdentitiesOnly yes"]
    if attachment.jump:
        ours.append(f"ProxyCommand {_jump(attachment)}")
    lines = [f"# Made by mlw for {attachment.identity}.", f"Host {attachment.address}"]
    return "".join(f"{line}\n" for line in [*lines, *(f"  {line}" for line in ours), *_users_own()])


def users_config() -> str:
    """What the user's own ssh would read, and nothing of ours."""
    return "".join(f"{line}\n" for line in _users_own())


def _users_own() -> list[str]:
    home = Path.home()
    return [
        "Host *",
        f"Include {quoted(home / '.ssh' / 'config', tokens=False)}",
        "Include /etc/ssh/ssh_config",
        "Host *",
        f"  UserKnownHostsFile {_known_hosts()}",
    ]


def _known_hosts() -> str:
    folder = Path.home() / ".ssh"
    return f"{quoted(folder / 'known_hosts')} {quoted(folder / 'known_hosts2')}"


def quoted(path: Path, tokens: bool = True) -> str:
    text = str(path)
    if any(sign in text for sign in '"\n'):
        raise HostError(f"ssh cannot use a folder with this name: {text!r}", "set MLW_HOME to another folder")
    return '"%s"' % (text.replace("%", "%%") if tokens else text)


def _jump(attachment: Attachment) -> str:
    """Each leg but the last as the user's own ssh would go; with -J our own options would apply to it too."""
    *before, last = (attachment.jump or "").split(",")
    user, host, port = split_hop(last)
    words = ["env", f"MLW_ASKPASS_OF={JUMP_HOST}"] if os.name == "posix" else []
    words += [program(), "-F", str(attachment.folder / "jump_config"), "-o", "NumberOfPasswordPrompts=1"]
    words += ["-J", ",".join(before)] if before else []
    words += ["-l", user] if user else []
    words += ["-p", str(port)] if last.rstrip("]").endswith(f":{port}") else []
    return " ".join(shlex.quote(word).replace("%", "%%") for word in words) + f" -W [%h]:%p -- {host}"


def _write(path: Path, text: str) -> None:
    try:
        if path.read_text() == text:
            return
    except OSError:
        pass
    part = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    with open(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


# -- command lines -------------------------------------------------------------------------------------


def command(attachment: Attachment, options: Sequence[str], *words: str, socket: Path | None = None) -> list[str]:
    """``ssh`` to the target; ``words`` are for the login shell there."""
    made = [program(), "-F", str(attachment.folder / "ssh_config")]
    made += ["-S", str(socket) if socket else "none"]
    for option in options:
        made += [option] if option.startswith("-") else ["-o", option]
    return [*made, "--", attachment.address, *words]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """No question may appear on a screen or a terminal unless it is asked by us."""
    made = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_ASKPASS", "MLW_RUN_"))}
    made["SSH_ASKPASS_REQUIRE"] = "never"
    made["PATH"] = safe_path()  # programs that the user's own settings name, such as a ProxyCommand
    return {**made, **(more or {})}


# -- complaints ----------------------------------------------------------------------------------------


def methods(said: str) -> tuple[str, ...]:
    """What the server would take: from "Permission denied (publickey,password)."."""
    found = re.findall(r"Permission denied \(([a-z0-9,-]+)\)", said)
    return tuple(found[-1].split(",")) if found else ()


def offered_key(said: str) -> str:
    """The fingerprint of the key that the server showed: from a complaint, or from -v."""
    found = re.search(r"(SHA256:[A-Za-z0-9+/]{43})", said)
    return found.group(1) if found else ""


_LOST = (
    ("Connection refused", "{name} refused the connection", "check that sshd is running there and listens on {port}"),
    ("timed out", "{name} does not respond", "check that it is switched on and reachable (VPN, firewall)"),
    ("Timeout, server", "{name} stopped responding", None),
    ("Could not resolve hostname", "host name {address} not found", "check the address; it may need a VPN"),
    ("No route to host", "cannot reach {name}: no route to host", "check that the VPN is connected"),
    ("Network is unreachable", "cannot reach {name}: network is unreachable", "check that this machine is online"),
    (
        "stdio forwarding failed",
        "the jump host cannot reach {name}",
        "check that the address is valid on the jump host",
    ),
    ("administratively prohibited", "the jump host does not allow forwarding to {name}", None),
    ("Exceeded MaxStartups", "{name} has too many open connections", "try again in a minute"),
    ("Not allowed at this time", "{name} temporarily refuses logins", "try again in a minute"),
)


def explain(attachment: Attachment, said: str) -> HostError:
    """What ssh complained of, in a sentence."""
    name = attachment.identity
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return _changed(attachment, said)
    if "Host key verification failed" in said or "host key is known for" in said:
        return HostKeyUnknown(
            f"unknown host key for {name} or for its jump host",
            "attach the target again; for a jump host, connect to it once with ssh",
        )
    for mark, words, hint in _LOST:
        if mark in said:
            message = words.format(name=name, address=attachment.address)
            return Unreachable(message, hint and hint.format(port=f"port {attachment.port}"))
    if "Permission denied" in said or "Too many authentication failures" in said:
        return _denied(attachment, said)
    if "banner line" in said or "Bad remote protocol" in said or "exchange_identification" in said:
        return _no_ssh(attachment, said)
    if "UNPROTECTED PRIVATE KEY" in said or "bad permissions" in said:
        hint = f"run: chmod 600 {attachment.key_file}"
        return HostError(f"the private key for {name} is readable by other users", hint, more="permission-denied")
    last = printable((without_debug(said).strip().splitlines() or ["no reason given"])[-1])
    return Unreachable(f"lost the connection to {name}: {last}")


def without_debug(said: str) -> str:
    """What ssh says to users: with -v it says much more, to its developers."""
    return "\n".join(line for line in said.splitlines() if not line.startswith(("debug1:", "OpenSSH_")))


def _changed(attachment: Attachment, said: str) -> HostError:
    return key_changed(attachment, attachment.host_key, offered_key(said))


def key_changed(attachment: Attachment, old: str, new: str) -> HostKeyChanged:
    """``old`` is empty if it is the user's own known_hosts that name another key."""
    what = f"the host key of {attachment.identity} has changed: it was {old or 'a different key in known_hosts'}, now"
    reset = f"run: mlw computetarget reset-key {attachment.called} --host-key FINGERPRINT"
    how = reset if old and attachment.called else "attach with --host-key FINGERPRINT"
    return HostKeyChanged(
        f"{what} it is {new or 'unknown'}; nothing was sent",
        f"if the machine was reinstalled, verify the new key on the machine itself and {how};"
        " otherwise the connection may be intercepted",
        new,
    )


def _denied(attachment: Attachment, said: str) -> HostError:
    ways = methods(said)
    accepts = f"; it accepts {', '.join(ways)}" if ways else ""
    if ways == ("publickey",):
        hint = "the server accepts only keys: use --private-key-file, or add your public key there by other means"
    elif {"password", "keyboard-interactive"} & set(ways):
        hint = "check user name, key, and password"
    else:
        hint = "check user name and key; ssh -v shows what happens"
    return LoginRefused(f"login to {attachment.identity} was refused{accepts}", hint, ways)


def _no_ssh(attachment: Attachment, said: str) -> HostError:
    lines = re.findall(r"(?:banner line \d+|protocol version identification): ?(.*)", said)
    if lines:
        shown = printable(" ".join(lines), 120)
        return Unreachable(
            f"the server at {attachment.identity} is not an SSH server; it sent: {shown}",
            "check the port; a proxy or the login page of the network may have answered",
        )
    return Unreachable(
        f"{attachment.identity} closed the connection before the login", "check that the port is that of an SSH server"
    )
