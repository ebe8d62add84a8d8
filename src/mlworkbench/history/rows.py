"""Runs as rows of the index. Each row is checked when it is read, and so is that none is missing."""

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
from ..model import JsonDict, Noted, Run, RunSpec, Span, Status
from .database import Damaged
from .parameters import number, of_run, text

Row = tuple[Any, ...]

_LISTED = "id, key, number, project, created, status, final, hidden, script, target, parent, facts, metrics"
_BODY = "spec, state, reading, submitter"
# Made by SQLite in one go: a list of 100,000 runs checks every one of them.
CONTENT = f"CAST(concat_ws(char(31), {_LISTED}) AS BLOB)"
_WHOLE = (
    f"SELECT runs.seq, runs.checksum, {CONTENT}, final, id, {_BODY}, bodies.checksum"
    " FROM runs {} LEFT JOIN bodies ON bodies.seq = runs.seq WHERE {}"
)
_INSERT = f"INSERT OR IGNORE INTO runs ({_LISTED}, checksum) VALUES ({', '.join('?' * 14)})"
_REPLACE_BODY = f"INSERT OR REPLACE INTO bodies (seq, {_BODY}, checksum) VALUES (?, ?, ?, ?, ?, ?)"
_RAW = f"SELECT {_LISTED}, runs.checksum, {_BODY}, bodies.checksum FROM runs JOIN bodies USING (seq) WHERE id = ?"
_LISTS = ("tags", "untagged")
# Of a run: what its script recorded, and what is not kept of that.
TOLD = ("metrics", "spans", "params", "told_tags", "files", "children", "over_limit")
_STATE = tuple(name for name in Run.__dataclass_fields__ if name != "spec")
_RARE = ("left_out", "uncollected", "failure", "no_contact")  # stored only where there are some
_BATCH = 2048
_LONGEST = 200  # characters of a metric's value that a list can be searched for
_MOST_WORDS = 2000
# Bytes. A script that tells more is shown with nothing of it, and its files still have it: SQLite refuses a row that
# is too large.
MOST_STATE = 128 * 1024 * 1024
# Characters of metrics, of spans, of parameters, and of tags that a list looks at: every list reads those of all runs.
MOST_LISTED = 4 * 1024 * 1024
_SPARE = 10_000  # bytes of a row beside its texts
MICRO = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")
UNTRACKED, ARCHIVED = 1, 2  # why a run is hidden


class RowTooLarge(HistoryError):
    """SQLite cannot hold the run. The index is not damaged, and all other runs are as they were."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} is too large for the run history", "submit with shorter arguments and settings")


@dataclass(frozen=True)
class Reading:
    """How far the run's files have been read, and up to which event of each writer."""

    offsets: Mapping[str, int] = field(default_factory=lambda: {"events.jsonl": 0})
    seqs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """One run as the index has it."""

    seq: int
    checksum: int
    final: bool
    run: Run
    reading: Reading
    submitter: JsonDict


@dataclass(frozen=True)
class Encoded:
    """One run as the index will have it: the row that lists look at, its checksum, and the rest."""

    listed: Row
    body: tuple[str, str, str, str]
    checksum: int

    @property
    def size(self) -> int:
        """Bytes of the larger of its two rows."""
        return max(sum(map(_bytes, self.listed)), sum(map(_bytes, self.body)))


# -- reading -------------------------------------------------------------------------------------------


def select(connection: apsw.Connection, where: str, values: Sequence[Any], hint: str = "") -> list[Stored]:
    """The runs that fit, each one checked."""
    return [_stored(row) for row in connection.execute(_WHOLE.format(hint, where), tuple(values))]


def fetch(connection: apsw.Connection, seqs: Iterable[int]) -> list[Run]:
    """The runs with these numbers, in this order."""
    found = []
    for seq in seqs:
        stored = select(connection, "runs.seq = ?", (seq,))
        if not stored:
            raise Damaged("a run is missing")
        found.append(stored[0].run)
    return found


def _stored(row: Row) -> Stored:
    seq, checksum, content, final, run_id, spec, state, reading, submitter, body_checksum = row
    if crc32(content) != checksum or _body_checksum(run_id, (spec, state, reading, submitter)) != body_checksum:
        raise Damaged("checksum of a run")
    run = decode(spec, state)
    return Stored(seq, checksum, bool(final), run, Reading(**json.loads(reading)), json.loads(submitter))


def decode(spec: str, state: str) -> Run:
    facts = json.loads(state)
    facts.update(status=Status(facts["status"]), leftovers=tuple(facts["leftovers"]))
    facts["left_out"] = tuple(facts.get("left_out", ()))
    facts["failure"] = Failure.from_json(facts.get("failure"))
    if "spans" in facts:  # else written before there were any
        facts["spans"] = {name: Span(*span) for name, span in facts["spans"].items()}
        facts["noted"] = noted_from(facts["noted"])
    return Run(RunSpec.from_json(json.loads(spec)), **facts)


def noted_from(data: Mapping[str, Any]) -> Noted:
    """What people wrote on a run, as it lies on disk; a key of a newer version is passed over."""
    tags, untagged = (tuple(map(str, one)) if isinstance(one, (list, tuple)) else () for one in map(data.get, _LISTS))
    name, note = (None if one is None else str(one) for one in map(data.get, ("name", "note")))
    return Noted(name, note, tags, untagged, data.get("archived") is True)


def verify(connection: apsw.Connection) -> None:
    """Look at every row: a list, and an answer that something is not there, are about all of them."""
    count = total = 0
    found = iter(connection.execute(f"SELECT checksum, {CONTENT} FROM runs NOT INDEXED"))
    while batch := list(islice(found, _BATCH)):  # in lumps, because a loop in Python would take most of the time
        checksums, contents = zip(*batch, strict=True)
        if tuple(map(crc32, contents)) != checksums:
            raise Damaged("checksum of a run")
        count += len(batch)
        total += sum(checksums)
    runs, _, known = _account(connection)
    if (runs, known) != (count, total):
        raise Damaged("number of runs")


def holds(connection: apsw.Connection, run: Encoded) -> bool:
    """Whether the index has this run just so; who submitted it is not asked, for no folder tells that."""
    for *listed, checksum, spec, state, reading, submitter, body_checksum in connection.execute(_RAW, run.listed[:1]):
        body = (spec, state, reading, submitter)
        if _sum(listed) != checksum or _body_checksum(listed[0], body) != body_checksum:
            raise Damaged("checksum of a run")
        return tuple(listed) == run.listed and body[:3] == run.body[:3]
    return False


def expect_unfinished(connection: apsw.Connection) -> None:
    found = next(iter(connection.execute("SELECT count(*) FROM runs WHERE final = 0")))[0]
    if _account(connection)[1] != found:
        raise Damaged("number of unfinished runs")


def _account(connection: apsw.Connection) -> tuple[int, int, int]:
    for *numbers, checksum in connection.execute("SELECT runs, unfinished, total, checksum FROM account"):
        if checksum != _sum(numbers):
            break
        return numbers[0], numbers[1], numbers[2]
    raise Damaged("account")


# -- writing -------------------------------------------------------------------------------------------


def start_account(connection: apsw.Connection) -> None:
    """After many rows were written at once."""
    query = "SELECT count(*), count(*) FILTER (WHERE final = 0), coalesce(sum(checksum), 0) FROM runs"
    _write_account(connection, next(iter(connection.execute(query))))


def _move(connection: apsw.Connection, runs: int, unfinished: int, total: int) -> None:
    old = _account(connection)
    _write_account(connection, (old[0] + runs, old[1] + unfinished, old[2] + total))


def _write_account(connection: apsw.Connection, numbers: Sequence[int]) -> None:
    query = "UPDATE account SET runs = ?, unfinished = ?, total = ?, checksum = ?"
    connection.execute(query, (*numbers, _sum(numbers)))


def insert(connection: apsw.Connection, run: Run, reading: Reading, submitter: JsonDict) -> None:
    """One more run, and the account of it."""
    encoded = encode(run, reading, submitter)
    if pour(connection, encoded):
        _move(connection, 1, 0 if run.status.final else 1, encoded.checksum)


def pour(connection: apsw.Connection, run: Encoded) -> bool:
    """One of many runs, without the account. Tells whether it went in: not where its id or key is taken."""
    _require_fit(connection, run)
    connection.execute(_INSERT, (*run.listed, run.checksum))
    if not connection.changes():
        return False
    _write_body(connection, connection.last_insert_rowid(), run)
    return True


def update(connection: apsw.Connection, old: Stored, run: Run, reading: Reading, submitter: JsonDict) -> None:
    encoded = encode(run, reading, submitter)
    _require_fit(connection, encoded)
    names = ", ".join(f"{name} = ?" for name in [*_LISTED.split(", "), "checksum"])
    connection.execute(f"UPDATE runs SET {names} WHERE seq = ?", (*encoded.listed, encoded.checksum, old.seq))
    _write_body(connection, old.seq, encoded)
    _move(connection, 0, int(old.final) - int(run.status.final), encoded.checksum - old.checksum)


def delete(connection: apsw.Connection, old: Stored) -> None:
    connection.execute("DELETE FROM runs WHERE seq = ?", (old.seq,))
    connection.execute("DELETE FROM bodies WHERE seq = ?", (old.seq,))
    _move(connection, -1, int(old.final) - 1, -old.checksum)


def _require_fit(connection: apsw.Connection, run: Encoded) -> None:
    """Before anything is written: what SQLite itself says then is the same as of a damaged file."""
    if run.size > connection.limit(apsw.SQLITE_LIMIT_LENGTH) - _SPARE:
        raise RowTooLarge(run.listed[0])


def _write_body(connection: apsw.Connection, seq: int, run: Encoded) -> None:
    connection.execute(_REPLACE_BODY, (seq, *run.body, _body_checksum(run.listed[0], run.body)))


# -- a run as texts and numbers ------------------------------------------------------------------------


def encode(run: Run, reading: Reading, submitter: JsonDict) -> Encoded:
    listed, unlisted = _listed(run)
    if unlisted:
        run = replace(run, over_limit={**run.over_limit, "listed": unlisted})
    state = _state(run)
    if len(state) > MOST_STATE:
        nothing: dict[str, Any] = dict.fromkeys(TOLD, {})
        run = replace(run, **{**nothing, "over_limit": {**run.over_limit, "all": 1}})
        state, listed = _state(run), _listed(run)[0]
    read = json.dumps({"offsets": reading.offsets, "seqs": reading.seqs}, default=_plain)
    # The same as of to_json(), whose copies would take a third of the time of a rebuild.
    body = (json.dumps(run.spec, default=_plain), state, read, json.dumps(submitter))
    return Encoded(listed, body, _sum(listed))


def _state(run: Run) -> str:
    facts = {name: getattr(run, name) for name in _STATE if name not in _RARE or getattr(run, name)}
    return json.dumps(facts, default=_plain)


def _plain(value: Any) -> JsonDict:
    return dict(value) if isinstance(value, Mapping) else vars(value)


def _listed(run: Run) -> tuple[Row, int]:
    """The row, and how many entries are not in it because there are too many."""
    spec = run.spec
    facts, left_out = _narrow(_facts(run))
    plain, unsearchable = _fitting({name: value for name, value in run.metrics.items() if _searchable(value)})
    row = (
        clean(spec.id),
        clean(spec.key),
        spec.number,
        clean(spec.project_id),
        int(spec.created * MICRO),
        run.status.value,
        int(run.status.final),
        (0 if spec.tracked else UNTRACKED) | (ARCHIVED if run.noted.archived else 0),
        clean(spec.entry.name),
        clean(spec.compute.name),
        clean(spec.parent or ""),
        clean(facts),
        clean(plain),
    )
    return row, left_out + unsearchable


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
        "params": {name: [number(value), text(value)] for name, value in of_run(run).items()} or None,
        "spans": {name: span[1:3] for name, span in run.spans.items() if span.length > 1} or None,
        "children": len(run.children) or len((run.spec.sweep or {}).get("children", ())) or None,
        "words": _words(run),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _narrow(facts: JsonDict) -> tuple[str, int]:
    """The facts as JSON, of each kind as many as a list may have to read; and how many those are too many."""
    found = _json(facts)
    if len(found) <= MOST_LISTED:
        return found, 0
    left_out = 0
    for kind in {"tags", "params", "spans"}.intersection(facts):
        kept, too_many = _fitting(dict.fromkeys(facts[kind]) if kind == "tags" else facts[kind])
        facts[kind] = list(json.loads(kept)) if kind == "tags" else json.loads(kept)
        left_out += too_many
    return _json(facts), left_out


def _fitting(entries: dict[str, Any]) -> tuple[str, int]:
    """The first entries as JSON, and how many there were beyond them."""
    found = _json(entries)
    if len(found) <= MOST_LISTED:
        return found, 0
    size, kept = 0, {}
    for name, value in entries.items():
        size += len(name) + len(_json(value))
        if size > MOST_LISTED:
            break
        kept[name] = value
    return _json(kept), len(entries) - len(kept)


def _words(run: Run) -> str:
    """What a search for a text looks through."""
    spec = run.spec
    words = (run.id, run.name or "", spec.entry.name, *spec.entry.arguments, *run.tags, run.noted.note or "")
    return "\n".join(words).casefold()[:_MOST_WORDS]


def _searchable(value: object) -> bool:
    """Lists and long texts are for looking at: in the row they would only make every list slow."""
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _LONGEST)


def _json(value: object) -> str:
    """Half a character is spelled out: as an escape of JSON, SQLite would make bytes of it that are no text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _HALF.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def clean(text: str) -> str:
    """What SQLite can hold: names of files may have bytes that are no UTF-8, and hostile texts a NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _bytes(value: object) -> int:
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))


def _sum(values: Iterable[object]) -> int:
    return crc32("\x1f".join(str(value) for value in values).encode("utf-8"))


def _body_checksum(run_id: str, body: Iterable[str | None]) -> int:
    return _sum((run_id, *body))
