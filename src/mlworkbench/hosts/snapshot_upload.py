"""Upload code to a remote machine: a diff against a manifest on the target, then the missing blobs."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..errors import HostError, SnapshotError
from ..remote.shared.message_frames import CHUNK
from ..remote.shared.untrusted_json import parse_json
from .channel import ANSWER_TIMEOUT, Channel
from .replies import Reply, printable

Progress = Callable[[int, int], None]
_MAX_REMEMBERED = 8  # Maximum recent snapshots of a target to consider as the base of the next diff
_FAST_RATE = 24 * 1024 * 1024  # bytes per second; above this rate, compressing takes longer than sending
_SAMPLE_SIZE = 64 * 1024
_MIN_FRAME, _FIRST_FRAME = 32 * 1024, 256 * 1024  # in bytes
_FINISH_TIMEOUT = 600.0  # seconds; the target may have to write gigabytes to disk


class Store(Protocol):
    """A store of file lists and file contents."""

    def snapshot(self, digest: str) -> str: ...

    def blob(self, digest: str) -> str: ...


class Upload:
    """Upload of a snapshot from ``store`` through ``channel``.

    ``sent_list`` is a file that lists earlier uploads.
    """

    def __init__(self, channel: Channel, store: Store, sent_list: Path | None, progress: Progress | None) -> None:
        self._channel = channel
        self._store = store
        self._sent_list = sent_list
        self._progress = progress or (lambda done, total: None)
        self._sent_bytes, self._send_seconds = 0, 0.0
        self._frame_size = _FIRST_FRAME

    def send(self, digest: str) -> None:
        text, manifest = self._read(digest)
        base = self._choose_base(manifest)
        plan = self._send_manifest(digest, base, _diff_manifests(base[1], manifest) if base else text)
        if plan.get("ok") and plan.get("base") is False:
            plan = self._send_manifest(digest, None, text)
        if not plan.get("ok") or not plan.get("more"):
            raise HostError(f"cannot upload the code: {printable(str(plan.get('problem')))}")
        self._send_blobs(*_check_plan(plan, _unique_blobs(manifest)))
        self._record_sent(digest)

    def _read(self, digest: str) -> tuple[bytes, dict[str, Any]]:
        try:
            text = Path(self._store.snapshot(digest)).read_bytes()
            return text, parse_json(text)
        except (OSError, ValueError) as error:
            raise SnapshotError(
                f"the snapshot {digest[:12]} is no longer in the content store", "submit again"
            ) from error

    # -- the manifest ------------------------------------------------------------------------------

    def _send_manifest(self, digest: str, base: tuple[str, dict[str, Any]] | None, text: bytes) -> dict[str, Any]:
        request = {"do": "code", "digest": digest, "base": base[0] if base else None}
        self._channel.send({**request, "parcel": self._sent_list is None})
        compressed = zlib.compress(text, 6 if len(text) < CHUNK else 1)
        for start in range(0, len(compressed), CHUNK):
            self._channel.send({"more": True}, compressed[start : start + CHUNK])
        self._channel.send({})
        return next(self._channel.stream(2 * ANSWER_TIMEOUT, 0))[0]

    def _choose_base(self, manifest: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return digest and manifest of a recently sent snapshot that shares many files with this one, or None.

        The search ends at the first snapshot that contains more than half of the files.
        """
        contents = {entry[0]: entry[1] for entry in manifest["files"]}
        best: tuple[int, str, dict[str, Any]] | None = None
        for digest in self._read_sent_list():
            try:
                other = self._read(digest)[1]
            except SnapshotError:
                continue
            common = sum(contents.get(entry[0]) == entry[1] for entry in other["files"])
            if common and (best is None or common > best[0]):
                best = common, digest, other
            if best and 2 * best[0] > len(contents):
                break
        return best[1:] if best else None

    def _read_sent_list(self) -> list[str]:
        try:
            digests = self._sent_list.read_text().split() if self._sent_list else []
        except OSError:
            return []
        return [digest for digest in digests if len(digest) == 64 and digest.isalnum()][:_MAX_REMEMBERED]

    def _record_sent(self, digest: str) -> None:
        if self._sent_list is None:
            return
        digests = [digest, *(other for other in self._read_sent_list() if other != digest)][:_MAX_REMEMBERED]
        part = self._sent_list.with_name(f".{self._sent_list.name}-{os.urandom(4).hex()}")
        try:
            part.write_text("\n".join(digests))
            part.replace(self._sent_list)
        except OSError:
            return  # the next upload sends the full manifest

    # -- the blobs ---------------------------------------------------------------------------------

    def _send_blobs(self, missing: Sequence[tuple[str, int]], have: dict[int, int]) -> None:
        total = sum(size for _, size in missing)
        done = sum(have.values())
        self._progress(done, total)
        for data in self._batch(self._read_blobs(missing, have)):
            self._send(data)
            done += len(data)
            self._progress(done, total)
            if self._channel.pipe.is_ready(0):
                break  # before the end, the target sends only errors
        self._channel.send({})
        for answer, _ in self._channel.stream(_FINISH_TIMEOUT, 0):
            if not answer.get("more") and not answer.get("ok"):
                Reply("the target", answer).require_ok("cannot store the code on the target")

    def _send(self, data: bytes) -> None:
        started = time.monotonic()
        slow = not self._send_seconds or self._sent_bytes / self._send_seconds < _FAST_RATE
        sample = zlib.compress(data[:_SAMPLE_SIZE], 1) if slow else b""
        compressed = zlib.compress(data, 1) if slow and len(sample) < 0.9 * min(len(data), _SAMPLE_SIZE) else data
        is_smaller = len(compressed) < len(data)
        self._channel.send({"more": True, "packed": is_smaller}, compressed if is_smaller else data)
        if self._sent_bytes or len(data) >= _SAMPLE_SIZE:  # the first bytes only fill network buffers
            self._send_seconds += max(time.monotonic() - started, 1e-6)
        self._sent_bytes += len(compressed if is_smaller else data)
        if self._send_seconds:
            # On slow connections, frames of about 0.5 s show progress and limit what interruptions lose.
            self._frame_size = max(_MIN_FRAME, min(CHUNK, int(len(data) / max(time.monotonic() - started, 1e-6) / 2)))

    def _batch(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Combine many small files into one frame."""
        pending: list[bytes] = []
        size = 0
        for part in parts:
            if pending and size + len(part) > self._frame_size:
                yield b"".join(pending)
                pending, size = [], 0
            pending.append(part)
            size += len(part)
        if pending:
            yield b"".join(pending)

    def _read_blobs(self, missing: Sequence[tuple[str, int]], have: dict[int, int]) -> Iterator[bytes]:
        for index, (sha256, size) in enumerate(missing):
            left = size - have.get(index, 0)
            try:
                with open(self._store.blob(sha256), "rb", buffering=0) as file:
                    file.seek(size - left)
                    while left:
                        data = file.read(min(left, self._frame_size))
                        if not data:
                            raise SnapshotError("a stored file was truncated during the upload", "submit again")
                        left -= len(data)
                        yield data
            except OSError as error:
                raise SnapshotError(f"cannot read a stored file: {error.strerror}", "submit again") from error


def _unique_blobs(manifest: dict[str, Any]) -> list[tuple[str, int]]:
    """Return each blob once, in the order that both sides use to number them."""
    sizes: dict[str, int] = {}
    for _, sha256, size, _ in manifest["files"]:
        sizes.setdefault(sha256, size)
    return list(sizes.items())


def _check_plan(plan: dict[str, Any], blobs: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], dict[int, int]]:
    """Return missing blobs, and how many bytes of each the target has. The plan is untrusted."""
    try:
        missing: list[tuple[str, int]] = []
        position = 0
        for first, count in plan["missing"]:
            if not position <= first < first + count <= len(blobs):
                raise ValueError
            missing += blobs[first : first + count]
            position = first + count
        have = {int(index): int(done) for index, done in plan["have"]}
        if any(index < 0 or not 0 <= done <= missing[index][1] for index, done in have.items()):
            raise ValueError
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise HostError("the target sent an invalid list of missing files") from None
    return missing, have


def _diff_manifests(base: dict[str, Any], manifest: dict[str, Any]) -> bytes:
    """Return the change that turns ``base`` into ``manifest``."""
    before = {entry[0]: entry for entry in base["files"]}
    now = {entry[0]: entry for entry in manifest["files"]}
    change = {
        "order": list(manifest),
        "rest": {key: value for key, value in manifest.items() if key != "files"},
        "drop": [path for path in before if path not in now],
        "files": [entry for path, entry in now.items() if before.get(path) != entry],
    }
    return json.dumps(change, separators=(",", ":")).encode()
