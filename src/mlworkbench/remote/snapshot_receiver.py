"""Code from the client: which blobs of a snapshot are missing, one stream that brings them, the manifest last."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib

from .present import LARGE, blobs_of, check_digest, is_noted, note_whole
from .shared.file_lock import is_current, wait_for_lock
from .shared.frames import FrameError, ranges
from .shared.layout import Root
from .shared.tree import NEW, make_private
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional

    from .present import Blob

_MOST_MANIFEST = 1024 * 1024 * 1024


def _has(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False


class Upload:
    """One snapshot on its way here."""

    def __init__(self, root: Root, digest: str) -> None:
        self._root = root
        self._digest = check_digest(digest)
        self._text = b""
        self._missing: List[Blob] = []

    def plan(self, request: Dict[str, Any], packed: Iterable[bytes]) -> Dict[str, Any]:
        """Take in the manifest, whole or as the difference to one that is here; which blobs are missing."""
        text = _unpack(packed)
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
        blobs = blobs_of(manifest or parse_json(text))
        # All that is in a base which was found whole is here: to look for each again takes longer than the rest.
        known = change is not None and is_noted(self._root, request["base"])
        new = {entry[1] for entry in change["files"]} if change is not None and known else None
        lacking = [
            index
            for index, (sha, size) in enumerate(blobs)
            if (new is None or sha in new) and not _has(self._root.blob(sha), size)
        ]
        self._missing = [blobs[index] for index in lacking]
        have = [
            [place, done] for place, done in enumerate(self._have(sha, size) for sha, size in self._missing) if done
        ]
        return {"ok": True, "base": True, "missing": ranges(lacking), "have": have}

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

    def _have(self, sha256: str, size: int) -> int:
        """How much of a large blob came before an earlier upload was cut."""
        try:
            done = os.stat(self._part(sha256)).st_size if size >= LARGE else 0
        except OSError:
            return 0
        return done if done <= size else 0

    def _part(self, sha256: str) -> str:
        return os.path.join(self._root.blobs, "part-" + sha256)

    def take(self, frames: Callable[[], Optional[bytes]], have: List[List[int]]) -> None:
        """All missing blobs, end to end, from frames that end anywhere; then the manifest. Raises OSError."""
        make_private(self._root.path, self._root.blobs, self._root.snapshots)
        done: Dict[int, int] = {index: count for index, count in have}  # noqa: C416 - pairs come as lists
        stream = _Stream(frames)
        for index, (sha256, size) in enumerate(self._missing):
            if size >= LARGE:
                self._take_large(stream, sha256, size, done.get(index, 0))
            else:
                data = stream.read(size)
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise OSError(errno.EBADMSG, "a file was damaged in transit")
                self._publish(sha256, self._write(sha256, data))
        target = self._root.snapshot(self._digest)
        part = "%s.%s.part" % (target, os.urandom(4).hex())
        with open(os.open(part, NEW, 0o600), "wb") as file:
            file.write(self._text)
        os.replace(part, target)
        note_whole(self._root, self._digest)

    def _write(self, sha256: str, data: bytes) -> str:
        part = "%s-%s" % (self._part(sha256), os.urandom(4).hex())
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
        """The part, ours alone; None if another upload has brought the whole meanwhile.

        Waits for the agent of a client that was killed, which is still busy with what was on its way.
        """
        part = self._part(sha256)
        while True:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            wait_for_lock(descriptor)
            same = is_current(descriptor, part)
            if same and not _has(self._root.blob(sha256), size):
                return descriptor
            os.close(descriptor)
            if _has(self._root.blob(sha256), size):
                if same:
                    os.unlink(part)
                return None

    def _take_large(self, stream: "_Stream", sha256: str, size: int, done: int) -> None:
        descriptor = self._open_part(sha256, size)
        if descriptor is None:
            while done < size:
                done += len(stream.some(size - done))
            return
        part = self._part(sha256)
        try:
            os.ftruncate(descriptor, done)
            digest = _hash_start(descriptor, done)
            while done < size:
                data = stream.some(size - done)
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


def _hash_start(descriptor: int, size: int) -> Any:
    digest = hashlib.sha256()
    done = 0
    while done < size:
        data = os.pread(descriptor, min(LARGE, size - done), done)
        if not data:
            break
        digest.update(data)
        done += len(data)
    return digest


class _Stream:
    """Bytes out of frames. ``frames`` gives None when there are no more."""

    def __init__(self, frames: Callable[[], Optional[bytes]]) -> None:
        self._frames = frames
        self._left = memoryview(b"")

    def some(self, most: int) -> bytes:
        """At least one byte, at most ``most``."""
        while not self._left:
            data = self._frames()
            if data is None:
                raise OSError(errno.ECONNABORTED, "the upload was aborted")
            self._left = memoryview(data)
        part, self._left = self._left[:most], self._left[most:]
        return bytes(part)

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.some(size)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _unpack(packed: Iterable[bytes]) -> bytes:
    """A compressed text that came in parts."""
    unpacker = zlib.decompressobj()
    parts = []
    size = 0
    for one in packed:
        parts.append(unpacker.decompress(one, _MOST_MANIFEST - size))
        size += len(parts[-1])
        if unpacker.unconsumed_tail:
            raise FrameError("the list of files is too long")
    return b"".join(parts)


def encode_manifest(manifest: Dict[str, Any], order: List[str]) -> bytes:
    """As the client wrote it, to the byte: a snapshot is known by the digest of this text."""
    text = json.dumps({key: manifest[key] for key in order}, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")
