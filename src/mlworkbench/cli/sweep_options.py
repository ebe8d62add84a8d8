"""The words of a sweep on the command line of ``submit``: which are ours, wherever the script stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import UsageError
from ..request import SweepOptions

Function = TypeVar("Function", bound=Callable[..., Any])

SWEEP = "--sweep"
_FLAGS = ("--random", "--grid")
_VALUED = ("--max-runs", "--parallel", "--seed", "--metric", "--goal")
_WORDS = ("max_runs", "parallel", "seed", "metric", "goal", "drawn")


def sweeping(function: Function) -> Function:
    """The options. ``--sweep`` takes several words, which ``expand`` makes several options of."""
    for option in reversed(
        (
            click.option(
                SWEEP,
                "axes",
                multiple=True,
                metavar="NAME=VALUES...",
                help="Run once per combination of values: lr=0.1,0.01 depth=2..8; also accepted after the script",
            ),
            click.option(
                "--random/--grid", "drawn", default=None, help="Draw random values, or run all combinations (default)"
            ),
            click.option("--max-runs", type=click.IntRange(min=1), metavar="N", help="Maximum number of runs"),
            click.option(
                "--parallel",
                type=click.IntRange(min=1),
                metavar="N",
                help="Maximum runs in parallel (default: 1; with --gpus N, as many as the GPUs allow)",
            ),
            click.option("--seed", type=int, metavar="N", help="Random seed; the same seed draws the same values"),
            click.option("--metric", metavar="NAME", help="Metric that ranks the runs"),
            click.option("--goal", type=click.Choice(["max", "min"]), help="Whether higher or lower values are better"),
        )
    ):
        function = option(function)
    return function


def after_axes(words: list[str], index: int) -> int:
    """Where the NAME=VALUES words end that begin at ``index``."""
    from ..sweep import WORD  # noqa: PLC0415 - most submits are no sweeps

    while index < len(words) and WORD.fullmatch(words[index]):
        index += 1
    return index


def expand(words: list[str]) -> list[str]:
    """``--sweep a=1 b=2`` → ``--sweep a=1 --sweep b=2``, which click understands."""
    found: list[str] = []
    index = 0
    while index < len(words):
        if words[index] != SWEEP:
            found.append(words[index])
            index += 1
            continue
        end = after_axes(words, index + 1)
        found += [one for word in words[index + 1 : end] for one in (SWEEP, word)] or [SWEEP]
        index = end
    return found


def pick(theirs: list[str]) -> tuple[list[str], list[str]]:
    """What of the words from the script on is ours: from the first ``--sweep NAME=VALUES`` on; and the rest."""
    begin = _first_sweep(theirs)
    if begin is None:
        return [], theirs
    ours: list[str] = []
    rest, index = theirs[:begin], begin
    while index < len(theirs):
        word = theirs[index]
        name, equals, _ = word.partition("=")
        if word == "--":
            break
        if word == SWEEP:
            end = after_axes(theirs, index + 1)
        elif name in _VALUED and not equals:
            end = min(index + 2, len(theirs))
        else:
            end = index + 1
        mine = word == SWEEP or word in _FLAGS or name in _VALUED or (name == SWEEP and equals)
        (ours if mine else rest).extend(theirs[index:end])
        index = end
    return ours, rest + theirs[index:]


def refuse_mistyped(theirs: list[str]) -> None:
    """A ``--sweep`` behind the script that names no values is a mistake: as the script's own it would only fail."""
    for index, word in enumerate(theirs[1:], 1):
        if word == "--":
            return
        if word == SWEEP and after_axes(theirs, index + 1) == index + 1:
            wrong = " ".join(theirs[index : index + 2])
        elif word.startswith(SWEEP + "=") and not after_axes([word[len(SWEEP) + 1 :]], 0):
            wrong = word
        else:
            continue
        own = "if --sweep is an option of the script: mlw submit -- python SCRIPT --sweep VALUE"
        raise UsageError(f"{wrong} has no values", f"use --sweep NAME=VALUES, for example --sweep lr=0.1,0.01; {own}")


def _first_sweep(theirs: list[str]) -> int | None:
    for index, word in enumerate(theirs[1:], 1):
        if word == "--":
            return None
        if word == SWEEP and after_axes(theirs, index + 1) > index + 1:
            return index
        if word.startswith(SWEEP + "=") and after_axes([word[len(SWEEP) + 1 :]], 0):
            return index
    return None


def asked_sweep(asked: dict[str, Any]) -> SweepOptions | None:
    """The sweep that the options ask for; None if they ask for none."""
    if not asked["axes"]:
        given = next((name for name in _WORDS if asked[name] is not None), None)
        if given is not None:
            option = {"drawn": "--random", "max_runs": "--max-runs"}.get(given, f"--{given}")
            raise UsageError(f"{option} requires --sweep", "for example: --sweep lr=0.1,0.01")
        return None
    options = {name: asked[name] for name in ("max_runs", "parallel", "seed", "metric", "goal")}
    return SweepOptions(asked["axes"], random=bool(asked["drawn"]), **options)
