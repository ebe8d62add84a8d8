"""Runs → an MLflow server: made there once, known again by their id, brought up to date when they are sent again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...errors import HostError, UsageError
from ...history.series.series import Series
from ...model import JsonDict
from ...remote.shared.failpoint import failpoint
from ...remote.shared.untrusted import parse_json
from ..material import Item, points_of
from . import facts as facts
from .files import Files
from .names import Names
from .rest import Refused, Server

_METRICS = 1000  # in one request: MLflow's own limits
_OTHERS = 100
_BYTES = 500_000
_PAGE = 20_000
_ASIDE = (facts.OURS, facts.POINTS, facts.FILES)

Report = Callable[[str, int, int], None]  # what, how much of it is done, of how much
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Sent:
    """What became of a run."""

    run: str  # ours
    id: str  # the server's
    address: str  # for a browser
    new: bool
    whole: bool  # all its files are there


@dataclass(frozen=True)
class _Known:
    """A run as the server has it."""

    id: str
    artifacts: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: frozenset[str]


class Exporter:
    """Sends runs to one server. ``experiment`` None: each to that of its project."""

    def __init__(self, server: Server, experiment: str | None, files: Files, report: Report, tell: Tell) -> None:
        self._server = server
        self._experiment = experiment
        self._files = files
        self._report = report
        self._tell = tell
        self._experiments: dict[str, str] = {}
        self._ids: dict[tuple[str, str], str] = {}  # experiment and run → the server's id

    def send(self, items: Sequence[Item]) -> Iterator[Sent]:
        """One after the other, parents before their children."""
        for item in _parents_first(items):
            yield self._send(item)

    def _send(self, item: Item) -> Sent:
        place = self._place(self._experiment or item.run.spec.project_name or "mlw")
        params, tags = Names(), Names()
        wanted = facts.tags_of(item, tags)
        known = self._find(place, item.run.id)
        if known is None:
            # Until it is whole it has this tag only: cut off here, the next export finds it by that.
            known, new = self._create(place, item, wanted), True
        else:
            new = False
        self._ids[place, item.run.id] = known.id
        parent = self._parent(place, item)
        if parent:
            wanted[facts.PARENT] = parent
        self._log_params(known, item, facts.params_of(item, params))
        self._set_tags(known, wanted)
        metrics = self._log_points(known, item)
        self._log_datasets(known, item)
        renamed = {"params": params.changed(), "tags": tags.changed(), "metrics": metrics.changed()}
        whole = self._send_files(known, item, renamed)
        self._finish(known, item)
        return Sent(item.run.id, known.id, f"{self._server.uri}/#/experiments/{place}/runs/{known.id}", new, whole)

    # -- the experiment and the run ----------------------------------------------------------------

    def _place(self, name: str) -> str:
        """The id of the experiment, which is made if there is none."""
        if name in self._experiments:
            return self._experiments[name]
        found = self._look_up(name)
        if found is None:
            try:
                found = self._server.post("experiments/create", {"name": name}, again=False)
            except Refused as refused:
                found = self._look_up(name) if refused.error_code == "RESOURCE_ALREADY_EXISTS" else None
                if found is None:
                    raise
        self._experiments[name] = str(found.get("experiment_id") or "0")
        return self._experiments[name]

    def _look_up(self, name: str) -> JsonDict | None:
        try:
            found = self._server.get("experiments/get-by-name", experiment_name=name)
        except Refused as refused:
            if refused.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        experiment = _mapping(found, "experiment")
        if experiment.get("lifecycle_stage") == "deleted":
            raise UsageError(
                f"experiment {name!r} was deleted on the server", "restore it there, or choose another --experiment"
            )
        return experiment

    def _find(self, place: str, run_id: str) -> _Known | None:
        asked = {
            "experiment_ids": [place],
            "filter": f"tags.`{facts.RUN_ID}` = '{run_id}'",
            "run_view_type": "ACTIVE_ONLY",
            "max_results": 2,
        }
        runs = self._server.post("runs/search", asked).get("runs") or []
        return _known(runs[0]) if runs else None

    def _create(self, place: str, item: Item, tags: dict[str, str]) -> _Known:
        body = {
            "experiment_id": place,
            "run_name": tags["mlflow.runName"],
            "start_time": facts.start_of(item),
            "tags": [
                {"key": name, "value": tags[name]}
                for name in (facts.RUN_ID, "mlflow.runName", "mlflow.user")
                if name in tags
            ],
        }
        if "mlflow.user" in tags:
            body["user_id"] = tags["mlflow.user"]
        return _known(self._server.post("runs/create", body, again=False).get("run"))

    def _parent(self, place: str, item: Item) -> str | None:
        """The server's id of the run that it is a part of, where that is there."""
        own = item.run.spec.parent
        if own is None:
            return None
        if (place, own) not in self._ids:
            found = self._find(place, own)
            if found is None:
                return None
            self._ids[place, own] = found.id
        return self._ids[place, own]

    def _finish(self, known: _Known, item: Item) -> None:
        body: JsonDict = {"run_id": known.id, "status": facts.status_of(item), "run_name": facts.name_of(item)}
        if item.run.status.final and item.run.ended is not None:
            body["end_time"] = facts.milliseconds(item.run.ended)
        self._server.post("runs/update", body)

    # -- what it has -------------------------------------------------------------------------------

    def _log_params(self, known: _Known, item: Item, params: dict[str, str]) -> None:
        fixed = [name for name, value in params.items() if known.params.get(name, value) != value]
        if fixed:
            self._tell(
                f"run {item.run.id}: MLflow cannot change parameters; old values are kept: {', '.join(fixed[:5])}"
            )
        new = [{"key": name, "value": value} for name, value in params.items() if name not in known.params]
        for batch in _batches(new, _OTHERS):
            self._server.post("runs/log-batch", {"run_id": known.id, "params": batch})

    def _set_tags(self, known: _Known, tags: dict[str, str]) -> None:
        """Only what differs; a tag that we set before and that the run has no longer goes."""
        ours = sorted(name for name in tags if not name.startswith("mlflow."))
        before = _names(known.tags.get(facts.OURS))
        listed = {**tags, facts.OURS: json.dumps(ours)} if len(json.dumps(ours)) < 4000 else tags
        new = [{"key": name, "value": value} for name, value in listed.items() if known.tags.get(name) != value]
        for name in before:
            if name not in tags and name in known.tags and name not in _ASIDE:
                self._server.post("runs/delete-tag", {"run_id": known.id, "key": name})
        for batch in _batches(new, _OTHERS):
            self._server.post("runs/log-batch", {"run_id": known.id, "tags": batch})

    def _mark(self, known: _Known, name: str, value: str) -> None:
        self._server.post("runs/set-tag", {"run_id": known.id, "key": name, "value": value})

    def _log_points(self, known: _Known, item: Item) -> Names:
        names = Names()
        with points_of(item) as series:
            every = series.names(item.child)
            state = _digest([one.name, one.kind, one.count] for one in every)
            for one in every:
                if one.kind == "number":
                    names(one.name)  # which they get does not depend on what is new
            if known.tags.get(facts.POINTS) == state:
                return names
            total, done = sum(one.count for one in every), 0
            for batch in _chunks(self._new_points(known, item, series, names), _METRICS):
                self._server.post("runs/log-batch", {"run_id": known.id, "metrics": batch})
                failpoint("points sent")
                done += len(batch)
                self._report(f"points of {item.run.id}", done, total)
        self._mark(known, facts.POINTS, state)
        return names

    def _new_points(self, known: _Known, item: Item, series: Series, names: Names) -> Iterator[JsonDict]:
        """Those that the server has not; equal ones are one there."""
        for own, points in _points(item, series):
            name = names(own)
            seen = set(self._history(known.id, name)) if name in known.metrics else set()
            for point in points:
                if point.identity not in seen:
                    seen.add(point.identity)
                    yield point.to_json(name)

    def _history(self, run_id: str, name: str) -> Iterator[tuple[int, int, float | None]]:
        token = ""
        while True:
            asked: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _PAGE}
            page = self._server.get("metrics/get-history", **asked, **({"page_token": token} if token else {}))
            for one in page.get("metrics") or []:
                yield facts.Point(int(one.get("step") or 0), int(one["timestamp"]), float(one["value"])).identity
            token = str(page.get("next_page_token") or "")
            if not token:
                return

    def _log_datasets(self, known: _Known, item: Item) -> None:
        for one in facts.datasets_of(item):
            self._server.post("runs/log-inputs", {"run_id": known.id, "datasets": [one]})

    def _send_files(self, known: _Known, item: Item, renamed: JsonDict) -> bool:
        state = self._files.state(item)
        if item.run.status.final and known.tags.get(facts.FILES) == state:
            return True
        whole = self._files.send(self._server, known.id, known.artifacts, item, renamed)
        if whole and item.run.status.final:
            self._mark(known, facts.FILES, state)
        return whole


def _points(item: Item, series: Series) -> Iterator[tuple[str, Iterable[facts.Point]]]:
    """Every number of a run, by their names here."""
    for one in series.names(item.child):
        if one.kind == "row":
            yield from facts.columns_of_rows(item, series, one.name).items()
        else:
            read = facts.points_of_name if one.kind == "number" else facts.switches_of_name
            yield one.name, read(series, one.name, item.child)


def _parents_first(items: Sequence[Item]) -> list[Item]:
    by_id = {item.run.id: item for item in items}
    done: dict[str, Item] = {}
    for item in items:
        way: dict[str, Item] = {}
        at: Item | None = item
        while at is not None and at.run.id not in done and at.run.id not in way:
            way[at.run.id] = at
            at = by_id.get(at.run.spec.parent or "")
        done.update(reversed(way.items()))
    return list(done.values())


def _batches(entries: Iterable[JsonDict], most: int) -> Iterator[list[JsonDict]]:
    """Not too many, and not too long, in one request."""
    batch: list[JsonDict] = []
    size = 0
    for one in entries:
        length = len(json.dumps(one, ensure_ascii=False).encode("utf-8", "replace"))
        if batch and (len(batch) >= most or size + length > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    if batch:
        yield batch


def _chunks(entries: Iterator[JsonDict], most: int) -> Iterator[list[JsonDict]]:
    while chunk := list(islice(entries, most)):
        yield chunk


def _digest(entries: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(entries)).encode()).hexdigest()[:32]


def _names(text: str | None) -> list[str]:
    try:
        found = parse_json(text or "[]")
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _mapping(found: Any, name: str) -> JsonDict:
    part = found.get(name) if isinstance(found, dict) else None
    if not isinstance(part, dict):
        raise HostError(f"the response of the server has no {name}", "check that it is an MLflow server")
    return part


def _known(run: Any) -> _Known:
    whole = {"run": run}
    info, data = _mapping(_mapping(whole, "run"), "info"), run.get("data") or {}

    def pairs(name: str) -> dict[str, str]:
        return {str(one.get("key")): str(one.get("value", "")) for one in data.get(name) or []}

    return _Known(
        str(info.get("run_id") or info.get("run_uuid")),
        str(info.get("artifact_uri") or ""),
        pairs("params"),
        pairs("tags"),
        frozenset(pairs("metrics")),
    )
