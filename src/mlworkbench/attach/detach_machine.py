"""Detach a machine, or change its attachment."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from ..attachments import FILE, MADE, Attachment, Attachments
from ..client_identity import client_of
from ..config.project_folder import Project
from ..container_consents import Consent
from ..errors import HostError, LaunchError, UsageError
from ..fetch_outputs import Progress
from ..history.run_query import Query
from ..history.store import History
from ..hosts import first_contact
from ..hosts.replies import Reply, printable
from ..hosts.root_contents import TargetRun, fetch_survey
from ..hosts.ssh_host import SshHost
from ..model import IN_CONTACT, Compute, Run
from ..paths import UserPaths
from ..remote.shared.failpoint import failpoint
from ..secret_sources import forget
from ..targets.consent_check import resolve_consents
from ..targets.open_remote import attach_command, find_attachment, not_attached
from ..targets.types import needs_attach, type_of
from . import ssh_login
from .attach_request import Prompter
from .attach_transaction import line_of, remove_dead_drafts
from .collect_results import MachineRuns, as_attached, copy_command, download_results, find_missing, known_runs, listed
from .purge_plan import Options, Plan, local_projects, make_plan


class Busy(HostError):
    """Error raised if the machine responds but something on it prevents the operation."""

    exit_code = LaunchError.exit_code  # the command is valid and can be repeated later


def attachment_of(project: Project, name: str, paths: UserPaths) -> Attachment | None:
    """Return the attachment called ``name``, even if the project's file is missing or damaged."""
    attachment = Attachments(paths).of_project(str(project.root), name)
    if name not in project.computes() and attachment is not None:
        return attachment
    compute = project.compute(name)
    if type_of(compute).attach is not None and not needs_attach(compute):
        return None  # a directly used cluster has no attachment
    if compute.address is None:
        raise UsageError(f"{name} has type {compute.type}, which needs no attached machine")
    return find_attachment(compute, paths)


def _attached(project: Project, name: str, paths: UserPaths) -> Attachment:
    attachment = attachment_of(project, name, paths)
    if attachment is None:
        compute = project.compute(name)
        raise not_attached(compute, type_of(compute))
    return attachment


# -- detach --------------------------------------------------------------------------------------------


@dataclass
class DetachReport:
    """Result of a detach: completed steps, warnings about runs, and how to attach again."""

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
) -> DetachReport:
    """Download results, then detach. ``force`` ignores an unreachable machine or missing results."""
    attachment = find_to_detach(project, name, paths, purge is not None)
    report = DetachReport()
    done = report.done
    if attachment is not None:
        others = local_projects(attachment.projects, (str(project.root), name))
        if purge or not others:
            left = _detach(attachment, paths, report, _DetachOptions(purge, force, progress, bool(others)))
            compute = project.compute(name) if name in project.computes() else None
            _report_runs(report, left, attachment, purge is not None, compute)
        if others:
            Attachments(paths).save(replace(attachment, projects=others))
            done.append(f"{attachment.where} stays attached: project {others[0][0]} uses it as {others[0][1]}")
    if not keep_files:
        for suffix in (".compute", ".runconfig"):
            path = project.folder / (name + suffix)
            if path.exists():
                path.unlink()
                done.append(f"removed {path}")
    if not done:
        done.append(f"{name} was not attached")
    return report


def find_to_detach(project: Project, name: str, paths: UserPaths, purge: bool) -> Attachment | None:
    """Return the attachment, or None. Raise if a machine to be purged is not attached."""
    attachment = attachment_of(project, name, paths)
    if attachment is None and purge and name in project.computes() and project.compute(name).address:
        compute = project.compute(name)
        raise not_attached(compute, type_of(compute))
    return attachment


def plan_purge(
    project: Project, name: str, paths: UserPaths, options: Options, force: bool
) -> tuple[Plan, HostError | None]:
    """Return the purge plan and the reason for refusing it, if any. Downloads and changes nothing."""
    attachment = _attached(project, name, paths)
    host = SshHost(attachment, paths)
    history = History(paths)
    try:
        plan = make_plan(fetch_survey(host, sizes=True), history, client_of(paths), options)
        try:
            _check_in_advance(plan, history, attachment, force)
        except Busy as refusal:
            return plan, refusal
        return plan, None
    finally:
        host.close()
        history.close()


def _check_in_advance(plan: Plan, history: History, attachment: Attachment, force: bool) -> None:
    """Raise if a purge would be refused. Results that can still be downloaded do not prevent it."""
    lacking = {run.id for run in plan.undownloaded_of_this_laptop()}
    mine = [run for run in history.search(Query(hidden=True, inside=False)) if run.id in lacking]
    _check_plan(plan, attachment.where, force, downloadable={run.id for run in mine})
    left = find_missing(mine, history)
    if left.missing and not force:
        raise Busy(
            f"~/.mlw on {attachment.where} has results that were not downloaded: {_missing(left)}",
            _rescue(left, attachment),
        )


@dataclass(frozen=True)
class _DetachOptions:
    purge: Options | None
    force: bool
    progress: Progress
    stays: bool  # another project on this laptop uses the machine


def _detach(attachment: Attachment, paths: UserPaths, report: DetachReport, options: _DetachOptions) -> MachineRuns:
    done = report.done
    host = SshHost(attachment, paths)
    attachments = Attachments(paths)
    dead = tuple(draft for draft in remove_dead_drafts(attachments) if draft.where == attachment.where)
    history = History(paths)
    try:
        host.connect()
        left = download_results(history, host, options.progress)
        _check(left, attachment, options)
        if options.purge:
            _purge(host, history, report, options.purge, options.force)
        if not options.stays:
            done += _clean_up_machine(host, attachment, client_of(paths).id, [line_of(draft) for draft in dead])
    except Busy as error:
        raise Busy(f"nothing was detached: {error.message}", error.hint, more=error.more) from None
    except HostError as error:
        if not options.force:
            more = "use --force to detach without contacting the machine"
            hint = "; ".join(text for text in (error.hint, more) if text)
            raise HostError(f"nothing was detached: {error.message}", hint) from None
        left = known_runs(history, attachment)
        done.append(f"the machine was not contacted: {error.message}")
        if attachment.key == MADE:
            mark = line_of(attachment).rpartition(" ")[2]
            done.append(f"its ~/.ssh/authorized_keys still contains a line that ends in {mark}")
    host.disconnect()
    if options.stays:
        return left
    if attachment.password:
        forget(attachment.keyring_name)
    for detached in (*dead, attachment):
        attachments.remove(detached)
    history.close()
    done.append(f"detached {attachment.where}")
    return left


def _check(left: MachineRuns, attachment: Attachment, options: _DetachOptions) -> None:
    """Raise an error if a run still needs the folder or results exist only on the machine."""
    if options.purge and left.busy:
        raise Busy(
            f"~/.mlw on {attachment.where} cannot be deleted while runs are active: "
            f"{listed([run.id for run in left.busy])}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    if options.purge and left.missing and not options.force:
        raise Busy(
            f"~/.mlw on {attachment.where} has results that were not downloaded: {_missing(left)}",
            _rescue(left, attachment),
        )


def _rescue(left: MachineRuns, attachment: Attachment) -> str:
    """Return a hint on how to get the results. Uncollected outputs must be copied with ``scp``."""
    uncollected = left.uncollected
    fetchable = [run for run, _ in left.missing if run not in uncollected]
    ways = [f"download them with 'mlw history download -r {fetchable[0].id}'"] if fetchable else []
    if uncollected:
        ways.append(f"copy the outputs that were not collected with: {copy_command(uncollected[0], attachment)}")
    return "; ".join([*ways, "or use --force to delete them anyway"])


def _missing(left: MachineRuns) -> str:
    return listed([f"run {run.id} ({why})" for run, why in left.missing])


def _report_runs(
    report: DetachReport, left: MachineRuns, attachment: Attachment, purged: bool, compute: Compute | None
) -> None:
    """Add warnings about runs that can no longer be updated, and a hint to attach again."""
    if left.downloaded:
        report.done.insert(0, f"downloaded the results of {listed([f'run {run_id}' for run_id in left.downloaded])}")
    deleted = purged and left.asked
    if left.missing:
        note = "deleted without being downloaded" if deleted else "results not downloaded, left on the machine"
        report.warnings.append(f"{note}: {_missing(left)}")
    if left.busy:
        runs = listed([f"run {run.id} ({_describe_state(run)})" for run in left.busy])
        report.warnings.append(
            f"still active: {runs}; they continue, but 'mlw ps', 'mlw logs', and 'mlw cancel' cannot reach them"
            " until you attach the machine again"
        )
    if left.interrupted:
        runs = listed([f"run {run.id}" for run in left.interrupted])
        report.warnings.append(f"not started: {runs}; attach the machine again to resume or cancel")
    mine = [*left.busy, *left.interrupted, *(run for run, _ in left.missing if not deleted)]
    if mine:
        compute = compute or as_attached(mine[0].spec.compute, attachment)
        key_file = attachment.key_file if attachment.key.startswith(FILE) else None
        lost = key_file is None or key_file.is_relative_to(attachment.folder.parent)  # deleted with the attachment
        report.hint = f"attach it again: {attach_command(compute, type_of(compute), None if lost else str(key_file))}"


def _describe_state(run: Run) -> str:
    status = run.status.value if run.contact == IN_CONTACT else f"{run.status.value}, {run.contact}"
    return printable(f"{status}, {run.detail}" if run.detail else status)


def _purge(host: SshHost, history: History, report: DetachReport, options: Options, force: bool) -> None:
    """Delete what this laptop may delete on the machine, after the user has confirmed it."""
    plan = make_plan(fetch_survey(host, sizes=True), history, client_of(history.paths), options)
    options.show(plan)
    _check_plan(plan, host.attachment.where, force)
    options.confirm(plan)
    reply = Reply(host.identity, host.ask(plan.request(), timeout=600.0))
    if not reply.ok:
        raise Busy(
            f"~/.mlw on {host.attachment.where} could not be deleted: {reply.problem}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    left = reply.texts("left")
    report.done.append(f"deleted ~/.mlw on {host.attachment.where}{f', except {listed(left)}' if left else ''}")
    if plan.survey.shared and not options.shared:
        report.done.append("shared folders were kept; --shared-folders also deletes them")
    if plan.expired_runs():
        report.warnings.append(f"deleted without being downloaded: {_describe_runs(plan, plan.expired_runs())}")


def _check_plan(plan: Plan, who: str, force: bool, downloadable: Collection[str] = ()) -> None:
    """Raise if the data is still needed. ``downloadable`` holds IDs of runs that can be downloaded."""
    if plan.active():
        raise Busy(
            f"~/.mlw on {who} cannot be deleted while runs are active: {_describe_runs(plan, plan.active())}",
            "wait for the runs to finish, or stop them with 'mlw cancel'",
        )
    theirs = plan.undownloaded_of_others()
    if theirs:
        raise Busy(
            f"~/.mlw on {who} has results that other laptops have not downloaded: {_describe_runs(plan, theirs)}",
            "on that laptop, download them with mlw history download, or delete them with"
            " mlw experiment clean -t TARGET --unfetched --yes; for laptops no longer in use: --others-older-than 90d",
            more="purge-refused",
        )
    removed = [run.id for run in plan.undownloaded_of_this_laptop() if run.id not in downloadable]
    if removed and not force:
        raise Busy(
            f"~/.mlw on {who} has results of runs that are not in this history: {listed(removed)}",
            "they were removed from the history before they were downloaded; --force deletes them",
            more="purge-refused",
        )


def _describe_runs(plan: Plan, runs: list[TargetRun]) -> str:
    return listed([f"run {printable(run.id)} (laptop {plan.laptop(run.client)})" for run in runs])


def _clean_up_machine(host: SshHost, attachment: Attachment, client: str, lines: list[str]) -> list[str]:
    done = []
    if client:
        host.ask({"do": "leave", "client": client})
    if attachment.linger:
        off = Reply(host.identity, host.ask({"do": "linger", "on": False})).ok
        done.append("disabled lingering" if off else "lingering could not be disabled")
    for line in lines:
        host.ask({"do": "key", "action": "remove", "line": line})
    if attachment.key == MADE and ssh_login.remove_key(host, attachment):
        done.append("removed the SSH key that attach installed")
    elif attachment.key.endswith(f"{os.sep}key") and attachment.key.startswith("file:"):
        done.append("~/.ssh/authorized_keys on the machine still contains the line that you appended")
    return done


# -- changes -------------------------------------------------------------------------------------------


def update(
    project: Project, name: str, paths: UserPaths, *, allow: tuple[Consent, ...], forbid: tuple[Consent, ...]
) -> Attachment:
    """Change what containers may access on the machine, and resolve its folders again."""
    attachment = _attached(project, name, paths)
    kept = {(consent.kind, consent.value): consent for consent in attachment.allowed}
    for consent in forbid:
        if kept.pop((consent.kind, consent.value), None) is None:
            hint = "currently allowed: " + (", ".join(known.text for known in attachment.allowed) or "nothing")
            raise UsageError(f"{consent.text} was not allowed on {name}, {attachment.where}", hint)
    changed = replace(attachment, allowed=tuple(kept.values()))
    if allow or not forbid:  # revoking needs no connection
        host = SshHost(attachment, paths)
        allowed, places = resolve_consents(host, changed.allowed, allow)
        host.close()
        changed = replace(changed, allowed=allowed, places=places)
    return Attachments(paths).save(changed)


def reset_key(project: Project, name: str, paths: UserPaths, prompter: Prompter, host_key: str | None) -> list[str]:
    """Replace the key that mlw created; with ``host_key``, accept the machine's new host key."""
    attachment = _attached(project, name, paths)
    if host_key is not None:
        return [_accept(attachment, paths, prompter, host_key)]
    if attachment.key != MADE:
        raise UsageError(
            f"{name}, {attachment.where}, uses your own SSH keys; there is no key that mlw can replace",
            "to accept a new host key, use --host-key FINGERPRINT",
        )
    host = SshHost(attachment, paths)
    host.connect()
    old = line_of(attachment)
    draft = _copy(attachment, paths)
    line = ""
    try:
        key, line = first_contact.create_key(draft, ssh_login.MARK + draft.folder.name.removeprefix(".draft-"))
        host.ask({"do": "key", "action": "add", "line": line})
        failpoint("key-added")
        if not first_contact.key_works(key):
            raise HostError(f"{attachment.where} rejected the new key; the old key stays in use")
        saved = Attachments(paths).save(key)
    except BaseException:
        if line:
            with suppress(HostError):
                host.ask({"do": "key", "action": "remove", "line": line})
        Attachments(paths).remove(draft)
        raise
    host.ask({"do": "key", "action": "remove", "line": old})
    host.disconnect()  # later connections use the new key
    first_contact.close_connection(saved)
    return [f"installed a new key on {attachment.where} and removed the old one"]


def _accept(attachment: Attachment, paths: UserPaths, prompter: Prompter, host_key: str) -> str:
    draft = _copy(attachment, paths)
    try:
        met, _ = ssh_login.verify_host(draft, host_key, prompter, None)
        first_contact.close_connection(attachment)
        Attachments(paths).save(met)
    except BaseException:
        Attachments(paths).remove(draft)
        raise
    return f"accepted host key {met.host_key} for {attachment.where}"


def _copy(attachment: Attachment, paths: UserPaths) -> Attachment:
    """Return a draft for the same machine with the same login."""
    names = [item.name for item in fields(Attachment) if item.name not in ("folder", "identity")]
    draft = Attachments(paths).draft(attachment.identity, **{name: getattr(attachment, name) for name in names})
    for name in ("known_hosts", "key", "key.pub", "sent"):
        ssh_login.copy_files(attachment, draft, name)
    return draft
