"""A zip with all that is needed to understand a run elsewhere: its code, log, events, spec and facts. No secrets.

Values of secrets are masked wherever they occur, in the project's files as well. The same run gives the same
order and times of members.
"""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..errors import HistoryError, SnapshotError, UsageError
from ..model import JsonDict, Run
from ..remote.shared.layout import Root, RunFolder
from ..remote.shared.tree import NEW, READ
from ..version import __version__
from .snapshots import code_of, read_blob

HIDDEN = "***"
_SECRET_WORDS = ("TOKEN", "KEY", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL")
_SHORTEST = 6  # masked wherever it occurs; a shorter one, such as "true", would destroy the log
_CHUNK = 1 << 20
_REVIEW = "other private data in the code and the log is not masked; review the bundle before you share it"
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)
_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can tell


class Filter(Protocol):
    """Hides values in a stream of bytes."""

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


Filters = Callable[[], Filter | None]
Pieces = Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Member:
    """One file of the bundle: its name, its size before masking, and where its bytes come from."""

    name: str
    size: int
    pieces: Pieces
    mode: int = 0o600


def looks_secret(name: str) -> bool:
    """By the end of one of its words: API_KEY and DBPASSWORD do, TOKENIZERS_PARALLELISM does not."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return any(word.rstrip("S").endswith(_SECRET_WORDS) or "SECRET" in word or "PASSWORD" in word for word in words)


def secret_values(run: Run) -> list[str]:
    """Values in the spec that are to be masked wherever they occur."""
    return [value for value in _secrets(run) if len(value) >= _SHORTEST]


def _secrets(run: Run) -> list[str]:
    """Values in the spec that should not have been there: variables and options with the name of a secret."""
    values = [value for name, value in run.spec.environment.items() if looks_secret(name)]
    words = run.spec.entry.arguments
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.startswith("-") and looks_secret(option):
            following = words[index + 1 : index + 2]
            values += [value] if equals else [one for one in following if not one.startswith("-")]
    return [value for value in values if value]


def sharing_warnings(unknown: Iterable[str]) -> list[str]:
    """What people read before they make a bundle, on the command line and in the browser.

    ``unknown``: names of the run's secrets whose values are not known here, and therefore not masked.
    """
    shown = [
        f"the value of secret {name} is unknown here; if the script printed it, the bundle contains it"
        for name in unknown
    ]
    return [*shown, _REVIEW]


def collect(root: Root, run: Run) -> list[Member]:
    """What the bundle would hold, in the order of its names. Reads only sizes and what is made up here."""
    folder = root.run(run.id)
    members = [
        _text("facts.json", _facts(run)),
        _text("spec.json", _spec(run)),
        *_files_of(folder),
        *_project(root, run),
    ]
    return sorted(members, key=lambda member: member.name)


def _text(name: str, data: object) -> Member:
    text = json.dumps(data, indent=2, sort_keys=True).encode("ascii")
    return Member(name, len(text), lambda: iter([text]))


def _facts(run: Run) -> JsonDict:
    state = {key: value for key, value in asdict(run).items() if key != "spec"}
    return {
        "mlw": __version__,
        "python": sys.version,
        "system": f"{platform.system()} {platform.release()}",  # platform() would start a program
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "encoding": sys.getfilesystemencoding(),
        "run": {**state, "status": run.status.value, "id": run.id},
    }


def _spec(run: Run) -> JsonDict:
    return _without(run.spec.to_json(), set(_secrets(run)))  # type: ignore[no-any-return]


def _without(data: Any, hidden: set[str]) -> Any:
    """The same with these texts replaced, and with what follows ``=`` in an option. Also those too short to mask."""
    if isinstance(data, dict):
        return {key: _without(value, hidden) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_without(value, hidden) for value in data]
    if isinstance(data, str):
        option, equals, value = data.partition("=")
        if data in hidden:
            return HIDDEN
        return f"{option}={HIDDEN}" if equals and value in hidden else data
    return data


def _files_of(run: RunFolder) -> Iterator[Member]:
    plain = [
        run.log,
        run.supervisor_log,
        run.events,
        run.gpu,
        run.gate,
        run.started,
        run.exit,
        run.cancel,
        run.stopping,
    ]
    for path in [*plain, run.owner, run.manifest, run.git_diff]:
        yield from _file(os.path.relpath(path, run.path), path)
    try:
        names = sorted(os.listdir(run.metrics))
    except OSError:
        names = []  # the script logged none
    for name in names:
        yield from _file(f"metrics/{name}", os.path.join(run.metrics, name))


def _file(name: str, path: str) -> Iterator[Member]:
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(found.st_mode):
        yield Member(_zip_name(name), found.st_size, lambda: _read(path, found.st_size))


def _read(path: str, size: int) -> Iterator[bytes]:
    """Up to the size that was listed: a log may grow while it is read."""
    with open(os.open(path, _OPEN), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return
        while size > 0 and (data := file.read(min(_CHUNK, size))):
            size -= len(data)
            yield data


def _project(root: Root, run: Run) -> Iterator[Member]:
    try:
        code = code_of(root, run)
    except SnapshotError as error:
        yield _text("project-missing.json", {"problem": error.message})
        return
    for path, (sha256, size, mode) in code.files.items():
        yield Member(_zip_name(f"project/{path}"), size, _blob(root, sha256, size), mode)
    if code.links or code.folders:
        # Not as links: whoever unpacks this must not get one that leads anywhere.
        yield _text("project-links.json", {"links": code.links, "empty folders": code.folders})


def _blob(root: Root, sha256: str, size: int) -> Pieces:
    def pieces() -> Iterator[bytes]:
        if size <= _CHUNK:
            parts: list[bytes] = []
            read_blob(root, sha256, size, parts.append)
            yield from parts
        else:  # too large to hold; what is damaged is bundled as it is
            yield from _read(root.blob(sha256), size)

    return pieces


def _zip_name(name: str) -> str:
    """Bytes that are no UTF-8 are spelled out: a zip has no way to keep them."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def refuse_there(path: str) -> None:
    """Nothing is written over; better told before a long list than after it."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists", "choose another file with --to, or move the existing one")


def write_bundle(path: str, members: Iterable[Member], filters: Filters, report: Callable[[int], None]) -> int:
    """Write the zip, for its owner only; tells its size. Never over something that is there."""
    refuse_there(path)
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name[:100]}.{os.urandom(6).hex()}.part")
    try:
        descriptor = os.open(part, (NEW & ~os.O_WRONLY) | os.O_RDWR, 0o600)
        try:
            with open(descriptor, "w+b") as file:
                _write(file, members, filters, report)
                file.flush()
                os.fsync(file.fileno())
            _appear(part, path)
        finally:
            if os.path.lexists(part):
                os.unlink(part)
        return os.stat(path).st_size
    except FileExistsError:
        refuse_there(path)  # it has come meanwhile
        raise
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror}") from error


def _appear(part: str, path: str) -> None:
    try:
        os.link(part, path)  # unlike a rename, this replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        os.rename(part, path)


def _write(file: Any, members: Iterable[Member], filters: Filters, report: Callable[[int], None]) -> None:
    done = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as bundle:
        for member in members:
            info = zipfile.ZipInfo(member.name, _TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | member.mode) << 16
            hide = filters()
            with bundle.open(info, "w", force_zip64=True) as target:
                for data in member.pieces():
                    target.write(hide.feed(data) if hide else data)
                    done += len(data)
                    report(done)
                if hide:
                    target.write(hide.end())
