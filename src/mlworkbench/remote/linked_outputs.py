"""Links in ``outputs/``: a link to a file in the working copy is replaced by that file.

Any other link is classified. A script may have created any link, and parts of it may still be
running. So each path component is opened relative to its parent folder, without following links,
and nothing above the working copy is ever opened.
"""

from __future__ import annotations

import errno
import os
import stat

from .shared.folder_tree import FOLDER as OPEN_FOLDER
from .shared.folder_tree import NEW, NOFOLLOW, READ, clone, copy, join, points_inside
from .shared.layout import RunFolder
from .shared.output_kinds import BROKEN, FOLDER, LINK, NOT_COPIED, OUTSIDE, SPECIAL_FILE, VANISHED

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_MAX_LINKS, _MAX_STEPS, _MAX_DEPTH = 40, 4096, 256
MAX_TOTAL_STEPS = 1_000_000  # path components for all links of a run; this many take several minutes
# O_NONBLOCK: if the file has been replaced by a FIFO, opening it must not block.
_OPEN_FLAGS = READ | getattr(os, "O_NONBLOCK", 0)


class _NotCollected(Exception):
    """An error for a link whose target is not collected. The argument is the kind of link."""


class LinkedOutputs:
    """A collector for the links of one run. Raises OSError if there is no working copy."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._roots = {run.work, os.path.realpath(run.work)}
        self._work = os.open(run.work, OPEN_FOLDER | NOFOLLOW)
        self._folder = os.open(run.path, OPEN_FOLDER)
        # A file in the run folder, later renamed into outputs/. Its name is random, so no script can create it first.
        self._temporary = "collecting.%s.part" % os.urandom(8).hex()
        self._steps = MAX_TOTAL_STEPS

    def __enter__(self) -> LinkedOutputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_temporary()
        os.close(self._work)
        os.close(self._folder)

    def skip(self, path: str, parent: int) -> Dict[str, str]:
        """Return the kind and text of a link that is not followed because of the time limit."""
        return {"kind": NOT_COPIED, "to": os.readlink(path.rpartition("/")[2], dir_fd=parent)}

    def collect(self, path: str, parent: Optional[int]) -> Dict[str, str]:
        """Return the kind and text of the link at ``path`` below ``outputs/``; {} if a file replaced it.

        ``parent`` is the folder of the link. If it is None, ``outputs`` itself is the link.
        """
        if self._steps <= 0 and parent is not None:
            return self.skip(path, parent)
        link_path = join("outputs", path) if parent is not None else "outputs"
        with _LinkWalk(self._work, self._roots) as walk:
            source = None
            try:
                source = walk.resolve(link_path)
                if not walk.final_links or walk.final_links[0][0] != link_path:
                    return {"kind": VANISHED}
                return self._collect_target(path, parent, walk, source)
            except _NotCollected as error:
                kind = str(error)
                if kind == OUTSIDE and self._reenters(walk):
                    kind = NOT_COPIED
            except (FileNotFoundError, NotADirectoryError):
                kind = BROKEN
            except OSError:
                kind = NOT_COPIED
            finally:
                self._steps -= walk.steps
                if source is not None:
                    os.close(source)
            return {"kind": kind, "to": walk.final_links[0][1]} if walk.final_links else {"kind": VANISHED}

    def _reenters(self, walk: _LinkWalk) -> bool:
        """Return whether the text of a link leads out of the working copy and back into it.

        Nothing outside is accessed.
        """
        link_path, text = walk.final_links[-1] if walk.final_links else ("", "")
        path = os.path.normpath(os.path.join(self._run.work, os.path.dirname(link_path), text))
        return any(path.startswith(root + os.sep) for root in self._roots)

    def _collect_target(
        self, path: str, parent: Optional[int], walk: _LinkWalk, source: Optional[int]
    ) -> Dict[str, str]:
        """Add the target of the link to the outputs."""
        text = walk.final_links[0][1]
        first = walk.final_links[1][0] if len(walk.final_links) > 1 else "/".join(walk.names)
        folder, _, name = path.rpartition("/")
        if parent is None:
            return {"kind": FOLDER if source is None else NOT_COPIED, "to": text}
        if first == "outputs" or first.startswith("outputs/"):
            if not points_inside(path, text):  # the link would be broken in a copy of the outputs
                text = os.path.relpath("/" + first, "/" + join("outputs", folder))
                self._remove_temporary()
                os.symlink(text, self._temporary, dir_fd=self._folder)
                self._replace_link(parent, name)
            return {"kind": LINK, "to": text}
        if source is None:
            return {"kind": FOLDER, "to": text}
        self._make_temporary(source)
        self._replace_link(parent, name)
        return {}

    def _make_temporary(self, source: int) -> None:
        """Create a hard link to an open file, which needs no space, or a copy if that is impossible."""
        self._remove_temporary()
        try:
            # Do not link by name, because another file may have the name by now.
            os.link("/proc/self/fd/%d" % source, self._temporary, dst_dir_fd=self._folder)
        except OSError:  # no /proc, another owner, too many links, or a disk without hard links
            self._copy(source)

    def _copy(self, source: int) -> None:
        status, disk = os.fstat(source), os.statvfs(self._run.path)
        if status.st_blocks * 512 > disk.f_bavail * disk.f_frsize // 2:
            raise OSError(errno.ENOSPC, "the copy would fill the disk")
        target = os.open(self._temporary, NEW, status.st_mode & 0o777, dir_fd=self._folder)
        try:
            if not status.st_size or not clone(source, target):
                copy(source, target, status.st_size, status.st_blocks)
        finally:
            os.close(target)

    def _replace_link(self, parent: int, name: str) -> None:
        """Replace the link, unless another file has already replaced it."""
        if not stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _NotCollected(VANISHED)
        os.rename(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=parent)

    def _remove_temporary(self) -> None:
        try:
            os.unlink(self._temporary, dir_fd=self._folder)
        except FileNotFoundError:
            pass


class _LinkWalk:
    """A walk along one path below the working copy, through links that stay in it.

    ``names`` is the current position. ``final_links`` contains the path and text of each link that was
    the last component of the path.
    """

    def __init__(self, work: int, roots: "set[str]") -> None:
        self.names: List[str] = []
        self.final_links: List[Tuple[str, str]] = []
        self._handles = [work]
        self._roots = roots
        self._pending: List[str] = []
        self._links = 0
        self.steps = 0

    def __enter__(self) -> _LinkWalk:
        return self

    def __exit__(self, *_: object) -> None:
        self._reset()

    def resolve(self, path: str) -> Optional[int]:
        """Return a descriptor of the file, or None for a folder. Raises _NotCollected and OSError."""
        self._pending = path.split("/")[::-1]
        while self.steps < _MAX_STEPS:
            self.steps += 1
            if not self._pending:
                return None
            name = self._pending.pop()
            if name == "..":
                self._leave_folder()
            elif name not in ("", "."):
                text = _read_link(name, self._handles[-1])
                if text is not None:
                    self._follow_link(name, text)
                else:
                    mode = os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False).st_mode
                    if not self._pending and not stat.S_ISDIR(mode):
                        return self._open_file(name, mode)
                    self._enter_folder(name)
        raise _NotCollected(BROKEN)

    def _open_file(self, name: str, mode: int) -> int:
        if not stat.S_ISREG(mode):  # opening a device may have side effects
            raise _NotCollected(SPECIAL_FILE)
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=self._handles[-1])
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _NotCollected(SPECIAL_FILE)
        self.names.append(name)
        return descriptor

    def _enter_folder(self, name: str) -> None:
        if len(self._handles) > _MAX_DEPTH:
            raise OSError(errno.EMFILE, "too deep")
        self._handles.append(os.open(name, OPEN_FOLDER | NOFOLLOW, dir_fd=self._handles[-1]))
        self.names.append(name)

    def _leave_folder(self) -> None:
        if not self.names:
            raise _NotCollected(OUTSIDE)
        os.close(self._handles.pop())
        self.names.pop()

    def _follow_link(self, name: str, text: str) -> None:
        """Continue at the target of a link. An absolute one must start with the working copy's path."""
        self._links += 1
        if self._links > _MAX_LINKS:
            raise _NotCollected(BROKEN)
        if not self._pending:
            self.final_links.append(("/".join([*self.names, name]), text))
        if text.startswith("/"):
            remainders = [text[len(root) :] for root in self._roots if text == root or text.startswith(root + "/")]
            if not remainders:
                raise _NotCollected(OUTSIDE)
            self._reset()
            text = remainders[0]
        self._pending += text.split("/")[::-1]

    def _reset(self) -> None:
        """Return to the working copy itself."""
        while len(self._handles) > 1:
            os.close(self._handles.pop())
        self.names.clear()


def _read_link(name: str, parent: int) -> Optional[str]:
    """Return the text of a link, or None if it is not a link."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
