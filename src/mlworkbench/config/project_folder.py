"""Projects: folders that contain ``aml_config``. Find, read, and create projects.

This module never executes or imports anything in a project.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, UnknownName, UsageError
from ..model import Compute, RunConfig
from ..project_dependencies import SparkDependencies
from ..remote.shared.untrusted_json import parse_json
from .config_files import key_line, read_compute, read_runconfig, read_spark_dependencies
from .json_schema import write_schemas
from .keys import RUNCONFIG, normalize_key
from .project_files import (
    COMPUTE_SUFFIX,
    FOLDER,
    OLD_SUFFIX,
    RUNCONFIG_SUFFIX,
    find_root,
    is_outside,
    is_plain_name,
    list_names,
)
from .project_owner import check_owner
from .yaml_tree import COPY_HINT, display_path, load, outside_message, read_bytes, require_inside, to_python

if TYPE_CHECKING:
    from .gallery import Sample

IGNORE = ".mlwignore"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?\Z")
# Keys whose value is a project file → field that contains its path.
FILE_KEYS = {key.name: key.field for key in RUNCONFIG if key.kind == "inside" and key.field}
_TOOL_SCRIPT = re.compile(r"(?:setup|conftest|noxfile|fabfile|tasks|test_.*|.*_test)\.py")
_NAME_RULE = "1 to 64 letters, digits, dashes, underscores, and dots; start with a letter or digit, end without a dot"


@dataclass(frozen=True)
class Project:
    """A project folder. Its ID links runs to the project, even if the folder is moved."""

    root: Path
    id: str
    name: str

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    def computes(self) -> list[str]:
        """Return the sorted names of the compute targets."""
        return self._names(COMPUTE_SUFFIX)

    def runconfigs(self) -> list[str]:
        """Return the sorted names of the run configurations."""
        return self._names(RUNCONFIG_SUFFIX, OLD_SUFFIX)

    def compute(self, name: str) -> Compute:
        return read_compute(self._file("compute target", name, COMPUTE_SUFFIX))

    def runconfig(self, name: str) -> RunConfig:
        return read_runconfig(self.runconfig_file(name))

    def runconfig_file(self, name: str) -> Path:
        """Return the path of a run configuration, with the pre-June 2017 extension as a fallback."""
        return self._file("run configuration", name, RUNCONFIG_SUFFIX, OLD_SUFFIX)

    def script(self) -> str:
        """Return the main script: the one in the run configuration ``local``, or ``train.py``."""
        arguments = self.runconfig("local").argument_vector if "local" in self.runconfigs() else ()
        return arguments[0] if arguments else "train.py"

    def _names(self, *suffixes: str) -> list[str]:
        try:
            return list_names(str(self.folder), *suffixes)
        except OSError as error:
            message = f"cannot read the folder: {error.strerror}"
            raise ConfigError(message, path=display_path(self.folder)) from None

    def _file(self, kind: str, name: str, *suffixes: str) -> Path:
        if not is_plain_name(name):
            raise UsageError(
                f"invalid name for a {kind}: {name!r}",
                f"use the name of a file in {FOLDER}, without folder and extension",
            )
        for suffix in suffixes:
            path = self.folder / (name + suffix)
            if os.path.lexists(path):
                require_inside(path, self.root)
                return path
        raise UnknownName(kind, name, self._names(*suffixes), otherwise=attach_hint(name))


def attach_hint(name: str) -> str:
    """Return the hint for a missing compute target or run configuration."""
    return (
        f"attach a machine with 'mlw computetarget attach remotedocker --name {shlex.quote(name)} --address HOST"
        " --username USER'"
    )


# -- finding ---------------------------------------------------------------------------------------


def find_project(start: Path) -> Project:
    """Return the nearest project at or above a folder."""
    root = find_root(str(start))
    if root is not None:
        check_owner(root, str(start))
        return _read_project(Path(root))
    raise ConfigError(
        f"no project found: no folder {FOLDER} in {start} or any parent folder",
        "change to a project folder, create a project with 'mlw project create --name demo', or run "
        "'mlw project init' in this folder",
    )


def _read_project(root: Path) -> Project:
    if is_outside(root / FOLDER, root):
        hint = "replace the link with a folder"
        raise ConfigError(
            "the folder is a link to a folder outside the project", hint, path=display_path(root / FOLDER)
        )
    values: dict[str, str] = {}
    # The original stored the file in .azureml. The one in aml_config takes precedence, so that a copy can get a new ID.
    for path in (root / ".azureml" / "project.json", root / FOLDER / "project.json"):
        if os.path.lexists(path):
            require_inside(path, root)
            values |= _read_identity(path)
    return Project(root, values.get("id") or _derive_id(root), values.get("name") or root.name or "project")


def _read_identity(path: Path) -> dict[str, str]:
    """Return the ID and name from ``project.json``. The original's other keys are ignored."""
    values: dict[str, str] = {}
    for key, node in load(path).pairs:
        name, value = normalize_key(key.text), to_python(node)
        if name not in ("id", "name") or value is None:
            continue
        if not isinstance(value, str) or (name == "id" and not _is_uuid(value)):
            rule = "a UUID such as 1b4e28ba-2fa1-4d2b-883f-0016d3cca427" if name == "id" else "a string"
            raise ConfigError(f"{key.text} must be {rule}", path=display_path(path), line=node.line)
        values[name] = str(uuid.UUID(value)) if name == "id" else value
    return values


def _is_uuid(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


def _derive_id(root: Path) -> str:
    """Derive a missing ID from the project's path. Writes nothing: the folder may be read-only."""
    path = os.fsencode(root).decode("utf-8", "backslashreplace")
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "file://" + path))


def assign_new_id(project: Project) -> Project:
    """Write a new ID to ``aml_config/project.json``. Keep the name and all other keys."""
    path = project.folder / "project.json"
    if os.path.realpath(path) != os.path.join(os.path.realpath(project.root), FOLDER, path.name):
        hint = "replace the link with a regular file"
        raise ConfigError("cannot change the file: it is a link", hint, path=display_path(path))
    content: object = {}
    try:
        if path.exists():
            content = parse_json(read_bytes(path, display_path(path)))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise ConfigError("cannot change the file: not valid JSON", "set Id to a UUID by hand", path=display_path(path))
    other_keys = {key: value for key, value in content.items() if normalize_key(key) not in ("id", "name")}
    new = replace(project, id=str(uuid.uuid4()))
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        project.folder.mkdir(exist_ok=True)
        temporary.write_text(
            json.dumps({"Id": new.id, "Name": new.name, **other_keys}, indent=2) + "\n", encoding="utf-8"
        )
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", path=display_path(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    return new


# -- creating --------------------------------------------------------------------------------------


def create_project(name: str, parent: Path, template: str = "default") -> Project:
    """Create ``parent/name`` from a template atomically."""
    if not _NAME.match(name):
        raise UsageError(f"invalid project name: {name!r}", f"use {_NAME_RULE}")
    from .gallery import get_sample  # noqa: PLC0415 - only new projects need it

    sample = get_sample(template)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create folder {parent}: {error.strerror}", "choose another --path") from None
    root = Path(os.path.realpath(parent)) / name
    _require_unused(root)
    project = Project(root, str(uuid.uuid4()), name)
    temporary = root.with_name(f".{name}.{os.urandom(4).hex()}.tmp")
    try:
        _write_template(temporary, sample, project)
        if os.name == "nt" and root.is_dir():
            root.rmdir()  # on other systems, the rename replaces an empty folder
        os.rename(temporary, root)
    except OSError as error:
        _require_unused(root)  # raises if another process has created the folder
        raise ConfigError(f"cannot create the project in {parent}: {error.strerror}") from None
    finally:
        _remove_temporary(temporary)
    return project


def init_project(
    root: Path, name: str | None = None, template: str = "default", dependencies: Callable[[str], str] | None = None
) -> Project:
    """Turn an existing folder into a project. Existing files are not changed.

    Adds ``aml_config`` and an ignore file. ``dependencies`` converts the ``conda_dependencies.yml``
    template into the text to write.
    """
    root = Path(os.path.realpath(root))
    if (root / FOLDER).exists():
        raise UsageError(f"{root} is already a project", "run 'mlw project show'")
    project_name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", root.name).strip("-._") or "project"
    project = Project(root, str(uuid.uuid4()), project_name)
    if not _NAME.match(project.name):
        raise UsageError(f"invalid project name: {project.name!r}", f"specify one with --name: {_NAME_RULE}")
    temporary = root / f".{FOLDER}.{os.urandom(4).hex()}.tmp"
    try:
        from .gallery import get_sample  # noqa: PLC0415 - only new projects need it

        sample = get_sample(template)
        script = _find_script(root, sample.script)
        _write_template(temporary, replace(sample, script=script or sample.script), project)
        if script is None:
            _comment_out_scripts(temporary / FOLDER)
        if dependencies is not None:
            path = temporary / FOLDER / "conda_dependencies.yml"
            path.write_text(dependencies(path.read_text("utf-8")), encoding="utf-8", newline="\n")
        if not (root / IGNORE).exists():
            os.rename(temporary / IGNORE, root / IGNORE)
        os.rename(temporary / FOLDER, root / FOLDER)
    except OSError as error:
        raise ConfigError(f"cannot initialize a project in {root}: {error.strerror}") from None
    finally:
        _remove_temporary(temporary)
    return project


def is_tool_script(name: str) -> bool:
    """Return whether a top-level script is for packaging or tests and is never started by a run."""
    return _TOOL_SCRIPT.fullmatch(name) is not None


def _find_script(root: Path, default: str) -> str | None:
    """Return the script to run if it is unambiguous: the default name, or the only script."""
    scripts = [path.name for path in sorted(root.glob("*.py")) if path.is_file() and not is_tool_script(path.name)]
    if default in scripts:
        return default
    return scripts[0] if len(scripts) == 1 else None


def _comment_out_scripts(folder: Path) -> None:
    """Comment out the script in all run configurations, so that the user can fill it in."""
    for path in folder.glob(f"*{RUNCONFIG_SUFFIX}"):
        text = re.sub(r"^ArgumentVector:\n((?:  - .*\n)+)", _comment_out, path.read_text("utf-8"), flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8", newline="\n")


def _comment_out(match: re.Match[str]) -> str:
    return "".join(f"#{line}\n" for line in match[0].splitlines())


def _require_unused(root: Path) -> None:
    is_empty = root.is_dir() and not root.is_symlink() and not any(root.iterdir())
    if os.path.lexists(root) and not is_empty:
        hint = f"use another name or --path, or turn the folder into a project: cd {root} && mlw project init"
        raise UsageError(f"{root} already exists and is not an empty folder", hint)


def _write_template(folder: Path, sample: Sample, project: Project) -> None:
    sample.write(folder, project.name)
    identity = json.dumps({"Id": project.id, "Name": project.name}, indent=2) + "\n"
    (folder / FOLDER / "project.json").write_text(identity, encoding="utf-8")
    write_schemas(folder / FOLDER)


def _remove_temporary(folder: Path) -> None:
    """Remove the remains of an unfinished project, if any."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for file in files:
            os.unlink(os.path.join(parent, file))
        for name in folders:
            os.rmdir(os.path.join(parent, name))
    if folder.is_dir():
        folder.rmdir()


# -- files that a run configuration names -----------------------------------------------------------


def referenced_file(root: Path, runconfig: RunConfig, key: str) -> Path:
    """Return the path of a file that a run configuration names. It must be inside the project.

    Raises ConfigError if the file is outside.
    """
    name = str(getattr(runconfig, FILE_KEYS[key]))
    if is_outside(root / name, root):
        path, line = locate_key(root, runconfig, key)
        raise ConfigError(outside_message(name, root / name), COPY_HINT, path=path, line=line)
    return root / name


def locate_key(root: Path, runconfig: RunConfig, key: str) -> tuple[str | None, int | None]:
    """Return the file and the line in which a run configuration sets a key, for errors found outside the file."""
    candidates = [root / FOLDER / (runconfig.name + suffix) for suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX)]
    source = next((path for path in candidates if path.is_file()), None)
    return (display_path(source), key_line(source, key)) if source else (None, None)


def load_spark_dependencies(project: Project, runconfig: RunConfig) -> SparkDependencies:
    """Return a run configuration's Spark dependencies, from the configuration or its file."""
    if runconfig.framework != "PySpark":
        return SparkDependencies()
    if runconfig.spark_dependencies is not None:
        return runconfig.spark_dependencies
    path = referenced_file(project.root, runconfig, "SparkDependenciesFile")
    return read_spark_dependencies(path) if path.is_file() else SparkDependencies()
