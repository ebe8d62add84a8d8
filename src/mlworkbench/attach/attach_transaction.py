"""A single attempt to attach a machine: the changes made on both machines, and their rollback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .. import secret_sources
from ..attachments import FILE, MADE, OWN, Attachment, Attachments
from ..client_identity import client_of
from ..errors import HostError
from ..hosts import first_contact
from ..hosts.ssh_host import SshHost
from ..paths import UserPaths
from .attach_request import Prompter


@dataclass
class AttachTransaction:
    """State of an attach. ``draft`` is the attachment used to log in; it is completed step by step."""

    draft: Attachment
    paths: UserPaths
    prompter: Prompter
    old: Attachment | None = None  # earlier attachment of the same machine
    login: Attachment | None = None  # set after login: a rollback must not log in to an unknown machine
    line: str | None = None  # line that mlw may have added to authorized_keys
    linger: bool = False  # mlw enabled lingering
    password: bool = False  # mlw stored the password
    is_unusable: bool = False  # mlw cannot run on the machine

    def record_login(self, by: Attachment) -> None:
        self.draft = self.login = by

    def connect(self, host: SshHost) -> None:
        """Connect and install mlw on the machine. If this fails, a rollback cannot use mlw there."""
        try:
            host.connect()
        except HostError:
            self.is_unusable = True
            raise

    def undo(self) -> None:
        """Undo all changes on both machines. A second Ctrl-C does not interrupt the rollback."""
        with _ignore_interrupts():
            if self.login is not None and (self.line or not self.is_unusable):
                self._undo_on_machine(SshHost(self.login, self.paths))
            for attachment in filter(None, (self.login, self.draft)):
                first_contact.close_connection(attachment)
            Attachments(self.paths).remove(self.draft)
            if self.password and not (self.old and self.old.password):
                secret_sources.forget(self.draft.keyring_name)

    def _undo_on_machine(self, host: SshHost) -> None:
        try:
            # Remove ~/.mlw unless it was in use before. This may come first, because the agent has already loaded the
            # code for the following requests.
            if self.old is None:
                host.ask({"do": "purge bare", "client": client_of(self.paths).id})
            if self.linger:
                host.ask({"do": "linger", "on": False})
            if self.line:
                host.ask({"do": "key", "action": "remove", "line": self.line})
        except HostError as error:
            left = "~/.mlw and a key in ~/.ssh/authorized_keys" if self.line else "~/.mlw"
            self.prompter.say(f"{left} may remain on {host.identity}, which stopped responding: {error.message}")
        finally:
            host.disconnect()

    def unused(self, dead: tuple[Attachment, ...]) -> list[str]:
        """Return lines in ``authorized_keys`` left by the earlier attachment or by killed commands."""
        lines = {line_of(attachment) for attachment in dead if attachment.where == self.draft.where}
        if self.old is not None and self.old.key == MADE:
            lines.add(line_of(self.old))
        return sorted(lines - {"", line_of(self.draft)})

    def tidy(self, saved: Attachment, lines: list[str], dead: tuple[Attachment, ...]) -> None:
        """Clean up after a successful attach: remove ``lines``, the old password, and dead drafts."""
        if lines:
            host = SshHost(saved, self.paths)
            try:
                for line in lines:
                    host.ask({"do": "key", "action": "remove", "line": line})
            except HostError as error:
                self.prompter.say(f"an unused key remains in ~/.ssh/authorized_keys on the machine: {error.message}")
            finally:
                host.close()
        if self.old is not None and self.old.password:
            self._forget_password(self.old.keyring_name)
        for attachment in dead:
            if attachment.where == saved.where:
                Attachments(self.paths).remove(attachment)

    def _forget_password(self, name: str) -> None:
        """Remove an older version's keyring entry (without a route) unless another machine uses it."""
        kept = Attachments(self.paths).list()
        if all(attachment.keyring_name != name for attachment in kept if attachment.password):
            secret_sources.forget(name)


def remove_dead_drafts(attachments: Attachments) -> tuple[Attachment, ...]:
    """Remove drafts of killed commands. Return those that may have left a key on their machine."""
    kept = []
    for dead in attachments.dead_drafts():
        if dead.identity:
            for key in {OWN, MADE, dead.key}:
                first_contact.close_connection(replace(dead, key=key))
        if dead.identity and line_of(dead):
            kept.append(dead)
        else:
            attachments.remove(dead)
    return tuple(kept)


def line_of(attachment: Attachment) -> str:
    """Return the attachment's line in ``authorized_keys``, or "" if mlw did not create a key."""
    try:
        return (attachment.folder / "key.pub").read_text().strip()
    except OSError:
        return ""


def describe_key(attachment: Attachment) -> str:
    """Describe how mlw logs in to this target."""
    if attachment.password:
        return "a password stored in the keyring of this machine"
    if attachment.key == MADE:
        return "a key created for this target"
    if attachment.key.startswith(FILE):
        return f"the key {Path(attachment.key[len(FILE) :])}"
    return "your own SSH keys"


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
