"""One line of ours in ~/.ssh/authorized_keys: put there by attach, taken away by detach. Nothing else is touched."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import List, Optional

PREFIX = b"restrict "
# Behind the mark in our line: what else was changed for it, so that it can be undone to the last byte.
MADE_FOLDER, MADE_FILE, NO_END = b"(made-folder)", b"(made-file)", b"(no-end-of-line-before)"


def add(line: str, home: "Optional[str]" = None) -> bool:
    """Let the key of ``line`` ("ssh-ed25519 AAAA… mark") log in; False if it could already."""
    key = _key(line)
    folder = _folder(home)
    made = not os.path.isdir(folder)
    if made:
        os.mkdir(folder, 0o700)
    path = _file(home)
    there, lines = os.path.exists(path), _lines(path)
    if any(_holds(one, key) for one in lines):
        return False
    note = MADE_FOLDER if made else b"" if there else MADE_FILE
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
        note = NO_END
    ours = PREFIX + line.strip().encode("ascii")
    _write(path, lines + [ours + (b" " + note if note else b"") + b"\n"])
    return True


def remove(line: str, home: "Optional[str]" = None) -> bool:
    """Take the line away that ``add`` put there, with what else it changed: only one with our prefix and this key."""
    key = _key(line)
    path = _file(home)
    lines = _lines(path)
    ours = [one for one in lines if one.startswith(PREFIX) and _holds(one, key)]
    if not ours:
        return False
    kept = [one for one in lines if one not in ours]
    note = ours[-1].split()[-1]
    if not kept and note in (MADE_FILE, MADE_FOLDER):
        os.unlink(path)
        if note == MADE_FOLDER and not os.listdir(_folder(home)):
            os.rmdir(_folder(home))
        return True
    if kept and note == NO_END and lines[-1] is ours[-1]:
        kept[-1] = kept[-1][:-1]
    _write(path, kept)
    return True


def _key(line: str) -> bytes:
    words = line.split()
    if len(words) != 3 or "\n" in line.strip() or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise ValueError("not a public key with a comment: %a" % line[:80])
    return words[1].encode("ascii")


def _holds(line: bytes, key: bytes) -> bool:
    return not line.lstrip().startswith(b"#") and key in line.split()


def _folder(home: "Optional[str]") -> str:
    return os.path.join(home or os.path.expanduser("~"), ".ssh")


def _file(home: "Optional[str]") -> str:
    """The file itself, where ~/.ssh/authorized_keys is a link to it."""
    return os.path.realpath(os.path.join(_folder(home), "authorized_keys"))


def _lines(path: str) -> "List[bytes]":
    try:
        with open(path, "rb") as file:
            return file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _write(path: str, lines: "List[bytes]") -> None:
    """Whole or not at all, with mode and owner as they were: a half file would lock the user out."""
    part = "%s.mlw-%s" % (path, os.urandom(6).hex())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(b"".join(lines))
            _keep_owner(path, descriptor)
            file.flush()
            os.fsync(descriptor)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _keep_owner(path: str, descriptor: int) -> None:
    try:
        before = os.stat(path)
    except FileNotFoundError:
        return
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
