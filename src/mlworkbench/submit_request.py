"""A request to submit a run: the same values on the command line, over HTTP, and in Python."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .container_consents import Consent, asked_consents
from .errors import UnknownName, UsageError
from .model import Entry, JsonDict, Run
from .remote.shared.gpu_request import EXAMPLES
from .remote.shared.gpu_request import parse as parse_gpus
from .remote.shared.process_launchers import LAUNCHERS, NONE, parse_process_count
from .remote.shared.retry_causes import CAUSES, MAX_RETRIES
from .retries import Retries, parse_duration

if TYPE_CHECKING:
    from .sweep_axes import Sweep


@dataclass(frozen=True)
class SweepOptions:
    """A sweep: one run per combination of values.

    ``axes`` are texts such as ``"lr=0.1,0.01"`` and ``"depth=2..8"``. The other fields correspond to the options of
    ``mlw experiment submit`` with the same names.
    """

    axes: Sequence[str]
    random: bool = False
    max_runs: int | None = None
    parallel: int | None = None
    seed: int | None = None
    metric: str | None = None
    goal: str | None = None  # "max" or "min"

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", _words("axes", self.axes))

    def plan(self) -> Sweep:
        """Return the sweep with its points; random points are drawn now."""
        from .sweep_axes import GRID, RANDOM, Sweep, plan_sweep, read_axis  # noqa: PLC0415

        seed = self.seed
        if seed is not None and not self.random:
            raise UsageError("--seed requires --random", "if --seed is an option of the script, put it before --sweep")
        if self.goal and not self.metric:
            raise UsageError("--goal requires --metric", "add --metric NAME")
        if self.random and seed is None:
            seed = int.from_bytes(os.urandom(4), "big")
        return plan_sweep(
            Sweep(
                tuple(read_axis(axis) for axis in self.axes),
                way=RANDOM if self.random else GRID,
                most=self.max_runs,
                parallel=self.parallel,
                seed=seed,
                metric=self.metric,
                goal=self.goal,
            )
        )


@dataclass(frozen=True)
class Request:
    """What to run, where, and how. The fields correspond to the options of ``mlw experiment submit``.

    Set at most one of ``script``, ``module``, and ``command``; without them, the run configuration names the script.

    - ``script``: path of a Python script in the project; ``module``: name for ``python -m``; ``command``: a program.
    - ``arguments``: list of arguments for it.
    - ``configuration``: run configuration (``aml_config/NAME.runconfig``).
    - ``target``: compute target; overrides the run configuration.
    - ``gpus``: exclusive GPUs: ``1``, ``"all"``, ``"free"``, ``"none"``, ``"0,2"``, ``"h200"``, ``"1:40g"``.
    - ``launcher``: program that starts several processes: ``"torchrun"``, ``"mpiexec"``, ``"accelerate"``, ``"none"``.
    - ``processes``: number of processes, or ``"gpu"`` for one per GPU.
    - ``name``, ``tags``: display name, and list of tags.
    - ``timeout``: time limit of the run in seconds, or a text such as ``"90s"``, ``"15m"``, ``"1h30m"``.
    - ``retries``: number of times to start the script again after a failure; ``retry_on``: list of failures
      (``"failed"``, ``"oom"``, ``"lost"``, …); ``retry_delay``: seconds, or a text such as ``"5m"``.
    - ``resume``: ID of a run whose checkpoints this run starts with.
    - ``key``: idempotency key; submitting the same key again returns the same run.
    - ``sweep``: a ``SweepOptions``: one run per combination of values.
    - ``environment``: environment variables. A value of None is read from your environment. Do not put secrets there.
    - ``secrets``: names of secrets, or a dict of names and values. A value of None is read from the environment or
      the keyring. Values are never stored.
    - ``locked``: ID of a run whose exact environment is used again.
    - ``upgrade``: re-resolve dependencies to their newest versions.
    - ``allow_builds``: source packages that may run their build scripts on this machine; saved in your settings.
    - ``send_packages``: upload all packages from this machine, for targets without internet access.
    - ``unchecked``: skip compatibility checks.
    - ``allow_mounts``, ``allow_networks``: folders that the container may mount, and networks that it may join.
    """

    script: str | None = None
    arguments: Sequence[str] = ()
    module: str | None = None
    command: str | None = None
    configuration: str | None = None
    target: str | None = None
    gpus: str | int | None = None
    launcher: str | None = None
    processes: str | int | None = None
    name: str | None = None
    tags: Sequence[str] = ()
    timeout: str | float | None = None
    retries: int | None = None
    retry_on: Sequence[str] = ()
    retry_delay: str | float | None = None
    resume: str | None = None
    key: str | None = None
    sweep: SweepOptions | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    secrets: Mapping[str, str | None] | Sequence[str] = field(default_factory=dict, repr=False)
    locked: str | None = None
    upgrade: bool = False
    allow_builds: Sequence[str] = ()
    send_packages: bool = False
    unchecked: bool = False
    allow_mounts: Sequence[str] = ()
    allow_networks: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("arguments", "tags", "retry_on", "allow_builds", "allow_mounts", "allow_networks"):
            object.__setattr__(self, name, _words(name, getattr(self, name)))

    @property
    def entry(self) -> Entry | None:
        """What to run; None if the run configuration decides."""
        for kind, name in (("script", self.script), ("module", self.module), ("command", self.command)):
            if name is not None:
                return Entry(kind, name, tuple(self.arguments))
        return None

    @property
    def secret_names(self) -> tuple[str, ...]:
        return tuple(self.secrets)

    @property
    def secret_values(self) -> dict[str, str]:
        """The secrets whose values the caller passed."""
        given = self.secrets if isinstance(self.secrets, Mapping) else {}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def consents(self) -> tuple[Consent, ...]:
        """Consents for the container of this run, besides those for its target."""
        return asked_consents(self.allow_mounts, self.allow_networks)

    @property
    def allowed_builds(self) -> frozenset[str]:
        """The packages of ``allow_builds`` by their normalized names."""
        if not self.allow_builds:
            return frozenset()
        from .user_settings import package_name  # noqa: PLC0415 - seldom given

        return frozenset(map(package_name, self.allow_builds))

    @property
    def gpu_request(self) -> str | None:
        """``gpus`` as a string."""
        return None if self.gpus is None else str(self.gpus).strip()

    @property
    def process_count(self) -> str | None:
        """``processes`` as a string, normalized."""
        return None if self.processes is None else parse_process_count(str(self.processes))

    @property
    def time_limit(self) -> float | None:
        """``timeout`` in seconds."""
        return None if self.timeout is None else _seconds("--timeout", self.timeout)

    def planned_retries(self, configured: Retries) -> Retries | None:
        """Return the retries, where options take precedence over the run configuration. None: no retries."""
        limit = configured.limit if self.retries is None else self.retries
        delay = configured.delay if self.retry_delay is None else _seconds("--retry-delay", self.retry_delay)
        return Retries(limit, tuple(self.retry_on) or configured.causes, delay) if limit else None

    def check(self) -> None:
        """Raise ``UsageError`` for values that are invalid in any project."""
        named = [name for name in (self.script, self.module, self.command) if name is not None]
        if len(named) > 1:
            raise UsageError("script, module, and command are mutually exclusive", "set one of them")
        if self.arguments and not named:
            raise UsageError("arguments require a script, module, or command", "set one of them")
        if self.locked and self.upgrade:
            raise UsageError("--locked and --upgrade cannot be used together", "omit one of them")
        for name in (*self.environment, *self.secrets):
            check_variable_name(name)
        _ = self.time_limit
        self._check_retries()
        if self.key is not None and not self.key.isprintable():
            raise UsageError("--key contains unprintable characters", "use letters, digits, and punctuation")
        _ = self.consents
        if self.gpus is not None:
            _check_gpus(str(self.gpus))
        _check_launcher(self.launcher, self.processes)

    def _check_retries(self) -> None:
        if self.retries is not None and not 0 <= self.retries <= MAX_RETRIES:
            raise UsageError(f"--retries must be from 0 to {MAX_RETRIES}, not {self.retries}")
        for cause in self.retry_on:
            if cause not in CAUSES:
                raise UnknownName("failure", cause, CAUSES)
        self.planned_retries(Retries())


@dataclass(frozen=True)
class CheckedRequest:
    """A valid request with the data that it refers to: the points of its sweep, and data of earlier runs."""

    request: Request
    sweep: Sweep | None = None
    lock: JsonDict | None = None
    resumed: Run | None = None


def check_variable_name(text: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise UsageError(f"{text!r} is not a valid variable name", "use letters, digits, and _")


def _check_gpus(text: str) -> None:
    try:
        parse_gpus(text)
    except ValueError as error:
        raise UsageError(f"--gpus {text}: {error}", f"for example: {EXAMPLES}") from None


def _check_launcher(launcher: str | None, processes: str | int | None) -> None:
    if launcher is not None and launcher not in (NONE, *LAUNCHERS):
        raise UnknownName("launcher", launcher, (NONE, *LAUNCHERS))
    try:
        parse_process_count(str(1 if processes is None else processes))
    except ValueError as error:
        raise UsageError(f"--processes: {error}", "for example: --processes 4") from None


def _words(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """Return the values as strings. Reject a single string, because it would be split into letters."""
    if isinstance(values, str):
        raise UsageError(f"{name} is a text, not a list", f"for example: {name}=[{values!r}]")
    return tuple(map(str, values))


def _seconds(option: str, duration: str | float) -> float:
    if not isinstance(duration, str) and 0 < duration < float("inf"):
        return float(duration)
    seconds = parse_duration(str(duration))
    if seconds is None:
        raise UsageError(f"{option}: invalid duration {str(duration)!r}", "for example: 90, 90s, 15m, 2h, 1h30m, 7d")
    return seconds
