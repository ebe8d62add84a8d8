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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, HistoryError, HostError, MlwError, UnknownName, UsageError
from ..isolation import own_command, own_environment
from ..remote.untrusted import parse_json
from ..report.plain import plain

_KEPT = 50  # errands that are done and can still be looked at
_LINE = 64 * 1024  # bytes of a line
_LINES = 5000
_LONGEST = 64 * 1024 * 1024  # bytes of an answer
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_MARKS = {"error: ": "error", "hint: ": "hint", "warning: ": "warning", "note: ": "note"}
_MORE = re.compile(r"(?:hint: for details run '|[a-z]+: )mlw explain ([a-z0-9-]+)'?")


class _Unknown(UnknownName):
    """One whose message came from the command."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        MlwError.__init__(self, message, hint)
        self.summary, self.available = message, ""


_KINDS: dict[int, Callable[[str, str | None], MlwError]] = {
    UsageError.exit_code: UsageError,
    UnknownName.exit_code: _Unknown,
    ConfigError.exit_code: ConfigError,
    HostError.exit_code: HostError,
    HistoryError.exit_code: HistoryError,
}


@dataclass
class Errand:
    """One command: what it says, line by line, and what it answers in the end."""

    id: str
    words: tuple[str, ...]  # without mlw; nothing secret is among them
    began: float
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    said: int = 0  # lines so far, also those that are no longer kept
    code: int | None = None
    answer: Any = None  # what it wrote to stdout: JSON if it is some, else the text
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def failed(self) -> bool:
        return self.code not in (None, 0)

    def error(self) -> MlwError | None:
        """Why it failed, as it told itself."""
        if not self.failed:
            return None
        told = [line for line in self.lines if line.startswith("error: ")]
        pages = [found for line in self.lines if (found := _MORE.fullmatch(line))]
        hints = [
            line.removeprefix("hint: ")
            for line in self.lines
            if line.startswith("hint: ") and not _MORE.fullmatch(line)
        ]
        last = next((line for line in reversed(self.lines) if line), "")
        words = told[-1].removeprefix("error: ") if told else last or f"mlw exited with code {self.code}"
        error = _KINDS.get(self.code or 0, MlwError)(words, hints[-1] if hints and told else None)
        error.more = pages[-1][1] if pages and told else None
        return error

    def since(self, number: int) -> list[str]:
        """The lines from this one on, as far as they are kept."""
        first = self.said - len(self.lines)
        return list(self.lines)[max(0, number - first) :]

    def hear(self, data: bytes) -> None:
        text = _COLOUR.sub("", data.decode("utf-8", "replace")).rstrip("\r\n")
        self.lines.append(plain(text.rpartition("\r")[2], 4000))
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
                env=own_environment({**os.environ, "NO_COLOR": "1", **(environment or {})}, str(cwd or os.getcwd())),
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


def kind_of(line: str) -> tuple[str, str]:
    """What a line of an errand is (error, hint, warning, note, or just said), and its words."""
    for mark, kind in _MARKS.items():
        if line.startswith(mark):
            return kind, line.removeprefix(mark)
    return "said", line
