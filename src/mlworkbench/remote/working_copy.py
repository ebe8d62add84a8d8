"""The working copy of a run, created from the content store at the start.

After the run, its untouched files are kept as a warm copy, so that the next run of the project need
not copy them: the warm copy is renamed into place, and only differences are applied. Files are
never hard-linked, because a run that appends to a file must not change the store.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from .shared.folder_tree import (
    FOLDER,
    NEW,
    READ,
    FolderHandles,
    clone,
    copy,
    join,
    make_folders,
    make_private,
    parents,
    remove,
)
from .shared.layout import Root, RunFolder
from .shared.snapshot_manifest import VERSION, read_manifest, read_record, write_record

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    # path → [size, mtime_ns, inode, sha256, ctime_ns, mode]. ctime reveals what mtime does not: a file whose
    # mtime was reset by utime, a changed mode, or a new hard link.
    Files = Dict[str, List[Any]]

_STALE_AGE = 3600.0


# -- before the run ------------------------------------------------------------------------------------


def create_working_copy(root: Root, digest: str, project_id: str, run: RunFolder, contained: bool = False) -> None:
    """Create ``run.work`` from a snapshot. If this raises OSError, there is no ``run.work``.

    The call can be repeated: a complete folder is renamed to ``run.work`` after ``run.placed`` was
    written.
    """
    if os.path.isdir(run.work):
        return
    base = os.path.join(run.path, "placing")
    if os.path.lexists(base):  # an earlier attempt was killed
        remove(base)
    tree = os.path.join(base, "tree")
    record_path = os.path.join(base, "placed.json")
    try:
        record_data = _take_warm_copy(root.warm_copy(project_id, contained), base)
        if record_data is None or record_data["digest"] != digest or not _is_untouched(tree, record_data["files"]):
            manifest = read_manifest(root.snapshot(digest))
            record_data = _update_tree(root, digest, manifest, tree, record_data["files"] if record_data else {})
            write_record(record_path, record_data)
        _add_folders_and_links(tree, record_data, "outputs")
        os.rename(record_path, run.placed)
        os.rename(tree, run.work)
    except BaseException:
        remove(base)
        raise
    os.rmdir(base)


def place_snapshot(root: Root, digest: str, folder: str, before_file: Callable[[], None]) -> None:
    """Create a new folder with the files and links of a snapshot, and their times if it contains them."""
    manifest = read_manifest(root.snapshot(digest), reserved="")
    os.mkdir(folder, 0o700)
    _add_folders_and_links(folder, _update_tree(root, digest, manifest, folder, {}, before_file))
    handle = os.open(folder, FOLDER)
    try:
        for path, time_ns in manifest.get("times", {}).items():
            os.utime(path, ns=(time_ns, time_ns), dir_fd=handle, follow_symlinks=False)
    finally:
        os.close(handle)


def _take_warm_copy(warm_copy: str, base: str) -> Optional[Dict[str, Any]]:
    """Move the project's warm copy to ``base``. The rename is atomic, so only one run gets it."""
    try:
        os.rename(warm_copy, base)
    except OSError:  # it does not exist, or is on another disk
        os.mkdir(base, 0o700)
    else:
        record_data = read_record(os.path.join(base, "placed.json"))
        if record_data is not None and os.path.isdir(os.path.join(base, "tree")):
            return record_data
        remove(base)
        os.mkdir(base, 0o700)
    os.mkdir(os.path.join(base, "tree"), 0o700)
    return None


def _is_untouched(tree: str, files: Files) -> bool:
    """Return whether the tree contains exactly these files, unchanged."""
    kept, extra, folders = _compare(tree, files)
    return not extra and len(kept) == len(files) and set(folders) == parents(files)


def _compare(tree: str, files: Files) -> Tuple[Files, List[str], List[str]]:
    """Return unchanged files, paths of other files, and all folders, parents first."""
    kept: Files = {}
    extra: List[str] = []
    folders: List[str] = []
    pending = [""]
    with FolderHandles(tree) as handles:
        while pending:
            folder = pending.pop()
            folders.append(folder)
            prefix = folder + "/" if folder else ""
            with os.scandir(handles.open(folder)) as listing:
                for entry in listing:
                    path = prefix + entry.name
                    record = files.get(path)
                    if record is not None and _is_unchanged(entry.stat(follow_symlinks=False), record):
                        kept[path] = record
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    else:
                        extra.append(path)
    return kept, extra, folders[1:]


def _is_unchanged(status: os.stat_result, record: List[Any]) -> bool:
    """Return whether a file still matches its record."""
    return bool(
        status.st_mtime_ns == record[1]
        and status.st_ctime_ns == record[4]
        and status.st_size == record[0]
        and status.st_ino == record[2]
        and status.st_nlink == 1
    )


def _update_tree(
    root: Root,
    digest: str,
    manifest: Dict[str, Any],
    tree: str,
    known_files: Files,
    before_file: Callable[[], None] = lambda: None,
) -> Dict[str, Any]:
    """Make ``tree`` equal to the snapshot. Keep those of its recorded ``known_files`` that are correct."""
    target_files = {path: (sha256, size, mode) for path, sha256, size, mode in manifest["files"]}
    kept, extra, folders = _compare(tree, known_files)
    files: Files = {}
    for path, record in kept.items():
        if target_files.get(path) == (record[3], record[0], record[5]):
            files[path] = record
        else:
            extra.append(path)
    handle = os.open(tree, FOLDER)
    try:
        for path in extra:
            os.unlink(path, dir_fd=handle)
        _arrange_folders(handle, folders, parents(target_files))
        copier = _Copier(root, digest)
        for path, (sha256, size, mode) in target_files.items():
            if path not in files:
                before_file()
                files[path] = copier.copy(handle, path, sha256, size, mode)
    finally:
        os.close(handle)
    return {
        "version": VERSION,
        "digest": digest,
        "files": files,
        "links": manifest["links"],
        "folders": manifest["folders"],
    }


def _arrange_folders(handle: int, existing: List[str], needed: Set[str]) -> None:
    """Remove unneeded folders, then create the missing ones."""
    for folder in reversed(existing):
        if folder not in needed:
            os.rmdir(folder, dir_fd=handle)
    for folder in sorted(needed.difference(existing)):
        os.mkdir(folder, 0o700, dir_fd=handle)


def _add_folders_and_links(tree: str, record_data: Dict[str, Any], *more: str) -> None:
    """Create empty folders, and those in ``more``, then links. Nothing is written once links exist."""
    handle = os.open(tree, FOLDER)
    try:
        for folder in (*more, *record_data["folders"]):
            make_folders(handle, folder)
        for path, _ in record_data["links"]:
            if "/" in path:
                make_folders(handle, path.rpartition("/")[0])
        for path, text in record_data["links"]:
            os.symlink(text, path, dir_fd=handle)
    finally:
        os.close(handle)


class _Copier:
    """Copier of blobs into a tree. It clones them if the file system supports copy-on-write."""

    def __init__(self, root: Root, digest: str) -> None:
        self._root = root
        self._digest = digest
        self._clones = True

    def copy(self, tree: int, path: str, sha256: str, size: int, mode: int) -> List[Any]:
        blob = self._root.blob(sha256)
        try:
            source = os.open(blob, READ)
        except FileNotFoundError:
            raise self._damaged(blob) from None
        try:
            stored = os.fstat(source)
            if stored.st_size != size:
                raise self._damaged(blob)
            target = os.open(path, NEW, mode, dir_fd=tree)
            try:
                self._fill(source, target, stored)
                os.fchmod(target, mode)
                # An old mtime reveals every later write, even one within the same clock tick.
                os.utime(target, ns=(stored.st_mtime_ns, stored.st_mtime_ns))
                status = os.fstat(target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return [status.st_size, status.st_mtime_ns, status.st_ino, sha256, status.st_ctime_ns, mode]

    def _fill(self, source: int, target: int, stored: os.stat_result) -> None:
        if self._clones and stored.st_size:
            self._clones = clone(source, target)
        if not self._clones:
            copy(source, target, stored.st_size, stored.st_blocks)

    def _damaged(self, blob: str) -> OSError:
        """Remove a snapshot with a missing or truncated blob, and return the error to raise.

        A power failure can damage a blob. The next submission stores the snapshot again.
        """
        for path in (self._root.snapshot(self._digest), blob):
            try:
                os.unlink(path)
            except OSError:
                pass
        return OSError(errno.EIO, "the content store contained a damaged file, now removed; submit again", blob)


# -- after the run -------------------------------------------------------------------------------------


def recycle_working_copy(root: Root, digest: str, project_id: str, run: RunFolder, contained: bool = False) -> None:
    """Move the run's untouched files to a warm copy for the project's next run. Raise only OSError.

    ``contained``: whether the run used a container. If so, its files are reused for containers
    only: a process that has one of them open can change it later, and must not change what a run
    without a container executes.

    A single rename creates the warm copy and its record. If the process is killed at any point, there
    is either no warm copy or one with a correct record. Files that the script created or changed stay
    in ``run.work``.
    """
    record_data = read_record(run.placed)
    if record_data is None or record_data["digest"] != digest:
        return
    make_private(root.path, root.warm_copies)
    _remove_leftovers(root.warm_copies)
    base = os.path.join(root.warm_copies, ".%s-%d-%s" % (project_id, os.getpid(), os.urandom(6).hex()))
    os.mkdir(base, 0o700)
    try:
        tree = os.path.join(base, "tree")
        os.mkdir(tree, 0o700)
        moved = _move_untouched(run.work, tree, record_data["files"])
        if moved:
            # A digest means that all files of the snapshot exist; without it, the next run checks for missing files.
            is_complete = len(moved) == len(record_data["files"])
            record_data = {**record_data, "files": moved, "digest": digest if is_complete else ""}
            write_record(os.path.join(base, "placed.json"), record_data)
            os.rename(base, root.warm_copy(project_id, contained))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another run was first: one warm copy is sufficient
            raise
    finally:
        remove(base)


def _move_untouched(work: str, tree: str, files: Files) -> Files:
    """Move unchanged files: whole folders if the script changed nothing in them, or single files."""
    moved: Files = {}
    emptied: List[str] = []
    target = os.open(tree, FOLDER)
    try:
        # Use descriptors, because the script may have replaced folders with links.
        with FolderHandles(work) as handles:
            folders = _scan_folders(handles, files)
            for folder, (names, subfolders, is_clean) in folders.items():
                parent, _, name = folder.rpartition("/")
                if is_clean:
                    if not folders[parent][2]:
                        make_folders(target, parent)
                        os.rename(name, folder, src_dir_fd=handles.open(parent), dst_dir_fd=target)
                    moved.update((join(folder, file_name), files[join(folder, file_name)]) for file_name in names)
                elif names:
                    make_folders(target, folder)
                    for file_name in names:
                        _move_file(handles.open(folder), target, join(folder, file_name), files, moved)
                if folder and not is_clean and (names or subfolders):
                    emptied.append(folder)
            for folder in reversed(emptied):
                _remove_if_empty(handles, folder)
    finally:
        os.close(target)
    return moved


def _scan_folders(handles: FolderHandles, files: Files) -> Dict[str, Tuple[List[str], List[str], bool]]:
    """Return a mapping from each folder to its untouched files, its subfolders, and a flag.

    The flag is true if the folder contains nothing else at any depth.
    """
    result: Dict[str, Tuple[List[str], List[str], bool]] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            handle = handles.open(folder)
            with os.scandir(handle) as listing:
                entries = list(listing)
            is_private = stat.S_IMODE(os.fstat(handle).st_mode) == 0o700
            names, subfolders = [], []
            for entry in entries:
                record = files.get(join(folder, entry.name))
                if record is not None and _is_unchanged(entry.stat(follow_symlinks=False), record):
                    names.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    subfolders.append(join(folder, entry.name))
        except OSError:
            continue  # the script made it unreadable, or a running process removed it
        result[folder] = names, subfolders, is_private and 0 < len(names) + len(subfolders) == len(entries)
        pending += subfolders
    for folder in reversed(result):
        names, subfolders, is_clean = result[folder]
        subfolders_clean = all(subfolder in result and result[subfolder][2] for subfolder in subfolders)
        result[folder] = names, subfolders, bool(folder) and is_clean and subfolders_clean
    return result


def _move_file(handle: int, target: int, path: str, files: Files, moved: Files) -> None:
    name = path.rpartition("/")[2]
    old_record = files[path]
    os.rename(name, path, src_dir_fd=handle, dst_dir_fd=target)
    status = os.stat(path, dir_fd=target, follow_symlinks=False)
    # The rename changes ctime, so the new value is recorded; everything else must match the scan.
    record = [*old_record[:4], status.st_ctime_ns, old_record[5]]
    if _is_unchanged(status, record) and stat.S_IMODE(status.st_mode) == old_record[5]:
        moved[path] = record
    else:
        os.rename(path, name, src_dir_fd=target, dst_dir_fd=handle)


def _remove_if_empty(handles: FolderHandles, folder: str) -> None:
    parent, _, name = folder.rpartition("/")
    try:
        os.rmdir(name, dir_fd=handles.open(parent))
    except OSError:
        pass  # the script left files in it


def _remove_leftovers(spares: str) -> None:
    """Remove files left behind by killed processes."""
    with os.scandir(spares) as listing:
        leftovers = [entry.path for entry in listing if entry.name.startswith(".")]
    for path in leftovers:
        try:
            if time.time() - os.lstat(path).st_mtime > _STALE_AGE:
                remove(path)
        except OSError:
            pass
