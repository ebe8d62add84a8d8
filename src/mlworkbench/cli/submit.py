"""``mlw experiment submit``: the words of the command line become a Request."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, TextIO

import click

from .. import submission
from ..config.place import OLD_SUFFIX, RUNCONFIG_SUFFIX
from ..consents import asked_consents
from ..errors import HostError, LaunchError, SolveError, UsageError
from ..follow import Follower
from ..history.store import History
from ..inferred_state import INTERRUPTED, in_sweep
from ..model import Entry, Run, RunSpec
from ..paths import user_name, user_paths
from ..plan import Request
from ..remote import endings
from ..remote.gpus.request import EXAMPLES, parse
from ..report import units
from ..report.records import record
from ..secret import find_secret, known_values, registry_password
from ..targets.opening import open_target
from ..targets.target import Target
from . import render, sweepwords
from .command import Command, under
from .console import Console, hint_back
from .options import (
    ALLOW_MOUNT,
    ALLOW_NETWORK,
    allow_builds,
    another_target,
    in_project,
    making_environments,
    rendering,
    run_configuration,
    the_project,
)
from .project_id import own_project
from .view import watch

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


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
    paths = user_paths()
    history = History(paths)
    request = _request(asked, history)
    project = own_project(the_project(asked["folder"]), history, dry_run=asked["dry_run"])
    if request.key and not asked["dry_run"]:
        known = history.by_key(submission.full_key(project, request.key))
        if known:
            return _go_on(history, known, asked, request)
    with render.Progress("snapshot", least=1e6) as progress:
        dry = asked["dry_run"]
        made = submission.draft(project, request, paths, progress.report, dry_run=dry, tell=render.message)
    Console().planned(made)
    if asked["dry_run"]:
        render.emit(_planned(made), output="json", query=asked["query"])
        _say_untried(made)
        files = units.counted(made.parts.snapshot.files, "file")
        render.message(f"snapshot: {files}, {units.size(made.parts.snapshot.size)}")
        return 0
    secrets = secrets_of(made.spec)
    stored, new = submission.record(history, made)
    if not new:
        return _go_on(history, history.get(stored.id), asked, request)
    follower = Follower(history, Run(stored), made.target)
    try:
        _announce(stored)
        put_to_work(history, stored, made.target, secrets, everything=asked["send_packages"])
    except KeyboardInterrupt:
        follower.refresh()
        Console().detached(follower.run)
        raise
    except (HostError, LaunchError, SolveError) as error:
        later = f"resume it with 'mlw experiment resume {stored.id}', or cancel it with 'mlw cancel {stored.id}'"
        error.hint = f"{error.hint}; {later}" if error.hint else later
        raise
    return _finish(follower, asked, secrets)


def _planned(made: submission.Draft) -> dict[str, Any]:
    """What would be run: the spec; of a sweep with its children, as far as they differ."""
    spec = made.spec.to_json()
    if not made.children:
        return spec
    return {
        **spec,
        "children": [
            {"id": one.id, "name": one.name, "varied": one.varied, "command": one.commands[-1].argv}
            for one in made.children
        ],
    }


def _say_untried(made: submission.Draft) -> None:
    found = made.parts.settled.interpreter
    if made.parts.settled.lock["kind"] == "existing" and not any(found.version):
        render.message(f"note: {found.path} was not checked: a dry run starts no programs of the project")
    if "spark" in made.spec.companions:
        render.message("note: Spark and Java were not checked: a dry run starts no programs on the target")


def secrets_of(spec: RunSpec) -> dict[str, str]:
    """The values that travel beside the run, asked for if need be; the script gets those that it was promised."""
    secrets = {name: find_secret(name) for name in spec.secrets}
    if spec.container and spec.container.registry:
        from ..remote.engine import REGISTRY_PASSWORD  # noqa: PLC0415 - runs without a container need not wait for it

        registry = spec.container.registry
        secrets[REGISTRY_PASSWORD] = registry_password(registry["server"], registry["username"])
    return secrets


def put_to_work(
    history: History, spec: RunSpec, target: Target, secrets: dict[str, str], *, everything: bool = False
) -> Run:
    with render.Progress("upload") as progress:
        return submission.launch(history, spec, target, secrets, progress.report, everything=everything)


def _announce(spec: RunSpec) -> None:
    render.message(f"RunId: {spec.id}")
    if spec.sweep:
        drawn = f", drawn with --seed {spec.sweep['seed']}" if spec.sweep["seed"] is not None else ""
        runs = units.counted(len(spec.sweep["children"]), "run")
        render.message(f"sweep of {runs}: {', '.join(spec.sweep['axes'])}{drawn}")


def _go_on(history: History, run: Run, asked: dict[str, Any], request: Request) -> int:
    """A run with this key exists: put it to work if that was interrupted, and go on watching it."""
    if request.entry is not None and _words(request.entry) != _words(run.spec.entry):
        words = " ".join((run.spec.entry.name, *run.spec.entry.arguments))
        raise UsageError(f"key {request.key!r} belongs to run {run.id}, which ran: {words}", "use another key")
    axes = {axis.name: axis.text for axis in request.sweep.axes} if request.sweep else None
    if axes != (run.spec.sweep or {}).get("axes"):
        raise UsageError(
            f"key {request.key!r} belongs to run {run.id}, which has a different --sweep", "use another key"
        )
    _announce(run.spec)
    render.message(
        f"note: this key was submitted before ({units.age(time.time() - run.spec.created)}); showing that run"
    )
    while True:
        follower = resume(history, run)
        code = _finish(follower, asked, known_secrets(run))
        if follower.run.detail != INTERRUPTED:  # else the process that we relied on has died meanwhile
            return code


def _words(entry: Entry) -> tuple[str, ...]:
    return (entry.kind, os.path.basename(entry.name), *entry.arguments)


def known_secrets(run: Run) -> dict[str, str]:
    """The run's secrets as far as they can be had without asking, to mask them on the screen."""
    values, unknown = known_values(run.spec.secrets)
    for name in unknown:
        render.warn(f"secret {name} is not available here, so it cannot be masked in the output")
    return values


def resume(history: History, run: Run) -> Follower:
    """Follow a run; if its submit was interrupted before anybody claimed it, finish that submit."""
    target = open_target(run.spec.compute, history.paths)
    follower = Follower(history, run, target)
    if follower.refresh().detail == INTERRUPTED:
        if in_sweep(run):
            raise UsageError(
                f"run {run.id} is part of sweep {run.spec.parent}, whose submission was interrupted",
                f"mlw experiment resume {run.spec.parent}",
            )
        follower.run = put_to_work(history, run.spec, target, secrets_of(run.spec))
    return follower


def _finish(follower: Follower, asked: dict[str, Any], secrets: dict[str, str]) -> int:
    if not asked["wait"]:
        run = follower.refresh()
        if asked["output"] == "table" and not asked["query"]:
            if not (render.terminal(sys.stdout) and render.terminal(sys.stderr)):  # else RunId is on the screen already
                render.emit(run.id, output="tsv")
            hint_back(run)
        else:
            render.emit(record(run), output=asked["output"], query=asked["query"])
        return 0
    if asked["output"] == "table" and not asked["query"]:
        return _watch(follower, secrets)
    code = _watch(follower, secrets, sys.stderr)
    found = record(follower.run)
    if follower.run.spec.sweep:
        from ..history.children import children_of_sweep  # noqa: PLC0415 - other runs do without
        from .sweep import with_children  # noqa: PLC0415 - other runs do without

        found = with_children(follower.run, children_of_sweep(follower.history, follower.run.spec))
    render.emit(found, output=asked["output"], query=asked["query"])
    return code


def _watch(follower: Follower, secrets: dict[str, str], log_to: TextIO | None = None) -> int:
    code = watch(follower, secrets.values(), log_to=log_to)
    spec = follower.run.spec
    if spec.container and spec.container.libc and follower.run.ending == endings.COULD_NOT_START:
        from ..targets.images import forget  # noqa: PLC0415 - seldom needed

        forget(follower.target, spec.compute, follower.history.paths)
    return code


def _request(asked: dict[str, Any], history: History) -> Request:
    kind, words = asked["kind"], asked["words"]
    runconfig = asked["runconfig"]
    if kind == "script" and words and words[0].endswith((RUNCONFIG_SUFFIX, OLD_SUFFIX)):
        runconfig, words = _named_by_file(words, runconfig), ()
    if asked["locked"] and asked["upgrade"]:
        raise UsageError("--locked and --upgrade cannot be used together", "omit one of them")
    if kind != "script" and not words:
        raise UsageError("no command given after --" if kind == "command" else "no module given after -m")
    return Request(
        runconfig=runconfig,
        target=asked["target"],
        entry=Entry(kind, words[0], tuple(words[1:])) if words else None,
        environment=dict(_variable(text) for text in asked["variables"]),
        secrets=tuple(_name(name) for name in asked["secrets"]),
        timeout=_seconds(asked["timeout"]) if asked["timeout"] else None,
        key=_text("--key", asked["key"]),
        name=asked["name"],
        tags=tuple(asked["tags"]),
        user=user_name(),
        consents=asked_consents(asked["mounts"], asked["networks"]),
        locked=_lock_of(history.get(asked["locked"])) if asked["locked"] else None,
        upgrade=asked["upgrade"],
        allowed_builds=allow_builds(asked["allow_builds"], remember=not asked["dry_run"]),
        unchecked=asked["unchecked"],
        gpus=_gpus(asked["gpus"]),
        sweep=sweepwords.asked_sweep(asked),
    )


def _lock_of(run: Run) -> dict[str, Any] | None:
    if run.spec.origin is not None:
        raise UsageError(
            f"the environment of run {run.id} is not available: it was submitted from {run.spec.origin}",
            "choose a run that was submitted from this machine",
        )
    return run.spec.lock


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


def _text(option: str, value: str | None) -> str | None:
    if value is not None and not value.isprintable():
        raise UsageError(f"{option} contains unprintable characters", "use letters, digits, and punctuation")
    return value


def _gpus(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parse(text)
    except ValueError as error:
        raise UsageError(f"--gpus {text}: {error}", f"for example: {EXAMPLES}") from None
    return text.strip()


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise UsageError(f"{text!r} is not a valid variable name", "use letters, digits, and _")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--env {name} has no value", f"use --env {name}=VALUE, or --secret {name} to hide the value")
    return _name(name), value


def _seconds(text: str) -> float:
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]*)", text.replace(" ", ""))
    whole = "".join(number + unit for number, unit in parts) == text.replace(" ", "")
    whole = whole and (len(parts) == 1 or all(unit for _, unit in parts))  # what 1h30 means is anybody's guess
    seconds = sum(float(number) * _UNITS.get(unit, float("nan")) for number, unit in parts)
    if not whole or not seconds > 0:
        raise UsageError(f"--timeout: invalid duration {text!r}", "for example: 90, 90s, 15m, 2h, 1h30m, 7d")
    return seconds
