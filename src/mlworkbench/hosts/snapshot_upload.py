"""Code to another machine: the manifest as a difference to one that is there, then the missing blobs in one stream."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import HostError, SnapshotError
from ..remote.shared.frames import CHUNK
from ..remote.shared.untrusted import parse_json
from .channel import ANSWER, Channel
from .replies import Reply, printable

Progress = Callable[[int, int], None]
_REMEMBERED = 8  # snapshots that the target got last: one of them is the base of the next difference
_FAST = 24 * 1024 * 1024  # bytes a second from which on packing takes longer than sending
_SAMPLE = 64 * 1024
_SMALLEST, _FIRST = 32 * 1024, 256 * 1024  # bytes of a frame
_FINISHING = 600.0  # the target may have gigabytes to put on disk


class Store(Protocol):
    """Where a list of files is, and their contents."""

    def snapshot(self, digest: str) -> str: ...

    def blob(self, digest: str) -> str: ...


class Upload:
    """One snapshot from ``store`` through ``channel``. ``memory``: a file that lists what went there before."""

    def __init__(self, channel: Channel, store: Store, memory: Path | None, progress: Progress | None) -> None:
        self._channel = channel
        self._store = store
        self._memory = memory
        self._progress = progress or (lambda done, total: None)
        self._sent, self._spent = 0, 0.0
        self._frame = _FIRST

    def send(self, digest: str) -> None:
        text, manifest = self._read(digest)
        base = self._base(manifest)
        plan = self._ask(digest, base, _difference(base[1], manifest) if base else text)
        if plan.get("ok") and plan.get("base") is False:
            plan = self._ask(digest, None, text)
        if not plan.get("ok") or not plan.get("more"):
            raise HostError(f"cannot upload the code: {printable(str(plan.get('problem')))}")
        self._pour(*_checked(plan, _blobs(manifest)))
        self._remember(digest)

    def _read(self, digest: str) -> tuple[bytes, dict[str, Any]]:
        try:
            text = Path(self._store.snapshot(digest)).read_bytes()
            return text, parse_json(text)
        except (OSError, ValueError) as error:
            raise SnapshotError(
                f"the snapshot {digest[:12]} is no longer in the content store", "submit again"
            ) from error

    # -- the manifest ------------------------------------------------------------------------------

    def _ask(self, digest: str, base: tuple[str, dict[str, Any]] | None, text: bytes) -> dict[str, Any]:
        request = {"do": "code", "digest": digest, "base": base[0] if base else None}
        self._channel.send({**request, "parcel": self._memory is None})
        packed = zlib.compress(text, 6 if len(text) < CHUNK else 1)
        for start in range(0, len(packed), CHUNK):
            self._channel.send({"more": True}, packed[start : start + CHUNK])
        self._channel.send({})
        return next(self._channel.stream(2 * ANSWER, 0))[0]

    def _base(self, manifest: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Of the last ones that went there, the one most like this one."""
        wanted = {entry[0]: entry[1] for entry in manifest["files"]}
        best: tuple[int, str, dict[str, Any]] | None = None
        for digest in self._remembered():
            try:
                other = self._read(digest)[1]
            except SnapshotError:
                continue
            alike = sum(wanted.get(entry[0]) == entry[1] for entry in other["files"])
            if alike and (best is None or alike > best[0]):
                best = alike, digest, other
            if best and 2 * best[0] > len(wanted):
                break
        return best[1:] if best else None

    def _remembered(self) -> list[str]:
        try:
            words = self._memory.read_text().split() if self._memory else []
        except OSError:
            return []
        return [word for word in words if len(word) == 64 and word.isalnum()][:_REMEMBERED]

    def _remember(self, digest: str) -> None:
        if self._memory is None:
            return
        known = [digest, *(one for one in self._remembered() if one != digest)][:_REMEMBERED]
        part = self._memory.with_name(f".{self._memory.name}-{os.urandom(4).hex()}")
        try:
            part.write_text("\n".join(known))
            part.replace(self._memory)
        except OSError:
            return  # next time the whole list travels

    # -- the blobs ---------------------------------------------------------------------------------

    def _pour(self, missing: Sequence[tuple[str, int]], have: dict[int, int]) -> None:
        total = sum(size for _, size in missing)
        done = sum(have.values())
        self._progress(done, total)
        for data in self._joined(self._contents(missing, have)):
            self._send(data)
            done += len(data)
            self._progress(done, total)
            if self._channel.pipe.ready(0):
                break  # it complains: nothing else comes before the end
        self._channel.send({})
        for answer, _ in self._channel.stream(_FINISHING, 0):
            if not answer.get("more") and not answer.get("ok"):
                Reply("the target", answer).require_ok("cannot store the code on the target")

    def _send(self, data: bytes) -> None:
        begun = time.monotonic()
        slow = not self._spent or self._sent / self._spent < _FAST
        sample = zlib.compress(data[:_SAMPLE], 1) if slow else b""
        packed = zlib.compress(data, 1) if slow and len(sample) < 0.9 * min(len(data), _SAMPLE) else data
        shrunk = len(packed) < len(data)
        self._channel.send({"more": True, "packed": shrunk}, packed if shrunk else data)
        if self._sent or len(data) >= _SAMPLE:  # the first bytes only fill buffers on the way
            self._spent += max(time.monotonic() - begun, 1e-6)
        self._sent += len(packed if shrunk else data)
        if self._spent:
            # About half a second each: on a slow line progress is seen, and a cut costs little.
            self._frame = max(_SMALLEST, min(CHUNK, int(len(data) / max(time.monotonic() - begun, 1e-6) / 2)))

    def _joined(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Many small files in one frame."""
        waiting: list[bytes] = []
        size = 0
        for part in parts:
            if waiting and size + len(part) > self._frame:
                yield b"".join(waiting)
                waiting, size = [], 0
            waiting.append(part)
            size += len(part)
        if waiting:
            yield b"".join(waiting)

    def _contents(self, missing: Sequence[tuple[str, int]], have: dict[int, int]) -> Iterator[bytes]:
        for index, (sha256, size) in enumerate(missing):
            left = size - have.get(index, 0)
            try:
                with open(self._store.blob(sha256), "rb", buffering=0) as file:
                    file.seek(size - left)
                    while left:
                        data = file.read(min(left, self._frame))
                        if not data:
                            raise SnapshotError("a stored file was truncated during the upload", "submit again")
                        left -= len(data)
                        yield data
            except OSError as error:
                raise SnapshotError(f"cannot read a stored file: {error.strerror}", "submit again") from error


def _blobs(manifest: dict[str, Any]) -> list[tuple[str, int]]:
    """Each content once, in the order that both ends count by."""
    found: dict[str, int] = {}
    for _, sha256, size, _ in manifest["files"]:
        found.setdefault(sha256, size)
    return list(found.items())


def _checked(plan: dict[str, Any], blobs: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], dict[int, int]]:
    """What the target lacks, and how much of each it has; it may say anything."""
    try:
        missing: list[tuple[str, int]] = []
        place = 0
        for first, count in plan["missing"]:
            if not place <= first < first + count <= len(blobs):
                raise ValueError
            missing += blobs[first : first + count]
            place = first + count
        have = {int(index): int(done) for index, done in plan["have"]}
        if any(index < 0 or not 0 <= done <= missing[index][1] for index, done in have.items()):
            raise ValueError
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise HostError("the target sent an invalid list of missing files") from None
    return missing, have


def _difference(base: dict[str, Any], manifest: dict[str, Any]) -> bytes:
    """What makes ``manifest`` out of ``base``."""
    before = {entry[0]: entry for entry in base["files"]}
    now = {entry[0]: entry for entry in manifest["files"]}
    change = {
        "order": list(manifest),
        "rest": {key: value for key, value in manifest.items() if key != "files"},
        "drop": [path for path in before if path not in now],
        "files": [entry for path, entry in now.items() if before.get(path) != entry],
    }
    return json.dumps(change, separators=(",", ":")).encode()
