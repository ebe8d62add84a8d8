"""Sweep options of ``submit``, which are accepted before and after the script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import UsageError
from ..submit_request import SweepOptions

Function = TypeVar("Function", bound=Callable[..., Any])

SWEEP = "--sweep"
_FLAGS = ("--random", "--grid")
_OPTIONS_WITH_VALUE = ("--max-runs", "--parallel", "--seed", "--metric", "--goal")
_PARAMETERS = ("max_runs", "parallel", "seed", "metric", "goal", "random")


def add_sweep_options(function: Function) -> Function:
    """Add the sweep options. Arguments must first pass through ``expand_axes``."""
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
                "--random/--grid", "random", default=None, help="Draw random values, or run all combinations (default)"
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


def end_of_axes(arguments: list[str], index: int) -> int:
    """Return the index after the ``NAME=VALUES`` arguments that start at ``index``."""
    from ..sweep_axes import AXIS_DEFINITION  # noqa: PLC0415 - only sweeps need it

    while index < len(arguments) and AXIS_DEFINITION.fullmatch(arguments[index]):
        index += 1
    return index


def expand_axes(arguments: list[str]) -> list[str]:
    """Turn ``--sweep a=1 b=2`` into ``--sweep a=1 --sweep b=2``, which click accepts."""
    expanded: list[str] = []
    index = 0
    while index < len(arguments):
        if arguments[index] != SWEEP:
            expanded.append(arguments[index])
            index += 1
            continue
        end = end_of_axes(arguments, index + 1)
        expanded += [item for axis in arguments[index + 1 : end] for item in (SWEEP, axis)] or [SWEEP]
        index = end
    return expanded


def extract_sweep_options(script_arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the script's arguments into sweep options and the rest.

    The sweep options start at the first ``--sweep NAME=VALUES``.
    """
    start = _find_first_sweep(script_arguments)
    if start is None:
        return [], script_arguments
    sweep_arguments: list[str] = []
    rest, index = script_arguments[:start], start
    while index < len(script_arguments):
        argument = script_arguments[index]
        name, equals, _ = argument.partition("=")
        if argument == "--":
            break
        if argument == SWEEP:
            end = end_of_axes(script_arguments, index + 1)
        elif name in _OPTIONS_WITH_VALUE and not equals:
            end = min(index + 2, len(script_arguments))
        else:
            end = index + 1
        is_sweep_option = (
            argument == SWEEP or argument in _FLAGS or name in _OPTIONS_WITH_VALUE or (name == SWEEP and equals)
        )
        (sweep_arguments if is_sweep_option else rest).extend(script_arguments[index:end])
        index = end
    return sweep_arguments, rest + script_arguments[index:]


def reject_mistyped(script_arguments: list[str]) -> None:
    """Raise if ``--sweep`` after the script has no values. Otherwise, the script would get the option."""
    for index, argument in enumerate(script_arguments[1:], 1):
        if argument == "--":
            return
        if argument == SWEEP and end_of_axes(script_arguments, index + 1) == index + 1:
            mistyped = " ".join(script_arguments[index : index + 2])
        elif argument.startswith(SWEEP + "=") and not end_of_axes([argument[len(SWEEP) + 1 :]], 0):
            mistyped = argument
        else:
            continue
        advice = "if --sweep is an option of the script: mlw submit -- python SCRIPT --sweep VALUE"
        raise UsageError(
            f"{mistyped} has no values", f"use --sweep NAME=VALUES, for example --sweep lr=0.1,0.01; {advice}"
        )


def _find_first_sweep(script_arguments: list[str]) -> int | None:
    for index, argument in enumerate(script_arguments[1:], 1):
        if argument == "--":
            return None
        if argument == SWEEP and end_of_axes(script_arguments, index + 1) > index + 1:
            return index
        if argument.startswith(SWEEP + "=") and end_of_axes([argument[len(SWEEP) + 1 :]], 0):
            return index
    return None


def parse_sweep(options: dict[str, Any]) -> SweepOptions | None:
    """Return the sweep that the options define, or None."""
    if not options["axes"]:
        given = next((name for name in _PARAMETERS if options[name] is not None), None)
        if given is not None:
            option = {"max_runs": "--max-runs"}.get(given, f"--{given}")
            raise UsageError(f"{option} requires --sweep", "for example: --sweep lr=0.1,0.01")
        return None
    sweep_settings = {name: options[name] for name in ("max_runs", "parallel", "seed", "metric", "goal")}
    return SweepOptions(options["axes"], random=bool(options["random"]), **sweep_settings)
