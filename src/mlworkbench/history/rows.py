"""Runs as rows in the index. Reading verifies each row and detects missing rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Any
from zlib import crc32

import apsw

from ..errors import HistoryError
from ..failure import Failure
from ..model import Annotations, JsonDict, Run, RunSpec, Span, Status
from .database import Damaged
from .run_values import Values, values_of
from .sqlite_values import checksum, sqlite_text
from .value_index import ValueWriter, count_names, verify_names

Row = tuple[Any, ...]

_LISTED = "id, key, number, project, created, status, final, hidden, script, target, parent, facts"
_BODY = "spec, state, reading, submitter"
# Input of a row's checksum. SQLite computes it in one expression, because listing runs verifies every row.
CONTENT = f"CAST(concat_ws(char(31), {_LISTED}) AS BLOB)"
_SELECT = (
    f"SELECT runs.seq, runs.checksum, {CONTENT}, final, id, {_BODY}, bodies.checksum"
    " FROM runs {} LEFT JOIN bodies ON bodies.seq = runs.seq WHERE {}"
)
_INSERT = f"INSERT OR IGNORE INTO runs ({_LISTED}, checksum) VALUES ({', '.join('?' * 13)})"
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
    "ranks",
    "checkpoint_bytes",
    "uncollected",
    "failure",
    "no_contact",
    "unwritten",
    "job",
    "metric_sources",
)  # stored only if not empty
_BATCH = 2048
_MAX_SEARCH_TEXT = 2000
# Maximum size of a run's state in bytes, because SQLite rejects larger rows. A run whose script records more is shown
# without these records, which remain in the files.
MAX_STATE_BYTES = 128 * 1024 * 1024
# Maximum characters of the tags in a listed row, because each list reads them for all runs.
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
    """A run encoded for the index: the listed row, its checksum, the body, and the values."""

    listed: Row
    body: tuple[str, str, str, str]
    checksum: int
    values: Values

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
    seq, stored, content, final, run_id, spec, state, reading, submitter, body_checksum = row
    if crc32(content) != stored or _body_checksum(run_id, (spec, state, reading, submitter)) != body_checksum:
        raise Damaged("checksum of a run")
    run = decode(spec, state)
    return Stored(seq, stored, bool(final), run, ReadPosition(**json.loads(reading)), json.loads(submitter))


def decode(spec: str, state: str) -> Run:
    facts = json.loads(state)
    facts.update(status=Status(facts["status"]), leftovers=tuple(facts["leftovers"]))
    facts.update({name: tuple(facts.get(name, ())) for name in ("left_out", "unkept", "attempts", "ranks")})
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
    """Verify every row. Listing runs, or reporting that a run does not exist, depends on all rows.

    Values are verified by the queries that read them.
    """
    count = total = 0
    records = iter(connection.execute(f"SELECT checksum, {CONTENT} FROM runs NOT INDEXED"))
    while batch := list(islice(records, _BATCH)):  # in batches, because a loop over single rows is slow
        checksums, contents = zip(*batch, strict=True)
        if tuple(map(crc32, contents)) != checksums:
            raise Damaged("checksum of a run")
        count += len(batch)
        total += sum(checksums)
    runs, _, expected_total, names = _read_account(connection)
    if (runs, expected_total) != (count, total):
        raise Damaged("number of runs")
    verify_names(connection, names)


def is_up_to_date(connection: apsw.Connection, run: Encoded) -> bool:
    """Return whether the index contains exactly this run.

    The submitter is ignored, because run folders do not contain it.
    """
    for *listed, stored, spec, state, reading, submitter, body_checksum in connection.execute(
        _SELECT_RAW, run.listed[:1]
    ):
        body = (spec, state, reading, submitter)
        if checksum(listed) != stored or _body_checksum(listed[0], body) != body_checksum:
            raise Damaged("checksum of a run")
        return tuple(listed) == run.listed and body[:3] == run.body[:3]
    return False


def expect_unfinished(connection: apsw.Connection) -> None:
    count = next(iter(connection.execute("SELECT count(*) FROM runs WHERE final = 0")))[0]
    if _read_account(connection)[1] != count:
        raise Damaged("number of unfinished runs")


def _read_account(connection: apsw.Connection) -> tuple[int, int, int, int]:
    for *numbers, stored in connection.execute("SELECT runs, unfinished, total, names, checksum FROM account"):
        if stored != checksum(numbers):
            break
        return numbers[0], numbers[1], numbers[2], numbers[3]
    raise Damaged("account")


# -- writing -------------------------------------------------------------------------------------------


def recount_account(connection: apsw.Connection) -> None:
    """Recompute the ``account`` row after a bulk insert."""
    query = "SELECT count(*), count(*) FILTER (WHERE final = 0), coalesce(sum(checksum), 0) FROM runs"
    _write_account(connection, (*next(iter(connection.execute(query))), count_names(connection)))


def _adjust_account(connection: apsw.Connection, *changes: int) -> None:
    old = _read_account(connection)
    _write_account(connection, [number + change for number, change in zip(old, changes, strict=True)])


def _write_account(connection: apsw.Connection, numbers: Sequence[int]) -> None:
    query = "UPDATE account SET runs = ?, unfinished = ?, total = ?, names = ?, checksum = ?"
    connection.execute(query, (*numbers, checksum(numbers)))


def insert(connection: apsw.Connection, run: Run, reading: ReadPosition, submitter: JsonDict) -> None:
    """Insert a run and update the ``account`` row."""
    encoded, values = encode(run, reading, submitter), ValueWriter(connection)
    if bulk_insert(connection, encoded, values):
        _adjust_account(connection, 1, 0 if run.status.final else 1, encoded.checksum, values.flush())


def bulk_insert(connection: apsw.Connection, run: Encoded, values: ValueWriter) -> bool:
    """Insert a run without updating ``account``. Return False if its ID or key already exists."""
    _require_fit(connection, run)
    connection.execute(_INSERT, (*run.listed, run.checksum))
    if not connection.changes():
        return False
    seq = connection.last_insert_rowid()
    _write_body(connection, seq, run)
    values.write(seq, {}, run.values)
    return True


def update(connection: apsw.Connection, old: Stored, run: Run, reading: ReadPosition, submitter: JsonDict) -> None:
    encoded, values = encode(run, reading, submitter), ValueWriter(connection)
    _require_fit(connection, encoded)
    names = ", ".join(f"{name} = ?" for name in [*_LISTED.split(", "), "checksum"])
    connection.execute(f"UPDATE runs SET {names} WHERE seq = ?", (*encoded.listed, encoded.checksum, old.seq))
    _write_body(connection, old.seq, encoded)
    values.write(old.seq, values_of(old.run)[0], encoded.values)
    unfinished = int(old.final) - int(run.status.final)
    _adjust_account(connection, 0, unfinished, encoded.checksum - old.checksum, values.flush())


def delete(connection: apsw.Connection, old: Stored) -> None:
    connection.execute("DELETE FROM runs WHERE seq = ?", (old.seq,))
    connection.execute("DELETE FROM bodies WHERE seq = ?", (old.seq,))
    values = ValueWriter(connection)
    values.write(old.seq, values_of(old.run)[0], {})
    _adjust_account(connection, -1, int(old.final) - 1, -old.checksum, values.flush())


def _require_fit(connection: apsw.Connection, run: Encoded) -> None:
    """Check the size before writing, because SQLite reports the same error for a damaged file."""
    if run.size > connection.limit(apsw.SQLITE_LIMIT_LENGTH) - _ROW_OVERHEAD:
        raise RowTooLarge(run.listed[0])


def _write_body(connection: apsw.Connection, seq: int, run: Encoded) -> None:
    connection.execute(_REPLACE_BODY, (seq, *run.body, _body_checksum(run.listed[0], run.body)))


# -- encoding ------------------------------------------------------------------------------------------


def encode(run: Run, reading: ReadPosition, submitter: JsonDict) -> Encoded:
    listed, tags_left_out = _listed_row(run)
    values, values_left_out = values_of(run)
    if tags_left_out or values_left_out:
        run = replace(run, over_limit={**run.over_limit, "listed": tags_left_out + values_left_out})
    state = _state_json(run)
    if len(state) > MAX_STATE_BYTES:
        empty: dict[str, Any] = dict.fromkeys(SCRIPT_FIELDS, {})
        run = replace(run, **{**empty, "over_limit": {**run.over_limit, "all": 1}})
        state, listed, values = _state_json(run), _listed_row(run)[0], values_of(run)[0]
    position_json = json.dumps({"offsets": reading.offsets, "seqs": reading.seqs}, default=_to_dict)
    # Equivalent to to_json(), whose copies would take a third of the time needed for a rebuild.
    body = (json.dumps(run.spec, default=_to_dict), state, position_json, json.dumps(submitter))
    return Encoded(listed, body, checksum(listed), values)


def _state_json(run: Run) -> str:
    facts = {name: getattr(run, name) for name in _STATE_FIELDS if name not in _OPTIONAL_FIELDS or getattr(run, name)}
    return json.dumps(facts, default=_to_dict)


def _to_dict(value: Any) -> JsonDict:
    return dict(value) if isinstance(value, Mapping) else vars(value)


def _listed_row(run: Run) -> tuple[Row, int]:
    """Return the listed row and the number of tags dropped because of the size limit."""
    spec = run.spec
    facts, left_out = _facts(run)
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
        sqlite_text(_json(facts)),
    )
    return row, left_out


def _facts(run: Run) -> tuple[JsonDict, int]:
    """Return what filters, sort orders, and groups use besides values, and the number of tags dropped."""
    spec = run.spec
    tags = _limit_tags(run.tags)
    facts = {
        "name": run.name,
        "tags": tags or None,
        "note": run.noted.note,
        "ending": run.ending,
        "exit_code": run.exit,
        "duration": run.duration,
        "started": run.started,
        "ended": run.ended,
        "gpu": (run.gpu or {}).get("used"),
        "children": len(run.children) or len((spec.sweep or {}).get("children", ())) or None,
        "sweep": None if spec.sweep is None else 1,
        "runconfig": spec.runconfig or None,
        "project": spec.project_name,
        "user": spec.user,
        "commit": spec.git.commit if spec.git else None,
        "words": _search_text(run),
    }
    return {name: value for name, value in facts.items() if value is not None}, len(run.tags) - len(tags)


def _limit_tags(tags: Sequence[str]) -> Sequence[str]:
    """Return the first tags, up to the size limit."""
    sizes = accumulate(len(tag) for tag in tags)
    return tags[: sum(size <= MAX_LISTED for size in sizes)]


def _search_text(run: Run) -> str:
    """Return the string that text filters search."""
    spec = run.spec
    parts = (run.id, run.name or "", spec.entry.name, *spec.entry.arguments, *run.tags, run.noted.note or "")
    return "\n".join(parts).casefold()[:_MAX_SEARCH_TEXT]


def _json(value: object) -> str:
    """Encode as JSON with lone surrogates spelled out.

    SQLite would convert their JSON escapes to invalid text.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text)


def _byte_size(value: object) -> int:
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))


def _body_checksum(run_id: str, body: Iterable[str | None]) -> int:
    return checksum((run_id, *body))
