"""One attempt to attach a machine: what it has changed so far, here and there, and how that is taken back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .. import secret
from ..attachments import FILE, MADE, OWN, Attachment, Attachments
from ..client_identity import client_of
from ..errors import HostError
from ..hosts import contact
from ..hosts.ssh import SshHost
from ..paths import UserPaths
from .wish import Talk


@dataclass
class Attempt:
    """``draft`` is what logs in, as far as that is known by now."""

    draft: Attachment
    paths: UserPaths
    talk: Talk
    old: Attachment | None = None  # the machine as it was attached before
    inside: Attachment | None = None  # by which a connection was opened: an unknown machine never sees us log in
    line: str | None = None  # that we may have put into authorized_keys there
    linger: bool = False  # switched on by us
    password: bool = False  # put into the keyring by us
    hopeless: bool = False  # our program does not run there

    def entered(self, by: Attachment) -> None:
        self.draft = self.inside = by

    def connect(self, host: SshHost) -> None:
        """Have our program there. Where it does not come to life it leaves nothing behind."""
        try:
            host.connect()
        except HostError:
            self.hopeless = True
            raise

    def undo(self) -> None:
        """A failed attach changes nothing, here or there. Ctrl-C a second time does not stop this."""
        with _undisturbed():
            if self.inside is not None and (self.line or not self.hopeless):
                self._undo_there(SshHost(self.inside, self.paths))
            for one in filter(None, (self.inside, self.draft)):
                contact.forget(one)
            Attachments(self.paths).remove(self.draft)
            if self.password and not (self.old and self.old.password):
                secret.forget(self.draft.keyring_name)

    def _undo_there(self, host: SshHost) -> None:
        try:
            # A folder that was there before has its use; one that holds nothing but our program is ours. It goes
            # first: what else is asked needs no more of it than is loaded by then.
            if self.old is None:
                host.ask({"do": "purge bare", "client": client_of(self.paths).id})
            if self.linger:
                host.ask({"do": "linger", "on": False})
            if self.line:
                host.ask({"do": "key", "action": "remove", "line": self.line})
        except HostError as error:
            left = "~/.mlw and a key in ~/.ssh/authorized_keys" if self.line else "~/.mlw"
            self.talk.say(f"{left} may remain on {host.identity}, which stopped responding: {error.message}")
        finally:
            host.disconnect()

    def unused(self, dead: tuple[Attachment, ...]) -> list[str]:
        """Lines there that nobody will use after a success: of an earlier attach, or of one that was killed."""
        found = {line_of(one) for one in dead if one.where == self.draft.where}
        if self.old is not None and self.old.key == MADE:
            found.add(line_of(self.old))
        return sorted(found - {"", line_of(self.draft)})

    def tidy(self, saved: Attachment, lines: list[str], dead: tuple[Attachment, ...]) -> None:
        """After a success: take such lines away, and forget where they came from."""
        if lines:
            host = SshHost(saved, self.paths)
            try:
                for line in lines:
                    host.ask({"do": "key", "action": "remove", "line": line})
            except HostError as error:
                self.talk.say(f"an unused key remains in ~/.ssh/authorized_keys on the machine: {error.message}")
            finally:
                host.close()
        if self.old is not None and self.old.password:
            self._forget_password(self.old.keyring_name)
        for one in dead:
            if one.where == saved.where:
                Attachments(self.paths).remove(one)

    def _forget_password(self, name: str) -> None:
        """An entry of an older version, whose name has no way in it; unless another machine still uses it."""
        kept = Attachments(self.paths).list()
        if all(one.keyring_name != name for one in kept if one.password):
            secret.forget(name)


def bury(attachments: Attachments) -> tuple[Attachment, ...]:
    """What killed commands left here; those that are returned may have left a key on their machine."""
    kept = []
    for dead in attachments.dead_drafts():
        if dead.identity:
            for key in {OWN, MADE, dead.key}:
                contact.forget(replace(dead, key=key))
        if dead.identity and line_of(dead):
            kept.append(dead)
        else:
            attachments.remove(dead)
    return tuple(kept)


def line_of(attachment: Attachment) -> str:
    """What it has in authorized_keys, if the key is ours."""
    try:
        return (attachment.folder / "key.pub").read_text().strip()
    except OSError:
        return ""


def key_in_words(attachment: Attachment) -> str:
    """How this target is logged in to."""
    if attachment.password:
        return "a password stored in the keyring of this machine"
    if attachment.key == MADE:
        return "a key created for this target"
    if attachment.key.startswith(FILE):
        return f"the key {Path(attachment.key[len(FILE) :])}"
    return "your own SSH keys"


@contextmanager
def _undisturbed() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
