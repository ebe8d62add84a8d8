"""The code of a run brought back: into a new folder, or in place when nothing would be lost."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SnapshotError, UsageError
from ..history.names import without_project
from ..model import Run
from ..remote.shared.layout import Root
from ..remote.shared.tree import READ, join, parents
from ..snapshot.notes import shown
from ..snapshot.scan import Scan
from .beneath import Beneath, remove_at
from .snapshots import Code, code_of, copy_blob, has_blob, has_link

PART = ".mlw-restore-"
_CHUNK = 1 << 20
_NAMED = 10
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)


def proposed_place(run: Run, project: str) -> str:
    """A folder beside the project, for whoever names none."""
    return f"{project}-{without_project(run.id, run.spec.project_name)}"


def restore_new(root: Root, run: Run, place: Path) -> int:
    """Make a folder with the run's code; tells how many files. It appears whole, by a rename."""
    code = code_of(root, run)
    place = Path(os.path.abspath(place))
    if os.path.lexists(place):
        raise UsageError(f"{place} already exists", "choose another folder with --path")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with Beneath(os.path.realpath(place.parent)) as above:
            parent = above.open("")
            part = PART + os.urandom(8).hex()
            os.mkdir(part, 0o777, dir_fd=parent)
            try:
                with Beneath(part, parent) as folders:
                    _fill(root, code, folders)
                _appear(parent, part, place.name)
            except BaseException:
                remove_at(parent, part)
                raise
    except OSError as error:
        raise SnapshotError(f"cannot create {place}: {error.strerror}") from error
    return len(code.files)


def _appear(parent: int, part: str, name: str) -> None:
    os.mkdir(name, dir_fd=parent)  # fails if something has appeared there meanwhile, where a rename might not
    try:
        os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.rmdir(name, dir_fd=parent)
        raise


def _fill(root: Root, code: Code, folders: Beneath) -> None:
    for path, known in code.files.items():
        folder, _, name = path.rpartition("/")
        copy_blob(root, known, folders.make(folder), name)
    for path in code.folders:
        folders.make(path)
    for path, text in code.links.items():  # last: nothing is written once they exist
        folder, _, name = path.rpartition("/")
        os.symlink(text, name, dir_fd=folders.make(folder))


# -- in place ------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """What restoring in place would do."""

    replace: list[str] = field(default_factory=list)  # files that differ
    create: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)  # files and links that the run did not have
    links: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # what nobody could bring back
    stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # of all that goes


def restore_in_place(root: Root, run: Run, project: Path) -> Plan:
    """Turn the project into what the run had. What the ignore files leave out stays as it is.

    Killed half-way it can be repeated: all that was replaced is in the store, which was seen before the start.
    """
    code = code_of(root, run)
    base = os.path.realpath(project)
    try:
        with Beneath(base) as folders:
            plan = _plan(root, code, base, folders)
            if plan.lost:
                raise _refused(plan.lost)
            _apply(root, code, plan, folders)
    except OSError as error:
        raise SnapshotError(f"cannot restore in {project}: {error.strerror}", "run the command again") from error
    return plan


def _refused(lost: list[str]) -> UsageError:
    names = ", ".join(shown(path) for path in lost[:_NAMED])
    more = f", and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return UsageError(
        f"{len(lost)} files would be lost, because no run has their current content: {names}{more}",
        "restore into a new folder instead (without --in-place), or move these files",
    )


def _plan(root: Root, code: Code, base: str, folders: Beneath) -> Plan:
    home = os.path.realpath(root.path)
    scan = Scan(base, {}, skip=os.path.relpath(home, base) if home.startswith(base + os.sep) else None)
    for path, error in scan.unread:
        raise SnapshotError(f"cannot read {shown(path)}: {error.strerror}")
    plan = Plan()
    for folder, found in scan.folders.items():
        for name in [*found["files"], *found["links"]]:
            path = join(folder, name)
            if path not in code.files and path not in code.links:
                plan.remove.append(path)
                _judge(root, plan, folders, path)
    for path, known in code.files.items():
        _plan_file(root, plan, folders, path, known)
    for path, text in code.links.items():
        if _link_text(folders, path) != text:
            plan.links.append(path)
            if folders.look(path) is not None:
                _judge(root, plan, folders, path)
    _refuse_blocked(code, plan, folders)
    plan.lost = sorted(set(plan.lost))
    return plan


def _plan_file(root: Root, plan: Plan, folders: Beneath, path: str, known: tuple[str, int, int]) -> None:
    found = folders.look(path)
    if found is None:
        plan.create.append(path)
    elif not stat.S_ISREG(found.st_mode) or _digest(folders, path) != known[0]:
        plan.replace.append(path)
        _judge(root, plan, folders, path)
    elif bool(found.st_mode & 0o100) != bool(known[2] & 0o100):
        plan.replace.append(path)  # only the mode differs: the bytes come back as they are
        plan.stamps[path] = _stamp(found)


def _refuse_blocked(code: Code, plan: Plan, folders: Beneath) -> None:
    """A folder on the way to a file is something else now, such as a link or a file that does not travel."""
    leaving = {*plan.remove}
    for path in sorted(parents([*code.files, *code.links]) | set(code.folders) | parents(code.folders)):
        found = folders.look(path)
        if found is not None and not stat.S_ISDIR(found.st_mode) and path not in leaving:
            plan.lost.append(path)


def _judge(root: Root, plan: Plan, folders: Beneath, path: str) -> None:
    """Note a path as lost unless its content is in the store."""
    found = folders.look(path)
    if found is None:
        return
    plan.stamps[path] = _stamp(found)
    if stat.S_ISREG(found.st_mode):
        known = has_blob(root, _digest(folders, path), found.st_size)
    else:
        known = has_link(root, path, _link_text(folders, path))
    if not known:
        plan.lost.append(path)


def _digest(folders: Beneath, path: str) -> str:
    handle, name = folders.parent(path)
    digest = hashlib.sha256()
    with open(os.open(name, _OPEN, dir_fd=handle), "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return digest.hexdigest()


def _link_text(folders: Beneath, path: str) -> str | None:
    try:
        handle, name = folders.parent(path)
        return os.readlink(name, dir_fd=handle)
    except OSError:
        return None


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ino


def _apply(root: Root, code: Code, plan: Plan, folders: Beneath) -> None:
    """First every new file beside the old ones, then rename after rename: little can go wrong half-way."""
    part = PART + os.urandom(8).hex()
    os.mkdir(part, 0o700, dir_fd=folders.open(""))
    try:
        with Beneath(part, folders.open("")) as staged:
            stage = staged.open("")
            todo = [*plan.replace, *plan.create]
            for number, path in enumerate(todo):
                copy_blob(root, code.files[path], stage, str(number))
            for path in plan.remove:
                _leave(plan, folders, path)
            for number, path in enumerate(todo):
                _check(plan, folders, path)
                folder, _, name = path.rpartition("/")
                os.rename(str(number), name, src_dir_fd=stage, dst_dir_fd=folders.make(folder))
        for path in code.folders:
            folders.make(path)
        for path in plan.links:
            _leave(plan, folders, path)
            folder, _, name = path.rpartition("/")
            os.symlink(code.links[path], name, dir_fd=folders.make(folder))
        _drop_empty(plan.remove, folders)
    finally:
        remove_at(folders.open(""), part)


def _check(plan: Plan, folders: Beneath, path: str) -> None:
    """What was judged must still be what is there."""
    found = folders.look(path)
    if found is not None and _stamp(found) != plan.stamps.get(path):
        raise OSError(errno.EBUSY, f"{shown(path)} changed during the restore")


def _leave(plan: Plan, folders: Beneath, path: str) -> None:
    _check(plan, folders, path)
    if folders.look(path) is not None:
        handle, name = folders.parent(path)
        os.unlink(name, dir_fd=handle)


def _drop_empty(removed: list[str], folders: Beneath) -> None:
    """Folders that only held what went."""
    for folder in sorted(parents(removed), reverse=True):
        try:
            handle, name = folders.parent(folder)
            os.rmdir(name, dir_fd=handle)
        except OSError:
            continue  # something is left in it
