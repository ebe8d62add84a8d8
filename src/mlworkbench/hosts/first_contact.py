"""The first meeting with a machine: who it is, which key it shows, how one gets in. Used by attach, key by key."""

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
from ..remote.shared.tree import NEW
from .askpass import Ask, Askpass, once
from .master import Master
from .openssh import (
    LoginRefused,
    check_names,
    environment,
    explain,
    methods,
    offered_key,
    program,
    quoted,
    users_config,
    without_debug,
    write_config,
)
from .replies import printable
from .ssh import names

_KIND = re.compile(r"ssh-(rsa|dss|ed25519)|ecdsa-sha2-nistp\d+|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com")
_ALGORITHMS = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}  # by which a key of this kind signs
_NO_LOGIN = ("PreferredAuthentications=none", "PubkeyAuthentication=no")
_KEYS_ONLY = ("PreferredAuthentications=publickey",)
_PASSWORD_ONLY = ("PreferredAuthentications=password,keyboard-interactive", "PubkeyAuthentication=no")


@dataclass(frozen=True)
class Resolved:
    """An address as this user's ssh understands it."""

    address: str  # as typed
    host: str
    username: str
    port: int
    default_port: int  # the one that ssh's configuration gives
    default_way: str | None  # jump host of ssh's configuration, which ssh obeys by itself

    @property
    def identity(self) -> str:
        return f"{self.username}@{self.host}:{self.port}"


def resolve(address: str, username: str | None = None, port: int | None = None, jump: str | None = None) -> Resolved:
    """By ``ssh -G``: aliases, users and ports of ~/.ssh/config. Names that could do harm are refused first."""
    check_names(address, username, jump)
    options = [*(["-l", username] if username else []), *(["-p", str(port)] if port else [])]
    with tempfile.TemporaryDirectory(prefix="mlw-") as folder:
        config = Path(folder) / "config"
        config.write_text(users_config())
        words = [program(), "-G", "-F", str(config), *options, "--", address]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"ssh could not resolve {address}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise HostError(f"ssh rejected {address}: {said}", "check ~/.ssh/config")
    found = dict(line.partition(" ")[::2] for line in reversed(done.stdout.decode(errors="replace").splitlines()))
    host, user, number = found.get("hostname", address), found["user"], int(found.get("port", 22))
    check_names(host, user)
    default = resolve(address, username).default_port if port else number
    return Resolved(address, host, user, number, default, _default_way(address, found))


def _default_way(address: str, found: Mapping[str, str]) -> str | None:
    if found.get("proxyjump", "none") != "none":
        return printable(found["proxyjump"])
    return f"the ProxyCommand of {address}" if found.get("proxycommand", "none") != "none" else None


@dataclass(frozen=True)
class Contact:
    """What a machine showed before anybody logged in."""

    trusted: bool  # this user's own known_hosts vouch for the key
    fingerprint: str  # SHA256:…; "" if only ssh itself can tell that the user's known_hosts have it
    kind: str  # ssh-ed25519 …
    methods: tuple[str, ...]  # ways to log in that the server offers; empty: it lets anybody in


def first_contact(draft: Attachment, alone: bool = False, known: Path | None = None) -> Contact:
    """Connect without logging in. A key that nobody vouches for is left in the draft's known_hosts: ask, or stop.

    Raises HostKeyChanged if the user's own known_hosts say otherwise; with ``alone`` they are not asked, because the
    user says which key it must be. ``known``: the known_hosts of an earlier attach, by which ssh itself turns away.

    The key is read from the file in which ssh stores it, never from what ssh prints: servers print there, too.
    """
    draft.known_hosts.unlink(missing_ok=True)
    if known is not None and known.exists():
        with open(os.open(draft.known_hosts, NEW, 0o600), "wb") as file:
            file.write(known.read_bytes())
    before = _lines(draft.known_hosts)
    said = _knock(draft, _only(draft.known_hosts) if alone else [])
    added = [line for line in _lines(draft.known_hosts) if line not in before]
    if added:
        draft.known_hosts.chmod(0o600)
    if not added and not before:
        return Contact(True, *_users_key(draft), methods(said))
    # The user's own known_hosts may vouch for another key than the one of the earlier attach.
    keys = {fingerprint_of(line): line for line in added or [_shown_key(draft, before)]}
    if len(keys) != 1 or "" in keys:
        raise HostError(
            f"the host key of {draft.identity} is ambiguous: ssh stored {len(keys)} keys", "attach with --host-key"
        )
    [(fingerprint, line)] = keys.items()
    return Contact(False, fingerprint, line.split()[1], methods(said))


def _knock(draft: Attachment, options: Sequence[str]) -> str:
    """What ssh prints about a connection that ends before the login; raises if there was none."""
    options = ["StrictHostKeyChecking=accept-new", "HashKnownHosts=no", *options, *_NO_LOGIN]
    code, said = Master(draft).run(None, options, "true")
    if code and not methods(said):
        if "exchange_identification" in said or "banner" in said:  # only -v prints what came instead
            said = Master(draft).run(None, ["-v", "LogLevel=DEBUG1", *options], "true")[1]
        raise explain(draft, said if "banner line" in said else without_debug(said))
    return said


def _only(file: Path) -> list[str]:
    return [f"UserKnownHostsFile={quoted(file)}", "GlobalKnownHostsFile=none"]


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []


def _shown_key(draft: Attachment, known: Sequence[str] = ()) -> str:
    """A line with the key that the machine shows now; of the kind of a key that is known, if one is."""
    kinds = dict.fromkeys(line.split()[1] for line in known if len(line.split()) > 1)
    algorithms = [_ALGORITHMS.get(kind, kind) for kind in kinds]
    options = [f"HostKeyAlgorithms={','.join(algorithms)}"] if algorithms else []
    file = draft.folder / "shown_hosts"
    file.unlink(missing_ok=True)
    try:
        _knock(draft, [*_only(file), *options])
        return next(iter(_lines(file)), "")
    finally:
        file.unlink(missing_ok=True)


def _users_key(draft: Attachment) -> tuple[str, str]:
    """Fingerprint and kind of the key that the machine shows, if the user's known_hosts have it; else two times "".

    They may have a name for the machine, or an authority, that is not to be found so: ssh checks them, this is shown.
    """
    shown = _shown_key(draft).split()
    host, port = draft.identity.rpartition("@")[2].rsplit(":", 1)
    name = host if port == "22" else f"[{host}]:{port}"
    for place in ("known_hosts", "known_hosts2"):
        words = [program("ssh-keygen"), "-F", name, "-f", str(Path.home() / ".ssh" / place)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30)
        for line in done.stdout.decode(errors="replace").splitlines():
            if shown[1:3] and line.split()[1:3] == shown[1:3]:
                return fingerprint_of(line), shown[1]
    return "", ""


def key_fits(contact: Contact, given: str) -> bool:
    """Whether ``--host-key`` (a fingerprint, or a line as in known_hosts) is the key that was shown."""
    given = given.strip()
    if given.startswith("SHA256:"):
        return given.rstrip("=") == contact.fingerprint
    return fingerprint_of(given) == contact.fingerprint


def fingerprint_of(line: str) -> str:
    """Of a public key, or a line of known_hosts."""
    words = line.split()
    start = next((index for index, word in enumerate(words) if _KIND.fullmatch(word)), None)
    if start is None or len(words) < start + 2:
        return ""
    done = subprocess.run(
        [program("ssh-keygen"), "-lf", "-"],
        input=" ".join(words[start : start + 2]).encode(),
        capture_output=True,
        env=environment(),
        timeout=30,
    )
    return offered_key(done.stdout.decode(errors="replace"))


# -- ways in -------------------------------------------------------------------------------------------


def try_keys(draft: Attachment, ask: Ask | None = None) -> bool:
    """Whether a key gets us in: the agent's, those of ~/.ssh, or that of ``draft.key``. The connection is kept.

    ``ask`` is for passphrases; without it a key that has one does not count.
    """
    try:
        if ask is None:
            Master(draft).open(None, _KEYS_ONLY)
        else:
            with Askpass(ask) as askpass:
                Master(draft).open(askpass, _KEYS_ONLY)
    except LoginRefused:
        return False
    return True


def login_with_password(draft: Attachment, password: str, otherwise: Ask | None = None) -> None:
    """Open the connection with a password, given once; ``otherwise`` answers other questions, of a jump host say.

    Raises LoginRefused if it is the wrong one.
    """
    with Askpass(once(password, names(draft), otherwise)) as askpass:
        Master(draft).open(askpass, _PASSWORD_ONLY)


def make_key(draft: Attachment, comment: str) -> tuple[Attachment, str]:
    """A key for this target alone; the draft that uses it, and the line for authorized_keys."""
    path = draft.folder / "key"
    for old in (path, path.with_suffix(".pub")):
        old.unlink(missing_ok=True)
    words = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=60)
    if done.returncode:
        raise HostError(f"cannot create an SSH key: {done.stderr.decode(errors='replace').strip()}")
    return replace(draft, key=MADE), path.with_suffix(".pub").read_text().strip()


def use_key_file(draft: Attachment, path: Path) -> Attachment:
    """Log in with this key; it stays where it is."""
    path = Path(os.path.abspath(path.expanduser()))
    if not path.is_file():
        raise UsageError(
            f"key file {path} not found", "--private-key-file needs the private key, such as ~/.ssh/id_ed25519"
        )
    return replace(draft, key=f"{FILE}{path}")


def has_passphrase(path: Path) -> bool:
    """Whether a private key is of no use without one. Something that is no key at all is refused."""
    try:
        with open(path, "rb") as file:
            private = b"PRIVATE KEY" in file.read(4096)
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from None
    if not private:
        raise UsageError(f"{path} is not a private key", "use the private key, not the file that ends in .pub")
    words = [program("ssh-keygen"), "-y", "-P", "", "-f", str(path)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=30)
    said = done.stderr.decode(errors="replace")
    if done.returncode and ("UNPROTECTED" in said or "bad permissions" in said):
        raise UsageError(
            f"the private key {path} is readable by other users, so ssh rejects it", f"run: chmod 600 {path}"
        )
    if done.returncode and "incorrect passphrase" not in said:
        raise UsageError(f"ssh cannot use the key {path}: {printable(said)}", "check whether the file is damaged")
    return bool(done.returncode)


def key_works(draft: Attachment) -> bool:
    """Whether the draft's key alone gets us in, by a connection of its own: no agent, no password."""
    options = [*_KEYS_ONLY, "PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "IdentityAgent=none"]
    write_config(draft)
    code, said = Master(draft).run(None, options, "exit 0")
    if code == 255:
        problem = explain(draft, said)
        if not isinstance(problem, LoginRefused):
            raise problem
        return False
    return True


def drop(attachment: Attachment) -> None:
    """No new channel goes through the kept connection: the next one logs in anew. Open channels go on."""
    master = Master(attachment)
    if master.is_open():
        master.drop()


def forget(draft: Attachment) -> None:
    """End the connection of a draft that is given up, or was renamed."""
    Master(draft).close()
