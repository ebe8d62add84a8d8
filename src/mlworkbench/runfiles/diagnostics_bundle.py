"""Zip file for diagnosing a run elsewhere: code, log, events, spec, and facts, without secrets.

Secret values are masked everywhere, including in project files. Bundles of the same run always have
the same member order and timestamps.
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
from ..remote.shared.folder_tree import NEW, READ
from ..remote.shared.layout import Root, RunFolder
from ..version import __version__
from .snapshot_files import read_blob, read_code

MASK = "***"
_SECRET_WORDS = ("TOKEN", "KEY", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL")
_MIN_MASKED = 6  # minimum length to mask everywhere; masking a shorter value, such as "true", would garble the log
_CHUNK = 1 << 20
_REVIEW = "other private data in the code and the log is not masked; review the bundle before you share it"
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file supports


class Filter(Protocol):
    """Filter that masks values in a byte stream."""

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...


Filters = Callable[[], Filter | None]
Pieces = Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Member:
    """A file in the bundle, with its name, size before masking, and byte source."""

    name: str
    size: int
    pieces: Pieces
    mode: int = 0o600


def looks_secret(name: str) -> bool:
    """Return whether a name contains a word for a secret, such as KEY or PASSWORD.

    API_KEY and DBPASSWORD match, but TOKENIZERS_PARALLELISM does not.
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return any(word.rstrip("S").endswith(_SECRET_WORDS) or "SECRET" in word or "PASSWORD" in word for word in words)


def secret_values(run: Run) -> list[str]:
    """Return the values in the spec that must be masked everywhere."""
    return [value for value in _secrets(run) if len(value) >= _MIN_MASKED]


def _secrets(run: Run) -> list[str]:
    """Return the values of variables and options in the spec whose names look like secrets."""
    values = [value for name, value in run.spec.environment.items() if looks_secret(name)]
    arguments = run.spec.entry.arguments
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option.startswith("-") and looks_secret(option):
            following = arguments[index + 1 : index + 2]
            values += [value] if equals else [item for item in following if not item.startswith("-")]
    return [value for value in values if value]


def sharing_warnings(unknown: Iterable[str]) -> list[str]:
    """Return the warnings to show before creating a bundle.

    ``unknown``: names of the run's secrets whose values are not available here and cannot be masked.
    """
    warnings = [
        f"the value of secret {name} is unknown here; if the script printed it, the bundle contains it"
        for name in unknown
    ]
    return [*warnings, _REVIEW]


def collect(root: Root, run: Run) -> list[Member]:
    """Return the bundle members, sorted by name. Only the sizes of files are read, not their content."""
    folder = root.run(run.id)
    members = [
        _json_member("facts.json", _facts(run)),
        _json_member("spec.json", _masked_spec(run)),
        *_run_files(folder),
        *_project_files(root, run),
    ]
    return sorted(members, key=lambda member: member.name)


def _json_member(name: str, data: object) -> Member:
    text = json.dumps(data, indent=2, sort_keys=True).encode("ascii")
    return Member(name, len(text), lambda: iter([text]))


def _facts(run: Run) -> JsonDict:
    state = {key: value for key, value in asdict(run).items() if key != "spec"}
    return {
        "mlw": __version__,
        "python": sys.version,
        "system": f"{platform.system()} {platform.release()}",  # platform.platform() would start a process
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "encoding": sys.getfilesystemencoding(),
        "run": {**state, "status": run.status.value, "id": run.id},
    }


def _masked_spec(run: Run) -> JsonDict:
    return _mask_values(run.spec.to_json(), set(_secrets(run)))  # type: ignore[no-any-return]


def _mask_values(data: Any, hidden: set[str]) -> Any:
    """Replace values of any length in nested data, including after ``=`` in options."""
    if isinstance(data, dict):
        return {key: _mask_values(value, hidden) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_mask_values(value, hidden) for value in data]
    if isinstance(data, str):
        option, equals, value = data.partition("=")
        if data in hidden:
            return MASK
        return f"{option}={MASK}" if equals and value in hidden else data
    return data


def _run_files(run: RunFolder) -> Iterator[Member]:
    paths = [
        run.log,
        run.supervisor_log,
        run.events,
        run.gpu,
        run.start_decision,
        run.started,
        run.exit,
        run.cancel,
        run.stopping,
    ]
    for path in [*paths, run.owner, run.manifest, run.git_diff]:
        yield from _file_member(os.path.relpath(path, run.path), path)
    try:
        names = sorted(os.listdir(run.metrics))
    except OSError:
        names = []  # the script logged no metrics
    for name in names:
        yield from _file_member(f"metrics/{name}", os.path.join(run.metrics, name))


def _file_member(name: str, path: str) -> Iterator[Member]:
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield Member(_zip_name(name), status.st_size, lambda: _read(path, status.st_size))


def _read(path: str, size: int) -> Iterator[bytes]:
    """Yield at most ``size`` bytes, because a log may grow while it is read."""
    with open(os.open(path, _OPEN), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return
        while size > 0 and (data := file.read(min(_CHUNK, size))):
            size -= len(data)
            yield data


def _project_files(root: Root, run: Run) -> Iterator[Member]:
    try:
        code = read_code(root, run)
    except SnapshotError as error:
        yield _json_member("project-missing.json", {"problem": error.message})
        return
    for path, (sha256, size, mode) in code.files.items():
        yield Member(_zip_name(f"project/{path}"), size, _blob_pieces(root, sha256, size), mode)
    if code.links or code.folders:
        # Stored as text: extracting the bundle must not create links to arbitrary paths.
        yield _json_member("project-links.json", {"links": code.links, "empty folders": code.folders})


def _blob_pieces(root: Root, sha256: str, size: int) -> Pieces:
    def pieces() -> Iterator[bytes]:
        if size <= _CHUNK:
            parts: list[bytes] = []
            read_blob(root, sha256, size, parts.append)
            yield from parts
        else:  # too large to be verified in memory before it is written
            yield from _read(root.blob(sha256), size)

    return pieces


def _zip_name(name: str) -> str:
    """Escape invalid UTF-8, which a zip file cannot store."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def require_absent(path: str) -> None:
    """Raise ``UsageError`` if the file exists, before any long work starts."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists", "choose another file with --to, or move the existing one")


def write_bundle(path: str, members: Iterable[Member], filters: Filters, report: Callable[[int], None]) -> int:
    """Write the zip file, readable only by its owner, without replacing a file. Return its size."""
    require_absent(path)
    folder, name = os.path.split(os.path.abspath(path))
    part = os.path.join(folder, f".{name[:100]}.{os.urandom(6).hex()}.part")
    try:
        descriptor = os.open(part, (NEW & ~os.O_WRONLY) | os.O_RDWR, 0o600)
        try:
            with open(descriptor, "w+b") as file:
                _write(file, members, filters, report)
                file.flush()
                os.fsync(file.fileno())
            _publish(part, path)
        finally:
            if os.path.lexists(part):
                os.unlink(part)
        return os.stat(path).st_size
    except FileExistsError:
        require_absent(path)  # another program has created the file
        raise
    except OSError as error:
        raise HistoryError(f"cannot write {path}: {error.strerror}") from error


def _publish(part: str, path: str) -> None:
    try:
        os.link(part, path)  # unlike a rename, never replaces a file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.rename(part, path)


def _write(file: Any, members: Iterable[Member], filters: Filters, report: Callable[[int], None]) -> None:
    done = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as bundle:
        for member in members:
            info = zipfile.ZipInfo(member.name, _MEMBER_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | member.mode) << 16
            masking = filters()
            with bundle.open(info, "w", force_zip64=True) as target:
                for data in member.pieces():
                    target.write(masking.feed(data) if masking else data)
                    done += len(data)
                    report(done)
                if masking:
                    target.write(masking.end())
