"""A project: a folder with ``aml_config`` in it. Found, read, created.

Nothing in a project is ever executed or imported from here.
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
from ..model import Compute, RunConfig, SparkDependencies
from ..remote.shared.untrusted import parse_json
from .files import key_line, read_compute, read_runconfig, read_spark_dependencies
from .keys import RUNCONFIG, same_key
from .ownership import refuse_planted
from .place import (
    COMPUTE_SUFFIX,
    FOLDER,
    OLD_SUFFIX,
    RUNCONFIG_SUFFIX,
    find_root,
    is_plain_name,
    leads_out,
    list_names,
)
from .schema import write_schemas
from .yamlfile import COPY_IT, load, outside, plain, read_bytes, require_inside, show_path

if TYPE_CHECKING:
    from .gallery import Sample

IGNORE = ".mlwignore"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?\Z")
# Keys that name a file of the project → the field with its path.
INSIDE = {key.name: key.field for key in RUNCONFIG if key.kind == "inside" and key.field}
_TOOL_SCRIPT = re.compile(r"(?:setup|conftest|noxfile|fabfile|tasks|test_.*|.*_test)\.py")
_NAME_RULE = "1 to 64 letters, digits, dashes, underscores, and dots; start with a letter or digit, end without a dot"


@dataclass(frozen=True)
class Project:
    """A project folder. Runs stay linked to the project through its ID, even if the folder is moved."""

    root: Path
    id: str
    name: str

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    def computes(self) -> list[str]:
        """Names of the compute targets, sorted."""
        return self._names(COMPUTE_SUFFIX)

    def runconfigs(self) -> list[str]:
        """Names of the run configurations, sorted."""
        return self._names(RUNCONFIG_SUFFIX, OLD_SUFFIX)

    def compute(self, name: str) -> Compute:
        return read_compute(self._file("compute target", name, COMPUTE_SUFFIX))

    def runconfig(self, name: str) -> RunConfig:
        return read_runconfig(self.runconfig_file(name))

    def runconfig_file(self, name: str) -> Path:
        """Where a run configuration stands; the extension of before June 2017 counts if there is no other."""
        return self._file("run configuration", name, RUNCONFIG_SUFFIX, OLD_SUFFIX)

    def script(self) -> str:
        """The one that people run first: what the run configuration of this machine names."""
        words = self.runconfig("local").argument_vector if "local" in self.runconfigs() else ()
        return words[0] if words else "train.py"

    def _names(self, *suffixes: str) -> list[str]:
        try:
            return list_names(str(self.folder), *suffixes)
        except OSError as error:
            message = f"cannot read the folder: {error.strerror}"
            raise ConfigError(message, path=show_path(self.folder)) from None

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
    """For the name of a target or run configuration that does not exist."""
    return (
        f"attach a machine with 'mlw computetarget attach remotedocker --name {shlex.quote(name)} --address HOST"
        " --username USER'"
    )


# -- finding ---------------------------------------------------------------------------------------


def find_project(start: Path) -> Project:
    """Return the project that contains a folder: the folder itself or its nearest parent that is a project."""
    root = find_root(str(start))
    if root is not None:
        refuse_planted(root, str(start))
        return _read_project(Path(root))
    raise ConfigError(
        f"no project found: no folder {FOLDER} in {start} or any parent folder",
        "change to a project folder, create a project with 'mlw project create --name demo', or run "
        "'mlw project init' in this folder",
    )


def _read_project(root: Path) -> Project:
    if leads_out(root / FOLDER, root):
        hint = "replace the link with a folder"
        raise ConfigError("the folder is a link to a folder outside the project", hint, path=show_path(root / FOLDER))
    values: dict[str, str] = {}
    # The original kept the file in .azureml; ours goes first, so that a copy can get a new id.
    for path in (root / ".azureml" / "project.json", root / FOLDER / "project.json"):
        if os.path.lexists(path):
            require_inside(path, root)
            values |= _identity(path)
    return Project(root, values.get("id") or _derived_id(root), values.get("name") or root.name or "project")


def _identity(path: Path) -> dict[str, str]:
    """What ``project.json`` says of id and name; all other keys are the original's and not ours."""
    values: dict[str, str] = {}
    for key, node in load(path).pairs:
        name, value = same_key(key.text), plain(node)
        if name not in ("id", "name") or value is None:
            continue
        if not isinstance(value, str) or (name == "id" and not _is_uuid(value)):
            rule = "a UUID such as 1b4e28ba-2fa1-4d2b-883f-0016d3cca427" if name == "id" else "a string"
            raise ConfigError(f"{key.text} must be {rule}", path=show_path(path), line=node.line)
        values[name] = str(uuid.UUID(value)) if name == "id" else value
    return values


def _is_uuid(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


def _derived_id(root: Path) -> str:
    """Id of a project that has none, from its place: reading must not write, and may not be able to."""
    place = os.fsencode(root).decode("utf-8", "backslashreplace")
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "file://" + place))


def give_new_id(project: Project) -> Project:
    """Write a new ID into ``aml_config/project.json``; the name and keys of others stay."""
    path = project.folder / "project.json"
    if os.path.realpath(path) != os.path.join(os.path.realpath(project.root), FOLDER, path.name):
        hint = "replace the link with a regular file"
        raise ConfigError("cannot change the file: it is a link", hint, path=show_path(path))
    told: object = {}
    try:
        if path.exists():
            told = parse_json(read_bytes(path, show_path(path)))
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict):
        raise ConfigError("cannot change the file: not valid JSON", "set Id to a UUID by hand", path=show_path(path))
    kept = {key: value for key, value in told.items() if same_key(key) not in ("id", "name")}
    new = replace(project, id=str(uuid.uuid4()))
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        project.folder.mkdir(exist_ok=True)
        part.write_text(json.dumps({"Id": new.id, "Name": new.name, **kept}, indent=2) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"cannot write the file: {error.strerror}", path=show_path(path)) from None
    finally:
        part.unlink(missing_ok=True)
    return new


# -- creating --------------------------------------------------------------------------------------


def create_project(name: str, parent: Path, template: str = "default") -> Project:
    """Makes ``parent/name`` from a template, whole or not at all."""
    if not _NAME.match(name):
        raise UsageError(f"invalid project name: {name!r}", f"use {_NAME_RULE}")
    from .gallery import sample  # noqa: PLC0415 - only new projects need it

    chosen = sample(template)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create folder {parent}: {error.strerror}", "choose another --path") from None
    root = Path(os.path.realpath(parent)) / name
    _refuse_used(root)
    project = Project(root, str(uuid.uuid4()), name)
    temporary = root.with_name(f".{name}.{os.urandom(4).hex()}.tmp")
    try:
        _fill(temporary, chosen, project)
        if os.name == "nt" and root.is_dir():
            root.rmdir()  # elsewhere a rename replaces an empty folder by itself
        os.rename(temporary, root)
    except OSError as error:
        _refuse_used(root)  # another process may have been quicker
        raise ConfigError(f"cannot create the project in {parent}: {error.strerror}") from None
    finally:
        _delete(temporary)
    return project


def adopt_folder(
    root: Path, name: str | None = None, template: str = "default", dependencies: Callable[[str], str] | None = None
) -> Project:
    """Makes a project of a folder that has files already: adds ``aml_config`` and an ignore file, changes nothing.

    ``dependencies`` makes the text of ``conda_dependencies.yml`` out of the template's.
    """
    root = Path(os.path.realpath(root))
    if (root / FOLDER).exists():
        raise UsageError(f"{root} is already a project", "run 'mlw project show'")
    named = name or re.sub(r"[^A-Za-z0-9._-]+", "-", root.name).strip("-._") or "project"
    project = Project(root, str(uuid.uuid4()), named)
    if not _NAME.match(project.name):
        raise UsageError(f"invalid project name: {project.name!r}", f"specify one with --name: {_NAME_RULE}")
    temporary = root / f".{FOLDER}.{os.urandom(4).hex()}.tmp"
    try:
        from .gallery import sample  # noqa: PLC0415 - only new projects need it

        chosen = sample(template)
        found = _first_script(root, chosen.script)
        _fill(temporary, replace(chosen, script=found or chosen.script), project)
        if found is None:
            _without_script(temporary / FOLDER)
        if dependencies is not None:
            path = temporary / FOLDER / "conda_dependencies.yml"
            path.write_text(dependencies(path.read_text("utf-8")), encoding="utf-8", newline="\n")
        if not (root / IGNORE).exists():
            os.rename(temporary / IGNORE, root / IGNORE)
        os.rename(temporary / FOLDER, root / FOLDER)
    except OSError as error:
        raise ConfigError(f"cannot initialize a project in {root}: {error.strerror}") from None
    finally:
        _delete(temporary)
    return project


def is_tool_script(name: str) -> bool:
    """Return whether a script on top of a project is for packaging or tests, so that no run starts it."""
    return _TOOL_SCRIPT.fullmatch(name) is not None


def _first_script(root: Path, usual: str) -> str | None:
    """Which script of a folder is the one to run, where that is plain to see."""
    scripts = [path.name for path in sorted(root.glob("*.py")) if path.is_file() and not is_tool_script(path.name)]
    if usual in scripts:
        return usual
    return scripts[0] if len(scripts) == 1 else None


def _without_script(folder: Path) -> None:
    """The run configurations name none: the line is there, for the user to fill in."""
    for path in folder.glob(f"*{RUNCONFIG_SUFFIX}"):
        text = re.sub(r"^ArgumentVector:\n((?:  - .*\n)+)", _commented, path.read_text("utf-8"), flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8", newline="\n")


def _commented(found: re.Match[str]) -> str:
    return "".join(f"#{line}\n" for line in found[0].splitlines())


def _refuse_used(root: Path) -> None:
    is_empty = root.is_dir() and not root.is_symlink() and not any(root.iterdir())
    if os.path.lexists(root) and not is_empty:
        hint = f"use another name or --path, or turn the folder into a project: cd {root} && mlw project init"
        raise UsageError(f"{root} already exists and is not an empty folder", hint)


def _fill(folder: Path, chosen: Sample, project: Project) -> None:
    chosen.write(folder, project.name)
    identity = json.dumps({"Id": project.id, "Name": project.name}, indent=2) + "\n"
    (folder / FOLDER / "project.json").write_text(identity, encoding="utf-8")
    write_schemas(folder / FOLDER)


def _delete(folder: Path) -> None:
    """Removes what is left of an unfinished project; nothing, after the rename."""
    for place, folders, files in os.walk(folder, topdown=False):
        for file in files:
            os.unlink(os.path.join(place, file))
        for name in folders:
            os.rmdir(os.path.join(place, name))
    if folder.is_dir():
        folder.rmdir()


# -- files that a run configuration names -----------------------------------------------------------


def named_file(root: Path, runconfig: RunConfig, key: str) -> Path:
    """The file that a run configuration names; what is outside of the project is not read for it."""
    name = str(getattr(runconfig, INSIDE[key]))
    if leads_out(root / name, root):
        places = [root / FOLDER / (runconfig.name + suffix) for suffix in (RUNCONFIG_SUFFIX, OLD_SUFFIX)]
        said = next((path for path in places if path.is_file()), None)
        raise ConfigError(
            outside(name, root / name),
            COPY_IT,
            path=show_path(said) if said else None,
            line=key_line(said, key) if said else None,
        )
    return root / name


def spark_dependencies(project: Project, runconfig: RunConfig) -> SparkDependencies:
    """What a run configuration says of Spark: in itself, in its file, or nothing."""
    if runconfig.framework != "PySpark":
        return SparkDependencies()
    if runconfig.spark_dependencies is not None:
        return runconfig.spark_dependencies
    path = named_file(project.root, runconfig, "SparkDependenciesFile")
    return read_spark_dependencies(path) if path.is_file() else SparkDependencies()
