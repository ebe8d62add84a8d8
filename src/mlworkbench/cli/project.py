"""``mlw project …``: create, show, and check projects; list templates; print schemas."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config.gallery import load_samples
from ..config.json_schema import KINDS, schema_text
from ..config.project_folder import Project, create_project, init_project
from ..config.validation import validate_project
from ..environments.existing import inspect_python, locate_python
from ..errors import ConfigError, MlwError, UsageError
from ..model import Problem
from ..paths import UserPaths, user_paths
from ..targets.types import is_local_process
from . import render
from .command_tree import LazyGroup
from .headings import python_facts
from .options import get_project, global_options, project_option, result_options

if TYPE_CHECKING:
    from ..environments.dependency_import import ImportedDependencies

_MAX_PACKAGES, _MAX_LEFT_OUT = 12, 20  # maximum entries listed in messages
_COMMANDS = {
    "link": ("project_id:link", "Share the data of the project with this ID"),
    "new-id": ("project_id:new_id", "Give the project a new ID"),
    "doctor": ("project_doctor:doctor", "Check packages and scripts against the targets"),
    "restore": ("restore:restore", "Restore the code of a run"),
}


@click.group(cls=LazyGroup, lazy_commands=_COMMANDS, epilog="Example: mlw project create demo")
def project() -> None:
    """Create, show, and check projects."""


def _ignore_option(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Ignore a cloud option of Azure ML Workbench with a hint, so that its tutorials still work."""
    if value is not None:
        render.message(f"hint: {parameter.opts[-1]} is ignored; a project is a folder on this machine")


def _reject_option(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        hint = "clone it with git, then run 'mlw project init --path FOLDER'"
        raise UsageError(f"{parameter.opts[-1]} is not supported: mlw does not clone repositories", hint)


@project.command(epilog="Example: mlw project create demo")
@click.argument("name", required=False)
@click.option("-n", "--name", "name_option", metavar="NAME", help="Same as the argument NAME")
@click.option("--path", default=".", metavar="PARENT", help="Parent of the project folder; created if missing")
@click.option("--template", default="default", show_default=True, help="Template; see 'mlw project sample list'")
@click.option("-w", "--workspace", hidden=True, expose_value=False, callback=_ignore_option)
@click.option("-a", "--account", hidden=True, expose_value=False, callback=_ignore_option)
@click.option("-g", "--resource-group", hidden=True, expose_value=False, callback=_ignore_option)
@click.option("-r", "--repo", hidden=True, expose_value=False, callback=_reject_option)
@click.option("-u", "--template-url", hidden=True, expose_value=False, callback=_reject_option)
@global_options
def create(name: str | None, name_option: str | None, path: str, template: str) -> None:
    """Create a project in a new folder.

    NAME is the name of the project and of its folder.
    """
    if name and name_option and name != name_option:
        raise UsageError(f"two project names: {name} and {name_option}", "remove one of them")
    project_name = name or name_option
    if not project_name:
        raise UsageError("missing project name", "run 'mlw project create NAME'")
    created = create_project(project_name, Path(path), template)
    render.message(f"created project {created.name} in {created.root}")
    render.message(f"hint: run it with: cd {os.path.relpath(created.root)} && mlw submit {created.script()}")


@project.command(epilog="Example: mlw project init --path my-code")
@click.option("-n", "--name", help="Name of the project (default: the name of the folder)")
@click.option("--path", default=".", metavar="FOLDER", help="Folder (default: the current directory)")
@global_options
def init(name: str | None, path: str) -> None:
    """Turn an existing folder into a project.

    Adds aml_config and changes no existing file. Copies the packages from the first of conda_dependencies.yml,
    environment.yml, requirements.txt, and pyproject.toml that lists any to aml_config/conda_dependencies.yml.
    """
    from ..environments.dependency_import import import_dependencies  # noqa: PLC0415 - slow to import

    imported = import_dependencies(Path(os.path.realpath(path)))
    dependencies = imported if imported and imported.packages else None
    created = init_project(Path(path), name, dependencies=dependencies.rewrite if dependencies else None)
    render.message(f"created project {created.name} in {created.root}; its settings are in aml_config")
    if imported:
        _print_imported(imported)
    arguments = created.runconfig("local").argument_vector
    render.message(f"hint: run a script with 'mlw submit {arguments[0] if arguments else 'SCRIPT'}'")


def _print_imported(imported: ImportedDependencies) -> None:
    count = len(imported.packages)
    names = ", ".join([*imported.packages[:_MAX_PACKAGES], *(["…"] if count > _MAX_PACKAGES else [])])
    if count:
        render.message(f"copied from {imported.file} to aml_config/conda_dependencies.yml: {names}")
    else:
        render.message(f"no packages copied from {imported.file}")
    if imported.channels:
        render.message(f"channels of {imported.file}: {', '.join(imported.channels)}")
    for entry in imported.left_out[:_MAX_LEFT_OUT]:
        render.warn(f"not copied: {entry}")
    if len(imported.left_out) > _MAX_LEFT_OUT:
        render.warn(f"not copied: {len(imported.left_out) - _MAX_LEFT_OUT} more entries of {imported.file}")


@project.command(epilog="Example: mlw project show -o json")
@project_option
@result_options
def show(folder: str | None, output: str, query: str | None) -> None:
    """Show the project, its targets, and run configurations.

    Also shows which Python runs its scripts on this machine.
    """
    shown = get_project(folder)
    facts = {
        "name": shown.name,
        "id": shown.id,
        "folder": str(shown.root),
        "targets": shown.computes(),
        "run_configurations": shown.runconfigs(),
        **_local_python_facts(shown, user_paths()),
    }
    render.emit(python_facts(facts, output, query), output=output, query=query)


def _local_python_facts(current: Project, paths: UserPaths) -> dict[str, str | None]:
    """Return the Python of ``local``, or the error message, so that ``show`` does not fail."""
    try:
        location = current.compute("local").python_location if "local" in current.computes() else None
        interpreter = inspect_python(location, os.environ, current.root, paths.interpreters)
    except MlwError as error:
        return {"python": None, "python_problem": error.message}
    version = ".".join(map(str, interpreter.version)) if any(interpreter.version) else None
    return {"python": interpreter.path, "python_version": version, "python_because": interpreter.reason}


def _check_pythons(current: Project) -> list[Problem]:
    """Check that the Python interpreter of each local target exists, without running it."""
    problems = []
    for name in current.computes():
        try:
            compute = current.compute(name)
            if is_local_process(compute):
                locate_python(compute.python_location, os.environ, current.root)
        except MlwError as error:
            if not isinstance(error, ConfigError) or error.line is None:  # otherwise, file validation reports it
                path = f"aml_config/{name}.compute"
                problems.append(Problem(path, None, "error", error.message, error.hint))
    return problems


def _check_packages(current: Project) -> list[Problem]:
    """Return packages that cannot be installed on any machine. ``mlw project doctor`` checks more."""
    from .project_doctor import check_dependencies  # noqa: PLC0415 - slow to import

    return [
        finding.problem() for finding in check_dependencies(current) if finding.rule != "file"
    ]  # unreadable files are already reported


@project.command(epilog="Example: mlw project validate")
@project_option
@result_options
def validate(folder: str | None, output: str, query: str | None) -> int:
    """Check all files in aml_config.

    Exits with 1 if there is an error.
    """
    current = get_project(folder)
    problems = [*validate_project(current), *_check_pythons(current), *_check_packages(current)]
    rows = [
        {
            "severity": problem.severity,
            "file": problem.path,
            "line": problem.line,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    render.emit(rows, output=output, query=query)
    if not rows:
        render.message("no problems found")
    return int(any(problem.severity == "error" for problem in problems))


@project.group(cls=LazyGroup, epilog="Example: mlw project sample list")
def sample() -> None:
    """List templates for new projects."""


@sample.command("list", epilog="Example: mlw project sample list")
@result_options
def list_samples(output: str, query: str | None) -> None:
    """List the project templates."""
    rows = [{"name": template.name, "description": template.description()} for template in load_samples()]
    render.emit(rows, output=output, query=query, columns={"name": "Name", "description": "Description"})


@project.command(epilog="Example: mlw project schema runconfig > runconfig.schema.json")
@click.argument("kind", type=click.Choice(KINDS))
@global_options
def schema(kind: str) -> None:
    """Print the JSON Schema of a project file.

    For editors and other programs.
    """
    render.write_bytes(schema_text(kind).encode())
