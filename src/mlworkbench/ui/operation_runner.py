"""Operations: mlw commands started from the browser.

Each is a separate process that keeps running if the server stops. The browser can therefore do only
what the command line can, and shows the same messages.
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
from ..import_isolation import own_command, own_environment
from ..remote.shared.untrusted_json import parse_json
from ..sanitize import plain

_KEPT_FINISHED = 50  # maximum finished operations whose output is kept
_MAX_LINE = 64 * 1024  # bytes
_MAX_LINES = 5000
_MAX_RESULT = 64 * 1024 * 1024  # bytes
_COLOR_CODE = re.compile(r"\x1b\[[0-9;:]*m")
_OUTPUT_SETTINGS = {"NO_COLOR": "1", "MLW_ERROR_FORMAT": "json"}
_ERROR_PREFIX = b'{"error": '  # start of a line that reports a command's error


@dataclass
class Operation:
    """Command with its output lines and result."""

    id: str
    arguments: tuple[str, ...]  # without the leading ``mlw``; contains no secrets
    started: float
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_LINES))
    line_count: int = 0  # lines so far, including discarded ones
    exit_code: int | None = None
    failure: Failure | None = None  # as the command reported it
    result: Any = None  # standard output: parsed JSON, or a string
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def failed(self) -> bool:
        return self.exit_code not in (None, 0)

    def error(self) -> MlwError | None:
        """Return the error of a failed operation.

        If the command did not print an error record, use its last line or its exit code.
        """
        if not self.failed:
            return None
        last = next((line for line in reversed(self.lines) if line), "")
        failure = self.failure or Failure("command-failed", last or f"mlw exited with code {self.exit_code}")
        return failure.to_error(self.exit_code)

    def since(self, number: int) -> list[str]:
        """Return the lines from ``number`` on that are still kept."""
        first = self.line_count - len(self.lines)
        return list(self.lines)[max(0, number - first) :]

    def add_line(self, data: bytes) -> None:
        """Add a line of standard error. An error record is formatted as in a terminal."""
        failure = self.failure = _parse_failure(data)  # valid only as the last line: scripts may print records, too
        if failure is None:
            self._append(_COLOR_CODE.sub("", data.decode("utf-8", "replace")).rstrip("\r\n").rpartition("\r")[2])
            return
        for label, text in failure.labeled():
            first, *rest = text.split("\n")
            for line in (label + first, *(" " * len(label) + other for other in rest)):
                self._append(line)

    def _append(self, line: str) -> None:
        self.lines.append(plain(line, 4000))
        self.line_count += 1


class OperationRunner:
    """Runner for mlw commands, with all operations of this server."""

    def __init__(self) -> None:
        self._operations: OrderedDict[str, Operation] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._titled: list[tuple[str, str, Operation]] = []

    async def start(
        self,
        *arguments: str,
        cwd: Path | None = None,
        secret: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Operation:
        """Start a command.

        ``secret`` is sent to its standard input. ``environment`` is added to the server's environment.
        """
        operation = Operation(secrets.token_hex(8), arguments, time.time())
        stdin = None if secret is None else f"{_checked(secret)}\n".encode()
        try:
            process = await asyncio.create_subprocess_exec(
                *own_command([*map(_checked, arguments)]),
                cwd=cwd,
                env=own_environment({**os.environ, **_OUTPUT_SETTINGS, **(environment or {})}, str(cwd or os.getcwd())),
                stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
                start_new_session=os.name == "posix",  # shield it from Ctrl-C in the server's terminal
            )
        except OSError as error:
            raise UsageError(f"cannot start mlw: {error.strerror}", "use fewer or shorter arguments") from error
        self._operations[operation.id] = operation
        self._drop_oldest()
        task = asyncio.create_task(_supervise(operation, process, stdin))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    def _drop_oldest(self) -> None:
        """Remove the oldest finished operations."""
        finished = [name for name, operation in self._operations.items() if operation.exit_code is not None]
        for name in finished[:-_KEPT_FINISHED]:
            del self._operations[name]

    async def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        secret: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        """Run a command and return its result, or raise its error if it fails."""
        operation = await self.start(*arguments, cwd=cwd, secret=secret, environment=environment)
        await operation.done.wait()
        error = operation.error()
        if error is not None:
            raise error
        return operation.result

    def get(self, name: str) -> Operation | None:
        return self._operations.get(name)

    def running(self) -> Sequence[Operation]:
        return [operation for operation in self._operations.values() if operation.exit_code is None]

    # -- operations of a project's page, so that a reloaded page finds them again ----------------------------

    def set_title(self, key: str, title: str, operation: Operation) -> None:
        self._titled = [entry for entry in self._titled if entry[2].exit_code is None][-100:] + [
            (key, title, operation)
        ]

    def running_for(self, key: str) -> list[tuple[str, Operation]]:
        return [
            (title, operation)
            for owner, title, operation in self._titled
            if owner == key and operation.exit_code is None
        ]

    def find_for(self, key: str, name: str) -> tuple[str, Operation] | None:
        entries = (
            (title, operation) for owner, title, operation in self._titled if owner == key and operation.id == name
        )
        return next(entries, None)


def _checked(text: str) -> str:
    """Return the string, or reject it if it contains characters that cannot be passed to a program."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError(
            "a text contains characters that cannot be passed to a command", "remove NUL bytes and lone surrogates"
        )
    return text


async def _supervise(operation: Operation, process: asyncio.subprocess.Process, stdin: bytes | None) -> None:
    assert process.stdout is not None and process.stderr is not None
    output = b""
    try:
        if process.stdin is not None and stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        output, _ = await asyncio.gather(_read_all(process.stdout), _read_lines(operation, process.stderr))
    finally:  # waiting tasks must always be released
        operation.exit_code = await process.wait()
        operation.result = _parse_result(output)
        operation.done.set()


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while chunk := await stream.read(1 << 16):
        if len(data) < _MAX_RESULT:
            data += chunk
    return bytes(data)


async def _read_lines(operation: Operation, stream: asyncio.StreamReader) -> None:
    rest = b""
    while chunk := await stream.read(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            operation.add_line(line)
        rest = rest[-_MAX_LINE:]
    if rest:
        operation.add_line(rest)


def _parse_result(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        return data.decode("utf-8", "replace").strip()


def _parse_failure(line: bytes) -> Failure | None:
    if not line.startswith(_ERROR_PREFIX):
        return None
    try:
        return Failure.from_json(parse_json(line)["error"])
    except (ValueError, KeyError, TypeError):
        return None
