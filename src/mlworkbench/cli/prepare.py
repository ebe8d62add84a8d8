"""``mlw experiment prepare``: the environment, ahead of the run that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import submission
from ..config.project import Project
from ..environments.choose import is_managed
from ..environments.site import Settled
from ..frameworks.framework import framework_of
from ..model import Entry
from ..paths import UserPaths, user_paths
from ..request import Request
from ..runs.run_messages import BuildOutput
from ..runs.submitting import remember_builds
from ..targets.ground import survey
from ..targets.opening import open_target
from . import render
from .console import Console
from .headings import python_facts
from .options import (
    another_target,
    in_project,
    making_environments,
    rendering,
    run_configuration,
    the_project,
)

if TYPE_CHECKING:
    from ..model import JsonDict
    from ..prepare import Pull


@click.command(epilog="Example: mlw experiment prepare -c my_dsvm")
@run_configuration()
@another_target
@making_environments
@in_project
@rendering
def prepare(**asked: Any) -> None:
    """Build the environment of a run configuration.

    Installs the packages of the project if mlw manages the environment, and pulls the container image. Prints which
    Python scripts use. Ctrl-C does not stop the build.
    """
    here, paths = the_project(asked["folder"]), user_paths()
    request = Request(
        configuration=asked["runconfig"],
        target=asked["target"],
        upgrade=asked["upgrade"],
        allow_builds=asked["allow_builds"],
    )
    remember_builds(paths, request, Console())
    chosen, compute = submission.choose(here, request)
    framework_of(chosen)  # what a submit would refuse is refused here
    opened = open_target(compute, paths)
    ground = survey(
        opened, compute, paths, closely=is_managed(compute, chosen)
    )  # an engine that is missing is told now
    for one in submission.look_ahead(here, chosen, compute, ground, None, stop=not asked["unchecked"]):
        render.warn(str(one))
    place = submission.Place(chosen, compute, opened, ground)
    settled = submission.settle(here, request, paths, place, render.message)
    found = {
        "run_configuration": chosen.name,
        "target": compute.name,
        "environment": settled.lock["kind"],
        "python": settled.interpreter.path,
        "python_version": _version(settled),
        "python_because": settled.interpreter.reason,
    }
    managed = settled.lock["kind"] == "managed"
    pull = _image(place)
    if managed or pull:
        try:
            pack = managed and _packs(here, request, place, settled)
            _build(place, settled.lock if managed else None, pull, paths, asked["send_packages"], pack)
        except KeyboardInterrupt:
            render.message(f"\nthe build continues on {compute.name}; repeat the command to wait for it")
            raise
    if pull:
        found["image"] = pull.container["image"]
    if managed:
        found |= {"digest": settled.lock["digest"], "packages": len(settled.lock["conda"]) + len(settled.lock["pip"])}
    output, query = asked["output"], asked["query"]
    render.emit(python_facts(found, output, query), output=output, query=query)
    if not managed:
        there, what = (f"image {found['image']} is available; ", "of the image") if pull else ("", "of the machine")
        render.message(f"{there}nothing to build: target {compute.name} uses the Python {what}")


def _version(settled: Settled) -> str | None:
    return ".".join(map(str, settled.interpreter.version)) if any(settled.interpreter.version) else None


def _packs(project: Project, request: Request, place: submission.Place, settled: Settled) -> bool:
    """Whether a script of this run configuration would send its environment to the executors of a cluster."""
    setting = submission.setting_of(project, request, Entry("script", "any.py", ()), place, settled)
    made = framework_of(place.runconfig).make(setting)
    return bool(made.companions.get("spark", {}).get("pack"))


def _image(place: submission.Place) -> Pull | None:
    """What has to be there for a container; the password of its registry is asked for now."""
    if place.ground.engine is None:
        return None
    from ..prepare import image_of  # noqa: PLC0415 - other targets have none
    from ..secret import registry_password  # noqa: PLC0415

    return image_of(place.compute, place.ground, registry_password)


def _build(
    place: submission.Place, lock: JsonDict | None, pull: Pull | None, paths: UserPaths, everything: bool, pack: bool
) -> None:
    """``lock``: of an environment of ours; None: the image only."""
    from ..prepare import build_ahead  # noqa: PLC0415 - most targets have nothing to build

    wanted = lock or (pull.lock if pull else {})
    with render.Progress("packages") as progress:
        stock = submission.stock_of(paths, progress.report)
        build_ahead(
            place.target.host, wanted, pull, stock, BuildOutput(render.message).feed, everything=everything, pack=pack
        )
