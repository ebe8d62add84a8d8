"""First contact with a machine during attach: resolve the address, check the host key, and log in."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..attachments import FILE, MADE, Attachment
from ..errors import HostError, UsageError
from ..remote.shared.folder_tree import NEW
from .askpass import Askpass, PromptHandler, answer_password_once
from .openssh import (
    LoginRefused,
    accepted_methods,
    check_names,
    environment,
    explain_ssh_error,
    find_fingerprint,
    find_program,
    quote,
    user_config,
    without_debug,
    write_config,
)
from .replies import printable
from .ssh_connection import SshConnection
from .ssh_host import login_names

_KEY_TYPE = re.compile(r"ssh-(rsa|dss|ed25519)|ecdsa-sha2-nistp\d+|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com")
_SIGNATURE_ALGORITHMS = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}  # key types whose algorithms have other names
_NO_LOGIN = ("PreferredAuthentications=none", "PubkeyAuthentication=no")
_KEYS_ONLY = ("PreferredAuthentications=publickey",)
_PASSWORD_ONLY = ("PreferredAuthentications=password,keyboard-interactive", "PubkeyAuthentication=no")


@dataclass(frozen=True)
class Resolved:
    """Address as the user's ssh resolves it."""

    address: str  # as typed
    host: str
    username: str
    port: int
    default_port: int  # from the ssh configuration
    default_way: str | None  # jump host from the ssh configuration, which ssh uses automatically

    @property
    def identity(self) -> str:
        return f"{self.username}@{self.host}:{self.port}"


def resolve(address: str, username: str | None = None, port: int | None = None, jump: str | None = None) -> Resolved:
    """Resolve an address with ``ssh -G``, which applies the aliases, users, and ports in ~/.ssh/config.

    Unsafe names are rejected first.
    """
    check_names(address, username, jump)
    options = [*(["-l", username] if username else []), *(["-p", str(port)] if port else [])]
    with tempfile.TemporaryDirectory(prefix="mlw-") as folder:
        config = Path(folder) / "config"
        config.write_text(user_config())
        command = [find_program(), "-G", "-F", str(config), *options, "--", address]
        try:
            result = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"ssh could not resolve {address}: {error}") from error
    if result.returncode:
        stderr = result.stderr.decode(errors="replace").strip()
        raise HostError(f"ssh rejected {address}: {stderr}", "check ~/.ssh/config")
    settings = dict(line.partition(" ")[::2] for line in reversed(result.stdout.decode(errors="replace").splitlines()))
    host, user, resolved_port = settings.get("hostname", address), settings["user"], int(settings.get("port", 22))
    check_names(host, user)
    default_port = resolve(address, username).default_port if port else resolved_port
    return Resolved(address, host, user, resolved_port, default_port, _configured_jump(address, settings))


def _configured_jump(address: str, settings: Mapping[str, str]) -> str | None:
    if settings.get("proxyjump", "none") != "none":
        return printable(settings["proxyjump"])
    return f"the ProxyCommand of {address}" if settings.get("proxycommand", "none") != "none" else None


@dataclass(frozen=True)
class Contact:
    """Information that a machine revealed before login."""

    trusted: bool  # the user's known_hosts files contain the key
    fingerprint: str  # SHA256:…; "" if only ssh can match the key with the user's known_hosts
    kind: str  # such as ssh-ed25519
    methods: tuple[str, ...]  # accepted authentication methods; empty if no authentication is needed


def contact_host(
    draft: Attachment, ignore_known_hosts: bool = False, earlier_known_hosts: Path | None = None
) -> Contact:
    """Connect without logging in.

    An unknown key is stored in the draft's known_hosts; the caller must confirm it.

    Raises HostKeyChanged if the user's known_hosts files contain another key. With
    ``ignore_known_hosts`` they are not used, because the user provided the key.
    ``earlier_known_hosts`` is the file from an earlier attach; ssh rejects a key that differs from it.

    The key is read from the file in which ssh stores it, never from ssh's output, which a server can
    influence.
    """
    draft.known_hosts.unlink(missing_ok=True)
    if earlier_known_hosts is not None and earlier_known_hosts.exists():
        with open(os.open(draft.known_hosts, NEW, 0o600), "wb") as file:
            file.write(earlier_known_hosts.read_bytes())
    before = _read_lines(draft.known_hosts)
    output = _connect_without_login(draft, _only_known_hosts(draft.known_hosts) if ignore_known_hosts else [])
    added = [line for line in _read_lines(draft.known_hosts) if line not in before]
    if added:
        draft.known_hosts.chmod(0o600)
    if not added and not before:
        return Contact(True, *_find_user_host_key(draft), accepted_methods(output))
    # Read the current key: the user's known_hosts may contain a different key than the earlier attach.
    keys = {fingerprint_of(line): line for line in added or [_read_host_key(draft, before)]}
    if len(keys) != 1 or "" in keys:
        raise HostError(
            f"the host key of {draft.identity} is ambiguous: ssh stored {len(keys)} keys", "attach with --host-key"
        )
    [(fingerprint, line)] = keys.items()
    return Contact(False, fingerprint, line.split()[1], accepted_methods(output))


def _connect_without_login(draft: Attachment, options: Sequence[str]) -> str:
    """Return ssh's output for a connection that ends before login. Raise an error if it fails."""
    options = ["StrictHostKeyChecking=accept-new", "HashKnownHosts=no", *options, *_NO_LOGIN]
    exit_status, output = SshConnection(draft).run(None, options, "true")
    if exit_status and not accepted_methods(output):
        if "exchange_identification" in output or "banner" in output:  # only -v prints what the server sent
            output = SshConnection(draft).run(None, ["-v", "LogLevel=DEBUG1", *options], "true")[1]
        raise explain_ssh_error(draft, output if "banner line" in output else without_debug(output))
    return output


def _only_known_hosts(file: Path) -> list[str]:
    return [f"UserKnownHostsFile={quote(file)}", "GlobalKnownHostsFile=none"]


def _read_lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []


def _read_host_key(draft: Attachment, known_lines: Sequence[str] = ()) -> str:
    """Return a known_hosts line with the machine's current key, if possible of an already known type."""
    kinds = dict.fromkeys(line.split()[1] for line in known_lines if len(line.split()) > 1)
    algorithms = [_SIGNATURE_ALGORITHMS.get(kind, kind) for kind in kinds]
    options = [f"HostKeyAlgorithms={','.join(algorithms)}"] if algorithms else []
    file = draft.folder / "shown_hosts"
    file.unlink(missing_ok=True)
    try:
        _connect_without_login(draft, [*_only_known_hosts(file), *options])
        return next(iter(_read_lines(file)), "")
    finally:
        file.unlink(missing_ok=True)


def _find_user_host_key(draft: Attachment) -> tuple[str, str]:
    """Return the fingerprint and type of the machine's key if the user's known_hosts files contain it.

    Otherwise return two empty strings. The result is only for display: ssh does the check itself, and
    may match another name or a certificate authority.
    """
    shown = _read_host_key(draft).split()
    host, port = draft.identity.rpartition("@")[2].rsplit(":", 1)
    name = host if port == "22" else f"[{host}]:{port}"
    for file_name in ("known_hosts", "known_hosts2"):
        command = [find_program("ssh-keygen"), "-F", name, "-f", str(Path.home() / ".ssh" / file_name)]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30)
        for line in result.stdout.decode(errors="replace").splitlines():
            if shown[1:3] and line.split()[1:3] == shown[1:3]:
                return fingerprint_of(line), shown[1]
    return "", ""


def matches_host_key(contact: Contact, expected: str) -> bool:
    """Return whether ``expected`` (a fingerprint or a known_hosts line) is the key in ``contact``."""
    expected = expected.strip()
    if expected.startswith("SHA256:"):
        return expected.rstrip("=") == contact.fingerprint
    return fingerprint_of(expected) == contact.fingerprint


def fingerprint_of(line: str) -> str:
    """Return the fingerprint of a public key or a known_hosts line, or "" if there is none."""
    fields = line.split()
    start = next((index for index, field in enumerate(fields) if _KEY_TYPE.fullmatch(field)), None)
    if start is None or len(fields) < start + 2:
        return ""
    result = subprocess.run(
        [find_program("ssh-keygen"), "-lf", "-"],
        input=" ".join(fields[start : start + 2]).encode(),
        capture_output=True,
        env=environment(),
        timeout=30,
    )
    return find_fingerprint(result.stdout.decode(errors="replace"))


# -- login ---------------------------------------------------------------------------------------------


def try_keys(draft: Attachment, ask: PromptHandler | None = None) -> bool:
    """Log in with a key from the ssh agent, from ~/.ssh, or ``draft.key``, and keep the connection.

    Return False if no key works. ``ask`` handles passphrase prompts. Without it, keys with a passphrase
    are skipped.
    """
    try:
        if ask is None:
            SshConnection(draft).open(None, _KEYS_ONLY)
        else:
            with Askpass(ask) as askpass:
                SshConnection(draft).open(askpass, _KEYS_ONLY)
    except LoginRefused:
        return False
    return True


def login_with_password(draft: Attachment, password: str, fallback: PromptHandler | None = None) -> None:
    """Open the connection with a password, which is sent only once.

    ``fallback`` answers other prompts, such as those of a jump host. Raises LoginRefused if the
    password is wrong.
    """
    with Askpass(answer_password_once(password, login_names(draft), fallback)) as askpass:
        SshConnection(draft).open(askpass, _PASSWORD_ONLY)


def create_key(draft: Attachment, comment: str) -> tuple[Attachment, str]:
    """Create a key for this target only. Return a draft that uses the key, and the authorized_keys line."""
    path = draft.folder / "key"
    for old in (path, path.with_suffix(".pub")):
        old.unlink(missing_ok=True)
    command = [find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=60)
    if result.returncode:
        raise HostError(f"cannot create an SSH key: {result.stderr.decode(errors='replace').strip()}")
    return replace(draft, key=MADE), path.with_suffix(".pub").read_text().strip()


def use_key_file(draft: Attachment, path: Path) -> Attachment:
    """Return a draft that uses an existing key file without copying it."""
    path = Path(os.path.abspath(path.expanduser()))
    if not path.is_file():
        raise UsageError(
            f"key file {path} not found", "--private-key-file needs the private key, such as ~/.ssh/id_ed25519"
        )
    return replace(draft, key=f"{FILE}{path}")


def has_passphrase(path: Path) -> bool:
    """Return whether a private key needs a passphrase. Raises UsageError if the key is not usable."""
    try:
        with open(path, "rb") as file:
            private = b"PRIVATE KEY" in file.read(4096)
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from None
    if not private:
        raise UsageError(f"{path} is not a private key", "use the private key, not the file that ends in .pub")
    command = [find_program("ssh-keygen"), "-y", "-P", "", "-f", str(path)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30)
    stderr = result.stderr.decode(errors="replace")
    if result.returncode and ("UNPROTECTED" in stderr or "bad permissions" in stderr):
        raise UsageError(
            f"the private key {path} is readable by other users, so ssh rejects it", f"run: chmod 600 {path}"
        )
    if result.returncode and "incorrect passphrase" not in stderr:
        raise UsageError(f"ssh cannot use the key {path}: {printable(stderr)}", "check whether the file is damaged")
    return bool(result.returncode)


def key_works(draft: Attachment) -> bool:
    """Return whether the server accepts the draft's key alone.

    This uses a separate connection without an ssh agent or a password.
    """
    options = [*_KEYS_ONLY, "PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "IdentityAgent=none"]
    write_config(draft)
    exit_status, output = SshConnection(draft).run(None, options, "exit 0")
    if exit_status == 255:
        error = explain_ssh_error(draft, output)
        if not isinstance(error, LoginRefused):
            raise error
        return False
    return True


def retire_connection(attachment: Attachment) -> None:
    """Stop using the shared connection for new channels.

    The next channel logs in again; open channels continue.
    """
    connection = SshConnection(attachment)
    if connection.is_open():
        connection.retire()


def close_connection(draft: Attachment) -> None:
    """Close the connection of an abandoned or renamed draft."""
    SshConnection(draft).close()
