"""Passwords for ssh, from this process's memory: in no argument, environment or file, and given once.

ssh runs a helper program with its question as argument; the helper asks us through a socket that only this user
can reach, and prints what we say.
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
from ..remote.shared.tree import remove
from .openssh import JUMP_HOST

_HELPER = """\
import os, socket, sys
asker = socket.socket(socket.AF_UNIX)
asker.connect(os.environ["MLW_ASKPASS"])
of = os.environ.get("MLW_ASKPASS_OF", "")
asker.sendall((of + "\\n" + " ".join(sys.argv[1:])).encode("utf-8", "replace")[:4096] + b"\\0")
answer = b""
while True:
    part = asker.recv(4096)
    if not part:
        break
    answer += part
if not answer:
    sys.exit(1)
os.write(1, answer[1:] + b"\\n")
"""
Ask = Callable[[str], "str | None"]


_PREFIX = "mlw-ask-"


def _sweep(folder: str) -> None:
    """What killed commands left: folders of this user that nobody holds any more. No secret is in them."""
    if not file_lock.AVAILABLE:
        return
    for place in Path(folder).glob(f"{_PREFIX}*"):
        try:
            found = place.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue
            with open(place / "helper.py", "rb") as file:
                if not file_lock.try_lock(file.fileno()):
                    continue  # at work
            remove(str(place))
        except OSError:
            continue  # another one sweeps


def _temporary() -> str:
    """The name of a socket may have a hundred letters, and folders for temporary files may have long names."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < 64 or os.name == "nt" else "/tmp"


def is_password_of(question: str, users: tuple[str, ...]) -> bool:
    """Whether ssh asks for the password of one of these user@host, and not, say, of a jump host on the way."""
    found = re.match(r"\(?([^\s)]+?)(?:'s password:|\) )", question)
    return bool(found and found.group(1).lower() in {user.lower() for user in users})


class Askpass:
    """Answers ssh's questions for as long as it is open. ``answer`` gets each question; None refuses it."""

    def __init__(self, answer: Ask) -> None:
        self._answer = answer
        folder = _temporary()
        _sweep(folder)
        made = Path(tempfile.mkdtemp(prefix="mlw-new-", dir=folder))  # 0700
        self._folder = made.with_name(made.name.replace("mlw-new-", _PREFIX))
        self._helper = open(made / "helper.py", "w")  # held: that is how others know that we are alive
        self._helper.write(_HELPER)
        self._helper.flush()
        file_lock.wait_for_lock(self._helper.fileno())
        helper = shlex.quote(str(self._folder / "helper.py"))
        program = made / "askpass"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {helper} "$@"\n')
        program.chmod(0o700)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(made / "socket"))
        self._socket.listen(4)
        made.rename(self._folder)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def environment(self) -> Mapping[str, str]:
        """For ssh. DISPLAY is for versions before 8.4, which ask by helper only where there seems to be a screen."""
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
                asker, _ = self._socket.accept()
            except OSError:
                return  # closed
            with asker:
                try:
                    asker.settimeout(10)
                    question = b""
                    while not question.endswith(b"\0") and len(question) < 8192:
                        part = asker.recv(4096)
                        if not part:
                            break
                        question += part
                    if not question.endswith(b"\0"):
                        continue  # nobody asked anything
                    of, _, text = question.rstrip(b"\0").decode(errors="replace").partition("\n")
                    # Versions before 8.5 do not say which of the two asks, and a jump host may ask anything.
                    answer = self._answer(f"({JUMP_HOST}) {text}" if of == JUMP_HOST else text)
                    if answer is not None:
                        asker.sendall(b"+" + answer.encode())
                except OSError:
                    continue


def once(password: str, users: tuple[str, ...], otherwise: Ask | None = None) -> Ask:
    """Gives the password to the first question for it; a server that asks again does not get it again."""
    left = [password]

    def answer(question: str) -> str | None:
        if is_password_of(question, users):
            return left.pop() if left else None
        return otherwise(question) if otherwise else None

    return answer
