"""Undoing an attach, and changing one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from ..attachments import FILE, MADE, Attachment, Attachments
from ..client_identity import client_of
from ..config.project import Project
from ..consents import Consent
from ..errors import HostError, LaunchError, UsageError
from ..fetch import Progress
from ..history.query import Query
from ..history.store import History
from ..hosts import contact
from ..hosts.replies import Reply, printable
from ..hosts.ssh import SshHost
from ..hosts.survey import TargetRun, ask_survey
from ..model import IN_CONTACT, Compute, Run
from ..paths import UserPaths
from ..remote.shared.failpoint import failpoint
from ..secret import forget
from ..targets.consent import resolve_consents
from ..targets.remote import attach_command, find_attachment, not_attached
from ..targets.types import needs_attach, type_of
from . import login
from .attempt import bury, line_of
from .homecoming import Left, as_attached, as_known, bring_home, left_at_home, named
from .purge import Options, Plan, local_projects, make_plan
from .wish import Talk


class Busy(HostError):
    """The machine answers, and something there is in the way."""

    exit_code = LaunchError.exit_code  # nothing is wrong with the machine or the words: try again later


def attachment_of(project: Project, name: str, paths: UserPaths) -> Attachment | None:
    """What this user attached under that name, also if the project's file is gone or damaged."""
    known = Attachments(paths).of_project(str(project.root), name)
    if name not in project.computes() and known is not None:
        return known
    compute = project.compute(name)
    if type_of(compute).attach is not None and not needs_attach(compute):
        return None  # reached from here: its files are all there is to it
    if compute.address is None:
        raise UsageError(f"{name} has type {compute.type}, which needs no attached machine")
    return find_attachment(compute, paths)


def _attached(project: Project, name: str, paths: UserPaths) -> Attachment:
    found = attachment_of(project, name, paths)
    if found is None:
        raise not_attached(project.compute(name))
    return found


# -- detach --------------------------------------------------------------------------------------------


@dataclass
class Told:
    """What was done, line by line; what the user should know of runs there; and how the machine is had again."""

    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hint: str | None = None


def detach(
    project: Project,
    name: str,
    paths: UserPaths,
    *,
    purge: Options | None,
    keep_files: bool,
    force: bool,
    progress: Progress = lambda done, total: None,
) -> Told:
    """What runs left there comes home first. ``force``: also without the machine, or without such results."""
    found = find_to_detach(project, name, paths, purge is not None)
    told = Told()
    done = told.done
    if found is not None:
        others = local_projects(found.projects, (str(project.root), name))
        if purge or not others:
            left = _leave(found, paths, told, _Wish(purge, force, progress, bool(others)))
            compute = project.compute(name) if name in project.computes() else None
            _tell_left(told, left, found, purge is not None, compute)
        if others:
            Attachments(paths).save(replace(found, projects=others))
            done.append(f"{found.where} stays attached: project {others[0][0]} uses it as {others[0][1]}")
    if not keep_files:
        for suffix in (".compute", ".runconfig"):
            path = project.folder / (name + suffix)
            if path.exists():
                path.unlink()
                done.append(f"removed {path}")
    if not done:
        done.append(f"{name} was not attached")
    return told


def find_to_detach(project: Project, name: str, paths: UserPaths, purge: bool) -> Attachment | None:
    """The attachment. To purge a machine that is not attached is an error: nothing would be deleted."""
    found = attachment_of(project, name, paths)
    if found is None and purge and name in project.computes() and project.compute(name).address:
        raise not_attached(project.compute(name))
    return found


def plan_purge(
    project: Project, name: str, paths: UserPaths, options: Options, force: bool
) -> tuple[Plan, HostError | None]:
    """What a purge would do, and why it would be refused. Nothing is fetched and nothing is changed."""
    found = _attached(project, name, paths)
    host = SshHost(found, paths)
    history = History(paths)
    try:
        plan = make_plan(ask_survey(host, sizes=True), history, client_of(paths), options)
        try:
            _foresee(plan, history, found, force)
        except Busy as refusal:
            return plan, refusal
        return plan, None
    finally:
        host.close()
        history.close()


def _foresee(plan: Plan, history: History, found: Attachment, force: bool) -> None:
    """Raise what a purge would be refused for. What it can fetch first is no reason."""
    lacking = {one.id for one in plan.removed_mine()}
    mine = [run for run in history.search(Query(hidden=True, inside=False)) if run.id in lacking]
    _check_plan(plan, found.where, force, known={run.id for run in mine})
    left = left_at_home(mine, history)
    if left.missing and not force:
        raise Busy(
            f"~/.mlw on {found.where} has results that were not downloaded: {_missing(left)}", _rescue(left, found)
        )


@dataclass(frozen=True)
class _Wish:
    purge: Options | None
    force: bool
    progress: Progress
    stays: bool  # another project of this laptop uses the machine


def _leave(found: Attachment, paths: UserPaths, told: Told, wish: _Wish) -> Left:
    done = told.done
    host = SshHost(found, paths)
    attachments = Attachments(paths)
    dead = tuple(one for one in bury(attachments) if one.where == found.where)
    history = History(paths)
    try:
        host.connect()
        left = bring_home(history, host, wish.progress)
        _check(left, found, wish)
        if wish.purge:
            _purge(host, history, told, wish.purge, wish.force)
        if not wish.stays:
            done += _leave_there(host, found, client_of(paths).id, [line_of(one) for one in dead])
    except Busy as error:
        raise Busy(f"nothing was detached: {error.message}", error.hint, more=error.more) from None
    except HostError as error:
        if not wish.force:
            more = "use --force to detach without contacting the machine"
            hint = "; ".join(word for word in (error.hint, more) if word)
            raise HostError(f"nothing was detached: {error.message}", hint) from None
        left = as_known(history, found)
        done.append(f"the machine was not contacted: {error.message}")
        if found.key == MADE:
            mark = line_of(found).rpartition(" ")[2]
            done.append(f"its ~/.ssh/authorized_keys still contains a line that ends in {mark}")
    host.disconnect()
    if wish.stays:
        return left
    if found.password:
        forget(found.keyring_name)
    for one in (*dead, found):
        attachments.remove(one)
    history.close()
    done.append(f"detached {found.where}")
    return left


def _check(left: Left, found: Attachment, wish: _Wish) -> None:
    """Nothing is deleted that a run needs, or that is there alone."""
    if wish.purge and left.busy:
        raise Busy(
            f"~/.mlw on {found.where} cannot be deleted while runs are active: {named([run.id for run in left.busy])}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    if wish.purge and left.missing and not wish.force:
        raise Busy(
            f"~/.mlw on {found.where} has results that were not downloaded: {_missing(left)}", _rescue(left, found)
        )


def _rescue(left: Left, found: Attachment) -> str:
    """How the results come here: what could not be collected, only by a copy of the working copy there."""
    uncollected = left.uncollected
    fetchable = [run for run, _ in left.missing if run not in uncollected]
    ways = [f"download them with 'mlw history download -r {fetchable[0].id}'"] if fetchable else []
    if uncollected:
        ways.append(f"copy the outputs that were not collected with: {copy_command(uncollected[0], found)}")
    return "; ".join([*ways, "or use --force to delete them anyway"])


def copy_command(run: Run, found: Attachment) -> str:
    """The scp command for the working copy of a run on its target."""
    words = ["scp", "-r"]
    words += ["-P", str(found.file_port)] if found.file_port is not None else []
    words += ["-J", found.jump] if found.jump else []
    words += ["-i", str(found.key_file)] if found.key_file else []
    address = f"[{found.address}]" if ":" in found.address else found.address
    # Relative to the home folder: not every scp expands a tilde there.
    return shlex.join([*words, f"{found.username}@{address}:.mlw/runs/{run.spec.folder}/work", f"{run.id}-work"])


def _missing(left: Left) -> str:
    return named([f"run {run.id} ({why})" for run, why in left.missing])


def _tell_left(told: Told, left: Left, found: Attachment, purged: bool, compute: Compute | None) -> None:
    """Which runs nobody can be asked about from now on, and how that is changed."""
    if left.brought:
        told.done.insert(0, f"downloaded the results of {named([f'run {one}' for one in left.brought])}")
    deleted = purged and left.asked
    if left.missing:
        words = "deleted without being downloaded" if deleted else "results not downloaded, left on the machine"
        told.warnings.append(f"{words}: {_missing(left)}")
    if left.busy:
        runs = named([f"run {run.id} ({_standing(run)})" for run in left.busy])
        told.warnings.append(
            f"still active: {runs}; they continue, but 'mlw ps', 'mlw logs', and 'mlw cancel' cannot reach them"
            " until you attach the machine again"
        )
    if left.interrupted:
        runs = named([f"run {run.id}" for run in left.interrupted])
        told.warnings.append(f"not started: {runs}; attach the machine again to resume or cancel")
    mine = [*left.busy, *left.interrupted, *(run for run, _ in left.missing if not deleted)]
    if mine:
        compute = compute or as_attached(mine[0].spec.compute, found)
        own = found.key_file if found.key.startswith(FILE) else None
        lost = own is None or own.is_relative_to(found.folder.parent)  # a key of ours goes with the attachment
        told.hint = f"attach it again: {attach_command(compute, None if lost else str(own))}"


def _standing(run: Run) -> str:
    words = run.status.value if run.contact == IN_CONTACT else f"{run.status.value}, {run.contact}"
    return printable(f"{words}, {run.detail}" if run.detail else words)


def _purge(host: SshHost, history: History, told: Told, options: Options, force: bool) -> None:
    """Delete what this laptop may delete there, after the user has seen it and agreed."""
    plan = make_plan(ask_survey(host, sizes=True), history, client_of(history.paths), options)
    options.show(plan)
    _check_plan(plan, host.attachment.where, force)
    options.confirm(plan)
    reply = Reply(host.identity, host.ask(plan.request(), patience=600.0))
    if not reply.ok:
        raise Busy(
            f"~/.mlw on {host.attachment.where} could not be deleted: {reply.problem}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    left = reply.texts("left")
    told.done.append(f"deleted ~/.mlw on {host.attachment.where}{f', except {named(left)}' if left else ''}")
    if plan.survey.shared and not options.shared:
        told.done.append("shared folders were kept; --shared-folders also deletes them")
    if plan.given_up():
        told.warnings.append(f"deleted without being downloaded: {_theirs(plan, plan.given_up())}")


def _check_plan(plan: Plan, who: str, force: bool, known: Collection[str] = ()) -> None:
    """Nothing is deleted that another laptop still needs. ``known``: runs of this history, not fetched yet."""
    if plan.going():
        raise Busy(
            f"~/.mlw on {who} cannot be deleted while runs are active: {_theirs(plan, plan.going())}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    theirs = plan.others_lacking()
    if theirs:
        raise Busy(
            f"~/.mlw on {who} has results that other laptops have not downloaded: {_theirs(plan, theirs)}",
            "on that laptop, download them with mlw history download, or delete them with"
            " mlw experiment clean -t TARGET --unfetched --yes; for laptops no longer in use: --others-older-than 90d",
            more="purge-refused",
        )
    removed = [one.id for one in plan.removed_mine() if one.id not in known]
    if removed and not force:
        raise Busy(
            f"~/.mlw on {who} has results of runs that are not in this history: {named(removed)}",
            "they were removed from the history before they were downloaded; --force deletes them",
            more="purge-refused",
        )


def _theirs(plan: Plan, runs: list[TargetRun]) -> str:
    return named([f"run {printable(one.id)} (laptop {plan.laptop(one.client)})" for one in runs])


def _leave_there(host: SshHost, found: Attachment, client: str, lines: list[str]) -> list[str]:
    done = []
    if client:
        host.ask({"do": "leave", "client": client})
    if found.linger:
        off = Reply(host.identity, host.ask({"do": "linger", "on": False})).ok
        done.append("disabled lingering" if off else "lingering could not be disabled")
    for line in lines:
        host.ask({"do": "key", "action": "remove", "line": line})
    if found.key == MADE and login.remove_key(host, found):
        done.append("removed the SSH key that attach installed")
    elif found.key.endswith(f"{os.sep}key") and found.key.startswith("file:"):
        done.append("~/.ssh/authorized_keys on the machine still contains the line that you appended")
    return done


# -- changes -------------------------------------------------------------------------------------------


def update(
    project: Project, name: str, paths: UserPaths, *, allow: tuple[Consent, ...], forbid: tuple[Consent, ...]
) -> Attachment:
    """Change what containers may have there, and resolve its folders again."""
    found = _attached(project, name, paths)
    kept = {(one.kind, one.value): one for one in found.allowed}
    for one in forbid:
        if kept.pop((one.kind, one.value), None) is None:
            what = ", ".join(known.text for known in found.allowed) or "nothing"
            raise UsageError(f"{one.text} was not allowed on {name}, {found.where}", f"currently allowed: {what}")
    changed = replace(found, allowed=tuple(kept.values()))
    if allow or not forbid:  # to withdraw something needs no contact
        host = SshHost(found, paths)
        allowed, places = resolve_consents(host, changed.allowed, allow)
        host.close()
        changed = replace(changed, allowed=allowed, places=places)
    return Attachments(paths).save(changed)


def reset_key(project: Project, name: str, paths: UserPaths, talk: Talk, host_key: str | None) -> list[str]:
    """A new key of ours in place of the old one; with ``host_key``, the machine's own new key is accepted."""
    found = _attached(project, name, paths)
    if host_key is not None:
        return [_accept(found, paths, talk, host_key)]
    if found.key != MADE:
        raise UsageError(
            f"{name}, {found.where}, uses your own SSH keys; there is no key that mlw can replace",
            "to accept a new host key, use --host-key FINGERPRINT",
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
            raise HostError(f"{found.where} rejected the new key; the old key stays in use")
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
    return [f"installed a new key on {found.where} and removed the old one"]


def _accept(found: Attachment, paths: UserPaths, talk: Talk, host_key: str) -> str:
    draft = _copy(found, paths)
    try:
        met, _ = login.meet(draft, host_key, talk, None)
        contact.forget(found)
        Attachments(paths).save(met)
    except BaseException:
        Attachments(paths).remove(draft)
        raise
    return f"accepted host key {met.host_key} for {found.where}"


def _copy(found: Attachment, paths: UserPaths) -> Attachment:
    """A draft that is the same machine by the same way in."""
    names = [one.name for one in fields(Attachment) if one.name not in ("folder", "identity")]
    draft = Attachments(paths).draft(found.identity, **{name: getattr(found, name) for name in names})
    for name in ("known_hosts", "key", "key.pub", "sent"):
        login.copy_files(found, draft, name)
    return draft
