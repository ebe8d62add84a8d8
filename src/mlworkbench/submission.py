"""Steps of a submission: read the configuration, take the snapshot, plan, record, and launch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint_upload import plan_checkpoints, send_checkpoints
from .config.legacy_formats import apply_overrides
from .config.project_folder import Project, load_spark_dependencies
from .environments.selection import is_managed, select_environment
from .environments.selection_request import EnvironmentRequest, ResolvedEnvironment
from .errors import UnknownName, UsageError
from .frameworks.framework import Setting, framework_of
from .history.child_runs import children_of_sweep
from .history.run_folders import make_folder
from .history.run_ids import new_id
from .history.store import History, IdTaken
from .hosts.bundle import starter_name
from .model import Compute, Entry, JsonDict, Run, RunConfig, RunSpec, Snapshot
from .passed_variables import given_variables, pass_variables
from .paths import UserPaths, user_name
from .plan import Parts, plan, requested_gpus, shared_folder
from .process_plan import plan_processes
from .remote.shared.failpoint import failpoint
from .scheduler_plan import plan_scheduler
from .snapshot.take_snapshot import has_file, take
from .submission_checks import check_compatibility, check_launcher, check_resources, check_spark
from .submit_request import CheckedRequest, Request
from .targets.target import Target, UploadSource
from .targets.target_factory import open_target
from .targets.target_facts import TargetFacts, collect_target_facts

if TYPE_CHECKING:
    from .hosts.package_upload import Package
    from .preflight.finding import Finding

Progress = Callable[[int, int], None]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Draft:
    """A run that is planned but not yet recorded."""

    spec: RunSpec
    parts: Parts
    target: Target
    warnings: tuple[Finding, ...] = ()
    children: tuple[RunSpec, ...] = ()  # runs of a sweep

    def with_children(self) -> Draft:
        """Return the draft to record; for a sweep, with one child per point, all with new IDs."""
        sweep = self.parts.sweep
        if sweep is None:
            return self
        parent = self.spec.id
        children = tuple(_child(self, parent, point) for point in sweep.points)
        spec = replace(self.spec, sweep=sweep.to_json([child.id for child in children]))
        return replace(self, spec=spec, children=children)


def draft(
    project: Project,
    checked: CheckedRequest,
    paths: UserPaths,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    report: Report = lambda text: None,
) -> Draft:
    """Plan the run completely. Until this returns, only a snapshot is stored.

    ``dry_run``: start nothing that the project names or contains, and contact no machine in advance.
    """
    request = checked.request
    runconfig, compute = choose(project, request)
    framework = framework_of(runconfig)
    target = _open_target(compute, paths, warm=not dry_run)
    target_facts = collect_target_facts(target, compute, paths, detailed=is_managed(compute, runconfig))
    place = apply_consents(project, request, Place(runconfig, compute, target, target_facts))
    scheduler = plan_scheduler(request, runconfig, compute)
    warnings = () if dry_run else check_resources(request, runconfig, compute, target, scheduler, paths)
    entry = choose_entry(project, runconfig, request.entry)
    warnings += check_compatibility(project, runconfig, compute, place.target_facts, entry, stop=not request.unchecked)
    environment = resolve_environment(project, request, paths, place, report, dry_run=dry_run, lock=checked.lock)
    passed = pass_variables(project, request, runconfig, compute, paths, os.environ)
    setting = build_setting(project, request, entry, place, environment, passed.values)
    command = framework.make(setting)
    processes = plan_processes(request, setting, requested_gpus(request, setting, place.target_facts))
    if processes is not None:
        check_launcher(processes, setting, environment.path, target.host.ask, stop=not (request.unchecked or dry_run))
    if "spark" in command.companions:
        warnings += check_spark(setting, target.host.ask, stop=not (request.unchecked or dry_run))
    parts = Parts(
        project=project,
        command=command,
        setting=setting,
        environment=environment,
        snapshot=_snapshot(project, paths, entry, progress),
        request=request,
        target_facts=place.target_facts,
        starter=starter_name(target.type.starter),
        user=user_name(),
        sweep=checked.sweep,
        resumed=plan_checkpoints(checked.resumed, compute, paths, dry_run=dry_run),
        processes=processes,
        scheduler=scheduler,
        passed=passed,
    )
    key = full_key(project, request.key) if request.key else os.urandom(16).hex()
    return Draft(plan(parts, new_id(project.name), key, time.time()), parts, target, warnings).with_children()


def _open_target(compute: Compute, paths: UserPaths, *, warm: bool) -> Target:
    target = open_target(compute, paths)
    if warm:
        target.host.warm_up()
    return target


def _snapshot(project: Project, paths: UserPaths, entry: Entry, progress: Progress | None) -> Snapshot:
    """Take the snapshot. Raises an error if it does not contain the script."""
    snapshot = take(project.root, project.id, paths.root, paths.digests(project.id), progress)
    failpoint("snapshot")
    if entry.kind == "script" and not has_file(paths.root, snapshot.digest, entry.name):
        raise UsageError(
            f"{entry.name} is excluded by an ignore file",
            f"add the line !/{entry.name} to .mlwignore (.gitignore and .amlignore also apply)",
        )
    return snapshot


def _child(planned: Draft, parent: str, point: Mapping[str, str]) -> RunSpec:
    """Return one run of a sweep with its own parameter values."""
    from .sweep_axes import entry_of, name_of  # noqa: PLC0415 - few runs are sweeps

    parts = planned.parts
    setting = replace(parts.setting, entry=entry_of(parts.setting.entry, point))
    child_parts = replace(
        parts,
        command=framework_of(setting.runconfig).make(setting),
        setting=setting,
    )
    spec = plan(child_parts, new_id(planned.spec.project_name), os.urandom(16).hex(), planned.spec.created)
    return replace(spec, name=name_of(point), parent=parent, varied=dict(point))


@dataclass(frozen=True)
class Place:
    """The place where a run would execute: run configuration, target, and facts about the target."""

    runconfig: RunConfig
    compute: Compute
    target: Target
    target_facts: TargetFacts


def apply_consents(project: Project, request: Request, place: Place) -> Place:
    """Return ``place`` with the consents for this run. Raises an error if the container needs more."""
    if place.target_facts.engine is None:
        return place
    from .targets.consent_check import refuse_unallowed, with_consents  # noqa: PLC0415 - for containers only

    target_facts = with_consents(place.target.host, place.target_facts, request.consents)
    refuse_unallowed(place.compute, target_facts, shared_folder(target_facts, project), place.target.host)
    return replace(place, target_facts=target_facts)


def build_setting(
    project: Project,
    request: Request,
    entry: Entry,
    place: Place,
    environment: ResolvedEnvironment,
    passed: Mapping[str, str] | None = None,
) -> Setting:
    """Return the setting from which the command of a run is built."""
    host = place.target.host
    return Setting(
        entry=entry,
        python=_expand(environment.interpreter.path, place.target_facts.home),
        runconfig=place.runconfig,
        compute=place.compute,
        root=host.root,
        inrun=host.inrun(),
        lock=environment.lock,
        variables={**(passed or {}), **place.runconfig.environment_variables, **given_variables(request)},
        spark=load_spark_dependencies(project, place.runconfig),
    )


def resolve_environment(
    project: Project,
    request: Request,
    paths: UserPaths,
    place: Place,
    report: Report,
    *,
    dry_run: bool = False,
    lock: JsonDict | None = None,
) -> ResolvedEnvironment:
    """Resolve the environment completely. This may take a long time and use the network."""
    from .targets.image_libc import image_libc  # noqa: PLC0415 - for containers only

    return select_environment(
        EnvironmentRequest(
            root=project.root,
            runconfig=place.runconfig,
            compute=place.compute,
            paths=paths,
            environ=os.environ,
            target=lambda: place.target.host.root,
            facts=place.target_facts.facts,
            image_libc=image_libc(place.target, place.compute, place.target_facts, paths, known_only=dry_run),
            locked=lock,
            refresh=request.upgrade,
            allowed_builds=request.allowed_builds,
            dry_run=dry_run,
            tell=report,
        )
    )


def full_key(project: Project, key: str) -> str:
    """Return the idempotency key qualified by its project."""
    return f"{project.id}:{key}"


def record(history: History, planned: Draft) -> tuple[RunSpec, bool]:
    """Record the run before anything leaves this machine, or return a run with the same key."""
    while True:
        spec = planned.spec
        try:
            stored, new = history.add(spec, planned.children)
            break
        except IdTaken:
            again = plan(planned.parts, new_id(spec.project_name), spec.key, spec.created)
            planned = replace(planned, spec=again).with_children()
    if new and planned.parts.snapshot.git_diff:
        first = history.paths.root.run(stored.id).git_diff
        _write_private(first, planned.parts.snapshot.git_diff)
        for child in planned.children:
            path = history.paths.root.run(child.id).git_diff
            try:
                os.link(first, path)  # a sweep has thousands of children with the same code
            except OSError:
                _write_private(path, planned.parts.snapshot.git_diff)
    return stored, new


def _write_private(path: str, data: bytes) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)


def launch(
    history: History,
    spec: RunSpec,
    target: Target,
    secrets: Mapping[str, str],
    progress: Progress | None = None,
    *,
    everything: bool = False,
) -> Run:
    """Start a recorded run unless it has started. ``progress`` reports code and package uploads."""
    if spec.origin is not None:
        raise UsageError(
            f"run {spec.id} was submitted from {spec.origin}; it can only be viewed or canceled here",
            "to run it from here, submit the script with 'mlw submit'",
        )
    children = [run.spec for run in children_of_sweep(history, spec)]
    for run_spec in (spec, *children):
        make_folder(history.paths.root, run_spec)
    run = history.take_over(spec.id)
    failpoint("launching")
    send_checkpoints(spec, history.paths, target, progress)
    target.launch(spec, secrets, upload_source(history.paths, progress), everything, children)
    failpoint("launched-here")
    return run


def upload_source(paths: UserPaths, progress: Progress | None = None) -> UploadSource:
    """Return the code and packages that this machine can upload."""

    def packages(lock: Mapping[str, Any], lacking: Mapping[str, Any]) -> Mapping[str, Package]:
        from .environments.package_supply import collect_packages as find  # noqa: PLC0415 - seldom needed

        return find(lock, lacking, paths.root)

    return UploadSource(paths.root, packages, progress)


def choose(project: Project, request: Request) -> tuple[RunConfig, Compute]:
    """Return the run configuration and the target. The request may name one, both, or neither."""
    name = request.configuration
    if name is None:
        name = _default_runconfig(project, request.target)
    runconfig = project.runconfig(name)
    if request.target is not None:
        runconfig = replace(runconfig, target=request.target)
    compute = apply_overrides(project.compute(runconfig.target), runconfig.overrides)
    gpu_request = request.gpu_request or runconfig.gpus
    if gpu_request is not None:  # a request for GPUs implies a container with GPUs, and packages that support them
        compute = replace(compute, nvidia_docker=gpu_request != "none")
    return runconfig, compute


def _default_runconfig(project: Project, target: str | None) -> str:
    names = project.runconfigs()
    if target is not None:
        project.compute(target)  # raises an error if the target does not exist
        fitting = [name for name in names if name == target or project.runconfig(name).target == target]
        if fitting:
            return target if target in fitting else fitting[0]
    for name in ("local", *names) if len(names) == 1 or "local" in names else ():
        return name if name in names else names[0]
    raise UsageError(
        f"no run configuration specified; available: {', '.join(names) or 'none in aml_config'}",
        "for example: mlw submit -c NAME train.py",
    )


def choose_entry(project: Project, runconfig: RunConfig, requested: Entry | None) -> Entry:
    """Return what to run, from the command line or ArgumentVector. Scripts must be in the project."""
    entry = requested
    if entry is None:
        arguments = runconfig.argument_vector
        if not arguments or arguments[0] == "$file":
            raise UsageError(
                "no script specified",
                f"run 'mlw submit -c {runconfig.name} SCRIPT', or set ArgumentVector in "
                f"aml_config/{runconfig.name}.runconfig",
            )
        entry = Entry("script", arguments[0], tuple(arguments[1:]))
    if entry.kind != "script":
        return entry
    return replace(entry, name=_script(project, entry.name))


def _script(project: Project, name: str) -> str:
    """Return the path of the script relative to the project, however the user typed it."""
    typed = Path(name)
    if typed.suffix not in (".py", ".pyw", ".pyz", ".ipynb", ""):
        raise UsageError(f"{name} is not a Python script", f"run other commands after --: mlw submit -- ./{name}")
    places = [typed] if typed.is_absolute() else [project.root / typed, Path.cwd() / typed]
    for place in places:
        inside = os.path.relpath(os.path.abspath(place), project.root)
        if place.is_file() and not inside.startswith(".."):
            return Path(inside).as_posix()
    if any(place.is_file() for place in places):
        raise UsageError(
            f"{name} is outside the project {project.root}", "move it into the project: only project files are uploaded"
        )
    scripts = sorted(path.relative_to(project.root).as_posix() for path in project.root.glob("*.py"))
    raise UnknownName("script", name, scripts)


def _expand(path: str, home: str) -> str:
    """Expand ``~`` to the user's home folder on the target."""
    return home + path[1:] if path.startswith("~/") else path
