"""Dependencies that a folder has already, for the ``conda_dependencies.yml`` of a new project.

The files are data of unknown origin: nothing of them is run or fetched, and an entry that cannot be taken as it is
stays out with a reason. Options for pip stay out as well: an index decides where all packages come from, so the user
has to write it down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ..config.keys import same_key
from ..config.yamlfile import Mapping, Scalar, Sequence, describe, parse, read_bytes, require_inside, show_path
from ..errors import ConfigError
from .channels import mask, without_secret
from .dependencies import Line, PipLine
from .lockfiles import load_toml
from .pip import requirement
from .poetry import EXPORT, poetry_requirement
from .pythons import satisfies
from .reading import Gathered, as_utf8, conda_entry
from .words import one_line

# The first that names a package is taken: a conda file contains more than the others.
FILES = ("conda_dependencies.yml", "environment.yml", "environment.yaml", "requirements.txt", "pyproject.toml")
_MOST = 1000  # entries of a file
_MOST_CHARACTERS = 200  # of an entry in a message
_PLAIN = re.compile(r"[A-Za-z][\w.\[\]=<>!~,*+-]*[\w\]*]")
_WORDS = frozenset("true false yes no on off null".split())  # that YAML does not read as text
_OPTION = "pip options are not imported; add the line under `pip:`, or set it in pip.conf"


@dataclass(frozen=True)
class Imported:
    """What a file asks for. ``left_out``: entries that were not taken, each with its place and the reason."""

    file: str
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        return (*self.conda, *self.pip)

    def rewrite(self, template: str) -> str:
        """The template of a ``conda_dependencies.yml`` with these entries in place of its own."""
        head = template.partition("\n#channels:")[0].partition("\ndependencies:")[0].rpartition("\n\n")[0]
        default = re.search(r"^  - (python=\S+)", template, re.MULTILINE)
        python = [] if any(re.match(r"python\b", one) for one in self.conda) or not default else [default[1]]
        lines = [head, "", f"# Imported from {self.file} by `mlw project init`."]
        lines += ["channels:", *(f"  - {_scalar(one)}" for one in self.channels)] if self.channels else []
        lines += ["dependencies:", *(f"  - {_scalar(one)}" for one in (*python, *self.conda))]
        lines += ["  - pip:", *(f"    - {_scalar(one)}" for one in self.pip)] if self.pip else []
        return "\n".join([*lines, ""])


def import_dependencies(root: Path) -> Imported | None:
    """Dependencies of the first usual file that names a package; None if the folder has none of the files."""
    names = [name for name in FILES if (root / name).is_file() or (root / name).is_symlink()]
    left_out: list[str] = []
    for index, name in enumerate(names):
        reader = _Reader(root)
        imported = _import_file(root, name, reader)
        left_out += imported.left_out
        if imported.packages:
            later = [other for other in names[index + 1 :] if show_path(root / other) not in reader.files]
            left_out += [f"{other}: ignored because {name} was imported" for other in later]
            return replace(imported, left_out=tuple(left_out))
        if not imported.left_out:
            left_out.append(f"{name}: no packages found")
    return Imported(", ".join(names), left_out=tuple(left_out)) if names else None


def _import_file(root: Path, name: str, reader: _Reader) -> Imported:
    try:
        require_inside(root / name, root)
        if name.endswith(".txt"):
            reader.read(root / name, 0)
        elif name.endswith(".toml"):
            reader.read_pyproject(root / name)
        else:
            reader.read_conda(root / name)
        return reader.imported(name)
    except ConfigError as error:
        return Imported(name, left_out=(f"the whole file: {error.message}",))


@dataclass
class _Reader(Gathered):
    """Reads entry by entry; one that is not valid does not end it."""

    conda: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def imported(self, name: str) -> Imported:
        pip = [requirement(one) for one in self.pip if self._is_shareable(one)]
        for one in self.constraints:
            self.leave(one, "constraints are not imported; add `-c FILE` under `pip:`")
        conda, pip = list(dict.fromkeys(self.conda)), list(dict.fromkeys(pip))
        if len(conda) + len(pip) > _MOST:
            raise ConfigError(f"more than {_MOST} entries")
        return Imported(name, tuple(conda), tuple(pip), tuple(self.channels), tuple(self.left_out))

    def add(self, at: Line, path: Path, depth: int = 0, *, constrain: bool = False) -> None:
        nested = re.match(r"(?:-r|-c|--requirement|--constraint)(?![\w-]*-)", at.text)
        if at.text.startswith("-") and not at.text.startswith(("-e", "--editable")) and not nested:
            return self.leave(at, _OPTION)
        try:
            if not one_line(at.text):
                raise ConfigError("contains a control character")
            super().add(at, path, depth, constrain=constrain)
        except ConfigError as error:
            self.leave(at, error.text)

    def leave(self, at: Line, reason: str) -> None:
        text = mask(at.text[:_MOST_CHARACTERS])
        reason = reason.removeprefix(f"{at.text}: ")  # some errors begin with the entry
        self.left_out.append(f"{at.file}:{at.line}: {text}: {reason[:_MOST_CHARACTERS]}" if text else reason)

    def _is_shareable(self, one: PipLine) -> bool:
        if one.url and without_secret(one.url)[1]:
            self.leave(one, "the URL contains a secret, which is not copied; keep it in ~/.netrc")
            return False
        return True

    # -- conda ---------------------------------------------------------------------------------------

    def read_conda(self, path: Path) -> None:
        shown = show_path(path)
        for key, node in parse(as_utf8(read_bytes(path, shown), shown), shown).pairs:
            name = same_key(key.text)
            if name in ("dependencies", "channels") and not isinstance(node, Sequence):
                if not (isinstance(node, Scalar) and node.null):
                    self.leave(Line(f"{key.text}: {_text(node)}", shown, key.line), "not a list")
            elif isinstance(node, Sequence) and name == "dependencies":
                for one in node.items:
                    self._conda(one, path, shown)
            elif isinstance(node, Sequence) and name == "channels":
                for one in node.items:
                    self._channel(one, shown)
            elif name != "name":
                self.leave(Line(key.text, shown, key.line), "this key is not imported")

    def _conda(self, item: Any, path: Path, shown: str) -> None:
        if isinstance(item, Mapping):
            for key, value in item.pairs:
                if key.text == "pip":
                    self._pip(value, path, shown)
                else:
                    at = Line(f"{key.text}: {_text(value)}", shown, key.line)
                    self.leave(at, "only `pip:` can have nested entries")
        elif not isinstance(item, Scalar) or item.null:
            self.leave(Line(_text(item), shown, item.line), "not a package")
        else:
            at = Line(item.text.strip(), shown, item.line)
            try:
                entry = conda_entry(at.text, shown, item.line)
                if not one_line(at.text) or without_secret(at.text)[1]:
                    raise ConfigError("contains a control character or a secret")
            except ConfigError as error:
                self.leave(at, error.text)
            else:
                self.conda.append(entry.text)

    def _pip(self, value: Any, path: Path, shown: str) -> None:
        """The entries of ``pip:``; a single one may stand there without a list."""
        if isinstance(value, Scalar) and value.null:
            return
        for item in value.items if isinstance(value, Sequence) else (value,):
            at = Line(_text(item).strip(), shown, item.line)
            if isinstance(item, Scalar) and not item.null:
                self.add(at, path)
            else:
                self.leave(at, "not a package")

    def _channel(self, item: Any, shown: str) -> None:
        if not isinstance(item, Scalar) or item.null:
            return self.leave(Line(_text(item), shown, item.line), "not a channel")
        at = Line(item.text.strip(), shown, item.line)
        if not one_line(at.text) or len(at.text) > _MOST_CHARACTERS or without_secret(at.text)[1]:
            return self.leave(at, "the channel is too long or contains a secret")
        self.channels.append(at.text)

    # -- pyproject.toml ------------------------------------------------------------------------------

    def read_pyproject(self, path: Path) -> None:
        data, text = load_toml(path)
        shown = show_path(path)
        project, tool = _table(data.get("project")), _table(data.get("tool"))
        self._python(project.get("requires-python"), shown)
        entries = project.get("dependencies")
        for one in entries[: _MOST + 1] if isinstance(entries, list) else ():
            if isinstance(one, str):
                self.add(Line(one.strip(), shown, _line_of(text, one)), path)
        if "dependencies" in (project.get("dynamic") or ()):
            self._dynamic(_table(_table(tool.get("setuptools")).get("dynamic")), path, text)
        self._poetry(_table(tool.get("poetry")), path, text)
        groups = {"project.optional-dependencies": project.get("optional-dependencies")}
        groups |= {"dependency-groups": data.get("dependency-groups")}
        groups |= {f"tool.{name}": tool.get(name) for name in ("pdm", "hatch", "pixi")}
        uv = _table(tool.get("uv"))
        groups |= {f"tool.uv.{name}": uv.get(name) for name in ("index", "index-url", "extra-index-url", "sources")}
        for name, value in groups.items():
            if value:
                self.left_out.append(f"{shown}: [{name}] is not imported{_names(value)}")

    def _dynamic(self, setuptools: dict[str, Any], path: Path, text: str) -> None:
        """Dependencies that setuptools reads from files; another build backend has to be run for them."""
        files = _table(setuptools.get("dependencies")).get("file")
        names = [files] if isinstance(files, str) else files if isinstance(files, list) else []
        shown = show_path(path)
        for name in names:
            self.add(Line(f"-r {name}", shown, _line_of(text, str(name))), path)
        if not names:
            self.left_out.append(f"{shown}: dynamic dependencies are not imported: they require the build backend")

    def _poetry(self, poetry: dict[str, Any], path: Path, text: str) -> None:
        shown = show_path(path)
        for name, value in islice(_table(poetry.get("dependencies")).items(), _MOST + 1):
            at = Line(name, shown, _line_of_key(text, name))
            wanted = poetry_requirement(name, value)
            if wanted is None:
                self.leave(at, f"not a plain version; {EXPORT}")
            elif name == "python":
                self._python(wanted.removeprefix(name) or None, shown)
            else:
                self.add(Line(wanted, shown, at.line), path)
        others = [name for name in ("group", "dev-dependencies", "source", "extras") if poetry.get(name)]
        for name in others:
            self.left_out.append(f"{shown}: [tool.poetry.{name}] is not imported{_names(poetry[name])}; {EXPORT}")

    def _python(self, pin: Any, shown: str) -> None:
        if not isinstance(pin, str):
            return
        try:
            satisfies("3.11.0", pin)
        except ConfigError as error:
            self.left_out.append(f"{shown}: requires-python: {error.message[:_MOST_CHARACTERS]}")
        else:
            self.conda.append(f"python{pin.replace(' ', '')}")


def _line_of(text: str, entry: str) -> int:
    return text[: max(text.find(entry), 0)].count("\n") + 1


def _line_of_key(text: str, key: str) -> int:
    found = re.search(rf"""^\s*["']?{re.escape(key)}["']?\s*=""", text, re.MULTILINE)
    return _line_of(text, found[0].lstrip()) if found else 1


def _text(node: Any) -> str:
    return (node.text or "null") if isinstance(node, Scalar) else describe(node)


def _names(value: Any) -> str:
    names: Iterable[Any] = value if isinstance(value, dict) else ()
    shown = ", ".join(str(one)[:40] for one in list(names)[:5])
    return f": {shown}" if shown else ""


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _scalar(text: str) -> str:
    """As YAML reads it back as this very text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
