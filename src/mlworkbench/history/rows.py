"""Runs as rows in the index. Reading verifies each row and detects missing rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from zlib import crc32

import apsw

from ..errors import HistoryError
from ..failure import Failure
from ..model import Annotations, JsonDict, Run, RunSpec, Span, Status
from .database import Damaged
from .parameters import number, run_parameters, text

Row = tuple[Any, ...]

_LISTED = "id, key, number, project, created, status, final, hidden, script, target, parent, facts, metrics"
_BODY = "spec, state, reading, submitter"
# Input of a row's checksum. SQLite computes it in one expression, because listing runs verifies every row.
CONTENT = f"CAST(concat_ws(char(31), {_LISTED}) AS BLOB)"
_SELECT = (
    f"SELECT runs.seq, runs.checksum, {CONTENT}, final, id, {_BODY}, bodies.checksum"
    " FROM runs {} LEFT JOIN bodies ON bodies.seq = runs.seq WHERE {}"
)
_INSERT = f"INSERT OR IGNORE INTO runs ({_LISTED}, checksum) VALUES ({', '.join('?' * 14)})"
_REPLACE_BODY = f"INSERT OR REPLACE INTO bodies (seq, {_BODY}, checksum) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT_RAW = (
    f"SELECT {_LISTED}, runs.checksum, {_BODY}, bodies.checksum FROM runs JOIN bodies USING (seq) WHERE id = ?"
)
_LIST_FIELDS = ("tags", "untagged")
# Fields of a run that its script recorded, and the number of entries dropped from them.
SCRIPT_FIELDS = ("metrics", "spans", "metric_sources", "params", "told_tags", "files", "children", "over_limit")
_STATE_FIELDS = tuple(name for name in Run.__dataclass_fields__ if name != "spec")
_OPTIONAL_FIELDS = (
    "left_out",
    "unkept",
    "attempts",
    "uncollected",
    "failure",
    "no_contact",
    "unwritten",
    "metric_sources",
)  # stored only if not empty
_BATCH = 2048
_MAX_SEARCHABLE = 200  # maximum length of a metric value that filters can match
_MAX_SEARCH_TEXT = 2000
# Maximum size of a run's state in bytes, because SQLite rejects larger rows. A run whose script records more is shown
# without these records, which remain in the files.
MAX_STATE_BYTES = 128 * 1024 * 1024
# Maximum characters of metrics, spans, parameters, and tags in a listed row, because each list reads them for all runs.
MAX_LISTED = 4 * 1024 * 1024
_ROW_OVERHEAD = 10_000  # bytes of a row besides strings
MICRO = 1_000_000
_SURROGATE = re.compile("[\ud800-\udfff]")
HIDDEN_UNTRACKED, HIDDEN_ARCHIVED = 1, 2  # reasons why a run is hidden


class RowTooLarge(HistoryError):
    """A run that is too large for SQLite. The index and all other runs are unaffected."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} is too large for the run history", "submit with shorter arguments and settings")


@dataclass(frozen=True)
class ReadPosition:
    """The offsets up to which the run's files were read, and the last event of each writer."""

    offsets: Mapping[str, int] = field(default_factory=lambda: {"events.jsonl": 0})
    seqs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A run as read from the index."""

    seq: int
    checksum: int
    final: bool
    run: Run
    reading: ReadPosition
    submitter: JsonDict


@dataclass(frozen=True)
class Encoded:
    """A run encoded for the index: the listed row, its checksum, and the body."""

    listed: Row
    body: tuple[str, str, str, str]
    checksum: int

    @property
    def size(self) -> int:
        """Size in bytes of the larger of the two rows."""
        return max(sum(map(_byte_size, self.listed)), sum(map(_byte_size, self.body)))


# -- reading -------------------------------------------------------------------------------------------


def select(connection: apsw.Connection, where: str, values: Sequence[Any], hint: str = "") -> list[Stored]:
    """Return the matching runs, each verified."""
    return [_decode_row(row) for row in connection.execute(_SELECT.format(hint, where), tuple(values))]


def fetch(connection: apsw.Connection, seqs: Iterable[int]) -> list[Run]:
    """Return the runs with these row numbers, in this order."""
    runs = []
    for seq in seqs:
        stored = select(connection, "runs.seq = ?", (seq,))
        if not stored:
            raise Damaged("a run is missing")
        runs.append(stored[0].run)
    return runs


def _decode_row(row: Row) -> Stored:
    seq, checksum, content, final, run_id, spec, state, reading, submitter, body_checksum = row
    if crc32(content) != checksum or _body_checksum(run_id, (spec, state, reading, submitter)) != body_checksum:
        raise Damaged("checksum of a run")
    run = decode(spec, state)
    return Stored(seq, checksum, bool(final), run, ReadPosition(**json.loads(reading)), json.loads(submitter))


def decode(spec: str, state: str) -> Run:
    facts = json.loads(state)
    facts.update(status=Status(facts["status"]), leftovers=tuple(facts["leftovers"]))
    facts.update({name: tuple(facts.get(name, ())) for name in ("left_out", "unkept", "attempts")})
    facts["failure"] = Failure.from_json(facts.get("failure"))
    if "spans" in facts:  # not in rows from older versions
        facts["spans"] = {name: Span(*span) for name, span in facts["spans"].items()}
        facts["noted"] = parse_annotations(facts["noted"])
    return Run(RunSpec.from_json(json.loads(spec)), **facts)


def parse_annotations(data: Mapping[str, Any]) -> Annotations:
    """Parse the annotations of a run. Keys from newer versions are ignored."""
    tags, untagged = (
        tuple(map(str, value)) if isinstance(value, (list, tuple)) else () for value in map(data.get, _LIST_FIELDS)
    )
    name, note = (None if value is None else str(value) for value in map(data.get, ("name", "note")))
    return Annotations(name, note, tags, untagged, data.get("archived") is True)


def verify(connection: apsw.Connection) -> None:
    """Verify every row. Listing runs, or reporting that a run does not exist, depends on all rows."""
    count = total = 0
    records = iter(connection.execute(f"SELECT checksum, {CONTENT} FROM runs NOT INDEXED"))
    while batch := list(islice(records, _BATCH)):  # in batches, because a loop over single rows is slow
        checksums, contents = zip(*batch, strict=True)
        if tuple(map(crc32, contents)) != checksums:
            raise Damaged("checksum of a run")
        count += len(batch)
        total += sum(checksums)
    runs, _, expected_total = _read_account(connection)
    if (runs, expected_total) != (count, total):
        raise Damaged("number of runs")


def is_up_to_date(connection: apsw.Connection, run: Encoded) -> bool:
    """Return whether the index contains exactly this run.

    The submitter is ignored, because run folders do not contain it.
    """
    for *listed, checksum, spec, state, reading, submitter, body_checksum in connection.execute(
        _SELECT_RAW, run.listed[:1]
    ):
        body = (spec, state, reading, submitter)
        if _checksum(listed) != checksum or _body_checksum(listed[0], body) != body_checksum:
            raise Damaged("checksum of a run")
        return tuple(listed) == run.listed and body[:3] == run.body[:3]
    return False


def expect_unfinished(connection: apsw.Connection) -> None:
    count = next(iter(connection.execute("SELECT count(*) FROM runs WHERE final = 0")))[0]
    if _read_account(connection)[1] != count:
        raise Damaged("number of unfinished runs")


def _read_account(connection: apsw.Connection) -> tuple[int, int, int]:
    for *numbers, checksum in connection.execute("SELECT runs, unfinished, total, checksum FROM account"):
        if checksum != _checksum(numbers):
            break
        return numbers[0], numbers[1], numbers[2]
    raise Damaged("account")


# -- writing -------------------------------------------------------------------------------------------


def recount_account(connection: apsw.Connection) -> None:
    """Recompute the ``account`` row after a bulk insert."""
    query = "SELECT count(*), count(*) FILTER (WHERE final = 0), coalesce(sum(checksum), 0) FROM runs"
    _write_account(connection, next(iter(connection.execute(query))))


def _adjust_account(connection: apsw.Connection, runs: int, unfinished: int, total: int) -> None:
    old = _read_account(connection)
    _write_account(connection, (old[0] + runs, old[1] + unfinished, old[2] + total))


def _write_account(connection: apsw.Connection, numbers: Sequence[int]) -> None:
    query = "UPDATE account SET runs = ?, unfinished = ?, total = ?, checksum = ?"
    connection.execute(query, (*numbers, _checksum(numbers)))


def insert(connection: apsw.Connection, run: Run, reading: ReadPosition, submitter: JsonDict) -> None:
    """Insert a run and update the ``account`` row."""
    encoded = encode(run, reading, submitter)
    if bulk_insert(connection, encoded):
        _adjust_account(connection, 1, 0 if run.status.final else 1, encoded.checksum)


def bulk_insert(connection: apsw.Connection, run: Encoded) -> bool:
    """Insert a run without updating ``account``. Return False if its ID or key already exists."""
    _require_fit(connection, run)
    connection.execute(_INSERT, (*run.listed, run.checksum))
    if not connection.changes():
        return False
    _write_body(connection, connection.last_insert_rowid(), run)
    return True


def update(connection: apsw.Connection, old: Stored, run: Run, reading: ReadPosition, submitter: JsonDict) -> None:
    encoded = encode(run, reading, submitter)
    _require_fit(connection, encoded)
    names = ", ".join(f"{name} = ?" for name in [*_LISTED.split(", "), "checksum"])
    connection.execute(f"UPDATE runs SET {names} WHERE seq = ?", (*encoded.listed, encoded.checksum, old.seq))
    _write_body(connection, old.seq, encoded)
    _adjust_account(connection, 0, int(old.final) - int(run.status.final), encoded.checksum - old.checksum)


def delete(connection: apsw.Connection, old: Stored) -> None:
    connection.execute("DELETE FROM runs WHERE seq = ?", (old.seq,))
    connection.execute("DELETE FROM bodies WHERE seq = ?", (old.seq,))
    _adjust_account(connection, -1, int(old.final) - 1, -old.checksum)


def _require_fit(connection: apsw.Connection, run: Encoded) -> None:
    """Check the size before writing, because SQLite reports the same error for a damaged file."""
    if run.size > connection.limit(apsw.SQLITE_LIMIT_LENGTH) - _ROW_OVERHEAD:
        raise RowTooLarge(run.listed[0])


def _write_body(connection: apsw.Connection, seq: int, run: Encoded) -> None:
    connection.execute(_REPLACE_BODY, (seq, *run.body, _body_checksum(run.listed[0], run.body)))


# -- encoding ------------------------------------------------------------------------------------------


def encode(run: Run, reading: ReadPosition, submitter: JsonDict) -> Encoded:
    listed, unlisted = _listed_row(run)
    if unlisted:
        run = replace(run, over_limit={**run.over_limit, "listed": unlisted})
    state = _state_json(run)
    if len(state) > MAX_STATE_BYTES:
        empty: dict[str, Any] = dict.fromkeys(SCRIPT_FIELDS, {})
        run = replace(run, **{**empty, "over_limit": {**run.over_limit, "all": 1}})
        state, listed = _state_json(run), _listed_row(run)[0]
    position_json = json.dumps({"offsets": reading.offsets, "seqs": reading.seqs}, default=_to_dict)
    # Equivalent to to_json(), whose copies would take a third of the time needed for a rebuild.
    body = (json.dumps(run.spec, default=_to_dict), state, position_json, json.dumps(submitter))
    return Encoded(listed, body, _checksum(listed))


def _state_json(run: Run) -> str:
    facts = {name: getattr(run, name) for name in _STATE_FIELDS if name not in _OPTIONAL_FIELDS or getattr(run, name)}
    return json.dumps(facts, default=_to_dict)


def _to_dict(value: Any) -> JsonDict:
    return dict(value) if isinstance(value, Mapping) else vars(value)


def _listed_row(run: Run) -> tuple[Row, int]:
    """Return the listed row and the number of entries dropped because of the size limit."""
    spec = run.spec
    facts, left_out = _limit_facts(_facts(run))
    metrics, metrics_left_out = _limit_entries(
        {name: value for name, value in run.metrics.items() if _is_searchable(value)}
    )
    row = (
        sqlite_text(spec.id),
        sqlite_text(spec.key),
        spec.number,
        sqlite_text(spec.project_id),
        int(spec.created * MICRO),
        run.status.value,
        int(run.status.final),
        (0 if spec.tracked else HIDDEN_UNTRACKED) | (HIDDEN_ARCHIVED if run.noted.archived else 0),
        sqlite_text(spec.entry.name),
        sqlite_text(spec.compute.name),
        sqlite_text(spec.parent or ""),
        sqlite_text(facts),
        sqlite_text(metrics),
    )
    return row, left_out + metrics_left_out


def _facts(run: Run) -> JsonDict:
    facts = {
        "name": run.name,
        "tags": run.tags or None,
        "note": run.noted.note,
        "ending": run.ending,
        "exit_code": run.exit,
        "duration": run.duration,
        "started": run.started,
        "ended": run.ended,
        "gpu": (run.gpu or {}).get("used"),
        "params": {name: [number(value), text(value)] for name, value in run_parameters(run).items()} or None,
        "spans": {name: span[1:3] for name, span in run.spans.items() if span.length > 1} or None,
        "children": len(run.children) or len((run.spec.sweep or {}).get("children", ())) or None,
        "words": _search_text(run),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _limit_facts(facts: JsonDict) -> tuple[str, int]:
    """Return the facts as JSON within the size limit, and the number of dropped entries."""
    encoded = _json(facts)
    if len(encoded) <= MAX_LISTED:
        return encoded, 0
    left_out = 0
    for kind in {"tags", "params", "spans"}.intersection(facts):
        kept, dropped = _limit_entries(dict.fromkeys(facts[kind]) if kind == "tags" else facts[kind])
        facts[kind] = list(json.loads(kept)) if kind == "tags" else json.loads(kept)
        left_out += dropped
    return _json(facts), left_out


def _limit_entries(entries: dict[str, Any]) -> tuple[str, int]:
    """Return the first entries as JSON within the size limit, and the number of dropped entries."""
    encoded = _json(entries)
    if len(encoded) <= MAX_LISTED:
        return encoded, 0
    size, kept = 0, {}
    for name, value in entries.items():
        size += len(name) + len(_json(value))
        if size > MAX_LISTED:
            break
        kept[name] = value
    return _json(kept), len(entries) - len(kept)


def _search_text(run: Run) -> str:
    """Return the string that text filters search."""
    spec = run.spec
    parts = (run.id, run.name or "", spec.entry.name, *spec.entry.arguments, *run.tags, run.noted.note or "")
    return "\n".join(parts).casefold()[:_MAX_SEARCH_TEXT]


def _is_searchable(value: object) -> bool:
    """Return whether filters can match the value. Lists and long strings would slow down every list."""
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _MAX_SEARCHABLE)


def _json(value: object) -> str:
    """Encode as JSON with lone surrogates spelled out.

    SQLite would convert their JSON escapes to invalid text.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text)


def sqlite_text(text: str) -> str:
    """Return text that SQLite can store.

    File names may contain invalid UTF-8, and untrusted text may contain NUL characters.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _byte_size(value: object) -> int:
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))


def _checksum(values: Iterable[object]) -> int:
    return crc32("\x1f".join(str(value) for value in values).encode("utf-8"))


def _body_checksum(run_id: str, body: Iterable[str | None]) -> int:
    return _checksum((run_id, *body))
