"""Answer ssh's password prompts from the memory of this process.

A password never appears in an argument, an environment variable, or a file, and it is sent only
once. ssh runs a helper program with the prompt as its argument. The helper forwards the prompt
through a socket that only this user can open, and prints the answer.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..remote.shared import file_lock
from ..remote.shared.folder_tree import remove
from .openssh import JUMP_HOST

_HELPER = """\
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["MLW_ASKPASS"])
origin = os.environ.get("MLW_ASKPASS_OF", "")
connection.sendall((origin + "\\n" + " ".join(sys.argv[1:])).encode("utf-8", "replace")[:4096] + b"\\0")
answer = b""
while True:
    part = connection.recv(4096)
    if not part:
        break
    answer += part
if not answer:
    sys.exit(1)
os.write(1, answer[1:] + b"\\n")
"""
PromptHandler = Callable[[str], "str | None"]


_PREFIX = "mlw-ask-"


def _remove_stale_folders(folder: str) -> None:
    """Remove folders that this user's killed commands left behind. They contain no secrets."""
    if not file_lock.AVAILABLE:
        return
    for path in Path(folder).glob(f"{_PREFIX}*"):
        try:
            status = path.lstat()
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                continue
            with open(path / "helper.py", "rb") as file:
                if not file_lock.try_lock(file.fileno()):
                    continue  # still in use
            remove(str(path))
        except OSError:
            continue  # another process is removing it


def _temporary_folder() -> str:
    """Return a temporary folder with a short path: socket paths are limited to about 100 characters."""
    default = tempfile.gettempdir()
    return default if len(default) < 64 or os.name == "nt" else "/tmp"


def is_password_prompt(question: str, users: tuple[str, ...]) -> bool:
    """Return whether the prompt asks for the password of one of ``users`` (user@host).

    Prompts from others, such as a jump host, do not count.
    """
    match = re.match(r"\(?([^\s)]+?)(?:'s password:|\) )", question)
    return bool(match and match.group(1).lower() in {user.lower() for user in users})


class Askpass:
    """Server that answers ssh's prompts until it is closed.

    ``answer`` receives each prompt and returns the answer, or None to refuse.
    """

    def __init__(self, answer: PromptHandler) -> None:
        self._answer = answer
        folder = _temporary_folder()
        _remove_stale_folders(folder)
        new_folder = Path(tempfile.mkdtemp(prefix="mlw-new-", dir=folder))  # created with mode 0700
        self._folder = new_folder.with_name(new_folder.name.replace("mlw-new-", _PREFIX))
        self._helper = open(new_folder / "helper.py", "w")  # kept open and locked: marks the folder as in use
        self._helper.write(_HELPER)
        self._helper.flush()
        file_lock.wait_for_lock(self._helper.fileno())
        helper = shlex.quote(str(self._folder / "helper.py"))
        program = new_folder / "askpass"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {helper} "$@"\n')
        program.chmod(0o700)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(new_folder / "socket"))
        self._socket.listen(4)
        new_folder.rename(self._folder)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def environment(self) -> Mapping[str, str]:
        """Return environment variables for ssh.

        ``DISPLAY`` is for OpenSSH before 8.4, which runs the helper only if a display seems available.
        """
        return {
            "SSH_ASKPASS": str(self._folder / "askpass"),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY", ":0"),
            "MLW_ASKPASS": str(self._folder / "socket"),
        }

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        self._thread.join(5)
        remove(str(self._folder))
        self._helper.close()

    def __enter__(self) -> Askpass:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                try:
                    connection.settimeout(10)
                    question = b""
                    while not question.endswith(b"\0") and len(question) < 8192:
                        part = connection.recv(4096)
                        if not part:
                            break
                        question += part
                    if not question.endswith(b"\0"):
                        continue  # the connection sent no prompt
                    origin, _, text = question.rstrip(b"\0").decode(errors="replace").partition("\n")
                    # OpenSSH before 8.5 does not show which host is asking, and a jump host may send any prompt.
                    answer = self._answer(f"({JUMP_HOST}) {text}" if origin == JUMP_HOST else text)
                    if answer is not None:
                        connection.sendall(b"+" + answer.encode())
                except OSError:
                    continue


def answer_password_once(password: str, users: tuple[str, ...], fallback: PromptHandler | None = None) -> PromptHandler:
    """Return a handler that answers the first password prompt. Repeated prompts get no answer."""
    remaining = [password]

    def answer(question: str) -> str | None:
        if is_password_prompt(question, users):
            return remaining.pop() if remaining else None
        return fallback(question) if fallback else None

    return answer
