"""Record W&B runs in offline mode while the script writes them.

The configuration becomes parameters, the history becomes metrics, and name, tags, and exit code become tags of the
run. Everything else, such as images and tables, stays in the files of W&B, which are collected with the outputs.
"""

from __future__ import annotations

import json
import os

from ..run_reader import open_regular_file, read_descriptor
from ..shared.folder_tree import FolderHandles
from .file_search import WANDB, TrackingFiles
from .log_file_reader import LogFileReader
from .protobuf_wire import InvalidEventFile, TooManyFields
from .script_runs import MAX_RUNS, MAX_VALUE, ScriptRuns, encode_float, valid_time
from .wandb_file import (
    CONFIG,
    EXIT,
    HEADER,
    HISTORY,
    MAX_RECORD,
    RUN,
    SUMMARY,
    UNKNOWN,
    VERSION,
    InvalidRecordLog,
    iterate_records,
    parse_record,
)

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    from ..script_files import ScriptFiles
    from .metrics_appender import Source

_OFFLINE = "offline-run-"  # start of a folder's name
_READABLE = (0, 70, 0)  # newest "min_consumer" of a file that this module can read
_CHUNK = 256 * 1024
_LONGEST = MAX_RECORD + (1 << 20)  # of a record with the headers of its chunks
_CLOCK_TOLERANCE = 2.0  # seconds by which clocks may differ: older runs are not from this run
_MAX_NAMES = 10000  # remembered per run
_NO_NUMBERS = "values that are not numbers are only in the W&B files"


class _UnknownFormat(Exception):
    """A file that cannot be read. The argument is the reason."""


class _OfflineRun:
    """What is remembered about a W&B run while its file is read."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.id = str(fields.get("run_id") or "")
        self.name = str(fields.get("name") or self.id)
        self.started = valid_time(fields.get("started", 0.0))
        self.position = len(HEADER)  # of the next record
        self.last_time = self.started
        self.recorded: Dict[str, Any] = {}  # parameter or tag → value; W&B repeats them
        self.logged: Set[str] = set()  # names in the history
        self.summary: Dict[str, Any] = {}


class WandbReader(LogFileReader):
    """Reader of the W&B runs of one script."""

    kind = WANDB
    left_out_tag = "wandb.left-out"

    def __init__(self, files: TrackingFiles, target: str, started: float) -> None:
        super().__init__(files, target, started)
        self._offline: Dict[str, _OfflineRun] = {}  # name of a source → run
        self._ignored: Set[str] = set()  # paths of runs that are not from this script
        self._unreadable: Dict[str, str] = {}  # path → reason
        self._reset()

    def _reset(self) -> None:
        self._runs = ScriptRuns(self._file)
        self._offline.clear()

    def describe_files(self, files: ScriptFiles) -> None:
        """Keep what ``wandb sync`` needs. Logs of W&B are not collected."""
        for path in self._files.found[WANDB]:
            folder = path.rpartition("/")[0]
            if not _is_offline(path) or path in self._ignored:
                continue
            reason = self._unreadable.get(path)
            if reason is not None:
                files.unread.add(folder, "the W&B run is not recorded, but its folder is kept: %s" % reason)
                files.keep.append(folder)
            elif _source_name(path) in self._offline:
                files.keep += [path, folder + "/files"]
                files.recorded.add(folder)

    # -- sources -------------------------------------------------------------------------------------------

    def _add_sources(self, folders: FolderHandles) -> Dict[str, str]:
        # The folders may have moved to outputs/, so their paths do not identify them.
        paths = {_source_name(path): path for path in self._files.found[WANDB] if _is_offline(path)}
        new: List[Tuple[float, str, _OfflineRun]] = []
        for name, path in paths.items():
            if name in self._offline or path in self._ignored or path in self._unreadable:
                continue
            try:
                run = self._read_head(path, folders)
            except (_UnknownFormat, InvalidRecordLog, InvalidEventFile, TooManyFields) as error:
                self._unreadable[path] = str(error) or "a record has too many fields"
                continue
            if run is not None and run.started < self._started - _CLOCK_TOLERANCE:
                self._ignored.add(path)
            elif run is not None:
                new.append((run.started, name, run))
        for _, name, run in sorted(new, key=lambda item: item[:2]):
            self._add_run(name, run)
        return paths

    def _read_head(self, path: str, folders: FolderHandles) -> Optional[_OfflineRun]:
        """Return the run at the beginning of a file, or None if it is not written yet."""
        descriptor = open_regular_file(folders, path)
        if descriptor is None:
            return None
        try:
            data = read_descriptor(descriptor, 0, _LONGEST if self._has_ended else _CHUNK)
        finally:
            os.close(descriptor)
        if not HEADER.startswith(data[: len(HEADER)]):
            raise _UnknownFormat("its format is unknown")
        for _, record in iterate_records(data[len(HEADER) :], len(HEADER)):
            kind, fields, _ = parse_record(record)
            if kind == VERSION and fields and not _is_readable(fields.get("min_consumer", "")):
                writer = str(fields.get("producer", "")).partition("+")[0][:50]
                raise _UnknownFormat("the format of wandb %s is unknown" % writer)
            if kind == RUN:
                return _OfflineRun(fields)
        if self._has_ended:
            raise _UnknownFormat("it contains no run")
        return None

    def _add_run(self, name: str, run: _OfflineRun) -> None:
        source = self._file.sources.get(name)
        if source is None:
            if len(self._file.sources) >= MAX_RUNS:
                self._messages.add("more than %d W&B runs; the rest are ignored" % MAX_RUNS)
                return
            source = self._file.add_source(name)
        self._offline[name] = run
        if source.number == 0:
            self._runs.first = run.id
            return
        first = next((self._offline[other] for other in self._offline if self._file.sources[other].number == 0), None)
        if first is not None and source.number == 1:
            self._runs.child(first.id, _child(first), parent=None, same=True)
        self._runs.child(run.id, _child(run), parent=None, status="running")

    # -- records -------------------------------------------------------------------------------------------

    def _read_records(self, source: Source, descriptor: int) -> bool:
        run = self._offline.get(source.name)
        if run is None:
            return False
        size = os.fstat(descriptor).st_size
        for limit in (_CHUNK, _LONGEST):
            data = read_descriptor(descriptor, run.position, limit)
            begin = run.position
            try:
                for end, record in iterate_records(data, begin):
                    self._add_record(source, run, record)
                    run.position = end
            except InvalidRecordLog:
                if self._has_ended:  # before, the record may be incomplete
                    source.broken = True
                    self._messages.add("a W&B file is damaged; the data after %d bytes is not recorded" % run.position)
                return False
            if run.position > begin:
                return True
            if size <= begin + limit:
                return False
        source.broken = True
        self._messages.add("W&B records of more than %d bytes are not read, nor the records after them" % MAX_RECORD)
        return False

    def _add_record(self, source: Source, run: _OfflineRun, record: bytes) -> None:
        try:
            kind, fields, items = parse_record(record)
        except (InvalidEventFile, TooManyFields):
            self._messages.add("damaged W&B records are not recorded")
            return
        if kind == HISTORY:
            self._add_history(source, run, items)
        elif kind == SUMMARY and len(run.summary) < _MAX_NAMES:
            run.summary.update(items)
        elif kind in (RUN, CONFIG):
            self._add_facts(run, "param", [item for item in items if not item[0].startswith("_wandb")])
            tags = [(name, text) for name, text in fields.items() if name != "started" and text]
            self._add_facts(run, "tag", [("wandb." + name, text) for name, text in tags])
        elif kind == EXIT:
            code = fields["exit_code"]
            self._add_facts(run, "tag", [("wandb.exit_code", str(code))])
            if run.id != self._runs.first:
                ended = valid_time(run.started + fields["runtime"])
                self._runs.child(run.id, _child(run), status="failed" if code else "completed", ended=ended)

    def _add_facts(self, run: _OfflineRun, kind: str, items: Iterable[Tuple[str, Any]]) -> None:
        """Record parameters or tags that are new or have changed."""
        for name, value in items:
            value = _plain(value)
            if run.recorded.get(name, UNKNOWN) != value and len(run.recorded) < _MAX_NAMES:
                run.recorded[name] = value
                self._runs.record(run.id, kind, name, value, run.started)

    def _add_history(self, source: Source, run: _OfflineRun, items: List[Tuple[str, Any]]) -> None:
        values = dict(items)
        step, when = values.get("_step"), values.get("_timestamp")
        if isinstance(when, (int, float)) and valid_time(when):
            run.last_time = float(when)
        numbers = self._numbers(items)
        run.logged.update(name for name, _ in numbers[: _MAX_NAMES - len(run.logged)])
        self._add_points(source, run, numbers, step if isinstance(step, int) else None)

    def _numbers(self, items: Iterable[Tuple[str, Any]]) -> List[Tuple[str, Any]]:
        """Return the metrics among these values. Names with an underscore at the beginning are those of W&B."""
        named = [(name, value) for name, value in items if name and not name.startswith("_")]
        # Images, tables, and histograms are dicts with a type; their other numbers are sizes.
        media = tuple(name[: -len("_type")] for name, _ in named if name.endswith("._type"))
        metrics = [(name, value) for name, value in named if _is_metric(name, value, media)]
        numbers = [(name, int(value) if isinstance(value, bool) else value) for name, value in metrics]
        if len(numbers) < len(named):
            self._messages.add(_NO_NUMBERS)
        return numbers

    def _add_points(
        self, source: Source, run: _OfflineRun, points: Iterable[Tuple[str, Any]], step: Optional[int]
    ) -> None:
        """Add the points of the record at ``run.position``, unless an earlier supervisor did."""
        if run.position < source.offset:
            return
        if run.position > source.offset:
            source.offset, source.values_done = run.position, 0
        for index, (name, value) in enumerate(points):
            if index >= source.values_done:
                source.values_done = index
                self._runs.point(source, run.id, name, value, run.last_time, step)
                source.values_done = index + 1

    def _end(self, folders: FolderHandles) -> None:
        """Record values that exist only in the summary, such as ``run.summary["best"] = 0.9``."""
        for name, run in self._offline.items():
            summary = [(key, value) for key, value in run.summary.items() if key not in run.logged]
            self._add_points(self._file.sources[name], run, self._numbers(summary), None)


def _is_offline(path: str) -> bool:
    parts = path.split("/")
    return len(parts) > 1 and parts[-2].startswith(_OFFLINE)


def _source_name(path: str) -> str:
    return "/".join(path.split("/")[-2:])


def _child(run: _OfflineRun) -> Dict[str, Any]:
    return {"name": run.name, "started": run.started}


def _is_readable(version: str) -> bool:
    try:
        return tuple(int(part) for part in version.split(".")) <= _READABLE
    except ValueError:
        return False


def _is_metric(name: str, value: Any, media: Tuple[str, ...]) -> bool:
    return isinstance(value, (int, float)) and not name.startswith(media)


def _plain(value: Any) -> Any:
    """Return the value of a parameter or tag as the in-run library would record it."""
    if value is UNKNOWN:
        return ""
    return json.dumps(value)[:MAX_VALUE] if isinstance(value, (list, dict)) else encode_float(value)
