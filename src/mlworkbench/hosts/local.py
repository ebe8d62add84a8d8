"""This machine as a host. The same program is started here as on every other host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostError
from ..remote import serve
from ..remote.shared import machine
from ..remote.shared.layout import Root
from ..remote.shared.starter_names import DETACHED
from ..remote.shared.tree import remove
from ..remote.shared.untrusted import parse_json
from . import library
from .host import News, Progress

if TYPE_CHECKING:
    from .facts import Facts
    from .parcel import Package


class LocalHost:
    """Runs live in the same folders as the history's: nothing is copied."""

    identity = "local"
    distant = False
    attachment = None

    def __init__(self, root: Root, environment: Mapping[str, str], starter: str = DETACHED) -> None:
        """``starter``: the name of one of ours, or the path of a plugin's file."""
        self.root = root
        self._environment = environment
        self._starter = starter
        self._library: Path | None = None

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        # The interpreter below a virtual environment: the run must not care when that is deleted.
        python = getattr(sys, "_base_executable", None) or sys.executable
        command = [python, "-I", "-S", str(self._installed() / "__main__.py"), verb, self.root.path, run_id, *words]
        environment = {name: value for name, value in self._environment.items() if not name.startswith("MLW_RUN_")}
        environment["MLW_SUPERVISOR"] = "1"
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C in our terminal is not for it
                creationflags=machine.DETACHED,
            )
        except OSError as error:
            raise HostError(f"cannot start {python}: {error.strerror}") from error
        if machine.FORKS:
            told, said = process.communicate(json.dumps(message).encode())
        else:
            told, said = _ask(process, json.dumps(message).encode()), b""
        try:
            return dict(parse_json(told))
        except ValueError:
            if self._heal():
                return self.call(verb, run_id, words, message)
            last = (said.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise HostError(f"the supervisor program failed on this machine: {last}") from None

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """The store here is the host's own."""

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        """Where they are kept here is where the host looks."""

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        news = serve.News(self.root.run(run_id), dict(offsets))
        if wait > 0:
            news.wait(wait, _sleep)
        standing = news.standing()
        parts = {**dict.fromkeys(offsets, b""), **dict(news.parts(limit))}
        return News(parts, **standing, pending=news.pending, unwritten=news.unwritten())

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        serve.check_name(name)
        return serve.read_plain(os.path.join(self.root.run(run_id).path, name), offset, limit)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        return serve.read_outputs(self.root.run(run_id), [list(one) for one in files])

    def facts(self) -> Facts:
        from ..remote.facts import gather  # noqa: PLC0415 - most commands do without
        from .facts import Facts  # noqa: PLC0415

        return Facts.from_json(gather(self.root.path))

    def ask(self, request: Mapping[str, Any], body: bytes = b"", patience: float = 60.0) -> dict[str, Any]:
        from ..remote import answers  # noqa: PLC0415 - most commands do without

        return answers.answer(answers.Talk(self.root, None), dict(request), body)

    def inrun(self) -> str:
        return str(self._installed() / "inrun")

    def warm_up(self) -> None:
        """This machine is always there."""

    def close(self) -> None:
        """Nothing is held open."""

    def _heal(self) -> bool:
        """Whether what is installed was damaged (a power cut), and is whole now."""
        place = self._installed()
        files = library.files(self._starter)
        if all((place / name).is_file() and (place / name).read_bytes() == files[name] for name in files):
            return False
        remove(str(place.parent))
        self._library = None
        return True

    def _installed(self) -> Path:
        """What travels, in a folder named by its content: an upgrade of mlw does not touch running supervisors."""
        if self._library is None:
            self._library = install(self.root, self._starter)
        return self._library


def _ask(process: subprocess.Popen[bytes], message: bytes) -> bytes:
    """The answer of a process that then stays and supervises (Windows; untested)."""
    assert process.stdin and process.stdout
    process.stdin.write(message)
    process.stdin.close()
    return process.stdout.read()


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def install(root: Root, starter: str = DETACHED) -> Path:
    """Put what travels under ``lib/<digest>/remote`` of the root, unless it is there."""
    place = Path(root.lib) / library.digest(starter)
    if not place.exists():
        _copy(place, library.files(starter))
    return place / "remote"


def _copy(place: Path, files: Mapping[str, bytes]) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = place.parent / f".part-{os.urandom(8).hex()}"
    for name, content in files.items():
        (part / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
        with open(part / "remote" / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    machine.sync_folder(str(part))
    try:
        part.rename(place)
    except OSError:
        remove(str(part))
        if not place.exists():
            raise
