"""``mlw experiment prepare``: build the environment before a run needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import submission, submission_checks
from ..config.project_folder import Project
from ..environments.selection import is_managed
from ..environments.selection_request import ResolvedEnvironment
from ..frameworks.framework import framework_of
from ..model import Entry
from ..paths import UserPaths, user_paths
from ..runs.run_messages import BuildOutput
from ..runs.submitting import remember_builds
from ..submit_request import Request
from ..targets.target_factory import open_target
from ..targets.target_facts import collect_target_facts
from . import render
from .headings import python_facts
from .options import (
    environment_options,
    get_project,
    project_option,
    result_options,
    run_configuration_option,
    target_option,
)
from .submission_console import Console

if TYPE_CHECKING:
    from ..environment_builds import Pull
    from ..model import JsonDict


@click.command(epilog="Example: mlw experiment prepare -c my_dsvm")
@run_configuration_option()
@target_option
@environment_options
@project_option
@result_options
def prepare(**options: Any) -> None:
    """Build the environment of a run configuration.

    Installs the packages of the project if mlw manages the environment, and pulls the container image. Prints which
    Python scripts use. Ctrl-C does not stop the build.
    """
    project, paths = get_project(options["folder"]), user_paths()
    request = Request(
        configuration=options["runconfig"],
        target=options["target"],
        upgrade=options["upgrade"],
        allow_builds=options["allow_builds"],
    )
    remember_builds(paths, request, Console())
    chosen, compute = submission.choose(project, request)
    framework_of(chosen)  # raises if the framework does not exist
    opened = open_target(compute, paths)
    # Raises if an engine is missing.
    target_facts = collect_target_facts(opened, compute, paths, detailed=is_managed(compute, chosen))
    for finding in submission_checks.check_compatibility(
        project, chosen, compute, target_facts, None, stop=not options["unchecked"]
    ):
        render.warn(str(finding))
    place = submission.Place(chosen, compute, opened, target_facts)
    environment = submission.resolve_environment(project, request, paths, place, render.message)
    facts = {
        "run_configuration": chosen.name,
        "target": compute.name,
        "environment": environment.lock["kind"],
        "python": environment.interpreter.path,
        "python_version": _format_version(environment),
        "python_because": environment.interpreter.reason,
    }
    lock, managed = environment.lock, environment.lock["kind"] == "managed"
    pull = _find_image(place)
    if managed or pull:
        try:
            packs = managed and _packs_environment(project, request, place, environment)
            _build(place, lock if managed else None, pull, paths, options["send_packages"], packs)
        except KeyboardInterrupt:
            render.message(f"\nthe build continues on {compute.name}; repeat the command to wait for it")
            raise
    if pull:
        facts["image"] = pull.container["image"]
    if managed:
        facts |= {"digest": lock["digest"], "packages": len(lock["conda"]) + len(lock["pip"])}
    output, query = options["output"], options["query"]
    render.emit(python_facts(facts, output, query), output=output, query=query)
    if not managed:
        _report_nothing_to_build(compute.name, facts.get("image"))


def _report_nothing_to_build(target: str, image: str | None) -> None:
    available, owner = (f"image {image} is available; ", "of the image") if image else ("", "of the machine")
    render.message(f"{available}nothing to build: target {target} uses the Python {owner}")


def _format_version(environment: ResolvedEnvironment) -> str | None:
    return ".".join(map(str, environment.interpreter.version)) if any(environment.interpreter.version) else None


def _packs_environment(
    project: Project, request: Request, place: submission.Place, environment: ResolvedEnvironment
) -> bool:
    """Return whether scripts of this run configuration send their environment to Spark executors."""
    setting = submission.build_setting(project, request, Entry("script", "any.py", ()), place, environment)
    plan = framework_of(place.runconfig).make(setting)
    return bool(plan.companions.get("spark", {}).get("pack"))


def _find_image(place: submission.Place) -> Pull | None:
    """Return the image that a container needs. Prompt for the registry password if required."""
    if place.target_facts.engine is None:
        return None
    from ..environment_builds import image_of  # noqa: PLC0415 - only container targets need it
    from ..secret_sources import registry_password  # noqa: PLC0415

    return image_of(place.compute, place.target_facts, registry_password)


def _build(
    place: submission.Place, lock: JsonDict | None, pull: Pull | None, paths: UserPaths, everything: bool, pack: bool
) -> None:
    """Build the environment described by ``lock``. Without a lock, only pull the image."""
    from ..environment_builds import build_in_advance  # noqa: PLC0415 - most targets have nothing to build

    required = lock or (pull.lock if pull else {})
    with render.Progress("packages") as progress:
        store = submission.upload_source(paths, progress.report)
        build_in_advance(
            place.target.host, required, pull, store, BuildOutput(render.message).feed, everything=everything, pack=pack
        )
