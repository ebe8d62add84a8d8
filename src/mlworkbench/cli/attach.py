"""``mlw computetarget attach``, ``detach``, ``update``, and ``reset-key``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ..attach import detach_machine as detaching
from ..attach.attach_machine import attach as attach_machine
from ..attach.attach_request import AttachRequest, JobOptions, Unanswered
from ..attach.purge_plan import COLUMNS, Options, Plan
from ..config.keys import closest_match
from ..config.yaml_tree import display_path
from ..container_consents import MOUNT, NETWORK, asked_consents, mount_consent, network_consent, of_kind
from ..errors import UsageError
from ..paths import user_paths
from ..report import units
from ..report.run_filters import parse_age
from ..sanitize import plain
from ..targets.open_remote import JOB_OPTIONS
from ..targets.types import BUILT_IN, attachable
from . import render
from .options import ALLOW_MOUNT, ALLOW_NETWORK, get_project, global_options, project_option, result_options

_MIN_OTHERS_AGE = 86400.0  # seconds
_TYPES = tuple(row.name for row in attachable())
_EXPOSURE = "is visible in the process list and stays in the shell history"


class Terminal:
    """Prompter for the terminal. Answers are None if there is no terminal."""

    def say(self, text: str) -> None:
        render.message(text)

    def warn(self, text: str) -> None:
        render.warn(text)

    def confirm(self, question: str) -> bool | None:
        if not _is_terminal():
            return None
        return click.confirm(question, default=False, err=True)

    def secret(self, question: str) -> str | None:
        if not _is_terminal():
            return None
        question = plain(question)  # escaped, because a jump host may have sent the text
        return str(click.prompt(question, hide_input=True, err=True, default="", show_default=False)) or None


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@click.command(epilog="Example: mlw computetarget attach remotedocker --name my_dsvm --address 10.0.0.7 --username ada")
@click.argument("kind", required=False, metavar=f"[{'|'.join(_TYPES)}]")
@click.option("-n", "--name", required=True, help="Name of the target and of its files in aml_config")
@click.option("-a", "--address", help="IP address, host name, or alias from ~/.ssh/config")
@click.option("-u", "--username", help="Login user (default: from ~/.ssh/config, else your own)")
@click.option("-w", "--password", help="Password, used once to install a key; prefer the prompt")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input")
@click.option(
    "-k", "--use-azureml-ssh-key", "own_key", is_flag=True, help="Print a public key to install on the machine"
)
@click.option("--private-key-file", type=click.Path(dir_okay=False), help="Private key file to log in with")
@click.option(
    "--private-key-passphrase",
    is_flag=False,
    flag_value="",
    default=None,
    help="Passphrase of the private key; prompts if TEXT is omitted",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the SSH server (default: 22)")
@click.option("--jump", metavar="[USER@]HOST[:PORT]", help="Jump host")
@click.option("--host-key", metavar="SHA256:…", help="Expected host key fingerprint")
@click.option("--allow-mount", "mounts", multiple=True, metavar="PATH[:ro]", help=ALLOW_MOUNT)
@click.option("--allow-network", "networks", multiple=True, metavar="NETWORK", help=ALLOW_NETWORK)
@click.option("--image", help="Container image (baseDockerImage)")
@click.option(
    "--master",
    metavar="spark://HOST:PORT|yarn",
    help="Spark master; without --address, the driver runs on this machine",
)
@click.option("--partition", help="Slurm partition of the jobs (default: that of the cluster)")
@click.option("--account", help="Slurm account of the jobs")
@click.option("--qos", help="Slurm quality of service of the jobs")
@click.option("--constraint", help="Features that Slurm nodes must have, such as a100")
@click.option("--time", metavar="LIMIT", help="Time limit of the Slurm jobs: minutes, H:MM:SS, or D-HH:MM")
@click.option("--replace", is_flag=True, help="Replace an existing target of this name")
@project_option
@result_options
def attach(**options: Any) -> int:
    """Attach a machine or cluster over SSH.

    Connects, checks the machine, and then writes aml_config/NAME.compute and NAME.runconfig. Tries your SSH keys and
    agent first. A password is used once to install a key for this target and is not stored.

    For a Slurm cluster, --address is the login node. To use a cluster from this machine, omit --address, and specify
    --master for a Spark cluster.
    """
    request = _parse_request(options)
    try:
        project = get_project(options["folder"])
        report = attach_machine(project, request, user_paths(), Terminal(), units.size)
    except Unanswered as error:
        if options["output"] != "table" or options["query"]:
            render.emit(error.question, output=options["output"], query=options["query"])
        raise
    for path in report.written:
        render.message(f"wrote {display_path(Path(path))}")
    for finding in report.findings:
        render.warn(f"{finding.what}: {finding.found}")
        if finding.hint:
            render.message(f"hint: {finding.hint}")
    render.message(
        f"attached {request.name}: {report.kind} at {report.identity}{f', with {report.key}' if report.key else ''}"
    )
    render.message(
        f"hint: run a script with: mlw submit -c {shlex.quote(request.name)} {shlex.quote(project.script())}"
    )
    if options["output"] != "table" or options["query"]:
        render.emit(report.record, output=options["output"], query=options["query"])
    return 0


def _parse_request(options: dict[str, Any]) -> AttachRequest:
    kind = _check_type(options)
    password, passphrase = options["password"], options["private_key_passphrase"]
    if password is not None and options["password_stdin"]:
        raise UsageError("--password cannot be combined with --password-stdin", "remove one of them")
    if password is not None:
        render.warn(f"a password on the command line {_EXPOSURE}")
        render.message("hint: omit --password to be prompted, or pipe the password to --password-stdin")
    if passphrase:
        render.warn(f"a passphrase on the command line {_EXPOSURE}")
    if options["password_stdin"]:
        # On a terminal, plain input would echo the password.
        password = Terminal().secret("Password") if _is_terminal() else sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise UsageError("--password-stdin read no password", "for example: pass show dsvm | mlw …")
    return AttachRequest(
        kind=kind,
        name=options["name"],
        address=options["address"],
        username=options["username"],
        port=options["port"],
        jump=options["jump"],
        password=password,
        private_key_file=options["private_key_file"],
        passphrase=passphrase,
        own_key=options["own_key"],
        host_key=options["host_key"],
        consents=asked_consents(options["mounts"], options["networks"]),
        image=options["image"],
        master=options["master"],
        job=JobOptions(*(options[name] for name in JOB_OPTIONS)),
        replace=options["replace"],
    )


def _check_type(options: dict[str, Any]) -> str | None:
    kind: str | None = options["kind"]
    if kind is not None and kind not in _TYPES:
        local_types = [row for row in BUILT_IN if row.attach is None]
        suggestion = (
            None if any(kind in (row.name, *row.aliases) for row in local_types) else closest_match(kind, _TYPES)
        )
        no_attach = f"{' and '.join(row.name for row in local_types)} need no attach; every project contains them"
        raise UsageError(
            f"unknown target type {kind!r}; available: {', '.join(_TYPES)}",
            f"did you mean {suggestion!r}?" if suggestion else no_attach,
        )
    return kind


@click.command(epilog="Example: mlw computetarget detach my_dsvm --purge --dry-run")
@click.argument("name")
@click.option("--purge", is_flag=True, help="Also delete ~/.mlw on the machine, after fetching results")
@click.option("--dry-run", is_flag=True, help="List what --purge would delete, without deleting it")
@click.option(
    "--others-older-than",
    metavar="AGE",
    help="With --purge, also delete unfetched results of laptops without contact for AGE, such as 90d",
)
@click.option("--shared-folders", is_flag=True, help="With --purge, also delete the shared folders of all projects")
@click.option("--keep-files", is_flag=True, help="Keep the files in aml_config")
@click.option("--force", is_flag=True, help="Detach even if the machine or your results cannot be reached")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@project_option
@result_options
def detach(name: str, folder: str | None, **options: Any) -> None:
    """Detach a compute target.

    Fetches the results of all your runs, removes the key that attach installed on the machine, and deletes the
    target's files here. Active runs continue.

    --purge lists and deletes everything in ~/.mlw on the machine. mlw refuses to purge while a run is active or another
    laptop has unfetched results. Shared folders and files that mlw did not create are kept.
    """
    project, purge_options = get_project(folder), _parse_purge_options(name, options)
    if options["dry_run"]:
        plan, refusal = detaching.plan_purge(project, name, user_paths(), purge_options, options["force"])
        _show_plan(plan, options)
        if refusal:
            render.warn(f"the purge would be refused: {refusal.message}")
            render.message(f"hint: {refusal.hint}")
        return
    detaching.find_to_detach(project, name, user_paths(), options["purge"])
    if options["purge"] and not options["yes"] and not _is_terminal():
        raise UsageError("cannot prompt: no terminal; nothing was detached", "use --yes to confirm")
    with render.Progress("results") as progress:
        report = detaching.detach(
            project,
            name,
            user_paths(),
            purge=purge_options if options["purge"] else None,
            keep_files=options["keep_files"],
            force=options["force"],
            progress=progress.report,
        )
    for line in report.done:
        render.message(line)
    for line in report.warnings:
        render.warn(line)
    if report.hint:
        render.message(f"hint: {report.hint}")


def _parse_purge_options(name: str, options: dict[str, Any]) -> Options:
    for option in ("dry_run", "others_older_than", "shared_folders"):
        if options[option] and not options["purge"]:
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"{flag} requires --purge", f"mlw computetarget detach {shlex.quote(name)} --purge {flag} …"
            )

    def confirm(plan: Plan) -> None:
        if options["yes"]:
            return
        runs = units.pluralize(len(plan.runs), "run")
        questions = [f"Delete ~/.mlw on {name} ({plan.survey.where}), including {runs}?"]
        if plan.shared and plan.survey.shared:
            questions.append(
                f"Also delete {units.pluralize(len(plan.survey.shared), 'shared folder')} of all projects?"
            )
        if not all(Terminal().confirm(question) for question in questions):
            raise UsageError("nothing was detached", "use --purge --dry-run to list what would be deleted")

    return Options(
        others=_parse_others_age(options["others_older_than"]),
        shared=options["shared_folders"],
        show=lambda plan: _show_plan(plan, options),
        confirm=confirm,
    )


def _parse_others_age(text: str | None) -> float | None:
    """Parse ``--others-older-than``.

    The time of the last contact is updated once an hour, so a short age would expire laptops that are
    in use.
    """
    if text is None:
        return None
    age = parse_age(text, "--others-older-than")
    if age < _MIN_OTHERS_AGE:
        raise UsageError(f"--others-older-than {text} is too short: the minimum is 1d", "for example: 90d")
    return age


def _show_plan(plan: Plan, options: dict[str, Any]) -> None:
    rows = plan.rows()
    if options["output"] == "table" and not options["query"]:
        rows = [{**row, "size": None if row["bytes"] is None else units.size(row["bytes"])} for row in rows]
        render.emit(rows, output="table", columns=COLUMNS)
    else:
        render.emit(rows, output=options["output"], query=options["query"])


@click.command(epilog="Example: mlw computetarget update my_dsvm --allow-mount /data:ro")
@click.argument("name")
@click.option("--allow-mount", "mounts", multiple=True, metavar="PATH[:ro]", help=ALLOW_MOUNT)
@click.option(
    "--forbid-mount", multiple=True, metavar="PATH", help="Withdraw permission to mount a folder (repeatable)"
)
@click.option("--allow-network", "networks", multiple=True, metavar="NETWORK", help=ALLOW_NETWORK)
@click.option(
    "--forbid-network", multiple=True, metavar="NETWORK", help="Withdraw permission to join a network (repeatable)"
)
@project_option
@global_options
def update(name: str, folder: str | None, **options: tuple[str, ...]) -> None:
    """Change which mounts and networks a target allows.

    The permissions apply to all your projects and are stored outside them. Also updates the recorded location of mlw's
    folders on the target, for example after `~/.mlw` was replaced with a link.
    """
    forbid = [mount_consent(text, "--forbid-mount") for text in options["forbid_mount"]]
    forbid += [network_consent(text, "--forbid-network") for text in options["forbid_network"]]
    updated = detaching.update(
        get_project(folder),
        name,
        user_paths(),
        allow=asked_consents(options["mounts"], options["networks"]),
        forbid=tuple(forbid),
    )
    containers = f"containers of all your projects on {name} ({updated.where}) may"
    mounts = [consent.shown for consent in of_kind(updated.allowed, MOUNT)]
    render.message(f"{containers} mount: {', '.join(mounts) or 'only their own folders'}")
    networks = [consent.shown for consent in of_kind(updated.allowed, NETWORK)]
    if networks:
        render.message(f"{containers} join networks: {', '.join(networks)}")


@click.command("reset-key", epilog="Example: mlw computetarget reset-key my_dsvm")
@click.argument("name")
@click.option("--host-key", metavar="SHA256:…", help="New host key fingerprint of a reinstalled machine")
@project_option
@global_options
def reset_key(name: str, host_key: str | None, folder: str | None) -> None:
    """Replace the SSH key of a target.

    With --host-key, accept a new host key of the machine instead.
    """
    for line in detaching.reset_key(get_project(folder), name, user_paths(), Terminal(), host_key=host_key):
        render.message(line)
