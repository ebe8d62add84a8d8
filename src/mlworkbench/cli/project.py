"""``mlw project …``: create, show, check; templates; schemas."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config.gallery import samples
from ..config.project import Project, adopt_folder, create_project
from ..config.schema import KINDS, schema_text
from ..config.validation import validate_project
from ..environments.existing import locate_python, look_at_python
from ..errors import ConfigError, MlwError, UsageError
from ..model import Problem
from ..paths import UserPaths, user_paths
from ..targets.types import is_local_process
from . import render
from .headings import python_facts
from .options import debugging, in_project, rendering, the_project
from .verbs import Verbs

if TYPE_CHECKING:
    from ..environments.dependency_import import Imported

_MOST_NAMED, _MOST_LEFT = 12, 20  # in messages
_VERBS = {
    "link": ("project_id:link", "Share the data of the project with this ID"),
    "new-id": ("project_id:new_id", "Give the project a new ID"),
    "doctor": ("doctor:doctor", "Check packages and scripts against the targets"),
    "restore": ("restore:restore", "Restore the code of a run"),
}


@click.group(cls=Verbs, verbs=_VERBS, epilog="Example: mlw project create demo")
def project() -> None:
    """Create, show, and check projects."""


def _unneeded(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """What the original wanted to know of its cloud, so that its tutorials can be followed to the letter."""
    if value is not None:
        render.message(f"hint: {parameter.opts[-1]} is ignored; a project is a folder on this machine")


def _no_clone(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        hint = "clone it with git, then run 'mlw project init --path FOLDER'"
        raise UsageError(f"{parameter.opts[-1]} is not supported: mlw does not clone repositories", hint)


@project.command(epilog="Example: mlw project create demo")
@click.argument("name", required=False)
@click.option("-n", "--name", "named", metavar="NAME", help="Same as the argument NAME")
@click.option("--path", default=".", metavar="PARENT", help="Parent of the project folder; created if missing")
@click.option("--template", default="default", show_default=True, help="Template; see 'mlw project sample list'")
@click.option("-w", "--workspace", hidden=True, expose_value=False, callback=_unneeded)
@click.option("-a", "--account", hidden=True, expose_value=False, callback=_unneeded)
@click.option("-g", "--resource-group", hidden=True, expose_value=False, callback=_unneeded)
@click.option("-r", "--repo", hidden=True, expose_value=False, callback=_no_clone)
@click.option("-u", "--template-url", hidden=True, expose_value=False, callback=_no_clone)
@debugging
def create(name: str | None, named: str | None, path: str, template: str) -> None:
    """Create a project in a new folder.

    NAME is the name of the project and of its folder.
    """
    if name and named and name != named:
        raise UsageError(f"two project names: {name} and {named}", "remove one of them")
    chosen = name or named
    if not chosen:
        raise UsageError("missing project name", "run 'mlw project create NAME'")
    made = create_project(chosen, Path(path), template)
    render.message(f"created project {made.name} in {made.root}")
    render.message(f"hint: run it with: cd {os.path.relpath(made.root)} && mlw submit {made.script()}")


@project.command(epilog="Example: mlw project init --path my-code")
@click.option("-n", "--name", help="Name of the project (default: the name of the folder)")
@click.option("--path", default=".", metavar="FOLDER", help="Folder (default: the current directory)")
@debugging
def init(name: str | None, path: str) -> None:
    """Turn an existing folder into a project.

    Adds aml_config and changes no existing file. Copies the packages from the first of conda_dependencies.yml,
    environment.yml, requirements.txt, and pyproject.toml that lists any to aml_config/conda_dependencies.yml.
    """
    from ..environments.dependency_import import import_dependencies  # noqa: PLC0415 - other commands need not wait

    imported = import_dependencies(Path(os.path.realpath(path)))
    taken = imported if imported and imported.packages else None
    made = adopt_folder(Path(path), name, dependencies=taken.rewrite if taken else None)
    render.message(f"created project {made.name} in {made.root}; its settings are in aml_config")
    if imported:
        _report_imported(imported)
    words = made.runconfig("local").argument_vector
    render.message(f"hint: run a script with 'mlw submit {words[0] if words else 'SCRIPT'}'")


def _report_imported(imported: Imported) -> None:
    count = len(imported.packages)
    names = ", ".join([*imported.packages[:_MOST_NAMED], *(["…"] if count > _MOST_NAMED else [])])
    if count:
        render.message(f"copied from {imported.file} to aml_config/conda_dependencies.yml: {names}")
    else:
        render.message(f"no packages copied from {imported.file}")
    if imported.channels:
        render.message(f"channels of {imported.file}: {', '.join(imported.channels)}")
    for one in imported.left_out[:_MOST_LEFT]:
        render.warn(f"not copied: {one}")
    if len(imported.left_out) > _MOST_LEFT:
        render.warn(f"not copied: {len(imported.left_out) - _MOST_LEFT} more entries of {imported.file}")


@project.command(epilog="Example: mlw project show -o json")
@in_project
@rendering
def show(folder: str | None, output: str, query: str | None) -> None:
    """Show the project, its targets, and run configurations.

    Also shows which Python runs its scripts on this machine.
    """
    here = the_project(folder)
    facts = {
        "name": here.name,
        "id": here.id,
        "folder": str(here.root),
        "targets": here.computes(),
        "run_configurations": here.runconfigs(),
        **_interpreter(here, user_paths()),
    }
    render.emit(python_facts(facts, output, query), output=output, query=query)


def _interpreter(here: Project, paths: UserPaths) -> dict[str, str | None]:
    """The Python of ``local``, or why there is none: showing a project must not fail for it."""
    try:
        location = here.compute("local").python_location if "local" in here.computes() else None
        found = look_at_python(location, os.environ, here.root, paths.interpreters)
    except MlwError as error:
        return {"python": None, "python_problem": error.message}
    version = ".".join(map(str, found.version)) if any(found.version) else None
    return {"python": found.path, "python_version": version, "python_because": found.reason}


def _python_problems(here: Project) -> list[Problem]:
    """Whether the Python of a local target is where the file says; it is not run."""
    problems = []
    for name in here.computes():
        try:
            compute = here.compute(name)
            if is_local_process(compute):
                locate_python(compute.python_location, os.environ, here.root)
        except MlwError as error:
            if not isinstance(error, ConfigError) or error.line is None:  # else the file's own problems say it
                place = f"aml_config/{name}.compute"
                problems.append(Problem(place, None, "error", error.message, error.hint))
    return problems


def _package_problems(here: Project) -> list[Problem]:
    """Packages that cannot be installed, whatever the machine; ``doctor`` knows more of it."""
    from .doctor import look  # noqa: PLC0415 - creating a project need not wait for it

    return [one.problem() for one in look(here) if one.rule != "file"]  # what cannot be read was said already


@project.command(epilog="Example: mlw project validate")
@in_project
@rendering
def validate(folder: str | None, output: str, query: str | None) -> int:
    """Check all files in aml_config.

    Exits with 1 if there is an error.
    """
    here = the_project(folder)
    problems = [*validate_project(here), *_python_problems(here), *_package_problems(here)]
    rows = [
        {"severity": one.severity, "file": one.path, "line": one.line, "message": one.message, "hint": one.hint}
        for one in problems
    ]
    render.emit(rows, output=output, query=query)
    if not rows:
        render.message("no problems found")
    return int(any(one.severity == "error" for one in problems))


@project.group(cls=Verbs, epilog="Example: mlw project sample list")
def sample() -> None:
    """List templates for new projects."""


@sample.command("list", epilog="Example: mlw project sample list")
@rendering
def list_samples(output: str, query: str | None) -> None:
    """List the project templates."""
    rows = [{"name": one.name, "description": one.description()} for one in samples()]
    render.emit(rows, output=output, query=query, columns={"name": "Name", "description": "Description"})


@project.command(epilog="Example: mlw project schema runconfig > runconfig.schema.json")
@click.argument("kind", type=click.Choice(KINDS))
@debugging
def schema(kind: str) -> None:
    """Print the JSON Schema of a project file.

    For editors and other programs.
    """
    render.pour(schema_text(kind).encode())
