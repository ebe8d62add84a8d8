"""Add a line to ~/.ssh/authorized_keys, or remove it.

Attach adds the line, and detach removes it. All other lines stay unchanged.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import List, Optional

PREFIX = b"restrict "
# Suffixes of the added line. They record what else ``add`` changed, so that ``remove`` can restore the exact bytes.
CREATED_FOLDER, CREATED_FILE, NO_NEWLINE = b"(made-folder)", b"(made-file)", b"(no-end-of-line-before)"


def add(line: str, home: "Optional[str]" = None) -> bool:
    """Add the key in ``line`` ("ssh-ed25519 AAAA… comment"). Return False if the file already contains it."""
    key = _parse_key(line)
    folder = _ssh_folder(home)
    is_new_folder = not os.path.isdir(folder)
    if is_new_folder:
        os.mkdir(folder, 0o700)
    path = _keys_file(home)
    file_existed, lines = os.path.exists(path), _read_lines(path)
    if any(_contains_key(entry, key) for entry in lines):
        return False
    suffix = CREATED_FOLDER if is_new_folder else b"" if file_existed else CREATED_FILE
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
        suffix = NO_NEWLINE
    new_line = PREFIX + line.strip().encode("ascii")
    _replace_file(path, lines + [new_line + (b" " + suffix if suffix else b"") + b"\n"])
    return True


def remove(line: str, home: "Optional[str]" = None) -> bool:
    """Remove the line that ``add`` wrote, and undo its other changes.

    Only lines with both our prefix and this key are removed.
    """
    key = _parse_key(line)
    path = _keys_file(home)
    lines = _read_lines(path)
    own_lines = [entry for entry in lines if entry.startswith(PREFIX) and _contains_key(entry, key)]
    if not own_lines:
        return False
    kept = [entry for entry in lines if entry not in own_lines]
    suffix = own_lines[-1].split()[-1]
    if not kept and suffix in (CREATED_FILE, CREATED_FOLDER):
        os.unlink(path)
        if suffix == CREATED_FOLDER and not os.listdir(_ssh_folder(home)):
            os.rmdir(_ssh_folder(home))
        return True
    if kept and suffix == NO_NEWLINE and lines[-1] is own_lines[-1]:
        kept[-1] = kept[-1][:-1]
    _replace_file(path, kept)
    return True


def _parse_key(line: str) -> bytes:
    fields = line.split()
    if len(fields) != 3 or "\n" in line.strip() or not fields[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise ValueError("not a public key with a comment: %a" % line[:80])
    return fields[1].encode("ascii")


def _contains_key(line: bytes, key: bytes) -> bool:
    return not line.lstrip().startswith(b"#") and key in line.split()


def _ssh_folder(home: "Optional[str]") -> str:
    return os.path.join(home or os.path.expanduser("~"), ".ssh")


def _keys_file(home: "Optional[str]") -> str:
    """Return the path of the actual file, because ~/.ssh/authorized_keys may be a symbolic link."""
    return os.path.realpath(os.path.join(_ssh_folder(home), "authorized_keys"))


def _read_lines(path: str) -> "List[bytes]":
    try:
        with open(path, "rb") as file:
            return file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _replace_file(path: str, lines: "List[bytes]") -> None:
    """Replace the file atomically, preserving its mode and owner.

    A partial file would lock the user out.
    """
    temporary = "%s.mlw-%s" % (path, os.urandom(6).hex())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(b"".join(lines))
            _keep_owner(path, descriptor)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
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
