"""Import the existing dependencies of a folder into ``conda_dependencies.yml`` for a new project.

The files are untrusted data: their contents are neither run nor fetched. An entry that cannot be
imported unchanged is left out, with a reason. pip options are left out as well: an index
applies to all packages, so the user has to add it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ..config.keys import normalize_key
from ..config.yaml_tree import Mapping, Scalar, Sequence, describe, display_path, parse, read_bytes, require_inside
from ..errors import ConfigError
from .dependencies import Line, PipLine
from .dependency_parser import RequirementCollector, as_utf8, parse_conda_entry
from .interpreter_choice import satisfies
from .lock_readers import load_toml
from .package_sources import mask, strip_secret
from .pip_solve import format_requirement
from .poetry import EXPORT, poetry_requirement
from .solver_messages import is_single_line

# The first file that lists a package is imported. Conda files contain the most information.
FILES = ("conda_dependencies.yml", "environment.yml", "environment.yaml", "requirements.txt", "pyproject.toml")
_MAX_ENTRIES = 1000  # maximum per file
_MAX_CHARACTERS = 200  # maximum length of a text in a message
_PLAIN = re.compile(r"[A-Za-z][\w.\[\]=<>!~,*+-]*[\w\]*]")
_RESERVED = frozenset("true false yes no on off null".split())  # words that YAML does not read as strings
_OPTION_REASON = "pip options are not imported; add the line under `pip:`, or set it in pip.conf"


@dataclass(frozen=True)
class ImportedDependencies:
    """The dependencies in a file. ``left_out`` lists skipped entries with their position and reason."""

    file: str
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        return (*self.conda, *self.pip)

    def rewrite(self, template: str) -> str:
        """Return the ``conda_dependencies.yml`` template with its entries replaced by imported ones."""
        head = template.partition("\n#channels:")[0].partition("\ndependencies:")[0].rpartition("\n\n")[0]
        default = re.search(r"^  - (python=\S+)", template, re.MULTILINE)
        python = [] if any(re.match(r"python\b", entry) for entry in self.conda) or not default else [default[1]]
        lines = [head, "", f"# Imported from {self.file} by `mlw project init`."]
        lines += ["channels:", *(f"  - {_scalar(entry)}" for entry in self.channels)] if self.channels else []
        lines += ["dependencies:", *(f"  - {_scalar(entry)}" for entry in (*python, *self.conda))]
        lines += ["  - pip:", *(f"    - {_scalar(entry)}" for entry in self.pip)] if self.pip else []
        return "\n".join([*lines, ""])


def import_dependencies(root: Path) -> ImportedDependencies | None:
    """Import from the first known file that lists a package.

    Returns None if the folder contains none of the known files.
    """
    names = [name for name in FILES if (root / name).is_file() or (root / name).is_symlink()]
    left_out: list[str] = []
    for index, name in enumerate(names):
        reader = _Reader(root)
        imported = _import_file(root, name, reader)
        left_out += imported.left_out
        if imported.packages:
            later = [other for other in names[index + 1 :] if display_path(root / other) not in reader.files]
            left_out += [f"{other}: ignored because {name} was imported" for other in later]
            return replace(imported, left_out=tuple(left_out))
        if not imported.left_out:
            left_out.append(f"{name}: no packages found")
    return ImportedDependencies(", ".join(names), left_out=tuple(left_out)) if names else None


def _import_file(root: Path, name: str, reader: _Reader) -> ImportedDependencies:
    try:
        require_inside(root / name, root)
        if name.endswith(".txt"):
            reader.read(root / name, 0)
        elif name.endswith(".toml"):
            reader.read_pyproject(root / name)
        else:
            reader.read_conda(root / name)
        return reader.result(name)
    except ConfigError as error:
        return ImportedDependencies(name, left_out=(f"the whole file: {error.message}",))


@dataclass
class _Reader(RequirementCollector):
    """Read the file entry by entry, skipping invalid entries."""

    conda: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def result(self, name: str) -> ImportedDependencies:
        pip = [format_requirement(line) for line in self.pip if self._is_shareable(line)]
        for line in self.constraints:
            self.skip(line, "constraints are not imported; add `-c FILE` under `pip:`")
        conda, pip = list(dict.fromkeys(self.conda)), list(dict.fromkeys(pip))
        if len(conda) + len(pip) > _MAX_ENTRIES:
            raise ConfigError(f"more than {_MAX_ENTRIES} entries")
        return ImportedDependencies(name, tuple(conda), tuple(pip), tuple(self.channels), tuple(self.left_out))

    def add(self, entry: Line, path: Path, depth: int = 0, *, constrain: bool = False) -> None:
        nested = re.match(r"(?:-r|-c|--requirement|--constraint)(?![\w-]*-)", entry.text)
        if entry.text.startswith("-") and not entry.text.startswith(("-e", "--editable")) and not nested:
            return self.skip(entry, _OPTION_REASON)
        try:
            if not is_single_line(entry.text):
                raise ConfigError("contains a control character")
            super().add(entry, path, depth, constrain=constrain)
        except ConfigError as error:
            self.skip(entry, error.text)

    def skip(self, entry: Line, reason: str) -> None:
        text = mask(entry.text[:_MAX_CHARACTERS])
        reason = reason.removeprefix(f"{entry.text}: ")  # some messages start with the entry
        self.left_out.append(f"{entry.file}:{entry.line}: {text}: {reason[:_MAX_CHARACTERS]}" if text else reason)

    def _is_shareable(self, line: PipLine) -> bool:
        if line.url and strip_secret(line.url)[1]:
            self.skip(line, "the URL contains a secret, which is not copied; keep it in ~/.netrc")
            return False
        return True

    # -- conda ---------------------------------------------------------------------------------------

    def read_conda(self, path: Path) -> None:
        filename = display_path(path)
        for key, node in parse(as_utf8(read_bytes(path, filename), filename), filename).pairs:
            name = normalize_key(key.text)
            if name in ("dependencies", "channels") and not isinstance(node, Sequence):
                if not (isinstance(node, Scalar) and node.is_null):
                    self.skip(Line(f"{key.text}: {_text(node)}", filename, key.line), "not a list")
            elif isinstance(node, Sequence) and name == "dependencies":
                for item in node.items:
                    self._add_conda(item, path, filename)
            elif isinstance(node, Sequence) and name == "channels":
                for item in node.items:
                    self._add_channel(item, filename)
            elif name != "name":
                self.skip(Line(key.text, filename, key.line), "this key is not imported")

    def _add_conda(self, item: Any, path: Path, filename: str) -> None:
        if isinstance(item, Mapping):
            for key, value in item.pairs:
                if key.text == "pip":
                    self._add_pip(value, path, filename)
                else:
                    entry = Line(f"{key.text}: {_text(value)}", filename, key.line)
                    self.skip(entry, "only `pip:` can have nested entries")
        elif not isinstance(item, Scalar) or item.is_null:
            self.skip(Line(_text(item), filename, item.line), "not a package")
        else:
            entry = Line(item.text.strip(), filename, item.line)
            try:
                requirement = parse_conda_entry(entry.text, filename, item.line)
                if not is_single_line(entry.text) or strip_secret(entry.text)[1]:
                    raise ConfigError("contains a control character or a secret")
            except ConfigError as error:
                self.skip(entry, error.text)
            else:
                self.conda.append(requirement.text)

    def _add_pip(self, value: Any, path: Path, filename: str) -> None:
        """Add the entries under ``pip:``, which may be a list or a single entry."""
        if isinstance(value, Scalar) and value.is_null:
            return
        for item in value.items if isinstance(value, Sequence) else (value,):
            entry = Line(_text(item).strip(), filename, item.line)
            if isinstance(item, Scalar) and not item.is_null:
                self.add(entry, path)
            else:
                self.skip(entry, "not a package")

    def _add_channel(self, item: Any, filename: str) -> None:
        if not isinstance(item, Scalar) or item.is_null:
            return self.skip(Line(_text(item), filename, item.line), "not a channel")
        entry = Line(item.text.strip(), filename, item.line)
        if not is_single_line(entry.text) or len(entry.text) > _MAX_CHARACTERS or strip_secret(entry.text)[1]:
            return self.skip(entry, "the channel is too long or contains a secret")
        self.channels.append(entry.text)

    # -- pyproject.toml ------------------------------------------------------------------------------

    def read_pyproject(self, path: Path) -> None:
        data, text = load_toml(path)
        filename = display_path(path)
        project, tool = _table(data.get("project")), _table(data.get("tool"))
        self._add_python(project.get("requires-python"), filename)
        entries = project.get("dependencies")
        for entry in entries[: _MAX_ENTRIES + 1] if isinstance(entries, list) else ():
            if isinstance(entry, str):
                self.add(Line(entry.strip(), filename, _find_line(text, entry)), path)
        if "dependencies" in (project.get("dynamic") or ()):
            self._read_dynamic(_table(_table(tool.get("setuptools")).get("dynamic")), path, text)
        self._read_poetry(_table(tool.get("poetry")), path, text)
        groups = {"project.optional-dependencies": project.get("optional-dependencies")}
        groups |= {"dependency-groups": data.get("dependency-groups")}
        groups |= {f"tool.{name}": tool.get(name) for name in ("pdm", "hatch", "pixi")}
        uv = _table(tool.get("uv"))
        groups |= {f"tool.uv.{name}": uv.get(name) for name in ("index", "index-url", "extra-index-url", "sources")}
        for name, value in groups.items():
            if value:
                self.left_out.append(f"{filename}: [{name}] is not imported{_list_names(value)}")

    def _read_dynamic(self, setuptools: dict[str, Any], path: Path, text: str) -> None:
        """Read dependencies that setuptools loads from files. Others would require running a build backend."""
        files = _table(setuptools.get("dependencies")).get("file")
        names = [files] if isinstance(files, str) else files if isinstance(files, list) else []
        filename = display_path(path)
        for name in names:
            self.add(Line(f"-r {name}", filename, _find_line(text, str(name))), path)
        if not names:
            self.left_out.append(f"{filename}: dynamic dependencies are not imported: they require the build backend")

    def _read_poetry(self, poetry: dict[str, Any], path: Path, text: str) -> None:
        filename = display_path(path)
        for name, value in islice(_table(poetry.get("dependencies")).items(), _MAX_ENTRIES + 1):
            entry = Line(name, filename, _find_key_line(text, name))
            requirement = poetry_requirement(name, value)
            if requirement is None:
                self.skip(entry, f"not a plain version; {EXPORT}")
            elif name == "python":
                self._add_python(requirement.removeprefix(name) or None, filename)
            else:
                self.add(Line(requirement, filename, entry.line), path)
        others = [name for name in ("group", "dev-dependencies", "source", "extras") if poetry.get(name)]
        for name in others:
            self.left_out.append(
                f"{filename}: [tool.poetry.{name}] is not imported{_list_names(poetry[name])}; {EXPORT}"
            )

    def _add_python(self, pin: Any, filename: str) -> None:
        if not isinstance(pin, str):
            return
        try:
            satisfies("3.11.0", pin)
        except ConfigError as error:
            self.left_out.append(f"{filename}: requires-python: {error.message[:_MAX_CHARACTERS]}")
        else:
            self.conda.append(f"python{pin.replace(' ', '')}")


def _find_line(text: str, entry: str) -> int:
    return text[: max(text.find(entry), 0)].count("\n") + 1


def _find_key_line(text: str, key: str) -> int:
    match = re.search(rf"""^\s*["']?{re.escape(key)}["']?\s*=""", text, re.MULTILINE)
    return _find_line(text, match[0].lstrip()) if match else 1


def _text(node: Any) -> str:
    return (node.text or "null") if isinstance(node, Scalar) else describe(node)


def _list_names(value: Any) -> str:
    names: Iterable[Any] = value if isinstance(value, dict) else ()
    joined = ", ".join(str(name)[:40] for name in list(names)[:5])
    return f": {joined}" if joined else ""


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _scalar(text: str) -> str:
    """Format a string as a YAML scalar, in quotes if necessary."""
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return json.dumps(text, ensure_ascii=False)
