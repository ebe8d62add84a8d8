"""The working copy of a run: made from the store when the run starts, its untouched files kept as a spare after it.

A spare saves the next run of the project the copying: it is renamed into place and only what differs is
touched. Nothing is ever hard-linked: an append in a run must not reach the store.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from .shared.layout import Root, RunFolder
from .shared.manifest import VERSION, read_manifest, read_record, write_record
from .shared.tree import FOLDER, NEW, READ, Folders, clone, copy, join, make_folders, make_private, parents, remove

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    # path → [size, mtime_ns, inode, sha256, ctime_ns, mode]. ctime tells what mtime hides: a file written and
    # set back by utime, a changed mode, a hard link made from it.
    Files = Dict[str, List[Any]]

_STALE = 3600.0


# -- before the run ------------------------------------------------------------------------------------


def place(root: Root, digest: str, project_id: str, run: RunFolder, contained: bool = False) -> None:
    """Make ``run.work`` from a snapshot; raises OSError, and then there is no ``run.work``.

    Harmless when repeated: ``run.work`` appears whole, by a rename, after ``run.placed`` was written.
    """
    if os.path.isdir(run.work):
        return
    base = os.path.join(run.path, "placing")
    if os.path.lexists(base):  # an earlier attempt was killed
        remove(base)
    tree = os.path.join(base, "tree")
    record = os.path.join(base, "placed.json")
    try:
        placed = _take_spare(root.spare(project_id, contained), base)
        if placed is None or placed["digest"] != digest or not _untouched(tree, placed["files"]):
            placed = _build(root, digest, tree, placed["files"] if placed else {})
            write_record(record, placed)
        _finish(tree, placed)
        os.rename(record, run.placed)
        os.rename(tree, run.work)
    except BaseException:
        remove(base)
        raise
    os.rmdir(base)


def _take_spare(spare: str, base: str) -> Optional[Dict[str, Any]]:
    """Move the project's spare to ``base``: the rename is atomic, so only one run gets it."""
    try:
        os.rename(spare, base)
    except OSError:  # there is none, or it lies on another disk
        os.mkdir(base, 0o700)
    else:
        placed = read_record(os.path.join(base, "placed.json"))
        if placed is not None and os.path.isdir(os.path.join(base, "tree")):
            return placed
        remove(base)
        os.mkdir(base, 0o700)
    os.mkdir(os.path.join(base, "tree"), 0o700)
    return None


def _untouched(tree: str, files: Files) -> bool:
    """Whether the tree holds exactly these files, unchanged."""
    kept, extra, folders = _compare(tree, files)
    return not extra and len(kept) == len(files) and set(folders) == parents(files)


def _compare(tree: str, files: Files) -> Tuple[Files, List[str], List[str]]:
    """(files as recorded, paths of others, all folders with parents first)."""
    kept: Files = {}
    extra: List[str] = []
    folders: List[str] = []
    pending = [""]
    with Folders(tree) as handles:
        while pending:
            folder = pending.pop()
            folders.append(folder)
            prefix = folder + "/" if folder else ""
            with os.scandir(handles.open(folder)) as listing:
                for entry in listing:
                    path = prefix + entry.name
                    known = files.get(path)
                    if known is not None and _same(entry.stat(follow_symlinks=False), known):
                        kept[path] = known
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    else:
                        extra.append(path)
    return kept, extra, folders[1:]


def _same(now: os.stat_result, known: List[Any]) -> bool:
    """Whether a file is still the one that was recorded."""
    return bool(
        now.st_mtime_ns == known[1]
        and now.st_ctime_ns == known[4]
        and now.st_size == known[0]
        and now.st_ino == known[2]
        and now.st_nlink == 1
    )


def _build(root: Root, digest: str, tree: str, have: Files) -> Dict[str, Any]:
    """Turn ``tree``, of which ``have`` is known, into the snapshot; what is there and right stays."""
    manifest = read_manifest(root.snapshot(digest))
    wanted = {path: (sha256, size, mode) for path, sha256, size, mode in manifest["files"]}
    kept, extra, folders = _compare(tree, have)
    files: Files = {}
    for path, known in kept.items():
        if wanted.get(path) == (known[3], known[0], known[5]):
            files[path] = known
        else:
            extra.append(path)
    handle = os.open(tree, FOLDER)
    try:
        for path in extra:
            os.unlink(path, dir_fd=handle)
        _arrange(handle, folders, parents(wanted))
        copier = _Copier(root, digest)
        for path, (sha256, size, mode) in wanted.items():
            if path not in files:
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


def _arrange(handle: int, there: List[str], wanted: Set[str]) -> None:
    """Remove the folders that nobody wants, then make those that are missing."""
    for folder in reversed(there):
        if folder not in wanted:
            os.rmdir(folder, dir_fd=handle)
    for folder in sorted(wanted.difference(there)):
        os.mkdir(folder, 0o700, dir_fd=handle)


def _finish(tree: str, placed: Dict[str, Any]) -> None:
    """Empty folders, ``outputs/``, and last the links: nothing is written after they exist."""
    handle = os.open(tree, FOLDER)
    try:
        make_folders(handle, "outputs")
        for folder in placed["folders"]:
            make_folders(handle, folder)
        for path, _ in placed["links"]:
            if "/" in path:
                make_folders(handle, path.rpartition("/")[0])
        for path, text in placed["links"]:
            os.symlink(text, path, dir_fd=handle)
    finally:
        os.close(handle)


class _Copier:
    """Copies blobs into a tree by the cheapest way that this disk offers."""

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
                # An old mtime makes every later write visible, even one within the same tick of the clock.
                os.utime(target, ns=(stored.st_mtime_ns, stored.st_mtime_ns))
                now = os.fstat(target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return [now.st_size, now.st_mtime_ns, now.st_ino, sha256, now.st_ctime_ns, mode]

    def _fill(self, source: int, target: int, stored: os.stat_result) -> None:
        if self._clones and stored.st_size:
            self._clones = clone(source, target)
        if not self._clones:
            copy(source, target, stored.st_size, stored.st_blocks)

    def _damaged(self, blob: str) -> OSError:
        """A blob is gone or cut short (a power failure): forget the snapshot; the next submit stores it anew."""
        for path in (self._root.snapshot(self._digest), blob):
            try:
                os.unlink(path)
            except OSError:
                pass
        return OSError(errno.EIO, "the content store contained a damaged file, now removed; submit again", blob)


# -- after the run -------------------------------------------------------------------------------------


def recycle(root: Root, digest: str, project_id: str, run: RunFolder, contained: bool = False) -> None:
    """Move the files that the run left untouched into a spare for the project's next run; raises OSError only.

    ``contained``: the run was in a container. Its files are for containers only: whoever has one of them open can
    change it later, and must not change what a run without a container executes.

    The spare appears by a rename, together with the record of what is in it: killed at any point, there is
    either no spare or one whose record is true. What the script made or changed stays in ``run.work``.
    """
    placed = read_record(run.placed)
    if placed is None or placed["digest"] != digest:
        return
    make_private(root.path, root.spares)
    _sweep(root.spares)
    base = os.path.join(root.spares, ".%s-%d-%s" % (project_id, os.getpid(), os.urandom(6).hex()))
    os.mkdir(base, 0o700)
    try:
        tree = os.path.join(base, "tree")
        os.mkdir(tree, 0o700)
        moved = _move(run.work, tree, placed["files"])
        if moved:
            # A digest promises all files of the snapshot; without one the next run looks for what is missing.
            whole = len(moved) == len(placed["files"])
            placed = {**placed, "files": moved, "digest": digest if whole else ""}
            write_record(os.path.join(base, "placed.json"), placed)
            os.rename(base, root.spare(project_id, contained))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another run was quicker: one spare is enough
            raise
    finally:
        remove(base)


def _move(work: str, tree: str, files: Files) -> Files:
    """Move what is unchanged: whole folders where the script changed nothing in them, else file by file."""
    moved: Files = {}
    emptied: List[str] = []
    goal = os.open(tree, FOLDER)
    try:
        # By handles, because the script may have put links where folders were.
        with Folders(work) as handles:
            found = _survey(handles, files)
            for folder, (names, inner, clean) in found.items():
                parent, _, name = folder.rpartition("/")
                if clean:
                    if not found[parent][2]:
                        make_folders(goal, parent)
                        os.rename(name, folder, src_dir_fd=handles.open(parent), dst_dir_fd=goal)
                    moved.update((join(folder, one), files[join(folder, one)]) for one in names)
                elif names:
                    make_folders(goal, folder)
                    for one in names:
                        _move_file(handles.open(folder), goal, join(folder, one), files, moved)
                if folder and not clean and (names or inner):
                    emptied.append(folder)
            for folder in reversed(emptied):
                _drop_empty(handles, folder)
    finally:
        os.close(goal)
    return moved


def _survey(handles: Folders, files: Files) -> Dict[str, Tuple[List[str], List[str], bool]]:
    """folder → (names of untouched files, folders in it, whether that is all and so all the way down)."""
    found: Dict[str, Tuple[List[str], List[str], bool]] = {}
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            handle = handles.open(folder)
            with os.scandir(handle) as listing:
                entries = list(listing)
            private = stat.S_IMODE(os.fstat(handle).st_mode) == 0o700
            names, inner = [], []
            for entry in entries:
                known = files.get(join(folder, entry.name))
                if known is not None and _same(entry.stat(follow_symlinks=False), known):
                    names.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    inner.append(join(folder, entry.name))
        except OSError:
            continue  # the script closed it, or something still running removed it
        found[folder] = names, inner, private and 0 < len(names) + len(inner) == len(entries)
        pending += inner
    for folder in reversed(found):
        names, inner, clean = found[folder]
        below = all(one in found and found[one][2] for one in inner)
        found[folder] = names, inner, bool(folder) and clean and below
    return found


def _move_file(handle: int, goal: int, path: str, files: Files, moved: Files) -> None:
    name = path.rpartition("/")[2]
    known = files[path]
    os.rename(name, path, src_dir_fd=handle, dst_dir_fd=goal)
    now = os.stat(path, dir_fd=goal, follow_symlinks=False)
    # The rename sets ctime, so that one is recorded anew; the rest must be as it was at the look before.
    record = [*known[:4], now.st_ctime_ns, known[5]]
    if _same(now, record) and stat.S_IMODE(now.st_mode) == known[5]:
        moved[path] = record
    else:
        os.rename(path, name, src_dir_fd=goal, dst_dir_fd=handle)


def _drop_empty(handles: Folders, folder: str) -> None:
    parent, _, name = folder.rpartition("/")
    try:
        os.rmdir(name, dir_fd=handles.open(parent))
    except OSError:
        pass  # the script left something in it


def _sweep(spares: str) -> None:
    """Remove what killed calls left behind."""
    with os.scandir(spares) as listing:
        left = [entry.path for entry in listing if entry.name.startswith(".")]
    for path in left:
        try:
            if time.time() - os.lstat(path).st_mtime > _STALE:
                remove(path)
        except OSError:
            pass
