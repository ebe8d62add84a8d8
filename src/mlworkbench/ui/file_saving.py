"""Changes in a project's folder that the editor asks for. Whole or not at all, and never through a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..errors import MlwError, UsageError
from ..remote.shared.tree import NEW, READ
from ..report.plain import plain
from ..runfiles.beneath import Beneath, remove_at
from .answers.files import checked, digest_of, encoded, trouble
from .drafts import Drafts

_KEPT = frozenset({"aml_config"})  # without it the folder is no project
_NO_SECOND_NAMES = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL})


class Changed(MlwError):
    """Somebody else has written the file meanwhile."""


def save(root: Path, path: str, data: bytes, base: str | None) -> str:
    """Write a file; ``base`` is the digest of what it held when it was read, "" if there was none, None to write
    whatever is there, and the folders above it if they are gone.

    Tells the digest of what it holds now. Its mode stays.
    """
    checked(path)
    try:
        with Beneath(str(root)) as folders:
            folder, _, name = path.rpartition("/")
            handle = folders.open(folder) if base or not folder else folders.make(folder)
            mode = _mode(handle, name, path, base)
            _replace(handle, name, data, mode)
    except FileExistsError:  # since we looked
        raise Changed(f"{plain(path, 200)} was created on disk in the meantime", "reload it, or overwrite it") from None
    except FileNotFoundError as error:
        raise _deleted(path) if base else trouble(path, error) from None
    except OSError as error:
        raise trouble(path, error) from None
    return digest_of(data)


def _deleted(path: str) -> Changed:
    return Changed(
        f"{plain(path, 200)} was deleted on disk", "open it under Files to save it again or discard your changes"
    )


def _mode(handle: int, name: str, path: str, base: str | None) -> int | None:
    """That of the file which is there; None if there is none. ``Changed`` if it is not the one that was read."""
    try:
        facts = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        if base:
            raise _deleted(path) from None
        return None
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{plain(path, 200)} is not a regular file", "mlw does not follow symbolic links")
    if base is not None:
        # Not held by a pipe that takes the file's place at this moment.
        with open(os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=handle), "rb") as file:
            if digest_of(file.read()) != base:
                raise Changed(f"{plain(path, 200)} was changed on disk", "reload it, or overwrite it")
    return stat.S_IMODE(facts.st_mode)


def _replace(handle: int, name: str, data: bytes, mode: int | None) -> None:
    """``mode``: None if there was no file, and none that comes meanwhile is replaced."""
    part = f".{name[:100]}.mlw-{os.urandom(8).hex()}.part"  # a snapshot leaves such a name out
    file = os.open(part, NEW, 0o666, dir_fd=handle)
    try:
        with open(file, "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is None:
            _move(part, name, handle, handle)
        else:
            os.rename(part, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        os.unlink(part, dir_fd=handle)
        raise


def _move(name: str, to: str, here: int, there: int) -> None:
    """Give a file another name; ``FileExistsError`` if that is taken, be it since this moment."""
    try:
        os.link(name, to, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_SECOND_NAMES:
            raise
        # A disk without second names (FAT, some of the network): between these two lines another could come.
        if _is_there(there, to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(name, to, src_dir_fd=here, dst_dir_fd=there)
        return
    os.unlink(name, dir_fd=here)


def _is_there(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def save_drafts(root: Path, drafts: Drafts, key: str) -> list[str]:
    """All that was typed in a project and not saved, so that a run has it. ``Changed`` if one of them cannot be."""
    saved = []
    for path, draft in sorted(drafts.of(key).items()):
        save(root, path, encoded(draft.text, draft.windows, draft.marked), draft.base)
        drafts.drop(key, path)
        saved.append(path)
    drafts.flush()
    return saved


def make_file(root: Path, path: str) -> None:
    """An empty one, with the folders on the way to it."""
    _refuse_odd(checked(path))
    try:
        with Beneath(str(root)) as folders:
            folder, _, name = path.rpartition("/")
            os.close(os.open(name, NEW, 0o666, dir_fd=folders.make(folder) if folder else folders.open("")))
    except OSError as error:
        raise trouble(path, error) from None


def make_folder(root: Path, path: str) -> None:
    _refuse_odd(checked(path))
    try:
        with Beneath(str(root)) as folders:
            if folders.look(path) is not None:
                raise UsageError(f"{plain(path, 200)} already exists")
            folders.make(path)
    except OSError as error:
        raise trouble(path, error) from None


def rename(root: Path, path: str, to: str) -> None:
    """Also into another folder of the project. What is there is never replaced."""
    _refuse_odd(checked(to))
    _refuse_needed(checked(path))
    if to.startswith(path + "/"):
        raise UsageError("a folder cannot be moved into itself")
    try:
        with Beneath(str(root)) as source, Beneath(str(root)) as target:
            if target.look(to) is not None:
                raise UsageError(f"{plain(to, 200)} already exists", "choose another name")
            folder, _, last = to.rpartition("/")
            there = target.make(folder) if folder else target.open("")
            here, name = source.parent(path)
            if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                os.rename(name, last, src_dir_fd=here, dst_dir_fd=there)  # replaces an empty folder at most
            else:
                _move(name, last, here, there)
    except FileExistsError:
        raise UsageError(f"{plain(to, 200)} already exists", "choose another name") from None
    except OSError as error:
        raise trouble(path, error) from None


def delete(root: Path, path: str) -> None:
    """A file, or a folder with all that is in it; a link goes as a link."""
    _refuse_needed(checked(path))
    try:
        with Beneath(str(root)) as folders:
            handle, name = folders.parent(path)
            os.stat(name, dir_fd=handle, follow_symlinks=False)  # so that a name that is gone is said
            remove_at(handle, name)
    except OSError as error:
        raise trouble(path, error) from None


def _refuse_needed(path: str) -> None:
    if path in _KEPT:
        raise UsageError(f"{path} is required by the project", "to delete it, use another program")


def _refuse_odd(path: str) -> None:
    if not path.isprintable() or any(part != part.strip() for part in path.split("/")):
        raise UsageError(
            f"invalid name {plain(path, 200)!r}", "avoid control characters and leading or trailing spaces"
        )
