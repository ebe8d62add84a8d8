"""Commands of mlw that the browser sets off. Each is a process of its own, and goes on if the server stops.

So the browser can do nothing that the command line cannot, and says the same words about it.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MlwError, UsageError
from ..failure import Failure
from ..isolation import own_command, own_environment
from ..remote.shared.untrusted import parse_json
from ..report.plain import plain

_KEPT = 50  # errands that are done and can still be looked at
_LINE = 64 * 1024  # bytes of a line
_LINES = 5000
_LONGEST = 64 * 1024 * 1024  # bytes of an answer
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_FOR_PROGRAMS = {"NO_COLOR": "1", "MLW_ERROR_FORMAT": "json"}
_RECORD = b'{"error": '  # how a line begins that reports the error of a command


@dataclass
class Errand:
    """One command: what it says, line by line, and what it answers in the end."""

    id: str
    words: tuple[str, ...]  # without mlw; nothing secret is among them
    began: float
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    said: int = 0  # lines so far, also those that are no longer kept
    code: int | None = None
    failure: Failure | None = None  # as it reported it
    answer: Any = None  # what it wrote to stdout: JSON if it is some, else the text
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def failed(self) -> bool:
        return self.code not in (None, 0)

    def error(self) -> MlwError | None:
        """Why it failed; its last line, or its exit code, if it ended without an error record."""
        if not self.failed:
            return None
        last = next((line for line in reversed(self.lines) if line), "")
        failure = self.failure or Failure("command-failed", last or f"mlw exited with code {self.code}")
        return failure.to_error(self.code)

    def since(self, number: int) -> list[str]:
        """The lines from this one on, as far as they are kept."""
        first = self.said - len(self.lines)
        return list(self.lines)[max(0, number - first) :]

    def hear(self, data: bytes) -> None:
        """Take a line of standard error. The record of an error is shown as a terminal shows the error."""
        failure = self.failure = _failure(data)  # only the last line counts: a script may print such lines, too
        if failure is None:
            self._show(_COLOUR.sub("", data.decode("utf-8", "replace")).rstrip("\r\n").rpartition("\r")[2])
            return
        for label, text in failure.labeled():
            first, *more = text.split("\n")
            for line in (label + first, *(" " * len(label) + one for one in more)):
                self._show(line)

    def _show(self, line: str) -> None:
        self.lines.append(plain(line, 4000))
        self.said += 1


class Errands:
    """Those of this server."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Errand] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._titled: list[tuple[str, str, Errand]] = []

    async def start(
        self,
        *words: str,
        cwd: Path | None = None,
        secret: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Errand:
        """Set it off. ``secret`` goes to its standard input; ``environment`` is added to ours."""
        errand = Errand(secrets.token_hex(8), words, time.time())
        typed = None if secret is None else f"{_sound(secret)}\n".encode()
        try:
            process = await asyncio.create_subprocess_exec(
                *own_command([*map(_sound, words)]),
                cwd=cwd,
                env=own_environment({**os.environ, **_FOR_PROGRAMS, **(environment or {})}, str(cwd or os.getcwd())),
                stdin=asyncio.subprocess.DEVNULL if typed is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
                start_new_session=os.name == "posix",  # Ctrl-C at the server is not meant for it
            )
        except OSError as error:
            raise UsageError(f"cannot start mlw: {error.strerror}", "use fewer or shorter arguments") from error
        self._known[errand.id] = errand
        self._tidy()
        task = asyncio.create_task(_attend(errand, process, typed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return errand

    def _tidy(self) -> None:
        """The oldest of those that are done go."""
        done = [name for name, one in self._known.items() if one.code is not None]
        for name in done[:-_KEPT]:
            del self._known[name]

    async def do(
        self,
        *words: str,
        cwd: Path | None = None,
        secret: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        """Carry it out and wait for its answer; what went wrong is raised."""
        errand = await self.start(*words, cwd=cwd, secret=secret, environment=environment)
        await errand.done.wait()
        error = errand.error()
        if error is not None:
            raise error
        return errand.answer

    def get(self, name: str) -> Errand | None:
        return self._known.get(name)

    def going(self) -> Sequence[Errand]:
        return [one for one in self._known.values() if one.code is None]

    # -- those of a project's page, so that whoever comes back finds them -------------------------------------

    def remember(self, key: str, title: str, errand: Errand) -> None:
        self._titled = [one for one in self._titled if one[2].code is None][-100:] + [(key, title, errand)]

    def going_of(self, key: str) -> list[tuple[str, Errand]]:
        return [(title, errand) for whose, title, errand in self._titled if whose == key and errand.code is None]

    def find_of(self, key: str, name: str) -> tuple[str, Errand] | None:
        return next(((title, one) for whose, title, one in self._titled if whose == key and one.id == name), None)


def _sound(text: str) -> str:
    """What no program can be given is refused here."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError(
            "a text contains characters that cannot be passed to a command", "remove NUL bytes and lone surrogates"
        )
    return text


async def _attend(errand: Errand, process: asyncio.subprocess.Process, typed: bytes | None) -> None:
    assert process.stdout is not None and process.stderr is not None
    answer = b""
    try:
        if process.stdin is not None and typed is not None:
            process.stdin.write(typed)
            process.stdin.close()
        answer, _ = await asyncio.gather(_whole(process.stdout), _hear(errand, process.stderr))
    finally:  # whoever waits for it must not wait for ever
        errand.code = await process.wait()
        errand.answer = _parsed(answer)
        errand.done.set()


async def _whole(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while chunk := await stream.read(1 << 16):
        if len(found) < _LONGEST:
            found += chunk
    return bytes(found)


async def _hear(errand: Errand, stream: asyncio.StreamReader) -> None:
    rest = b""
    while chunk := await stream.read(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            errand.hear(line)
        rest = rest[-_LINE:]
    if rest:
        errand.hear(rest)


def _parsed(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        return data.decode("utf-8", "replace").strip()


def _failure(line: bytes) -> Failure | None:
    if not line.startswith(_RECORD):
        return None
    try:
        return Failure.from_json(parse_json(line)["error"])
    except (ValueError, KeyError, TypeError):
        return None
