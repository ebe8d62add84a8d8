"""Record what event files contain besides scalars.

Hyperparameters become parameters of the run. Images and texts become files in ``outputs/``, as with ``log_image`` and
``log_text``. Everything else, such as audio and graphs, stays in its event file, which is copied to
``outputs/tensorboard``; the tag ``tensorboard.kept`` lists it. Some steps of histograms and PR curves also become
tables, as with ``log_table``.
"""

from __future__ import annotations

import json
import os

from ..run_reader import open_regular_file
from ..shared.folder_tree import FolderHandles, portable
from .output_writer import OutputWriter, safe_parts
from .plot_tables import PLOTTED, PlotTables
from .script_runs import encode_float
from .summary_value import HPARAMS, IMAGES, TEXT

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple, Union

    from .metrics_appender import MetricsAppender, Source
    from .summary_value import Summary

KEPT = "tensorboard.kept"  # tag that lists the data in the copied event files
LARGE = "large records"  # kind of records that are not parsed
MAX_FILES = 500  # maximum images and texts per run
MAX_BYTES = 64 * 1024 * 1024  # maximum total size of these files
MAX_EVENT_BYTES = 256 * 1024 * 1024  # maximum total size of copied event files
COPIES = "outputs/tensorboard/"  # folder of the copied event files
_MAX_KINDS = 20  # maximum remembered kinds per file
_MAX_TAGS = 100  # maximum remembered tags per file and kind
_MAX_LISTED = 20  # maximum tags per kind in the list for users
_LIMIT_MESSAGE = "at most %d images and texts, and %d MiB of them, are stored; the event files contain the rest"
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
)


class SummaryRecorder:
    """Recorder of hyperparameters, images, texts, and of the names of all other data."""

    def __init__(self, work: str, file: "MetricsAppender", messages: "Set[str]") -> None:
        self._file = file
        self._outputs = OutputWriter(work)
        self._messages = messages  # about data that is not recorded
        self._stored: Dict[str, int] = {}  # path below outputs → size
        self._kept: Dict[int, Dict[str, List[str]]] = {}  # number of a source → kind → tags
        self.has_recorded = False  # whether summaries were added; the reader resets it

    def restore(self, kind: str, data: "Dict[str, Any]") -> None:
        """Apply a record that an earlier supervisor wrote.

        May raise KeyError, TypeError, ValueError, and OverflowError.
        """
        if kind == "file" and data["as"] in ("image", "text"):
            self._stored[str(data["path"])] = int(data["size"])
        elif kind == "kept":
            self._remember(int(data["number"]), str(data["kind"]), str(data["tag"]))

    def add(self, source: "Source", summary: "Summary", step: int) -> None:
        """Record a summary that is not a scalar."""
        self.has_recorded = True
        if summary.kind == HPARAMS:
            for tag, value in summary.value:
                name = self._file.name_of(source, "param", tag)
                self._file.add_record("param", {"name": name, "value": encode_float(value)})
        elif summary.kind == IMAGES and summary.value:
            for image in summary.value:
                suffix = _image_suffix(bytes(image[:8]))
                if suffix is None:
                    self.keep(source, summary.kind, summary.tag)
                else:
                    self._store(source, summary, step, image, suffix)
        elif summary.kind == TEXT and summary.value:
            self._store(source, summary, step, summary.value.encode("utf-8", "replace"), ".txt")
        else:
            self.keep(source, summary.kind, summary.tag)

    def keep(self, source: "Source", kind: str, tag: str) -> None:
        """Remember that the event file must be copied because of this data."""
        if self._remember(source.number, kind, tag):
            self._file.add_record("kept", {"number": source.number, "kind": kind, "tag": tag})

    def _remember(self, number: int, kind: str, tag: str) -> bool:
        kinds = self._kept.setdefault(number, {})
        tags = kinds.setdefault(kind if kind in kinds or len(kinds) < _MAX_KINDS else "other", [])
        if tag in tags or len(tags) >= _MAX_TAGS:
            return False
        tags.append(tag)
        return True

    def _store(
        self, source: "Source", summary: "Summary", step: int, data: "Union[bytes, memoryview]", suffix: str
    ) -> None:
        if len(self._stored) >= MAX_FILES or sum(self._stored.values()) + len(data) > MAX_BYTES:
            self._messages.add(_LIMIT_MESSAGE % (MAX_FILES, MAX_BYTES >> 20))
            self.keep(source, summary.kind, summary.tag)
            return
        name = source.prefix + summary.tag
        parts = [summary.kind, *safe_parts("%s-%d" % (name, step))]
        try:
            path = self._outputs.write(parts, suffix, data)
        except (OSError, ValueError) as error:
            self._messages.add(_failure_message(summary.kind, error))
            self.keep(source, summary.kind, summary.tag)
            return
        self._stored[path] = len(data)
        kind = "image" if summary.kind == IMAGES else "text"
        self._file.add_record("file", {"path": path, "as": kind, "name": name, "step": step, "size": len(data)})

    # -- event files ---------------------------------------------------------------------------------------

    def finish(self, folders: FolderHandles) -> None:
        """Copy the event files with data that is not recorded elsewhere, and list that data in a tag.

        Write tables of histograms and PR curves.
        """
        plots = PlotTables(self._messages)
        sources = {source.number: source for source in self._file.sources.values()}
        listed: Dict[str, List[str]] = {}
        size = 0
        for number in sorted(self._kept):
            source = sources.get(number)
            path, size = self._copy(source, folders, size, plots) if source is not None else (None, size)
            if source is None or path is None:
                continue
            self._file.add_record("file", {"path": path, "as": "tensorboard", "name": source.name[-500:]})
            for kind, tags in self._kept[number].items():
                known = listed.setdefault(kind, [])
                known += [name for name in (source.prefix + tag for tag in tags) if name not in known]
        self._store_tables(plots)
        if listed:
            self._file.add_tag(KEPT, "; ".join(_describe(kind, listed[kind]) for kind in sorted(listed)))

    def _store_tables(self, plots: PlotTables) -> None:
        for kind, name, content in plots.tables():
            data = json.dumps(content, separators=(",", ":")).encode("ascii")
            try:
                path = self._outputs.write([*COPIES.split("/")[1:-1], kind, *safe_parts(name)], ".json", data)
            except (OSError, ValueError) as error:
                self._messages.add(_failure_message(kind.replace("_", " "), error))
                continue
            self._file.add_record("file", {"path": path, "as": "table", "name": "%s/%s" % (kind, name)})

    def _copy(
        self, source: "Source", folders: FolderHandles, size: int, plots: PlotTables
    ) -> "Tuple[Optional[str], int]":
        """Return the path of an event file below ``outputs/``, and the total size of copied files."""
        parts = source.name.split("/")
        descriptor = open_regular_file(folders, source.name)
        if descriptor is None:
            return None, size
        try:
            if any(kind in self._kept[source.number] for kind in PLOTTED):
                plots.read(descriptor, source.prefix)
            if parts[0] == "outputs":
                return portable("/".join(parts[1:])), size
            size += os.fstat(descriptor).st_size
            if size > MAX_EVENT_BYTES:
                self._messages.add("only %d MiB of event files are copied to outputs" % (MAX_EVENT_BYTES >> 20))
                return None, size
            return self._outputs.copy([*COPIES.split("/")[1:-1], *parts], descriptor), size
        except (OSError, ValueError) as error:
            self._messages.add(_failure_message("event files", error))
            return None, size
        finally:
            os.close(descriptor)


def _failure_message(kind: str, error: Exception) -> str:
    return "%s could not be stored in outputs: %s" % (kind, getattr(error, "strerror", None) or "invalid name")


def _describe(kind: str, tags: "List[str]") -> str:
    named = [tag for tag in tags if tag]
    text = kind.replace("_", " ")
    if named:
        text += ": " + ", ".join(named[:_MAX_LISTED])
    return text + ", and more" * (len(named) > _MAX_LISTED)


def _image_suffix(head: bytes) -> "Optional[str]":
    return next((suffix for signature, suffix in _SIGNATURES if head.startswith(signature)), None)
