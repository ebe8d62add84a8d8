"""The section about a run: outcome, metrics, images, files, and environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from ...history.parameters import run_parameters
from ...model import Status
from ..run_data import Item, files_of
from .inline_images import ImageEmbedder
from .markup import cell, escape_text, format_duration, pluralize

_MAX_ROWS = 300  # maximum rows per table
_MAX_FILES = 200
_TONES = {Status.COMPLETED: "good", Status.FAILED: "bad", Status.CANCELED: "warn"}
_GPU_TONES = {"yes": "good", "partly": "warn", "no": "bad"}

Write = Callable[[str], None]


def badge(item: Item) -> str:
    tone = _TONES.get(item.run.status, "")
    return f"<span class='badge {tone}'>{escape_text(item.run.status.value)}</span>"


class RunSections:
    """A writer for the sections of runs.

    ``anchors`` maps the ID of each run that has a section to its anchor.
    """

    def __init__(self, anchors: Mapping[str, str]) -> None:
        self._anchors = anchors
        self._images = ImageEmbedder()

    def write(self, item: Item, index: int, write: Write, *, is_open: bool, is_only: bool) -> None:
        """Write the section of a run. A page about a single run already shows its name as its title."""
        if is_only:
            write(f"<section class=card id=r{index}>")
        else:
            name = "" if item.title == item.run.id else f" <span class='id soft'>{escape_text(item.run.id)}</span>"
            summary = f"{escape_text(item.title, 120)}{name}{badge(item)}"
            write(f"<details class=card id=r{index}{' open' if is_open else ''}><summary>{summary}</summary>")
        write(_notices(item))
        write(self._facts(item))
        write(f"<div class=two>{_params(item)}{_metrics(item)}</div>")
        self._write_images(item, write)
        write(_files(item))
        write(_environment(item))
        write("</section>" if is_only else "</details>")

    def _facts(self, item: Item) -> str:
        run, display = item.run, item.display
        git = run.spec.git
        commit = (
            f"{git.commit or ''} {git.branch or ''}{' (uncommitted changes)' if git.dirty else ''}" if git else None
        )
        facts = {
            "Run ID": run.id,
            "Command": " ".join([run.spec.entry.name, shlex.join(run.spec.entry.arguments)]),
            "Target": run.spec.compute.name,
            "Started": display.get("start_time_utc"),
            "Duration": format_duration(run.duration),
            "User": run.spec.user,
            "Git commit": commit,
        }
        rows = "".join(f"<dt>{name}</dt><dd>{cell(value)}</dd>" for name, value in facts.items() if value)
        tags = "".join(f"<span class=tag>{escape_text(tag, 120)}</span>" for tag in run.tags[:50])
        parent = run.spec.parent
        if tags:
            rows += f"<dt>Tags</dt><dd>{tags}</dd>"
        if parent:
            link = (
                f"<a href='#{self._anchors[parent]}'>{escape_text(parent)}</a>"
                if parent in self._anchors
                else escape_text(parent)
            )
            rows += f"<dt>Parent run</dt><dd>{link}</dd>"
        return f"<dl>{rows}</dl>"

    def _write_images(self, item: Item, write: Write) -> None:
        images, omitted = self._images.embed(item)
        if images:
            write("<h3>Images</h3><div class=pictures>")
            for image in images:
                name = escape_text(image.name, 200)
                write(f'<figure><img alt="{name}" src="{image.url}"><figcaption>{name}</figcaption></figure>')
            write("</div>")
        if omitted:
            write(f"<p class=soft>{pluralize(omitted, 'more image')} not shown: too large, or not fetched.</p>")


def _notices(item: Item) -> str:
    """Return notices about why the run failed, whether it used the GPU, and its note."""
    run, display = item.run, item.display
    parts = []
    if run.status is Status.FAILED:
        parts.append(_notice("bad", str(display.get("ending") or "failed"), run.cause or ""))
    details = [str(display[name]) for name in ("gpu_warning", "gpu_cause", "gpu_remedy") if display.get(name)]
    if display.get("gpu") or details:
        used = str((run.gpu or {}).get("used"))
        parts.append(_notice(_GPU_TONES.get(used, ""), f"GPU used: {display.get('gpu') or used}", "\n".join(details)))
    note = run.noted.note or run.told_tags.get("mlflow.note.content")
    if note:
        parts.append(_notice("", "Note", str(note)))
    return "".join(parts)


def _notice(tone: str, head: str, text: str) -> str:
    return f"<div class='say {tone}'><strong>{escape_text(head)}</strong>{escape_text(text, 6000)}</div>"


def _table(title: str, heads: Iterable[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th{' class=n' if column else ''}>{name}</th>" for column, name in enumerate(heads))
    lines = "".join(
        "<tr>" + "".join(f"<td{' class=n' if column else ''}>{text}</td>" for column, text in enumerate(row)) + "</tr>"
        for row in rows[:_MAX_ROWS]
    )
    more = f"<p class=soft>and {len(rows) - _MAX_ROWS} more</p>" if len(rows) > _MAX_ROWS else ""
    return f"<div><h3>{title}</h3><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}</div>"


def _params(item: Item) -> str:
    rows = [
        f"<tr><td>{escape_text(name, 200)}</td><td>{cell(True if value is None else value)}</td></tr>"
        for name, value in islice(run_parameters(item.run).items(), _MAX_ROWS)
    ]
    if not rows:
        return ""
    return f"<div><h3>Parameters</h3><table><tbody>{''.join(rows)}</tbody></table></div>"


def _metrics(item: Item) -> str:
    rows = []
    for name, value in islice(item.run.metrics.items(), _MAX_ROWS + 1):
        span = item.run.spans.get(name)
        more: list[Any] = [span.least, span.most, span.length] if span and span.length > 1 else [None, None, None]
        rows.append([escape_text(name, 200), cell(value), *(cell(number) for number in more)])
    return _table("Metrics", ("", "Last", "Minimum", "Maximum", "Points"), rows)


def _files(item: Item) -> str:
    listed, total, size = [], 0, 0
    for name, output in files_of(item):
        total, size = total + 1, size + output.size
        if total <= _MAX_FILES:
            kind = (item.run.files.get(output.path) or {}).get("as")
            listed.append([escape_text(name, 400), cell(kind), f"{output.size:,}"])
    if not total:
        return ""
    table = _table("", ("File", "Kind", "Bytes"), listed)
    more = f"<p class=soft>and {total - _MAX_FILES} more</p>" if total > _MAX_FILES else ""
    return f"<details><summary>Files: {total}, {size:,} bytes</summary>{table}{more}</details>"


def _environment(item: Item) -> str:
    lock = item.run.spec.lock or {}
    packages = [
        [escape_text(str(package.get("name")), 100), escape_text(str(package.get("version")), 60)]
        for group in ("packages", "conda", "pip")
        for package in lock.get(group) or ()
        if isinstance(package, dict)
    ]
    plain = {name: value for name, value in lock.items() if isinstance(value, (str, int, float)) and value != ""}
    if not plain and not packages:
        return ""
    facts = "".join(f"<dt>{escape_text(name, 60)}</dt><dd>{cell(value)}</dd>" for name, value in plain.items())
    table = _table("", ("Package", "Version"), packages) if packages else ""
    count = f": {pluralize(len(packages), 'package')}" if packages else ""
    return f"<details><summary>Environment{count}</summary><dl>{facts}</dl>{table}</details>"
