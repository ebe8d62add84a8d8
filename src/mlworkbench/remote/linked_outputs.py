"""Links in ``outputs/``: a link to a file of the working copy is replaced by that file, any other is classified.

A script may have put any link anywhere, and something of it may still run. So every name on the way is opened by
itself below the folder before it, without following a link, and nothing above the working copy is ever opened.
"""

from __future__ import annotations

import errno
import os
import stat

from .shared.layout import RunFolder
from .shared.output_kinds import BROKEN, FOLDER, LINK, NOT_COPIED, OUTSIDE, SPECIAL_FILE, VANISHED
from .shared.tree import FOLDER as OPEN_FOLDER
from .shared.tree import NEW, NOFOLLOW, READ, clone, copy, join, points_inside

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_MOST_LINKS, _MOST_STEPS, _DEEPEST = 40, 4096, 256
MOST_STEPS = 1_000_000  # of all links of a run: some minutes
# O_NONBLOCK: should the file have been replaced by a FIFO since it was looked at, opening it must not block.
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)


class _Refused(Exception):
    """The link leads to something that is not collected; the argument is its kind."""


class LinkedOutputs:
    """Collects the links of one run, one after the other. OSError if there is no working copy."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._roots = {run.work, os.path.realpath(run.work)}
        self._work = os.open(run.work, OPEN_FOLDER | NOFOLLOW)
        self._folder = os.open(run.path, OPEN_FOLDER)
        # In the run folder, until it gets its name in outputs/. Not to be guessed: a script could put a folder there.
        self._part = "collecting.%s.part" % os.urandom(8).hex()
        self._steps = MOST_STEPS

    def __enter__(self) -> LinkedOutputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_part()
        os.close(self._work)
        os.close(self._folder)

    def leave(self, path: str, parent: int) -> Dict[str, str]:
        """The same of a link that is not followed, for lack of time."""
        return {"kind": NOT_COPIED, "to": os.readlink(path.rpartition("/")[2], dir_fd=parent)}

    def collect(self, path: str, parent: Optional[int]) -> Dict[str, str]:
        """Kind and text of the link at ``path`` below ``outputs/``, whose folder is ``parent``; {}: it is a file now.

        Without a parent, ``outputs`` itself is the link.
        """
        if self._steps <= 0 and parent is not None:
            return self.leave(path, parent)
        where = join("outputs", path) if parent is not None else "outputs"
        with _Walk(self._work, self._roots) as walk:
            source = None
            try:
                source = walk.go(where)
                if not walk.ends or walk.ends[0][0] != where:
                    return {"kind": VANISHED}
                return self._take(path, parent, walk, source)
            except _Refused as refused:
                kind = str(refused)
                if kind == OUTSIDE and self._comes_back(walk):
                    kind = NOT_COPIED
            except (FileNotFoundError, NotADirectoryError):
                kind = BROKEN
            except OSError:
                kind = NOT_COPIED
            finally:
                self._steps -= walk.steps
                if source is not None:
                    os.close(source)
            return {"kind": kind, "to": walk.ends[0][1]} if walk.ends else {"kind": VANISHED}

    def _comes_back(self, walk: _Walk) -> bool:
        """Whether the text of a link leads out of the working copy and into it again. Nothing outside is looked at."""
        where, text = walk.ends[-1] if walk.ends else ("", "")
        path = os.path.normpath(os.path.join(self._run.work, os.path.dirname(where), text))
        return any(path.startswith(root + os.sep) for root in self._roots)

    def _take(self, path: str, parent: Optional[int], walk: _Walk, source: Optional[int]) -> Dict[str, str]:
        """Make what the link leads to a part of the outputs."""
        text = walk.ends[0][1]
        first = walk.ends[1][0] if len(walk.ends) > 1 else "/".join(walk.names)
        folder, _, name = path.rpartition("/")
        if parent is None:
            return {"kind": FOLDER if source is None else NOT_COPIED, "to": text}
        if first == "outputs" or first.startswith("outputs/"):
            if not points_inside(path, text):  # as written, it would lead nowhere in a copy of the outputs
                text = os.path.relpath("/" + first, "/" + join("outputs", folder))
                self._drop_part()
                os.symlink(text, self._part, dir_fd=self._folder)
                self._put(parent, name)
            return {"kind": LINK, "to": text}
        if source is None:
            return {"kind": FOLDER, "to": text}
        self._make_part(source)
        self._put(parent, name)
        return {}

    def _make_part(self, source: int) -> None:
        """A second name of an open file, which needs no room; where that cannot be had, a copy."""
        self._drop_part()
        try:
            # Not by its name: another file may have it by now.
            os.link("/proc/self/fd/%d" % source, self._part, dst_dir_fd=self._folder)
        except OSError:  # no /proc, another owner, too many names, or a disk without hard links
            self._copy(source)

    def _copy(self, source: int) -> None:
        facts, disk = os.fstat(source), os.statvfs(self._run.path)
        if facts.st_blocks * 512 > disk.f_bavail * disk.f_frsize // 2:
            raise OSError(errno.ENOSPC, "the copy would fill the disk")
        target = os.open(self._part, NEW, facts.st_mode & 0o777, dir_fd=self._folder)
        try:
            if not facts.st_size or not clone(source, target):
                copy(source, target, facts.st_size, facts.st_blocks)
        finally:
            os.close(target)

    def _put(self, parent: int, name: str) -> None:
        """In the place of the link, unless something else has come there."""
        if not stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise _Refused(VANISHED)
        os.rename(self._part, name, src_dir_fd=self._folder, dst_dir_fd=parent)

    def _drop_part(self) -> None:
        try:
            os.unlink(self._part, dir_fd=self._folder)
        except FileNotFoundError:
            pass


class _Walk:
    """Follows one path below the working copy, through links that stay there.

    ``names``: where it is. ``ends``: path and text of each link that stood at the end of the path so far.
    """

    def __init__(self, work: int, roots: "set[str]") -> None:
        self.names: List[str] = []
        self.ends: List[Tuple[str, str]] = []
        self._handles = [work]
        self._roots = roots
        self._pending: List[str] = []
        self._links = 0
        self.steps = 0

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self._return()

    def go(self, path: str) -> Optional[int]:
        """A descriptor of the file that the path leads to, None if that is a folder; raises _Refused and OSError."""
        self._pending = path.split("/")[::-1]
        while self.steps < _MOST_STEPS:
            self.steps += 1
            if not self._pending:
                return None
            name = self._pending.pop()
            if name == "..":
                self._up()
            elif name not in ("", "."):
                text = _link_text(name, self._handles[-1])
                if text is not None:
                    self._turn(name, text)
                else:
                    mode = os.stat(name, dir_fd=self._handles[-1], follow_symlinks=False).st_mode
                    if not self._pending and not stat.S_ISDIR(mode):
                        return self._open(name, mode)
                    self._enter(name)
        raise _Refused(BROKEN)

    def _open(self, name: str, mode: int) -> int:
        if not stat.S_ISREG(mode):  # opening a device may have effects
            raise _Refused(SPECIAL_FILE)
        descriptor = os.open(name, _OPEN, dir_fd=self._handles[-1])
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _Refused(SPECIAL_FILE)
        self.names.append(name)
        return descriptor

    def _enter(self, name: str) -> None:
        if len(self._handles) > _DEEPEST:
            raise OSError(errno.EMFILE, "too deep")
        self._handles.append(os.open(name, OPEN_FOLDER | NOFOLLOW, dir_fd=self._handles[-1]))
        self.names.append(name)

    def _up(self) -> None:
        if not self.names:
            raise _Refused(OUTSIDE)
        os.close(self._handles.pop())
        self.names.pop()

    def _turn(self, name: str, text: str) -> None:
        """Go on where a link leads to. An absolute one counts from the working copy, whose path it must begin with."""
        self._links += 1
        if self._links > _MOST_LINKS:
            raise _Refused(BROKEN)
        if not self._pending:
            self.ends.append(("/".join([*self.names, name]), text))
        if text.startswith("/"):
            inside = [text[len(root) :] for root in self._roots if text == root or text.startswith(root + "/")]
            if not inside:
                raise _Refused(OUTSIDE)
            self._return()
            text = inside[0]
        self._pending += text.split("/")[::-1]

    def _return(self) -> None:
        """Back to the working copy itself."""
        while len(self._handles) > 1:
            os.close(self._handles.pop())
        self.names.clear()


def _link_text(name: str, parent: int) -> Optional[str]:
    """None: not a link."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
