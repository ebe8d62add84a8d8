"""``mlw experiment submit``: the words of the command line become a Request."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ..config.place import OLD_SUFFIX, RUNCONFIG_SUFFIX
from ..errors import UsageError
from ..follow import Follower
from ..history.store import History
from ..inferred_state import INTERRUPTED
from ..paths import user_paths
from ..report import units
from ..report.records import record
from ..request import Request
from ..runs.results import forget_unusable_image
from ..runs.submitting import check_request, plan_run, resume_run, start_run
from ..submission import Draft
from . import render, sweepwords
from .command import Command, under
from .console import Console, hint_back
from .options import (
    ALLOW_MOUNT,
    ALLOW_NETWORK,
    another_target,
    in_project,
    making_environments,
    rendering,
    run_configuration,
    the_project,
)
from .project_id import own_project
from .view import watch


class SubmitCommand(Command):
    """Options of ours end at the script, at ``-m MODULE`` or at ``--``; all after that belongs to the user."""

    takes = "script"  # what TAB proposes there

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, kind, theirs = self._split(args)
        if kind != "command":
            if not ctx.resilient_parsing:  # TAB asks about words that are not finished
                sweepwords.refuse_mistyped(theirs)
            more, theirs = sweepwords.pick(theirs)
            ours = [*ours, *more]
        rest = super().parse_args(ctx, sweepwords.expand(ours))
        ctx.params["kind"], ctx.params["words"] = kind, tuple(theirs)
        return rest

    def _split(self, args: list[str]) -> tuple[list[str], str, list[str]]:
        valued = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        index = 0
        while index < len(args):
            word = args[index]
            if word == "--":
                return args[:index], "command", args[index + 1 :]
            if word == "-m":
                return args[:index], "module", args[index + 1 :]
            if not word.startswith("-") or word == "-":
                return args[:index], "script", args[index:]
            end = sweepwords.after_axes(args, index + 1) if word == sweepwords.SWEEP else index + 1
            index = max(end, index + 2 if word in valued else index + 1)
        return args, "script", []


@click.command(
    cls=SubmitCommand,
    epilog="Example: mlw submit -c local train.py --lr 0.1",
    options_metavar="[OPTIONS] SCRIPT [ARGS]... | -m MODULE [ARGS]... | -- COMMAND [ARGS]...",
)
@run_configuration()
@another_target
@click.option("--wait/--detach", default=True, help="Stream the output until the run ends (default), or return at once")
@click.option("--dry-run", is_flag=True, help="Print the run specification as JSON; submit nothing")
@click.option("--name", help="Display name")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Add a tag (repeatable)")
@click.option("--timeout", metavar="TIME", help="Stop the run after this time: 90, 90s, 15m, 2h, 7d")
@click.option("--key", metavar="TEXT", help="Idempotency key; submitting the same key again returns the same run")
@under(
    "GPUs",
    click.option(
        "--gpus",
        metavar="REQUEST",
        help="Request exclusive GPUs; wait until they are free: 2, all, free, none, 0,2, a UUID, h200, 1:40g",
    ),
)
@under("Sweeps", sweepwords.sweeping)
@under(
    "Environment",
    click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable (repeatable)"),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME",
        help="Pass a secret as a variable; read from the environment, the keyring, or a prompt (repeatable)",
    ),
    click.option("--locked", metavar="RUN", help="Reuse the exact environment of RUN"),
    making_environments,
)
@under(
    "Containers",
    click.option("--allow-mount", "mounts", multiple=True, metavar="PATH[:ro]", help=ALLOW_MOUNT),
    click.option("--allow-network", "networks", multiple=True, metavar="NETWORK", help=ALLOW_NETWORK),
)
@in_project
@rendering
def submit(**asked: Any) -> int:
    """Run a script of the project.

    Streams the output and returns the exit code of the script. Ctrl-C detaches; the run continues.
    """
    return submit_request(_request(asked), Presentation.of(asked), asked["folder"], dry_run=asked["dry_run"])


@dataclass(frozen=True)
class Presentation:
    """How a run that was submitted is shown."""

    wait: bool
    output: str
    query: str | None

    @staticmethod
    def of(asked: Mapping[str, Any]) -> Presentation:
        return Presentation(asked["wait"], asked["output"], asked["query"])

    @property
    def is_text(self) -> bool:
        return self.output == "table" and not self.query


def submit_request(request: Request, shown: Presentation, folder: str | None, *, dry_run: bool) -> int:
    """Submit a run and follow it; return the exit code of the script."""
    history, console = History(user_paths()), Console()
    checked = check_request(history, request, console, dry_run=dry_run)
    project = own_project(the_project(folder), history, dry_run=dry_run)
    if dry_run:
        _show_plan(plan_run(history, project, checked, console, dry_run=True), shown.query)
        return 0
    started = start_run(history, project, checked, console)
    while True:
        code = _finish(started.follower, shown, started.secrets)
        run = started.follower.run
        if not started.again or run.detail != INTERRUPTED:
            return code
        started = resume_run(history, run, console, request.secret_values)  # the process that launched it has died


def _show_plan(draft: Draft, query: str | None) -> None:
    """What would be run: the spec; of a sweep with its children, as far as they differ."""
    spec = draft.spec.to_json()
    if draft.children:
        spec["children"] = [
            {"id": child.id, "name": child.name, "varied": child.varied, "command": child.commands[-1].argv}
            for child in draft.children
        ]
    render.emit(spec, output="json", query=query)
    interpreter, snapshot = draft.parts.settled.interpreter, draft.parts.snapshot
    if draft.parts.settled.lock["kind"] == "existing" and not any(interpreter.version):
        render.message(f"note: {interpreter.path} was not checked: a dry run starts no programs of the project")
    if "spark" in draft.spec.companions:
        render.message("note: Spark and Java were not checked: a dry run starts no programs on the target")
    render.message(f"snapshot: {units.counted(snapshot.files, 'file')}, {units.size(snapshot.size)}")


def _finish(follower: Follower, shown: Presentation, secrets: Mapping[str, str]) -> int:
    if not shown.wait:
        run = follower.refresh()
        if shown.is_text:
            if not (render.terminal(sys.stdout) and render.terminal(sys.stderr)):  # else RunId is on the screen already
                render.emit(run.id, output="tsv")
            hint_back(run)
        else:
            render.emit(record(run), output=shown.output, query=shown.query)
        return 0
    code = watch(follower, secrets.values(), log_to=None if shown.is_text else sys.stderr)
    forget_unusable_image(follower)
    if shown.is_text:
        return code
    result = record(follower.run)
    if follower.run.spec.sweep:
        from ..history.children import children_of_sweep  # noqa: PLC0415 - other runs do without
        from .sweep import with_children  # noqa: PLC0415 - other runs do without

        result = with_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    render.emit(result, output=shown.output, query=shown.query)
    return code


def _request(asked: dict[str, Any]) -> Request:
    kind, words = asked["kind"], asked["words"]
    runconfig = asked["runconfig"]
    if kind == "script" and words and words[0].endswith((RUNCONFIG_SUFFIX, OLD_SUFFIX)):
        runconfig, words = _named_by_file(words, runconfig), ()
    if kind != "script" and not words:
        raise UsageError("no command given after --" if kind == "command" else "no module given after -m")
    same = ("target", "key", "name", "tags", "secrets", "locked", "upgrade", "send_packages", "unchecked", "gpus")
    return Request(
        configuration=runconfig,
        arguments=words[1:],
        environment=dict(_variable(text) for text in asked["variables"]),
        timeout=asked["timeout"] or None,
        sweep=sweepwords.asked_sweep(asked),
        allow_builds=asked["allow_builds"],
        allow_mounts=asked["mounts"],
        allow_networks=asked["networks"],
        **{kind: words[0]} if words else {},
        **{name: asked[name] for name in same},
    )


def _named_by_file(words: tuple[str, ...], runconfig: str | None) -> str:
    """The original took the file of a run configuration in place of a script, and ran what that names."""
    name, suffix = os.path.splitext(os.path.basename(words[0]))
    if runconfig is not None or len(words) > 1:
        raise UsageError(
            f"{words[0]} is a run configuration, not a script",
            f"use: mlw submit -c {name} SCRIPT [ARGS]...",
        )
    if suffix == OLD_SUFFIX:
        render.message(f"hint: {OLD_SUFFIX} is now {RUNCONFIG_SUFFIX}: mlw submit -c {name}")
    return name


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--env {name} has no value", f"use --env {name}=VALUE, or --secret {name} to hide the value")
    return name, value
