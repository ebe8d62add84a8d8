"""The part of the page about one run: how it ended and why, its numbers, its pictures, what it ran with."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from ...history.parameters import of_run
from ...model import Status
from ..material import Item, files_of
from .markup import cell, counted, lasting, shown
from .pictures import Pictures

_ROWS = 300  # of a table
_FILES = 200
_TONES = {Status.COMPLETED: "good", Status.FAILED: "bad", Status.CANCELED: "warn"}
_GPU = {"yes": "good", "partly": "warn", "no": "bad"}

Write = Callable[[str], None]


def badge(item: Item) -> str:
    tone = _TONES.get(item.run.status, "")
    return f"<span class='badge {tone}'>{shown(item.run.status.value)}</span>"


class Details:
    """Writes run after run; ``places`` are those that have a part in the page: id → anchor."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._pictures = Pictures()

    def write(self, item: Item, at: int, write: Write, *, opened: bool, alone: bool) -> None:
        """One run. Alone in the page its name is said already."""
        if alone:
            write(f"<section class=card id=r{at}>")
        else:
            name = "" if item.title == item.run.id else f" <span class='id soft'>{shown(item.run.id)}</span>"
            summary = f"{shown(item.title, 120)}{name}{badge(item)}"
            write(f"<details class=card id=r{at}{' open' if opened else ''}><summary>{summary}</summary>")
        write(_sayings(item))
        write(self._facts(item))
        write(f"<div class=two>{_params(item)}{_metrics(item)}</div>")
        self._show_pictures(item, write)
        write(_files(item))
        write(_environment(item))
        write("</section>" if alone else "</details>")

    def _facts(self, item: Item) -> str:
        run, words = item.run, item.words
        git = run.spec.git
        commit = (
            f"{git.commit or ''} {git.branch or ''}{' (uncommitted changes)' if git.dirty else ''}" if git else None
        )
        facts = {
            "Run ID": run.id,
            "Command": " ".join([run.spec.entry.name, shlex.join(run.spec.entry.arguments)]),
            "Target": run.spec.compute.name,
            "Started": words.get("start_time_utc"),
            "Duration": lasting(run.duration),
            "User": run.spec.user,
            "Git commit": commit,
        }
        found = "".join(f"<dt>{name}</dt><dd>{cell(value)}</dd>" for name, value in facts.items() if value)
        tags = "".join(f"<span class=tag>{shown(tag, 120)}</span>" for tag in run.tags[:50])
        parent = run.spec.parent
        if tags:
            found += f"<dt>Tags</dt><dd>{tags}</dd>"
        if parent:
            link = f"<a href='#{self._places[parent]}'>{shown(parent)}</a>" if parent in self._places else shown(parent)
            found += f"<dt>Parent run</dt><dd>{link}</dd>"
        return f"<dl>{found}</dl>"

    def _show_pictures(self, item: Item, write: Write) -> None:
        pictures, left = self._pictures.of(item)
        if pictures:
            write("<h3>Images</h3><div class=pictures>")
            for one in pictures:
                name = shown(one.name, 200)
                write(f'<figure><img alt="{name}" src="{one.address}"><figcaption>{name}</figcaption></figure>')
            write("</div>")
        if left:
            write(f"<p class=soft>{counted(left, 'more image')} not shown: too large, or not fetched.</p>")


def _sayings(item: Item) -> str:
    """What a reader must know: why it failed, whether the GPU was used, what people wrote on it."""
    run, words = item.run, item.words
    parts = []
    if run.status is Status.FAILED:
        parts.append(_say("bad", str(words.get("ending") or "failed"), run.cause or ""))
    told = [str(words[name]) for name in ("gpu_warning", "gpu_cause", "gpu_remedy") if words.get(name)]
    if words.get("gpu") or told:
        used = str((run.gpu or {}).get("used"))
        parts.append(_say(_GPU.get(used, ""), f"GPU used: {words.get('gpu') or used}", "\n".join(told)))
    note = run.noted.note or run.told_tags.get("mlflow.note.content")
    if note:
        parts.append(_say("", "Note", str(note)))
    return "".join(parts)


def _say(tone: str, head: str, text: str) -> str:
    return f"<div class='say {tone}'><strong>{shown(head)}</strong>{shown(text, 6000)}</div>"


def _table(title: str, heads: Iterable[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th{' class=n' if at else ''}>{name}</th>" for at, name in enumerate(heads))
    lines = "".join(
        "<tr>" + "".join(f"<td{' class=n' if at else ''}>{one}</td>" for at, one in enumerate(row)) + "</tr>"
        for row in rows[:_ROWS]
    )
    more = f"<p class=soft>and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return f"<div><h3>{title}</h3><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}</div>"


def _params(item: Item) -> str:
    rows = [
        f"<tr><td>{shown(name, 200)}</td><td>{cell(True if value is None else value)}</td></tr>"
        for name, value in islice(of_run(item.run).items(), _ROWS)
    ]
    if not rows:
        return ""
    return f"<div><h3>Parameters</h3><table><tbody>{''.join(rows)}</tbody></table></div>"


def _metrics(item: Item) -> str:
    rows = []
    for name, value in islice(item.run.metrics.items(), _ROWS + 1):
        span = item.run.spans.get(name)
        more: list[Any] = [span.least, span.most, span.length] if span and span.length > 1 else [None, None, None]
        rows.append([shown(name, 200), cell(value), *(cell(one) for one in more)])
    return _table("Metrics", ("", "Last", "Minimum", "Maximum", "Points"), rows)


def _files(item: Item) -> str:
    listed, total, size = [], 0, 0
    for name, one in files_of(item):
        total, size = total + 1, size + one.size
        if total <= _FILES:
            kind = (item.run.files.get(one.path) or {}).get("as")
            listed.append([shown(name, 400), cell(kind), f"{one.size:,}"])
    if not total:
        return ""
    table = _table("", ("File", "Kind", "Bytes"), listed)
    more = f"<p class=soft>and {total - _FILES} more</p>" if total > _FILES else ""
    return f"<details><summary>Files: {total}, {size:,} bytes</summary>{table}{more}</details>"


def _environment(item: Item) -> str:
    lock = item.run.spec.lock or {}
    packages = [
        [shown(str(one.get("name")), 100), shown(str(one.get("version")), 60)]
        for group in ("packages", "conda", "pip")
        for one in lock.get(group) or ()
        if isinstance(one, dict)
    ]
    plain = {name: value for name, value in lock.items() if isinstance(value, (str, int, float)) and value != ""}
    if not plain and not packages:
        return ""
    facts = "".join(f"<dt>{shown(name, 60)}</dt><dd>{cell(value)}</dd>" for name, value in plain.items())
    table = _table("", ("Package", "Version"), packages) if packages else ""
    count = f": {counted(len(packages), 'package')}" if packages else ""
    return f"<details><summary>Environment{count}</summary><dl>{facts}</dl>{table}</details>"
