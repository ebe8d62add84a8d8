"""Data of a run that its target sends: the parts of an answer, and files of the local copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .errors import HostError
from .history.journal_parsing import events_before_finish
from .hosts.host import Host, News
from .runfiles.local_copy import LOG, MAX_SAMPLE_BYTES, LocalCopy

CHUNK = 4 * 1024 * 1024
BUILD, EVENTS = "build.log", "events.jsonl"


def download_samples(host: Host, run_id: str, mirror: LocalCopy, name: str) -> bool:
    """Download new bytes of a file with samples. Return False if the target is unreachable or has no such file."""
    offset = mirror.size(name)
    try:
        while offset < MAX_SAMPLE_BYTES:
            data = host.read_file(run_id, name, offset, CHUNK)
            if not data:
                break
            mirror.write(name, offset, data)
            offset += len(data)
    except HostError:
        return False
    return True


def restore_copy(host: Host, run_id: str, mirror: LocalCopy, offsets: Mapping[str, int]) -> None:
    """Download the files again up to the offsets that the history has read."""
    for name, read in offsets.items():
        while mirror.size(name) < read:
            offset = mirror.size(name)
            data = host.news(run_id, {name: offset}, CHUNK).parts.get(name)
            if not data:
                break  # the target has no more data
            mirror.write(name, offset, data)


def new_parts(news: News) -> dict[str, bytes]:
    """Return the parts that the history stores."""
    return {name: data for name, data in news.parts.items() if data and name not in (LOG, BUILD)}


def end_last(news: News) -> News:
    """Put the events last. While metrics are pending, omit the end event: it stops metric requests."""
    parts = dict(news.parts)
    events = parts.pop(EVENTS, b"")
    if events:
        parts[EVENTS] = events_before_finish(events) if news.pending else events
    return replace(news, parts=parts)
