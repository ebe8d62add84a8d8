"""Restore the code of a run: into a new folder, or in place if nothing would be lost."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SnapshotError, UsageError
from ..history.run_ids import strip_project
from ..model import Run
from ..remote.shared.folder_tree import READ, join, parents
from ..remote.shared.layout import Root
from ..sanitize import plain
from ..snapshot.project_scan import Scan
from .safe_paths import SafeFolders, remove_at
from .snapshot_files import Code, copy_blob, has_blob, has_link, read_code

PART = ".mlw-restore-"
_CHUNK = 1 << 20
_MAX_NAMED = 10
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)


def default_destination(run: Run, project: str) -> str:
    """Return a folder next to the project, for use if no destination is given."""
    return f"{project}-{strip_project(run.id, run.spec.project_name)}"


def restore_new(root: Root, run: Run, destination: Path) -> int:
    """Create a folder with the run's code by an atomic rename. Return the number of files."""
    code = read_code(root, run)
    destination = Path(os.path.abspath(destination))
    if os.path.lexists(destination):
        raise UsageError(f"{destination} already exists", "choose another folder with --path")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with SafeFolders(os.path.realpath(destination.parent)) as parent_folders:
            parent = parent_folders.open("")
            part = PART + os.urandom(8).hex()
            os.mkdir(part, 0o777, dir_fd=parent)
            try:
                with SafeFolders(part, parent) as folders:
                    _fill(root, code, folders)
                _publish(parent, part, destination.name)
            except BaseException:
                remove_at(parent, part)
                raise
    except OSError as error:
        raise SnapshotError(f"cannot create {destination}: {error.strerror}") from error
    return len(code.files)


def _publish(parent: int, part: str, name: str) -> None:
    os.mkdir(name, dir_fd=parent)  # unlike a rename, fails if the name exists
    try:
        os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.rmdir(name, dir_fd=parent)
        raise


def _fill(root: Root, code: Code, folders: SafeFolders) -> None:
    for path, entry in code.files.items():
        folder, _, name = path.rpartition("/")
        copy_blob(root, entry, folders.make(folder), name)
    for path in code.folders:
        folders.make(path)
    for path, text in code.links.items():  # last: nothing is written once links exist
        folder, _, name = path.rpartition("/")
        os.symlink(text, name, dir_fd=folders.make(folder))


# -- in place ------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """Changes that an in-place restore makes."""

    replace: list[str] = field(default_factory=list)  # files that differ
    create: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)  # files and links that are not in the run
    links: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # paths whose content is not stored anywhere
    stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # (size, mtime, inode) before the restore


def restore_in_place(root: Root, run: Run, project: Path) -> Plan:
    """Replace the project files with the code of the run, leaving ignored files unchanged.

    The command can be repeated after being killed: a check at the start ensures that the content of
    all replaced files is in the store.
    """
    code = read_code(root, run)
    base = os.path.realpath(project)
    try:
        with SafeFolders(base) as folders:
            plan = _plan(root, code, base, folders)
            if plan.lost:
                raise _loss_error(plan.lost)
            _apply(root, code, plan, folders)
    except OSError as error:
        raise SnapshotError(f"cannot restore in {project}: {error.strerror}", "run the command again") from error
    return plan


def _loss_error(lost: list[str]) -> UsageError:
    names = ", ".join(plain(path) for path in lost[:_MAX_NAMED])
    more = f", and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
    return UsageError(
        f"{len(lost)} files would be lost, because no run has their current content: {names}{more}",
        "restore into a new folder instead (without --in-place), or move these files",
    )


def _plan(root: Root, code: Code, base: str, folders: SafeFolders) -> Plan:
    home = os.path.realpath(root.path)
    scan = Scan(base, {}, skip=os.path.relpath(home, base) if home.startswith(base + os.sep) else None)
    for path, error in scan.unread:
        raise SnapshotError(f"cannot read {plain(path)}: {error.strerror}")
    plan = Plan()
    for folder, content in scan.folders.items():
        for name in [*content["files"], *content["links"]]:
            path = join(folder, name)
            if path not in code.files and path not in code.links:
                plan.remove.append(path)
                _check_recoverable(root, plan, folders, path)
    for path, entry in code.files.items():
        _plan_file(root, plan, folders, path, entry)
    for path, text in code.links.items():
        if _link_text(folders, path) != text:
            plan.links.append(path)
            if folders.lstat(path) is not None:
                _check_recoverable(root, plan, folders, path)
    _check_blocked(code, plan, folders)
    plan.lost = sorted(set(plan.lost))
    return plan


def _plan_file(root: Root, plan: Plan, folders: SafeFolders, path: str, entry: tuple[str, int, int]) -> None:
    status = folders.lstat(path)
    if status is None:
        plan.create.append(path)
    elif not stat.S_ISREG(status.st_mode) or _digest(folders, path) != entry[0]:
        plan.replace.append(path)
        _check_recoverable(root, plan, folders, path)
    elif bool(status.st_mode & 0o100) != bool(entry[2] & 0o100):
        plan.replace.append(path)  # only the mode differs
        plan.stamps[path] = _stamp(status)


def _check_blocked(code: Code, plan: Plan, folders: SafeFolders) -> None:
    """Record links and ignored files as lost if folders must replace them."""
    removed = {*plan.remove}
    for path in sorted(parents([*code.files, *code.links]) | set(code.folders) | parents(code.folders)):
        status = folders.lstat(path)
        if status is not None and not stat.S_ISDIR(status.st_mode) and path not in removed:
            plan.lost.append(path)


def _check_recoverable(root: Root, plan: Plan, folders: SafeFolders, path: str) -> None:
    """Record a path as lost unless its content is in the store."""
    status = folders.lstat(path)
    if status is None:
        return
    plan.stamps[path] = _stamp(status)
    if stat.S_ISREG(status.st_mode):
        is_stored = has_blob(root, _digest(folders, path), status.st_size)
    else:
        is_stored = has_link(root, path, _link_text(folders, path))
    if not is_stored:
        plan.lost.append(path)


def _digest(folders: SafeFolders, path: str) -> str:
    handle, name = folders.parent(path)
    digest = hashlib.sha256()
    with open(os.open(name, _OPEN, dir_fd=handle), "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return digest.hexdigest()


def _link_text(folders: SafeFolders, path: str) -> str | None:
    try:
        handle, name = folders.parent(path)
        return os.readlink(name, dir_fd=handle)
    except OSError:
        return None


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _apply(root: Root, code: Code, plan: Plan, folders: SafeFolders) -> None:
    """Write new files to a staging folder, then rename them, to reduce the risk of a partial restore."""
    part = PART + os.urandom(8).hex()
    os.mkdir(part, 0o700, dir_fd=folders.open(""))
    try:
        with SafeFolders(part, folders.open("")) as staging:
            stage = staging.open("")
            paths = [*plan.replace, *plan.create]
            for number, path in enumerate(paths):
                copy_blob(root, code.files[path], stage, str(number))
            for path in plan.remove:
                _remove_path(plan, folders, path)
            for number, path in enumerate(paths):
                _check_unchanged(plan, folders, path)
                folder, _, name = path.rpartition("/")
                os.rename(str(number), name, src_dir_fd=stage, dst_dir_fd=folders.make(folder))
        for path in code.folders:
            folders.make(path)
        for path in plan.links:
            _remove_path(plan, folders, path)
            folder, _, name = path.rpartition("/")
            os.symlink(code.links[path], name, dir_fd=folders.make(folder))
        _remove_empty_folders(plan.remove, folders)
    finally:
        remove_at(folders.open(""), part)


def _check_unchanged(plan: Plan, folders: SafeFolders, path: str) -> None:
    """Raise ``OSError`` if a path has changed since it was checked."""
    status = folders.lstat(path)
    if status is not None and _stamp(status) != plan.stamps.get(path):
        raise OSError(errno.EBUSY, f"{plain(path)} changed during the restore")


def _remove_path(plan: Plan, folders: SafeFolders, path: str) -> None:
    _check_unchanged(plan, folders, path)
    if folders.lstat(path) is not None:
        handle, name = folders.parent(path)
        os.unlink(name, dir_fd=handle)


def _remove_empty_folders(removed: list[str], folders: SafeFolders) -> None:
    """Remove folders that became empty when these paths were removed."""
    for folder in sorted(parents(removed), reverse=True):
        try:
            handle, name = folders.parent(folder)
            os.rmdir(name, dir_fd=handle)
        except OSError:
            continue  # not empty
