"""The whole of a submit: read the files, take the snapshot, plan, record, launch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config.dialects import override
from .config.project import Project, spark_dependencies
from .environments.choose import is_managed, settle_environment
from .environments.site import Settled, Site
from .errors import PreflightError, UnknownName, UsageError
from .frameworks.framework import Setting, framework_of
from .history.children import children_of_sweep
from .history.folders import make_folder
from .history.names import new_id
from .history.store import History, IdTaken
from .hosts.library import starter_name
from .model import Compute, Entry, JsonDict, Run, RunConfig, RunSpec, Snapshot
from .paths import UserPaths, user_name
from .plan import Parts, plan, shared_folder
from .remote.shared.failpoint import failpoint
from .request import CheckedRequest, Request
from .snapshot.take import holds, take
from .sweep import entry_of, name_of
from .targets.ground import Ground, survey
from .targets.opening import open_target
from .targets.target import Stock, Target
from .targets.types import Feature

if TYPE_CHECKING:
    from .hosts.parcel import Package
    from .preflight.finding import Finding

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Draft:
    """A run that was planned and not yet recorded."""

    spec: RunSpec
    parts: Parts
    target: Target
    warnings: tuple[Finding, ...] = ()
    children: tuple[RunSpec, ...] = ()  # of a sweep

    def with_children(self) -> Draft:
        """A sweep as its parent and one run for each point, all under new ids; other runs as they are."""
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
    tell: Tell = lambda text: None,
) -> Draft:
    """Decide everything about the run. Nothing has happened when this returns, but for a snapshot in the store.

    ``dry_run``: nothing that the project names or holds is started, and no machine is called ahead of its use.
    """
    request = checked.request
    runconfig, compute = choose(project, request)
    framework = framework_of(runconfig)
    target = _opened(compute, paths, warm=not dry_run)
    ground = survey(target, compute, paths, closely=is_managed(compute, runconfig))
    place = grant(project, request, Place(runconfig, compute, target, ground))
    look_for_gpus(request, runconfig, compute, target, stop=not request.unchecked and not dry_run)
    entry = choose_entry(project, runconfig, request.entry)
    warnings = look_ahead(project, runconfig, compute, place.ground, entry, stop=not request.unchecked)
    settled = settle(project, request, paths, place, tell, dry_run=dry_run, lock=checked.lock)
    setting = setting_of(project, request, entry, place, settled)
    made = framework.make(setting)
    if "spark" in made.companions:
        warnings += look_for_spark(setting, target.host.ask, stop=not request.unchecked and not dry_run)
    parts = Parts(
        project=project,
        made=made,
        setting=setting,
        settled=settled,
        snapshot=_snapshot(project, paths, entry, progress),
        request=request,
        ground=place.ground,
        starter=starter_name(target.type.starter),
        user=user_name(),
        sweep=checked.sweep,
    )
    key = full_key(project, request.key) if request.key else os.urandom(16).hex()
    return Draft(plan(parts, new_id(project.name), key, time.time()), parts, target, warnings).with_children()


def _opened(compute: Compute, paths: UserPaths, *, warm: bool) -> Target:
    target = open_target(compute, paths)
    if warm:
        target.host.warm_up()
    return target


def _snapshot(project: Project, paths: UserPaths, entry: Entry, progress: Progress | None) -> Snapshot:
    """Take the snapshot; an error if the script is not in it."""
    snapshot = take(project.root, project.id, paths.root, paths.digests(project.id), progress)
    failpoint("snapshot")
    if entry.kind == "script" and not holds(paths.root, snapshot.digest, entry.name):
        raise UsageError(
            f"{entry.name} is excluded by an ignore file",
            f"add the line !/{entry.name} to .mlwignore (.gitignore and .amlignore also apply)",
        )
    return snapshot


def _child(made: Draft, parent: str, point: Mapping[str, str]) -> RunSpec:
    """One run of a sweep: decided as every other, but for the values that it gets."""
    parts = made.parts
    setting = replace(parts.setting, entry=entry_of(parts.setting.entry, point))
    own = replace(
        parts,
        made=framework_of(setting.runconfig).make(setting),
        setting=setting,
    )
    spec = plan(own, new_id(made.spec.project_name), os.urandom(16).hex(), made.spec.created)
    return replace(spec, name=name_of(point), parent=parent, varied=dict(point))


@dataclass(frozen=True)
class Place:
    """Where a run would be, and how."""

    runconfig: RunConfig
    compute: Compute
    target: Target
    ground: Ground


def grant(project: Project, request: Request, place: Place) -> Place:
    """The place with the consents of this run; an error if the container needs more than was allowed."""
    if place.ground.engine is None:
        return place
    from .targets.consent import refuse_unallowed, with_consents  # noqa: PLC0415 - for containers only

    ground = with_consents(place.target.host, place.ground, request.consents)
    refuse_unallowed(place.compute, ground, shared_folder(ground, project), place.target.host)
    return replace(place, ground=ground)


def setting_of(project: Project, request: Request, entry: Entry, place: Place, settled: Settled) -> Setting:
    """What the command of a run is made from."""
    host = place.target.host
    return Setting(
        entry=entry,
        python=_expand(settled.interpreter.path, place.ground.home),
        runconfig=place.runconfig,
        compute=place.compute,
        root=host.root,
        inrun=host.inrun(),
        lock=settled.lock,
        variables={**place.runconfig.environment_variables, **request.environment},
        spark=spark_dependencies(project, place.runconfig),
    )


def settle(
    project: Project,
    request: Request,
    paths: UserPaths,
    place: Place,
    tell: Tell,
    *,
    dry_run: bool = False,
    lock: JsonDict | None = None,
) -> Settled:
    """The environment, to the last version; solving it may take its time and the network."""
    from .targets.images import image_libc  # noqa: PLC0415 - for containers only

    return settle_environment(
        Site(
            root=project.root,
            runconfig=place.runconfig,
            compute=place.compute,
            paths=paths,
            environ=os.environ,
            target=lambda: place.target.host.root,
            facts=place.ground.facts,
            image_libc=image_libc(place.target, place.compute, place.ground, paths, known_only=dry_run),
            locked=lock,
            refresh=request.upgrade,
            allowed_builds=request.allowed_builds,
            dry_run=dry_run,
            tell=tell,
        )
    )


def look_for_gpus(request: Request, runconfig: RunConfig, compute: Compute, target: Target, *, stop: bool) -> None:
    """GPUs that the target does not have are an error before anything is recorded."""
    asked = request.gpu_request or runconfig.gpus
    if not stop or asked is None or not target.type.has(Feature.GPU_LEASES):  # they are not the host's
        return
    from .targets.gpurequest import refuse_unmatched  # noqa: PLC0415 - most runs ask for none

    refuse_unmatched(asked, compute.name, target.host)


def look_for_spark(setting: Setting, ask: Callable[[JsonDict], JsonDict], *, stop: bool) -> tuple[Finding, ...]:
    """A Spark that is not there is told before anything travels; what else is odd is returned."""
    from .preflight.spark import missing, warnings  # noqa: PLC0415 - for PySpark only

    problem = missing(setting, ask) if stop else None
    if problem is not None:
        raise PreflightError(problem.message, problem.hint, more="no-spark")
    return warnings(setting)


def look_ahead(
    project: Project, runconfig: RunConfig, compute: Compute, ground: Ground, entry: Entry | None, *, stop: bool
) -> tuple[Finding, ...]:
    """What cannot work there, found before anything travels: errors stop the run, the rest is returned."""
    from .preflight.check import preflight  # noqa: PLC0415 - few other commands need it

    found = preflight(project, runconfig, compute, ground.facts or None, entry, managed=is_managed(compute, runconfig))
    errors = [one for one in found if one.severity == "error"]
    if errors and stop:
        lines = [f"  {one}\n    hint: {one.hint}" for one in errors]
        raise PreflightError(
            "preflight checks failed for " + compute.name + ":\n" + "\n".join(lines),
            ("mlw project doctor --fix applies the suggested fixes; " if any(one.fix for one in errors) else "")
            + "--unchecked submits anyway",
            more="cannot-work-there",
        )
    return tuple(found)


def full_key(project: Project, key: str) -> str:
    """A submit key belongs to its project."""
    return f"{project.id}:{key}"


def record(history: History, made: Draft) -> tuple[RunSpec, bool]:
    """Write the run down before anything leaves this machine; an older run with the same key is that run."""
    while True:
        spec = made.spec
        try:
            stored, new = history.add(spec, made.children)
            break
        except IdTaken:
            again = plan(made.parts, new_id(spec.project_name), spec.key, spec.created)
            made = replace(made, spec=again).with_children()
    if new and made.parts.snapshot.git_diff:
        first = history.paths.root.run(stored.id).git_diff
        _write_private(first, made.parts.snapshot.git_diff)
        for child in made.children:
            path = history.paths.root.run(child.id).git_diff
            try:
                os.link(first, path)  # a sweep has thousands of children, and their code is the same
            except OSError:
                _write_private(path, made.parts.snapshot.git_diff)
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
    """Put a recorded run to work. Harmless if it already is. ``progress`` is of the code and packages that travel."""
    if spec.origin is not None:
        raise UsageError(
            f"run {spec.id} was submitted from {spec.origin}; it can only be viewed or canceled here",
            "to run it from here, submit the script with 'mlw submit'",
        )
    children = [run.spec for run in children_of_sweep(history, spec)]
    for one in (spec, *children):
        make_folder(history.paths.root, one)
    run = history.take_over(spec.id)
    failpoint("launching")
    target.launch(spec, secrets, stock_of(history.paths, progress), everything, children)
    failpoint("launched-here")
    return run


def stock_of(paths: UserPaths, progress: Progress | None = None) -> Stock:
    """What can be sent from here: code, and packages."""

    def packages(lock: Mapping[str, Any], lacking: Mapping[str, Any]) -> Mapping[str, Package]:
        from .environments.supply import packages as find  # noqa: PLC0415 - few submits have packages to send

        return find(lock, lacking, paths.root)

    return Stock(paths.root, packages, progress)


def choose(project: Project, request: Request) -> tuple[RunConfig, Compute]:
    """Run configuration and target, from what was named: either, both or none of them."""
    name = request.configuration
    if name is None:
        name = _default_runconfig(project, request.target)
    runconfig = project.runconfig(name)
    if request.target is not None:
        runconfig = replace(runconfig, target=request.target)
    compute = override(project.compute(runconfig.target), runconfig.overrides)
    asked = request.gpu_request or runconfig.gpus
    if asked is not None:  # whoever asks for GPUs means a container with them, and packages that can use them
        compute = replace(compute, nvidia_docker=asked != "none")
    return runconfig, compute


def _default_runconfig(project: Project, target: str | None) -> str:
    names = project.runconfigs()
    if target is not None:
        project.compute(target)  # an unknown target is the clearer complaint
        fitting = [name for name in names if name == target or project.runconfig(name).target == target]
        if fitting:
            return target if target in fitting else fitting[0]
    for name in ("local", *names) if len(names) == 1 or "local" in names else ():
        return name if name in names else names[0]
    raise UsageError(
        f"no run configuration specified; available: {', '.join(names) or 'none in aml_config'}",
        "for example: mlw submit -c NAME train.py",
    )


def choose_entry(project: Project, runconfig: RunConfig, asked: Entry | None) -> Entry:
    """What to run: from the command line, else from ArgumentVector. A script must be in the project."""
    entry = asked
    if entry is None:
        words = runconfig.argument_vector
        if not words or words[0] == "$file":
            raise UsageError(
                "no script specified",
                f"run 'mlw submit -c {runconfig.name} SCRIPT', or set ArgumentVector in "
                f"aml_config/{runconfig.name}.runconfig",
            )
        entry = Entry("script", words[0], tuple(words[1:]))
    if entry.kind != "script":
        return entry
    return replace(entry, name=_script(project, entry.name))


def _script(project: Project, name: str) -> str:
    """The script's path relative to the project, whichever way it was typed."""
    typed = Path(name)
    if typed.suffix not in (".py", ".pyw", ".pyz", ""):
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
    """~ is the home of the user on the target."""
    return home + path[1:] if path.startswith("~/") else path
