"""``mlw experiment submit``: turn the command line into a ``Request`` and follow the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ..config.project_files import OLD_SUFFIX, RUNCONFIG_SUFFIX
from ..errors import UsageError
from ..follow import Follower
from ..history.store import History
from ..inferred_state import INTERRUPTED
from ..paths import user_paths
from ..remote.shared.process_launchers import LAUNCHERS, NONE
from ..remote.shared.retry_causes import CAUSES
from ..report import units
from ..report.run_records import record
from ..runs.result_download import forget_unusable_image
from ..runs.submitting import check_request, plan_run, resume_run, start_run
from ..submission import Draft
from ..submit_request import Request
from . import render, sweep_options
from .command import Command, option_section
from .current_notebook import current_notebook
from .follow_view import watch
from .options import (
    ALLOW_MOUNT,
    ALLOW_NETWORK,
    environment_options,
    get_project,
    project_option,
    result_options,
    run_configuration_option,
    target_option,
)
from .project_id import confirm_project_id
from .submission_console import Console, print_follow_hints


class SubmitCommand(Command):
    """Command whose own options end at the script, ``-m MODULE``, or ``--``.

    The remaining arguments belong to the user's script.
    """

    script_kind = "script"  # kind of value for shell completion

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        mlw_arguments, kind, script_arguments = self._split(args)
        if kind != "command":
            if not ctx.resilient_parsing:  # completion passes incomplete arguments
                sweep_options.reject_mistyped(script_arguments)
            sweep_arguments, script_arguments = sweep_options.extract_sweep_options(script_arguments)
            mlw_arguments = [*mlw_arguments, *sweep_arguments]
        remaining = super().parse_args(ctx, sweep_options.expand_axes(mlw_arguments))
        ctx.params["kind"], ctx.params["arguments"] = kind, tuple(script_arguments)
        return remaining

    def _split(self, args: list[str]) -> tuple[list[str], str, list[str]]:
        with_value = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        index = 0
        while index < len(args):
            argument = args[index]
            if argument == "--":
                return args[:index], "command", args[index + 1 :]
            if argument == "-m":
                return args[:index], "module", args[index + 1 :]
            if not argument.startswith("-") or argument == "-":
                return args[:index], "script", args[index:]
            end = sweep_options.end_of_axes(args, index + 1) if argument == sweep_options.SWEEP else index + 1
            index = max(end, index + 2 if argument in with_value else index + 1)
        return args, "script", []


_RETRY_ON = "Start again only after this failure: " + ", ".join(CAUSES) + " (repeatable)"


@click.command(
    cls=SubmitCommand,
    epilog="Example: mlw submit -c local train.py --lr 0.1",
    options_metavar="[OPTIONS] SCRIPT [ARGS]... | -m MODULE [ARGS]... | -- COMMAND [ARGS]...",
)
@run_configuration_option()
@target_option
@click.option("--wait/--detach", default=True, help="Stream the output until the run ends (default), or return at once")
@click.option("--dry-run", is_flag=True, help="Print the run specification as JSON; submit nothing")
@click.option("--name", help="Display name")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Add a tag (repeatable)")
@click.option("--timeout", metavar="TIME", help="Stop the run after this time: 90, 90s, 15m, 2h, 7d")
@option_section(
    "Retries",
    click.option("--retries", type=int, metavar="N", help="Start the script again up to N times after a failure"),
    click.option("--retry-on", multiple=True, metavar="FAILURE", help=_RETRY_ON),
    click.option(
        "--retry-delay", metavar="TIME", help="Time before the script starts again; doubles with each attempt"
    ),
    click.option("--resume", metavar="RUN", help="Start with the checkpoints of RUN"),
)
@click.option("--key", metavar="TEXT", help="Idempotency key; submitting the same key again returns the same run")
@option_section(
    "GPUs",
    click.option(
        "--gpus",
        metavar="REQUEST",
        help="Request exclusive GPUs; wait until they are free: 2, all, free, none, 0,2, a UUID, h200, 1:40g",
    ),
)
@option_section(
    "Several processes",
    click.option(
        "--launcher",
        type=click.Choice((NONE, *LAUNCHERS)),
        help="Program that starts several processes of the script",
    ),
    click.option("--processes", metavar="N", help="Number of processes, or gpu: one per allocated GPU (default)"),
)
@option_section("Sweeps", sweep_options.add_sweep_options)
@option_section(
    "Environment",
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Set a variable, or pass it from your shell (repeatable)",
    ),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME",
        help="Pass a secret as a variable; read from the environment, the keyring, or a prompt (repeatable)",
    ),
    click.option("--locked", metavar="RUN", help="Reuse the exact environment of RUN"),
    environment_options,
)
@option_section(
    "Containers",
    click.option("--allow-mount", "mounts", multiple=True, metavar="PATH[:ro]", help=ALLOW_MOUNT),
    click.option("--allow-network", "networks", multiple=True, metavar="NETWORK", help=ALLOW_NETWORK),
)
@project_option
@result_options
def submit(**options: Any) -> int:
    """Run a script of the project.

    Streams the output and returns the exit code of the script. Ctrl-C detaches; the run continues.
    """
    return submit_request(
        _build_request(options), Presentation.of(options), options["folder"], dry_run=options["dry_run"]
    )


@dataclass(frozen=True)
class Presentation:
    """Options for displaying a submitted run."""

    wait: bool
    output: str
    query: str | None

    @staticmethod
    def of(options: Mapping[str, Any]) -> Presentation:
        return Presentation(options["wait"], options["output"], options["query"])

    @property
    def is_text(self) -> bool:
        return self.output == "table" and not self.query


def submit_request(request: Request, presentation: Presentation, folder: str | None, *, dry_run: bool) -> int:
    """Submit a run and follow it. Return the exit code of the script."""
    history, console = History(user_paths()), Console()
    checked = check_request(history, request, console, dry_run=dry_run)
    project = confirm_project_id(get_project(folder), history, dry_run=dry_run)
    if dry_run:
        _show_plan(plan_run(history, project, checked, console, dry_run=True), presentation.query)
        return 0
    started = start_run(history, project, checked, console)
    while True:
        code = _follow_or_detach(started.follower, presentation, started.secrets)
        run = started.follower.run
        if not started.was_submitted_before or run.detail != INTERRUPTED:
            return code
        # The process that was launching the run has died: take over.
        started = resume_run(history, run, console, request.secret_values)


def _show_plan(draft: Draft, query: str | None) -> None:
    """Print the spec that would be submitted and, for a sweep, the differences between its children."""
    spec = draft.spec.to_json()
    if draft.children:
        spec["children"] = [
            {"id": child.id, "name": child.name, "varied": child.varied, "command": child.commands[-1].argv}
            for child in draft.children
        ]
    render.emit(spec, output="json", query=query)
    interpreter, snapshot = draft.parts.environment.interpreter, draft.parts.snapshot
    if draft.parts.environment.lock["kind"] == "existing" and not any(interpreter.version):
        render.message(f"note: {interpreter.path} was not checked: a dry run starts no programs of the project")
    if "spark" in draft.spec.companions:
        render.message("note: Spark and Java were not checked: a dry run starts no programs on the target")
    render.message(f"snapshot: {units.pluralize(snapshot.files, 'file')}, {units.size(snapshot.size)}")


def _follow_or_detach(follower: Follower, presentation: Presentation, secrets: Mapping[str, str]) -> int:
    if not presentation.wait:
        run = follower.refresh()
        if presentation.is_text:
            # On a terminal, the run ID is already on the screen.
            if not (render.is_terminal(sys.stdout) and render.is_terminal(sys.stderr)):
                render.emit(run.id, output="tsv")
            print_follow_hints(run)
        else:
            render.emit(record(run), output=presentation.output, query=presentation.query)
        return 0
    code = watch(follower, secrets.values(), log_to=None if presentation.is_text else sys.stderr)
    forget_unusable_image(follower)
    if presentation.is_text:
        return code
    result = record(follower.run)
    if follower.run.spec.sweep:
        from ..history.child_runs import children_of_sweep  # noqa: PLC0415 - only sweeps need it
        from .sweep_view import with_children  # noqa: PLC0415 - only sweeps need it

        result = with_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    render.emit(result, output=presentation.output, query=presentation.query)
    return code


def _build_request(options: dict[str, Any]) -> Request:
    kind, arguments = options["kind"], options["arguments"]
    runconfig = options["runconfig"]
    if kind == "script" and arguments and arguments[0].endswith((RUNCONFIG_SUFFIX, OLD_SUFFIX)):
        runconfig, arguments = _configuration_name(arguments, runconfig), ()
    if kind != "script" and not arguments:
        raise UsageError("no command given after --" if kind == "command" else "no module given after -m")
    if kind == "script" and runconfig is options["runconfig"] and not arguments:
        arguments = current_notebook()
    unchanged = "target key name tags secrets locked upgrade send_packages unchecked gpus retries retry_delay resume"
    unchanged += " launcher processes"
    return Request(
        configuration=runconfig,
        arguments=arguments[1:],
        environment=dict(_parse_variable(text) for text in options["variables"]),
        timeout=options["timeout"] or None,
        retry_on=options["retry_on"],
        sweep=sweep_options.parse_sweep(options),
        allow_builds=options["allow_builds"],
        allow_mounts=options["mounts"],
        allow_networks=options["networks"],
        **{kind: arguments[0]} if arguments else {},
        **{name: options[name] for name in unchanged.split()},
    )


def _configuration_name(arguments: tuple[str, ...], runconfig: str | None) -> str:
    """Return the run configuration whose file was given as the script, as in Azure ML Workbench."""
    name, suffix = os.path.splitext(os.path.basename(arguments[0]))
    if runconfig is not None or len(arguments) > 1:
        raise UsageError(
            f"{arguments[0]} is a run configuration, not a script",
            f"use: mlw submit -c {name} SCRIPT [ARGS]...",
        )
    if suffix == OLD_SUFFIX:
        render.message(f"hint: {OLD_SUFFIX} is now {RUNCONFIG_SUFFIX}: mlw submit -c {name}")
    return name


def _parse_variable(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None
