"""What can go from our folder on this machine: found first, with its bytes; removed only when asked for.

Only below our folder, only under names that we give, and by handles, so that no link is followed. Recorded runs,
assets and shared folders are never touched. A submit may be under way: code goes only while none relies on the
store, what is young stays, and a list of files that a new run has come to need is put back before any of them goes.
Environments go when no run has used them for a month: to build one again may take long. What stays has a reason.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator

from ..errors import HistoryError
from ..history.query import Query
from ..history.store import History
from ..remote.environments import retire, stock
from ..remote.shared.disk_tally import Tally
from ..remote.shared.files import read_json
from ..remote.shared.layout import Root
from ..remote.shared.store_lock import removing_from_store
from ..remote.shared.tree import READ
from ..remote.shared.untrusted import parse_json
from .beneath import Beneath, remove_at
from .clean_kinds import CACHES, CODE, ENVIRONMENTS, INDEXES, KINDS, LEFTOVERS, PROGRAMS, SPARES, Find, Kept

YOUNG = 3600.0
_STALE = 24 * 3600.0  # a part of the store may be hashed for hours without a change of its times
ASIDE = ".clean-"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROGRAM = re.compile(r"[0-9a-f]{16}")
_LIST = re.compile(r"[0-9a-f]{64}\.json")
_HEX = re.compile(r"[0-9a-f]+")
_INDEX = re.compile(r"history\.db\.damaged-[0-9-]+(-wal|-shm)?")
_CACHE = re.compile(r"interpreters\.json|digests-[0-9a-f-]{36}\.json")
# What a killed command leaves, by the folder it is left in.
_WRITING = r"\.[0-9]+-[0-9a-f]{12}"
_LEFT = {
    "blobs": re.compile(r"part-[0-9]+-[0-9a-f]{16}"),
    "snapshots": re.compile(rf"[0-9a-f]{{64}}\.json{_WRITING}|\.clean-[0-9a-f]{{64}}\.json"),
    "cache": re.compile(rf"({_CACHE.pattern}){_WRITING}"),
    "lib": re.compile(r"\.(part|clean)-[0-9a-f]{16}"),
    "spares": re.compile(r"\.([0-9a-f-]{36}-[0-9]+-[0-9a-f]{12}|clean-[0-9a-f]{16})"),
    "asset": re.compile(r"\.part-[0-9a-f]{16}"),
    "run": re.compile(r"[a-z]+\.json\.[0-9a-f]{16}\.part|placed\.json\.new|placing|collecting\.part"),
}


class Cleaner:
    """Finds what can go, and removes it."""

    def __init__(self, history: History, now: Callable[[], float] = time.time, *, recent: bool = False) -> None:
        self.notes: list[str] = []
        self._young, self._stale = (0.0, 0.0) if recent else (YOUNG, _STALE)
        self._stay: dict[tuple[str, str], int] = {}  # (kind, path) of what is too young → bytes
        self._history = history
        self._root: Root = history.paths.root
        self._now = now
        # A link to our folder is the user's own; below it none is followed.
        self._home = os.path.realpath(history.paths.home)

    def find(self) -> list[Find]:
        """All that can go now, by kind."""
        with Beneath(self._home) as folders:
            return self._find(folders)

    def kept(self) -> list[Kept]:
        """What ``find`` has found and left, by kind."""
        sums = {kind: [size for (of, _), size in self._stay.items() if of == kind] for kind in KINDS}
        return [Kept(kind, len(sizes), sum(sizes)) for kind, sizes in sums.items() if sizes]

    def _find(self, folders: Beneath) -> list[Find]:
        self._stay = {}
        runs, needed = self._runs(folders)
        found = [
            *self._matching(folders, SPARES, "spares", _UUID, 0.0, whole=True),
            *self._code(folders, needed),
            *self._programs(folders),
            *self._leftovers(folders, runs),
            *self._matching(folders, INDEXES, "", _INDEX, 0.0),
            *self._matching(folders, CACHES, "cache", _CACHE, 0.0),
            *self._environments(folders),
        ]
        return found

    def remove(self, found: list[Find]) -> list[Find]:
        """Remove these, and tell which of them went; what has come into use meanwhile stays."""
        gone: list[Find] = []
        with Beneath(self._home) as folders:
            with removing_from_store(self._root) as alone:
                if alone:
                    self._put_back(folders, self._runs(folders)[1])  # what a killed clean had set aside
                    gone += self._remove_code(folders, [one for one in found if one.kind == CODE])
                elif any(one.kind == CODE for one in found):
                    self.notes.append("a submission is storing files, so no stored code was removed")
            for one in found:
                if one.kind != CODE and self._remove_one(folders, one):
                    gone.append(one)
        return gone

    # -- what is in use ----------------------------------------------------------------------------

    def _runs(self, folders: Beneath) -> tuple[dict[str, bool], set[str]]:
        """(id → whether it has ended, digests of the code they need): of the index and of the folders."""
        ended = {}
        needed = set()
        for run in self._history.search(Query(hidden=True, inside=False)):
            ended[run.id] = run.status.final
            needed.add(run.spec.snapshot)
        for name in _names(folders, "runs"):
            if name not in ended or not ended[name]:
                spec = read_json(self._root.run(name).spec)
                if spec and isinstance(spec.get("snapshot"), str):
                    needed.add(spec["snapshot"])
        return ended, needed

    def _programs_in_use(self, names: list[str]) -> set[str]:
        unfinished = self._history.unfinished()
        places = " ".join(run.spec.environment.get("PYTHONPATH", "") for run in unfinished)
        commands = _command_lines()
        if commands is None:
            return set(names) if unfinished else set()  # nobody to ask which of them supervises
        return {name for name in names if name in places or any(name.encode() in one for one in commands)}

    # -- finding -----------------------------------------------------------------------------------

    def _matching(
        self,
        folders: Beneath,
        kind: str,
        folder: str,
        pattern: re.Pattern[str],
        age: float,
        whole: bool = False,
    ) -> Iterator[Find]:
        for name in _names(folders, folder):
            if pattern.fullmatch(name):
                one = self._measure(folders, kind, folder, name, age)
                if one is not None and (not whole or _is_spare(folders, folder, name)):
                    yield one

    def _measure(self, folders: Beneath, kind: str, folder: str, name: str, age: float) -> Find | None:
        """None for what is younger than ``age``, and for links: those are not ours."""
        path = f"{folder}/{name}" if folder else name
        found = folders.look(path)
        if found is None or stat.S_ISLNK(found.st_mode):
            return None
        size = _tree_size(folders, path) if stat.S_ISDIR(found.st_mode) else found.st_blocks * 512
        if self._now() - max(found.st_mtime, found.st_ctime) < age:
            self._stay[kind, path] = size
            return None
        return Find(kind, folder, name, size)

    def _code(self, folders: Beneath, needed: set[str]) -> Iterator[Find]:
        keep, young = [], []
        for name in _names(folders, "snapshots"):
            if _LIST.fullmatch(name):
                if name.removesuffix(".json") in needed:
                    keep.append(name)
                elif (one := self._measure(folders, CODE, "snapshots", name, self._young)) is not None:
                    yield one
                else:
                    young.append(name)
        used, recent = self._blobs_of(folders, keep), self._blobs_of(folders, young)
        if used is None or recent is None:
            return
        for start in _names(folders, "blobs"):
            if len(start) == 2 and _HEX.fullmatch(start):
                for name in _names(folders, f"blobs/{start}"):
                    if len(name) == 62 and _HEX.fullmatch(name) and start + name not in used:
                        age = float("inf") if start + name in recent else self._young
                        one = self._measure(folders, CODE, f"blobs/{start}", name, age)
                        if one is not None:
                            yield one

    def _blobs_of(self, folders: Beneath, lists: list[str]) -> set[str] | None:
        """Digests of all files of these snapshots; None if one list cannot be read: then no file may go."""
        used: set[str] = set()
        for name in lists:
            try:
                with open(os.open(name, READ, dir_fd=folders.open("snapshots")), "rb") as file:
                    used.update(entry[1] for entry in parse_json(file.read())["files"])
            except (OSError, ValueError, KeyError, TypeError, IndexError):
                self.notes.append(f"snapshots/{name} cannot be read, so stored files were not checked")
                return None
        return used

    def _programs(self, folders: Beneath) -> Iterator[Find]:
        names = [name for name in _names(folders, "lib") if _PROGRAM.fullmatch(name)]
        times = {name: found.st_mtime for name in names if (found := folders.look(f"lib/{name}")) is not None}
        newest = max(times, key=lambda name: times[name], default="")
        used = self._programs_in_use(names)
        for name in names:
            if name != newest and name not in used and folders.look(f"lib/{name}/remote/__main__.py"):
                one = self._measure(folders, PROGRAMS, "lib", name, self._young)
                if one is not None:
                    yield one

    def _leftovers(self, folders: Beneath, runs: dict[str, bool]) -> Iterator[Find]:
        for folder in ("blobs", "snapshots"):
            yield from self._unfinished(folders, folder)
        for folder in ("cache", "lib", "spares"):
            yield from self._matching(folders, LEFTOVERS, folder, _LEFT[folder], self._stale)
        for project in _names(folders, "assets"):
            for name in _names(folders, f"assets/{project}"):
                yield from self._matching(folders, LEFTOVERS, f"assets/{project}/{name}", _LEFT["asset"], self._stale)
        for run, ended in runs.items():
            if ended:
                yield from self._matching(folders, LEFTOVERS, f"runs/{run}", _LEFT["run"], self._young)

    def _unfinished(self, folders: Beneath, folder: str) -> Iterator[Find]:
        """What killed submits left of files on their way into the store: at once, unless somebody stores files now."""
        with removing_from_store(self._root) as alone:
            names = [name for name in _names(folders, folder) if _LEFT[folder].fullmatch(name)]
        for name in names:
            one = self._measure(folders, LEFTOVERS, folder, name, 0.0 if alone else self._stale)
            if one is not None:
                yield one

    def _environments(self, folders: Beneath) -> Iterator[Find]:
        """Also what broken builds left. Files that another environment or a cache shares free nothing."""
        found = folders.look("envs")
        if found is None or not stat.S_ISDIR(found.st_mode):
            return  # there is none, or a link: where that leads is not ours
        tally = Tally()
        building = stock.in_building(self._root)
        for path in stock.broken(self._root):
            name = os.path.basename(path)
            if name[:64] not in building:
                yield Find(LEFTOVERS, "envs", name, tally.add(path)[1])
        idle = stock.idle(self._root, retire.IDLE, self._now())
        for digest in stock.notes(self._root):
            path = self._root.environment(digest)
            try:
                if digest in idle:
                    idle_path = retire.take_away(self._root, digest, dry=True)
                    yield Find(ENVIRONMENTS, "envs", digest, tally.add(idle_path)[1])
                    continue
            except (stock.InUse, OSError):
                pass  # a run has come that needs it
            self._stay[ENVIRONMENTS, path] = tally.add(path)[0]

    # -- removing ----------------------------------------------------------------------------------

    def _remove_code(self, folders: Beneath, found: list[Find]) -> list[Find]:
        """Lists first, set aside: a run recorded since they were found gets its own back; then files.

        Looked at again: a submit may have taken the same code meanwhile, which makes it young.
        """
        gone: list[Find] = []
        aside: list[Find] = []
        lists = [one for one in found if one.folder == "snapshots"]
        blobs = [one for one in found if one.folder != "snapshots"]
        for one in lists:
            fresh = self._measure(folders, CODE, one.folder, one.name, self._young)
            if fresh and self._rename(folders, one, ASIDE + one.name):
                aside.append(one)
        back = self._put_back(folders, self._runs(folders)[1])
        gone += [one for one in aside if one.name not in back]
        used = self._blobs_of(folders, [name for name in _names(folders, "snapshots") if _LIST.fullmatch(name)])
        for one in blobs if used is not None else ():
            fresh = self._measure(folders, CODE, one.folder, one.name, self._young)
            if fresh and one.folder[-2:] + one.name not in (used or ()) and self._remove_one(folders, one):
                gone.append(one)
        for one in gone:
            if one.folder == "snapshots":
                remove_at(folders.open("snapshots"), ASIDE + one.name)
        return gone

    def _put_back(self, folders: Beneath, needed: set[str]) -> set[str]:
        """Lists that were set aside and are needed after all, under their names again."""
        back = set()
        for name in _names(folders, "snapshots"):
            own = name.removeprefix(ASIDE)
            if own != name and own.removesuffix(".json") in needed and folders.look(f"snapshots/{own}") is None:
                handle = folders.open("snapshots")
                os.rename(name, own, src_dir_fd=handle, dst_dir_fd=handle)
                back.add(own)
        return back

    def _remove_environment(self, one: Find) -> bool:
        place = os.path.join(self._root.envs, one.name)
        try:
            retire.end(self._root, place, retire.IDLE if one.kind == ENVIRONMENTS else 0.0, self._now())
        except stock.InUse:
            return False  # a run has come that needs it
        except OSError as error:
            self.notes.append(f"cannot remove {one.folder}/{one.name}: {error.strerror}")
            return False
        return True

    def _remove_one(self, folders: Beneath, one: Find) -> bool:
        if one.folder == "envs":
            return self._remove_environment(one)
        name = one.name
        if one.kind in (SPARES, PROGRAMS):
            # Under a name that no run asks for: one that takes the spare now gets all of it, or none.
            name = ASIDE + os.urandom(8).hex()
            if not self._rename(folders, one, name):
                return False
        try:
            remove_at(folders.open(one.folder), name)
        except OSError as error:
            self.notes.append(f"cannot remove {one.folder}/{one.name}: {error.strerror}")
            return False
        return True

    def _rename(self, folders: Beneath, one: Find, name: str) -> bool:
        try:
            handle = folders.open(one.folder)
            os.rename(one.name, name, src_dir_fd=handle, dst_dir_fd=handle)
        except OSError:
            return False  # somebody took it, or it was removed
        return True


def check_ours(home: str, index: str) -> None:
    """Our mark: a folder without an index is not ours to clean."""
    if not os.path.isfile(index) or os.path.islink(index):
        raise HistoryError(f"{home} contains no run history of mlw", "check MLW_HOME")


def _names(folders: Beneath, folder: str) -> list[str]:
    """Names in a folder; none if it is a link, or not there."""
    try:
        return sorted(os.listdir(folders.open(folder)))
    except OSError:
        return []


def _is_spare(folders: Beneath, folder: str, name: str) -> bool:
    return folders.look(f"{folder}/{name}/placed.json") is not None


def _tree_size(folders: Beneath, path: str) -> int:
    """What a folder takes on the disk."""
    size = 0
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folders.open(folder)) as listing:
                for entry in listing:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{folder}/{entry.name}")
        except OSError:
            continue  # taken meanwhile
    return size


def _command_lines() -> list[bytes] | None:
    """Of all processes; None where they cannot be listed so."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    lines = []
    for number in numbers:
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                lines.append(file.read())
        except OSError:
            continue  # ended meanwhile
    return lines
