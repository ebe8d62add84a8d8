"""Find and remove files in the local data folder that are no longer needed.

The cleaner accesses only known names below the data folder, uses file handles, and follows no
links. It never touches recorded runs, assets, or shared folders. A submission may be in progress,
so code is removed only while no process uses the content store, and recent files are kept. A
manifest that a new run needs is restored before any of its files are removed. Environments are
removed after a month without use, because rebuilding them may take a long time.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator

from ..errors import HistoryError
from ..history.run_query import Query
from ..history.store import History
from ..remote.environments import environment_usage, garbage_collection
from ..remote.shared.atomic_files import read_json
from ..remote.shared.disk_totals import DiskUsage
from ..remote.shared.folder_tree import READ
from ..remote.shared.layout import Root
from ..remote.shared.store_lock import removing_from_store
from ..remote.shared.untrusted_json import parse_json
from .clean_kinds import CACHES, CODE, ENVIRONMENTS, INDEXES, KINDS, LEFTOVERS, PROGRAMS, WARM_COPIES, Kept, Removable
from .safe_paths import SafeFolders, remove_at

RECENT_SECONDS = 3600.0
_STALE_SECONDS = 24 * 3600.0  # long, because hashing a large file may take hours without changing its timestamps
ASIDE_PREFIX = ".clean-"

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROGRAM = re.compile(r"[0-9a-f]{16}")
_MANIFEST = re.compile(r"[0-9a-f]{64}\.json")
_HEX = re.compile(r"[0-9a-f]+")
_INDEX = re.compile(r"history\.db\.damaged-[0-9-]+(-wal|-shm)?")
_CACHE = re.compile(r"interpreters\.json|digests-[0-9a-f-]{36}\.json")
# Names of files that killed commands leave behind, by folder.
_TEMP_SUFFIX = r"\.[0-9]+-[0-9a-f]{12}"
_LEFTOVER_NAMES = {
    "blobs": re.compile(r"part-[0-9]+-[0-9a-f]{16}"),
    "snapshots": re.compile(rf"[0-9a-f]{{64}}\.json{_TEMP_SUFFIX}|\.clean-[0-9a-f]{{64}}\.json"),
    "cache": re.compile(rf"({_CACHE.pattern}){_TEMP_SUFFIX}"),
    "lib": re.compile(r"\.(part|clean)-[0-9a-f]{16}"),
    "spares": re.compile(r"\.([0-9a-f-]{36}-[0-9]+-[0-9a-f]{12}|clean-[0-9a-f]{16})"),
    "asset": re.compile(r"\.part-[0-9a-f]{16}"),
    "run": re.compile(r"[a-z]+\.json\.[0-9a-f]{16}\.part|placed\.json\.new|placing|collecting\.part"),
}


class LocalCleaner:
    """Cleaner for local files that are no longer needed."""

    def __init__(self, history: History, now: Callable[[], float] = time.time, *, recent: bool = False) -> None:
        self.notes: list[str] = []
        self._recent_seconds, self._stale_seconds = (0.0, 0.0) if recent else (RECENT_SECONDS, _STALE_SECONDS)
        self._kept: dict[tuple[str, str], int] = {}  # (kind, path) → bytes, for recent items
        self._history = history
        self._root: Root = history.paths.root
        self._now = now
        # The data folder itself may be a link; links below it are not followed.
        self._home = os.path.realpath(history.paths.home)

    def find(self) -> list[Removable]:
        """Return all items that can be removed now, by kind."""
        with SafeFolders(self._home) as folders:
            return self._find(folders)

    def kept(self) -> list[Kept]:
        """Return the items that ``find`` kept, by kind."""
        sums = {kind: [size for (item_kind, _), size in self._kept.items() if item_kind == kind] for kind in KINDS}
        return [Kept(kind, len(sizes), sum(sizes)) for kind, sizes in sums.items() if sizes]

    def _find(self, folders: SafeFolders) -> list[Removable]:
        self._kept = {}
        runs, needed = self._runs(folders)
        result = [
            *self._matching(folders, WARM_COPIES, "spares", _UUID, 0.0, complete_only=True),
            *self._code(folders, needed),
            *self._programs(folders),
            *self._leftovers(folders, runs),
            *self._matching(folders, INDEXES, "", _INDEX, 0.0),
            *self._matching(folders, CACHES, "cache", _CACHE, 0.0),
            *self._environments(folders),
        ]
        return result

    def remove(self, items: list[Removable]) -> list[Removable]:
        """Remove items and return those that were removed. Items that are now in use are kept."""
        removed: list[Removable] = []
        with SafeFolders(self._home) as folders:
            with removing_from_store(self._root) as is_exclusive:
                if is_exclusive:
                    # Restore needed manifests that a killed cleaner had set aside.
                    self._restore_needed(folders, self._runs(folders)[1])
                    removed += self._remove_code(folders, [item for item in items if item.kind == CODE])
                elif any(item.kind == CODE for item in items):
                    self.notes.append("a submission is storing files, so no stored code was removed")
            for item in items:
                if item.kind != CODE and self._remove_one(folders, item):
                    removed.append(item)
        return removed

    # -- what is in use ----------------------------------------------------------------------------

    def _runs(self, folders: SafeFolders) -> tuple[dict[str, bool], set[str]]:
        """Return whether each run has ended, by run ID, and the digests of needed code.

        Read the index and the run folders.
        """
        ended = {}
        needed = set()
        for run in self._history.search(Query(hidden=True, inside=False)):
            ended[run.id] = run.status.final
            needed.add(run.spec.snapshot)
        for name in _list_names(folders, "runs"):
            if name not in ended or not ended[name]:
                spec = read_json(self._root.run(name).spec)
                if spec and isinstance(spec.get("snapshot"), str):
                    needed.add(spec["snapshot"])
        return ended, needed

    def _programs_in_use(self, names: list[str]) -> set[str]:
        unfinished = self._history.unfinished()
        paths = " ".join(run.spec.environment.get("PYTHONPATH", "") for run in unfinished)
        commands = _command_lines()
        if commands is None:
            return set(names) if unfinished else set()  # it is unknown which programs supervise runs
        return {name for name in names if name in paths or any(name.encode() in command for command in commands)}

    # -- finding -----------------------------------------------------------------------------------

    def _matching(
        self,
        folders: SafeFolders,
        kind: str,
        folder: str,
        pattern: re.Pattern[str],
        age: float,
        complete_only: bool = False,
    ) -> Iterator[Removable]:
        for name in _list_names(folders, folder):
            if pattern.fullmatch(name):
                item = self._measure(folders, kind, folder, name, age)
                if item is not None and (not complete_only or _is_warm_copy(folders, folder, name)):
                    yield item

    def _measure(self, folders: SafeFolders, kind: str, folder: str, name: str, age: float) -> Removable | None:
        """Return the item with its size; None if it is a link or more recent than ``age``."""
        path = f"{folder}/{name}" if folder else name
        status = folders.lstat(path)
        if status is None or stat.S_ISLNK(status.st_mode):
            return None
        size = _tree_size(folders, path) if stat.S_ISDIR(status.st_mode) else status.st_blocks * 512
        if self._now() - max(status.st_mtime, status.st_ctime) < age:
            self._kept[kind, path] = size
            return None
        return Removable(kind, folder, name, size)

    def _code(self, folders: SafeFolders, needed: set[str]) -> Iterator[Removable]:
        keep, young = [], []
        for name in _list_names(folders, "snapshots"):
            if _MANIFEST.fullmatch(name):
                if name.removesuffix(".json") in needed:
                    keep.append(name)
                elif (item := self._measure(folders, CODE, "snapshots", name, self._recent_seconds)) is not None:
                    yield item
                else:
                    young.append(name)
        used, recent = self._blobs_of(folders, keep), self._blobs_of(folders, young)
        if used is None or recent is None:
            return
        for prefix in _list_names(folders, "blobs"):
            if len(prefix) == 2 and _HEX.fullmatch(prefix):
                for name in _list_names(folders, f"blobs/{prefix}"):
                    if len(name) == 62 and _HEX.fullmatch(name) and prefix + name not in used:
                        age = float("inf") if prefix + name in recent else self._recent_seconds
                        item = self._measure(folders, CODE, f"blobs/{prefix}", name, age)
                        if item is not None:
                            yield item

    def _blobs_of(self, folders: SafeFolders, manifests: list[str]) -> set[str] | None:
        """Return the digests of all files in these snapshots.

        Return None if a snapshot is unreadable; in that case, no file is removed.
        """
        used: set[str] = set()
        for name in manifests:
            try:
                with open(os.open(name, READ, dir_fd=folders.open("snapshots")), "rb") as file:
                    used.update(entry[1] for entry in parse_json(file.read())["files"])
            except (OSError, ValueError, KeyError, TypeError, IndexError):
                self.notes.append(f"snapshots/{name} cannot be read, so stored files were not checked")
                return None
        return used

    def _programs(self, folders: SafeFolders) -> Iterator[Removable]:
        names = [name for name in _list_names(folders, "lib") if _PROGRAM.fullmatch(name)]
        times = {name: status.st_mtime for name in names if (status := folders.lstat(f"lib/{name}")) is not None}
        newest = max(times, key=lambda name: times[name], default="")
        used = self._programs_in_use(names)
        for name in names:
            if name != newest and name not in used and folders.lstat(f"lib/{name}/remote/__main__.py"):
                item = self._measure(folders, PROGRAMS, "lib", name, self._recent_seconds)
                if item is not None:
                    yield item

    def _leftovers(self, folders: SafeFolders, runs: dict[str, bool]) -> Iterator[Removable]:
        for folder in ("blobs", "snapshots"):
            yield from self._store_leftovers(folders, folder)
        for folder in ("cache", "lib", "spares"):
            yield from self._matching(folders, LEFTOVERS, folder, _LEFTOVER_NAMES[folder], self._stale_seconds)
        for project in _list_names(folders, "assets"):
            for name in _list_names(folders, f"assets/{project}"):
                yield from self._matching(
                    folders, LEFTOVERS, f"assets/{project}/{name}", _LEFTOVER_NAMES["asset"], self._stale_seconds
                )
        for run, ended in runs.items():
            if ended:
                yield from self._matching(
                    folders, LEFTOVERS, f"runs/{run}", _LEFTOVER_NAMES["run"], self._recent_seconds
                )

    def _store_leftovers(self, folders: SafeFolders, folder: str) -> Iterator[Removable]:
        """Yield temporary files of killed submissions; only old ones if a process is storing files."""
        with removing_from_store(self._root) as is_exclusive:
            names = [name for name in _list_names(folders, folder) if _LEFTOVER_NAMES[folder].fullmatch(name)]
        for name in names:
            item = self._measure(folders, LEFTOVERS, folder, name, 0.0 if is_exclusive else self._stale_seconds)
            if item is not None:
                yield item

    def _environments(self, folders: SafeFolders) -> Iterator[Removable]:
        """Yield unused environments and broken builds. Files with links elsewhere do not count as freed space."""
        status = folders.lstat("envs")
        if status is None or not stat.S_ISDIR(status.st_mode):
            return  # missing, or a link to a foreign folder
        totals = DiskUsage()
        building = environment_usage.list_building(self._root)
        for path in environment_usage.removable_leftovers(self._root):
            name = os.path.basename(path)
            if name[:64] not in building:
                yield Removable(LEFTOVERS, "envs", name, totals.add(path)[1])
        idle = environment_usage.list_idle(self._root, garbage_collection.IDLE_SECONDS, self._now())
        for digest in environment_usage.list_records(self._root):
            path = self._root.environment(digest)
            try:
                if digest in idle:
                    idle_path = garbage_collection.set_environment_aside(self._root, digest, dry_run=True)
                    yield Removable(ENVIRONMENTS, "envs", digest, totals.add(idle_path)[1])
                    continue
            except (environment_usage.InUse, OSError):
                pass  # a run now needs it
            self._kept[ENVIRONMENTS, path] = totals.add(path)[0]

    # -- removing ----------------------------------------------------------------------------------

    def _remove_code(self, folders: SafeFolders, items: list[Removable]) -> list[Removable]:
        """Set manifests aside, restore those that new runs need, and then remove files.

        Each item is checked again: a submission may have stored the same code and thus made it recent.
        """
        removed: list[Removable] = []
        aside: list[Removable] = []
        manifests = [item for item in items if item.folder == "snapshots"]
        blobs = [item for item in items if item.folder != "snapshots"]
        for item in manifests:
            current = self._measure(folders, CODE, item.folder, item.name, self._recent_seconds)
            if current and self._rename(folders, item, ASIDE_PREFIX + item.name):
                aside.append(item)
        restored = self._restore_needed(folders, self._runs(folders)[1])
        removed += [item for item in aside if item.name not in restored]
        used = self._blobs_of(
            folders, [name for name in _list_names(folders, "snapshots") if _MANIFEST.fullmatch(name)]
        )
        for item in blobs if used is not None else ():
            current = self._measure(folders, CODE, item.folder, item.name, self._recent_seconds)
            if current and item.folder[-2:] + item.name not in (used or ()) and self._remove_one(folders, item):
                removed.append(item)
        for item in removed:
            if item.folder == "snapshots":
                remove_at(folders.open("snapshots"), ASIDE_PREFIX + item.name)
        return removed

    def _restore_needed(self, folders: SafeFolders, needed: set[str]) -> set[str]:
        """Restore manifests that were set aside but are needed."""
        restored = set()
        for name in _list_names(folders, "snapshots"):
            original = name.removeprefix(ASIDE_PREFIX)
            if (
                original != name
                and original.removesuffix(".json") in needed
                and folders.lstat(f"snapshots/{original}") is None
            ):
                handle = folders.open("snapshots")
                os.rename(name, original, src_dir_fd=handle, dst_dir_fd=handle)
                restored.add(original)
        return restored

    def _remove_environment(self, item: Removable) -> bool:
        path = os.path.join(self._root.envs, item.name)
        try:
            garbage_collection.remove_path(
                self._root, path, garbage_collection.IDLE_SECONDS if item.kind == ENVIRONMENTS else 0.0, self._now()
            )
        except environment_usage.InUse:
            return False  # a run now needs it
        except OSError as error:
            self.notes.append(f"cannot remove {item.folder}/{item.name}: {error.strerror}")
            return False
        return True

    def _remove_one(self, folders: SafeFolders, item: Removable) -> bool:
        if item.folder == "envs":
            return self._remove_environment(item)
        name = item.name
        if item.kind in (WARM_COPIES, PROGRAMS):
            # Rename it first, so that a run starting now gets either the complete warm copy or none.
            name = ASIDE_PREFIX + os.urandom(8).hex()
            if not self._rename(folders, item, name):
                return False
        try:
            remove_at(folders.open(item.folder), name)
        except OSError as error:
            self.notes.append(f"cannot remove {item.folder}/{item.name}: {error.strerror}")
            return False
        return True

    def _rename(self, folders: SafeFolders, item: Removable, name: str) -> bool:
        try:
            handle = folders.open(item.folder)
            os.rename(item.name, name, src_dir_fd=handle, dst_dir_fd=handle)
        except OSError:
            return False  # taken or removed by another process
        return True


def require_data_folder(home: str, index: str) -> None:
    """Raise ``HistoryError`` if the folder has no index and is therefore not an mlw data folder."""
    if not os.path.isfile(index) or os.path.islink(index):
        raise HistoryError(f"{home} contains no run history of mlw", "check MLW_HOME")


def _list_names(folders: SafeFolders, folder: str) -> list[str]:
    """Return the names in a folder; empty if the folder is missing or a link."""
    try:
        return sorted(os.listdir(folders.open(folder)))
    except OSError:
        return []


def _is_warm_copy(folders: SafeFolders, folder: str, name: str) -> bool:
    return folders.lstat(f"{folder}/{name}/placed.json") is not None


def _tree_size(folders: SafeFolders, path: str) -> int:
    """Return the disk usage of a folder in bytes."""
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
            continue  # another process has removed it
    return size


def _command_lines() -> list[bytes] | None:
    """Return the command lines of all processes; None if ``/proc`` is not available."""
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
            continue  # the process has ended
    return lines
