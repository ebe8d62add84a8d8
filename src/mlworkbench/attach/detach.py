"""Undoing an attach, and changing one."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from ..attachments import MADE, Attachment, Attachments
from ..config.project import Project
from ..errors import HostError, UsageError
from ..hosts import contact
from ..hosts.openssh import printable
from ..hosts.ssh import SshHost
from ..paths import UserPaths
from ..remote.failpoint import failpoint
from ..secret import forget
from ..targets.remote import find_attachment, not_attached
from . import login
from .attach import allowed_mount
from .attempt import bury, line_of
from .wish import Talk


class Busy(HostError):
    """The machine answers, and something there is in the way: no force helps."""


def attachment_of(project: Project, name: str, paths: UserPaths) -> Attachment | None:
    """What this user attached under that name, also if the project's file is gone or damaged."""
    known = Attachments(paths).of_project(str(project.root), name)
    if name not in project.computes() and known is not None:
        return known
    compute = project.compute(name)
    if compute.kind == "cluster" and compute.address is None:
        return None  # reached from here: its files are all there is to it
    if compute.address is None:
        raise UsageError(f"{name} is a target of type {compute.type}, which is not attached")
    return find_attachment(compute, paths)


def _attached(project: Project, name: str, paths: UserPaths) -> Attachment:
    found = attachment_of(project, name, paths)
    if found is None:
        raise not_attached(project.compute(name))
    return found


# -- detach --------------------------------------------------------------------------------------------


def detach(project: Project, name: str, paths: UserPaths, *, purge: bool, keep_files: bool, force: bool) -> list[str]:
    """Tells what was done, line by line."""
    found = attachment_of(project, name, paths)
    done: list[str] = []
    if found is not None:
        others = _others(found, project, name)
        if others and not purge:
            Attachments(paths).save(replace(found, projects=others))
            done.append(f"{found.identity} stays known: {others[0][0]} uses it as {others[0][1]}")
        else:
            done += _leave(found, paths, purge, force)
    if not keep_files:
        for suffix in (".compute", ".runconfig"):
            path = project.folder / (name + suffix)
            if path.exists():
                path.unlink()
                done.append(f"removed {path}")
    return done or [f"{name} was not attached"]


def _others(found: Attachment, project: Project, name: str) -> tuple[tuple[str, str], ...]:
    """Who else uses the machine; a project whose folder is gone does not."""
    mine = (str(project.root), name)
    return tuple(one for one in found.projects if one != mine and os.path.isdir(one[0]))


def _leave(found: Attachment, paths: UserPaths, purge: bool, force: bool) -> list[str]:
    host = SshHost(found, paths)
    attachments = Attachments(paths)
    dead = tuple(one for one in bury(attachments) if one.identity == found.identity)
    try:
        done = _leave_there(host, found, purge, [line_of(one) for one in dead])
    except HostError as error:
        if isinstance(error, Busy) or not force:
            more = "" if isinstance(error, Busy) else "say --force to forget it without contact"
            hint = "; ".join(word for word in (error.hint, more) if word)
            raise HostError(f"nothing was detached: {error.message}", hint) from None
        done = [f"the machine was not asked: {error.message}"]
        if found.key == MADE:
            mark = line_of(found).rpartition(" ")[2]
            done.append(f"its ~/.ssh/authorized_keys still has a line that ends in {mark}")
    host.disconnect()
    if found.password:
        forget(found.keyring_name)
    for one in (*dead, found):
        attachments.remove(one)
    done.append(f"forgot {found.identity}")
    return done


def _leave_there(host: SshHost, found: Attachment, purge: bool, lines: list[str]) -> list[str]:
    done = []
    host.connect()
    if purge:
        answer = host.ask({"do": "purge"}, patience=600.0)
        if not answer.get("ok"):
            raise Busy(
                f"~/.mlw on {found.identity} could not be deleted: {printable(str(answer.get('problem')))}",
                "wait for its runs, or end them with mlw cancel",
            )
        done.append(f"deleted ~/.mlw on {found.identity}")
    if found.linger:
        answer = host.ask({"do": "linger", "on": False})
        done.append("switched linger off again" if answer.get("ok") else "linger could not be switched off again")
    for line in lines:
        host.ask({"do": "key", "action": "remove", "line": line})
    if found.key == MADE and login.remove_key(host, found):
        done.append("removed the key that attach had installed")
    elif found.key.endswith(f"{os.sep}key") and found.key.startswith("file:"):
        done.append("the line that you appended to ~/.ssh/authorized_keys there is still in it")
    return done


# -- changes -------------------------------------------------------------------------------------------


def update(
    project: Project, name: str, paths: UserPaths, *, allow: tuple[str, ...], forbid: tuple[str, ...]
) -> tuple[str, ...]:
    """Change what may be mounted; tells all that may."""
    found = _attached(project, name, paths)
    forbidden = {allowed_mount(path, "--forbid-mount") for path in forbid}
    unknown = forbidden - set(found.allowed_mounts)
    if unknown:
        what = ", ".join(found.allowed_mounts) or "nothing"
        raise UsageError(f"{sorted(unknown)[0]} was not allowed on {name}", f"allowed is: {what}")
    kept = [path for path in (*found.allowed_mounts, *map(allowed_mount, allow)) if path not in forbidden]
    Attachments(paths).save(replace(found, allowed_mounts=tuple(dict.fromkeys(kept))))
    return tuple(dict.fromkeys(kept))


def reset_key(project: Project, name: str, paths: UserPaths, talk: Talk, host_key: str | None) -> list[str]:
    """A new key of ours in place of the old one; with ``host_key``, the machine's own new key is accepted."""
    found = _attached(project, name, paths)
    if host_key is not None:
        return [_accept(found, paths, talk, host_key)]
    if found.key != MADE:
        raise UsageError(
            f"{name} uses keys of your own; there is none of mlw's to be replaced",
            "a changed key of the machine itself: --host-key FINGERPRINT",
        )
    host = SshHost(found, paths)
    host.connect()
    old = line_of(found)
    draft = _copy(found, paths)
    line = ""
    try:
        made, line = contact.make_key(draft, login.MARK + draft.folder.name.removeprefix(".draft-"))
        host.ask({"do": "key", "action": "add", "line": line})
        failpoint("key-added")
        if not contact.key_works(made):
            raise HostError(f"{found.identity} does not accept the new key; the old one stays")
        saved = Attachments(paths).save(made)
    except BaseException:
        if line:
            with suppress(HostError):
                host.ask({"do": "key", "action": "remove", "line": line})
        Attachments(paths).remove(draft)
        raise
    host.ask({"do": "key", "action": "remove", "line": old})
    host.disconnect()  # what comes next is let in by the new key
    contact.forget(saved)
    return ["a new key was installed, and the old one removed"]


def _accept(found: Attachment, paths: UserPaths, talk: Talk, host_key: str) -> str:
    draft = _copy(found, paths)
    try:
        met, _ = login.meet(draft, host_key, talk, None)
        contact.forget(found)
        Attachments(paths).save(met)
    except BaseException:
        Attachments(paths).remove(draft)
        raise
    return f"{found.identity} has the key {met.host_key} from now on"


def _copy(found: Attachment, paths: UserPaths) -> Attachment:
    """A draft that is the same machine by the same way in."""
    names = "address username port jump key password root python host_key allowed_mounts projects linger facts"
    draft = Attachments(paths).draft(found.identity, **{name: getattr(found, name) for name in names.split()})
    for name in ("known_hosts", "key", "key.pub", "sent"):
        login.copy_files(found, draft, name)
    return draft
