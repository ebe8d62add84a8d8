"""Receive a snapshot: determine missing blobs, read them from a stream, and write the manifest last."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib

from .shared.file_lock import is_current, wait_for_lock
from .shared.folder_tree import NEW, make_private
from .shared.layout import Root
from .shared.message_frames import FrameError, ranges
from .shared.untrusted_json import parse_json
from .snapshot_check import LARGE_BLOB, check_digest, is_verified, list_blobs, mark_verified

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional

    from .snapshot_check import Blob

_MAX_MANIFEST_SIZE = 1024 * 1024 * 1024


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False


class Upload:
    """The upload of one snapshot."""

    def __init__(self, root: Root, digest: str) -> None:
        self._root = root
        self._digest = check_digest(digest)
        self._text = b""
        self._missing: List[Blob] = []

    def plan(self, request: Dict[str, Any], packed: Iterable[bytes]) -> Dict[str, Any]:
        """Read the manifest, complete or as changes to an existing one. Return the missing blobs."""
        text = _decompress(packed)
        change = parse_json(text) if request.get("base") else None
        manifest: Optional[Dict[str, Any]] = None
        if change is not None:
            manifest = self._rebuild(request["base"], change)
            text = encode_manifest(manifest, change["order"]) if manifest else b""
        if hashlib.sha256(text).hexdigest() != self._digest:
            if change is not None:
                return {"ok": True, "base": False}
            return {"ok": False, "problem": "the file list was damaged in transit"}
        self._text = text
        blobs = list_blobs(manifest or parse_json(text))
        # All blobs of a verified base snapshot exist; checking them again would take longer than everything else.
        base_verified = change is not None and is_verified(self._root, request["base"])
        new_blobs = {entry[1] for entry in change["files"]} if change is not None and base_verified else None
        missing = [
            index
            for index, (sha, size) in enumerate(blobs)
            if (new_blobs is None or sha in new_blobs) and not _has_size(self._root.blob(sha), size)
        ]
        self._missing = [blobs[index] for index in missing]
        received = [
            [position, done]
            for position, done in enumerate(self._received_size(sha, size) for sha, size in self._missing)
            if done
        ]
        return {"ok": True, "base": True, "missing": ranges(missing), "have": received}

    def _rebuild(self, base: str, change: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        try:
            with open(self._root.snapshot(check_digest(base)), "rb") as file:
                manifest = parse_json(file.read())
        except (OSError, ValueError):
            return None
        files = {entry[0]: entry for entry in manifest["files"]}
        for path in change["drop"]:
            files.pop(path, None)
        files.update((entry[0], entry) for entry in change["files"])
        return dict(change["rest"], files=sorted(files.values(), key=lambda entry: str(entry[0])))

    def _received_size(self, sha256: str, size: int) -> int:
        """Return how many bytes of a large blob an interrupted upload has received."""
        try:
            done = os.stat(self._part_path(sha256)).st_size if size >= LARGE_BLOB else 0
        except OSError:
            return 0
        return done if done <= size else 0

    def _part_path(self, sha256: str) -> str:
        return os.path.join(self._root.blobs, "part-" + sha256)

    def receive(self, frames: Callable[[], Optional[bytes]], received: List[List[int]]) -> None:
        """Receive all missing blobs, then write the manifest. Raise OSError if a write fails.

        The blobs form one continuous stream, which is split into frames.
        """
        make_private(self._root.path, self._root.blobs, self._root.snapshots)
        offsets: Dict[int, int] = {index: count for index, count in received}  # noqa: C416 - the pairs are lists
        stream = _Stream(frames)
        for index, (sha256, size) in enumerate(self._missing):
            if size >= LARGE_BLOB:
                self._receive_large(stream, sha256, size, offsets.get(index, 0))
            else:
                data = stream.read(size)
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise OSError(errno.EBADMSG, "a file was damaged in transit")
                self._publish(sha256, self._write(sha256, data))
        target = self._root.snapshot(self._digest)
        temporary = "%s.%s.part" % (target, os.urandom(4).hex())
        with open(os.open(temporary, NEW, 0o600), "wb") as file:
            file.write(self._text)
        os.replace(temporary, target)
        mark_verified(self._root, self._digest)

    def _write(self, sha256: str, data: bytes) -> str:
        part = "%s-%s" % (self._part_path(sha256), os.urandom(4).hex())
        descriptor = os.open(part, NEW, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        return part

    def _publish(self, sha256: str, part: str) -> None:
        blob = self._root.blob(sha256)
        try:
            os.rename(part, blob)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(blob), 0o700, exist_ok=True)
            os.rename(part, blob)

    def _open_part(self, sha256: str, size: int) -> Optional[int]:
        """Open and lock the partial blob. Return None if another upload has completed it.

        This waits while the agent of a killed client is still processing received data.
        """
        part = self._part_path(sha256)
        while True:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            wait_for_lock(descriptor)
            same = is_current(descriptor, part)
            if same and not _has_size(self._root.blob(sha256), size):
                return descriptor
            os.close(descriptor)
            if _has_size(self._root.blob(sha256), size):
                if same:
                    os.unlink(part)
                return None

    def _receive_large(self, stream: "_Stream", sha256: str, size: int, done: int) -> None:
        descriptor = self._open_part(sha256, size)
        if descriptor is None:
            while done < size:
                done += len(stream.read_some(size - done))
            return
        part = self._part_path(sha256)
        try:
            os.ftruncate(descriptor, done)
            digest = _hash_prefix(descriptor, done)
            while done < size:
                data = stream.read_some(size - done)
                digest.update(data)
                view = memoryview(data)
                while view:
                    count = os.pwrite(descriptor, view, done)
                    view, done = view[count:], done + count
            if digest.hexdigest() != sha256:
                os.unlink(part)
                raise OSError(errno.EBADMSG, "a file was damaged in transit")
            os.fsync(descriptor)
            self._publish(sha256, part)
        finally:
            os.close(descriptor)


def _hash_prefix(descriptor: int, size: int) -> Any:
    digest = hashlib.sha256()
    done = 0
    while done < size:
        data = os.pread(descriptor, min(LARGE_BLOB, size - done), done)
        if not data:
            break
        digest.update(data)
        done += len(data)
    return digest


class _Stream:
    """A byte stream read from frames. ``frames`` returns None at the end."""

    def __init__(self, frames: Callable[[], Optional[bytes]]) -> None:
        self._frames = frames
        self._buffer = memoryview(b"")

    def read_some(self, limit: int) -> bytes:
        """Return between one and ``limit`` bytes."""
        while not self._buffer:
            data = self._frames()
            if data is None:
                raise OSError(errno.ECONNABORTED, "the upload was aborted")
            self._buffer = memoryview(data)
        part, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return bytes(part)

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.read_some(size)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _decompress(packed: Iterable[bytes]) -> bytes:
    """Decompress data that arrives in chunks."""
    unpacker = zlib.decompressobj()
    parts = []
    size = 0
    for chunk in packed:
        parts.append(unpacker.decompress(chunk, _MAX_MANIFEST_SIZE - size))
        size += len(parts[-1])
        if unpacker.unconsumed_tail:
            raise FrameError("the list of files is too long")
    return b"".join(parts)


def encode_manifest(manifest: Dict[str, Any], order: List[str]) -> bytes:
    """Encode the manifest exactly as the client does: the digest of this text identifies a snapshot."""
    text = json.dumps({key: manifest[key] for key in order}, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")
