"""Changes that the editor makes to project files. They are atomic and never follow symbolic links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..errors import MlwError, UsageError
from ..remote.shared.folder_tree import NEW, READ
from ..runfiles.safe_paths import SafeFolders, remove_at
from ..sanitize import plain
from .drafts import Drafts
from .queries.files import check_path, config_error, digest_of, encode_text

_PROTECTED = frozenset({"aml_config"})  # required in every project
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL})


class FileChanged(MlwError):
    """Error raised if another program has changed the file."""


def save(root: Path, path: str, data: bytes, base: str | None) -> str:
    """Write a file, preserve its mode, and return the digest of its new content.

    ``base`` is the digest of the content that the editor read, or "" if there was no file. Raise
    ``FileChanged`` if the file no longer matches. If ``base`` is None, overwrite any content.
    Unless ``base`` is a digest, create missing parent folders.
    """
    check_path(path)
    try:
        with SafeFolders(str(root)) as folders:
            folder, _, name = path.rpartition("/")
            handle = folders.open(folder) if base or not folder else folders.make(folder)
            mode = _current_mode(handle, name, path, base)
            _replace(handle, name, data, mode)
    except FileExistsError:  # created after our check
        raise FileChanged(
            f"{plain(path, 200)} was created on disk in the meantime", "reload it, or overwrite it"
        ) from None
    except FileNotFoundError as error:
        raise _deleted(path) if base else config_error(path, error) from None
    except OSError as error:
        raise config_error(path, error) from None
    return digest_of(data)


def _deleted(path: str) -> FileChanged:
    return FileChanged(
        f"{plain(path, 200)} was deleted on disk", "open it under Files to save it again or discard your changes"
    )


def _current_mode(handle: int, name: str, path: str, base: str | None) -> int | None:
    """Return the mode of the existing file, or None if there is none.

    Raise ``FileChanged`` if its content does not match ``base``.
    """
    try:
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        if base:
            raise _deleted(path) from None
        return None
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{plain(path, 200)} is not a regular file", "mlw does not follow symbolic links")
    if base is not None:
        # O_NONBLOCK: if a pipe replaces the file at this moment, opening it must not block the server.
        with open(os.open(name, READ | getattr(os, "O_NONBLOCK", 0), dir_fd=handle), "rb") as file:
            if digest_of(file.read()) != base:
                raise FileChanged(f"{plain(path, 200)} was changed on disk", "reload it, or overwrite it")
    return stat.S_IMODE(status.st_mode)


def _replace(handle: int, name: str, data: bytes, mode: int | None) -> None:
    """Replace a file atomically.

    For a new file, ``mode`` is None, and a file created in the meantime is not replaced.
    """
    part = f".{name[:100]}.mlw-{os.urandom(8).hex()}.part"  # snapshots exclude such names
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


def _move(name: str, to: str, source: int, target: int) -> None:
    """Move a file. Raise ``FileExistsError`` if the new name exists, even if it was created just now."""
    try:
        os.link(name, to, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # File systems without hard links (FAT, some network drives): a file created after this check is lost.
        if _exists(target, to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(name, to, src_dir_fd=source, dst_dir_fd=target)
        return
    os.unlink(name, dir_fd=source)


def _exists(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def save_drafts(root: Path, drafts: Drafts, key: str) -> list[str]:
    """Save all drafts of a project, so that a run includes them, and return their paths.

    Raise ``FileChanged`` if a file was changed on disk.
    """
    saved = []
    for path, draft in sorted(drafts.for_project(key).items()):
        save(root, path, encode_text(draft.text, draft.windows, draft.marked), draft.base)
        drafts.drop(key, path)
        saved.append(path)
    drafts.flush()
    return saved


def create_file(root: Path, path: str) -> None:
    """Create an empty file and its parent folders."""
    _reject_invalid_name(check_path(path))
    try:
        with SafeFolders(str(root)) as folders:
            folder, _, name = path.rpartition("/")
            os.close(os.open(name, NEW, 0o666, dir_fd=folders.make(folder) if folder else folders.open("")))
    except OSError as error:
        raise config_error(path, error) from None


def create_folder(root: Path, path: str) -> None:
    _reject_invalid_name(check_path(path))
    try:
        with SafeFolders(str(root)) as folders:
            if folders.lstat(path) is not None:
                raise UsageError(f"{plain(path, 200)} already exists")
            folders.make(path)
    except OSError as error:
        raise config_error(path, error) from None


def rename(root: Path, path: str, to: str) -> None:
    """Rename a file or folder, or move it within the project. Existing files are never replaced."""
    _reject_invalid_name(check_path(to))
    _reject_protected(check_path(path))
    if to.startswith(path + "/"):
        raise UsageError("a folder cannot be moved into itself")
    try:
        with SafeFolders(str(root)) as source, SafeFolders(str(root)) as target:
            if target.lstat(to) is not None:
                raise UsageError(f"{plain(to, 200)} already exists", "choose another name")
            folder, _, new_name = to.rpartition("/")
            target_handle = target.make(folder) if folder else target.open("")
            source_handle, name = source.parent(path)
            if stat.S_ISDIR(os.stat(name, dir_fd=source_handle, follow_symlinks=False).st_mode):
                os.rename(
                    name, new_name, src_dir_fd=source_handle, dst_dir_fd=target_handle
                )  # can replace only an empty folder
            else:
                _move(name, new_name, source_handle, target_handle)
    except FileExistsError:
        raise UsageError(f"{plain(to, 200)} already exists", "choose another name") from None
    except OSError as error:
        raise config_error(path, error) from None


def delete(root: Path, path: str) -> None:
    """Delete a file, or a folder and its contents. For a symbolic link, delete only the link."""
    _reject_protected(check_path(path))
    try:
        with SafeFolders(str(root)) as folders:
            handle, name = folders.parent(path)
            os.stat(name, dir_fd=handle, follow_symlinks=False)  # raises if it does not exist
            remove_at(handle, name)
    except OSError as error:
        raise config_error(path, error) from None


def _reject_protected(path: str) -> None:
    if path in _PROTECTED:
        raise UsageError(f"{path} is required by the project", "to delete it, use another program")


def _reject_invalid_name(path: str) -> None:
    if not path.isprintable() or any(part != part.strip() for part in path.split("/")):
        raise UsageError(
            f"invalid name {plain(path, 200)!r}", "avoid control characters and leading or trailing spaces"
        )
