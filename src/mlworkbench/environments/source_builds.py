"""Source packages among pip's: resolved by static metadata, or by a build that the user has allowed, or refused.

uv runs behind ``build_guard``: it reads static metadata of source packages itself and stops where it would have to run
a build script. A version is never replaced by another because it lacks a wheel.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import SolveError
from ..model import JsonDict
from .build_guard import was_stopped
from .channels import mask, without_secret
from .dependencies import Dependencies

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MOST_BUILDS = 20
_STOPPED = re.compile(r"Failed to (?:build|download and build) `([A-Za-z0-9._-]+?)(==| @ )([^`]+)`")

Answer = CompletedProcess[str]


@dataclass(frozen=True)
class Builds:
    """Packages that may run their build scripts on this machine, by normalized names."""

    remembered: frozenset[str] = frozenset()  # from the user's settings: for packages of the user's own indexes
    named: frozenset[str] = frozenset()  # for this command: wherever the package comes from
    dry: bool = False  # run none
    foreign: bool = False  # the project names indexes, which may have other packages under these names

    def within(self, asked: Dependencies) -> Builds:
        """For one project."""
        return replace(self, foreign=bool(asked.index_url or asked.extra_index_urls or asked.find_links))

    def is_own(self, package: Stopped) -> bool:
        """Whether it comes from the user's own indexes.

        What an address or an index of the project has under a name is for the project to choose: consent that was
        given elsewhere does not extend to it.
        """
        return not package.by_address and not self.foreign

    def allows(self, package: Stopped) -> bool:
        return package.name in (self.named | self.remembered if self.is_own(package) else self.named)


@dataclass(frozen=True)
class Stopped:
    """A source package at whose build uv was stopped."""

    name: str
    by_address: bool
    place: str  # its version, or the address without its password

    @property
    def line(self) -> str:
        return f"{self.name} @ {self.place}" if self.by_address else f"{self.name}=={self.place}"


@dataclass(frozen=True)
class Asking:
    """How uv is asked. ``ask``: options and lines of requirements to uv's answer."""

    ask: Callable[[Sequence[str], Sequence[str]], Answer]
    explain: Callable[[str], SolveError]  # any other failure, as an error of mlw
    fetch: Callable[[str, Path], str]  # an address to a file, and its SHA-256
    guard: Sequence[str]  # options with which uv cannot build
    options: Sequence[str]
    lines: Sequence[str]
    file: str  # that names the packages
    builds: Builds


def resolve(asking: Asking, folder: Path) -> dict[str, Any]:
    """uv's answer, a ``pylock.toml``, without a build that was not allowed."""
    known, built, kept = known_sources(), dict[Stopped, Answer](), Kept(folder / "kept")
    while True:
        options = [*asking.guard, *asking.options, *kept.options, "--config-file", str(_settings(known, folder))]
        done = asking.ask(options, asking.lines)
        if not done.returncode:
            answer = kept.restored(tomllib.loads(done.stdout))
            right = tuple(one for one in known if not _differs(one, answer))
            if right == known:
                return answer
            known = right
            continue
        if not was_stopped(done.stderr):
            raise asking.explain(done.stderr)
        package = _stopped(done.stderr, asking)
        if not asking.builds.allows(package) or asking.builds.dry:
            raise _refusal(package, asking)
        if package in built:  # and uv has not found again what was built
            if built[package].returncode:
                raise asking.explain(built[package].stderr)
            kept.add(package, asking)
        elif len(built) == _MOST_BUILDS:
            hint = f"pin exact versions in {asking.file}"
            raise SolveError(f"too many source packages to build: more than {_MOST_BUILDS}", hint)
        built[package] = _build(package, asking, kept.options)


def _stopped(said: str, asking: Asking) -> Stopped:
    found = _STOPPED.search(" ".join(said.split()))
    if found is None:
        raise SolveError(
            f"{asking.file} lists a source package by URL only; finding its name would run its build script on this"
            " machine",
            "use NAME @ URL, or build a wheel and use that",
            more="source-package",
        )
    name = re.sub(r"[-_.]+", "-", found[1]).lower()
    return Stopped(name, found[2] == " @ ", mask(found[3]))


def _build(package: Stopped, asking: Asking, options: Sequence[str]) -> Answer:
    """Let uv build this package only: it keeps the metadata, and finds it there when it is asked again."""
    line = next((one for one in asking.lines if package.by_address and _names(one, package)), package.line)
    words = ["--only-binary", ":all:", "--no-binary", package.name, "--no-config", "--python", sys.executable]
    return asking.ask([*words, *options], [line])


def _names(line: str, package: Stopped) -> bool:
    """Whether a line of the project has the address, with the password that uv does not show."""
    words = line.split(" ; ")[0].split(" --hash=")[0].split(" @ ")
    return without_secret(words[-1].strip())[0] == without_secret(package.place)[0]


class Kept:
    """Archives of servers that do not let uv keep them: in a folder, where uv finds again what it has built of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: dict[str, Mapping[str, Any]] = {}  # address in the folder → the archive as the index has it

    @property
    def options(self) -> list[str]:
        return ["--find-links", str(self._folder)] if self._sources else []

    def add(self, package: Stopped, asking: Asking) -> None:
        done = asking.ask([*asking.guard, "--no-deps", "--no-config"], [package.line])
        packages = tomllib.loads(done.stdout).get("packages", ()) if not done.returncode else ()
        source = next((one["sdist"] for one in packages if "sdist" in one), None)
        url = str(source.get("url", "")) if source else ""
        path = self._folder / unquote(urlsplit(url).path).rsplit("/", 1)[-1]
        if not source or path.as_uri() in self._sources:
            raise SolveError(
                f"{package.line} was built, but its server does not allow caching, so the result is lost",
                "download the archive into the project and reference it there",
                more="source-package",
            )
        self._folder.mkdir(exist_ok=True)
        if asking.fetch(url, path) != source.get("hashes", {}).get("sha256"):
            raise SolveError(f"SHA-256 of {mask(url)} does not match the index", "try again")
        self._sources[path.as_uri()] = source

    def restored(self, answer: dict[str, Any]) -> dict[str, Any]:
        """uv's answer with the addresses of the index."""
        for one in answer.get("packages", ()):
            if "sdist" in one:
                one["sdist"] = self._sources.get(str(one["sdist"].get("url")), one["sdist"])
        return answer


def _refusal(package: Stopped, asking: Asking) -> SolveError:
    what = package.line if package.by_address else f"{package.name} {package.place}"
    problem = f"{what} is a source package without static metadata; resolving it would run its build script"
    allow = f"--allow-build {package.name}"
    # A submit in the browser takes no options.
    if asking.builds.is_own(package):
        consent = f"{allow} (for the browser: mlw settings add allowed-builds {package.name})"
    elif package.name in asking.builds.remembered:
        consent = f"{allow} (your settings allow it only for packages from your own indexes; before submitting in the"
        consent += f" browser, run: mlw experiment prepare {allow})"
    else:
        consent = f"{allow} (before submitting in the browser, run: mlw experiment prepare {allow})"
    if asking.builds.allows(package):
        hint = f"--dry-run does not run build scripts; run this first: mlw experiment prepare {allow}"
    elif package.by_address:
        hint = f"build a wheel and use that, or allow the build script to run on this machine: {consent}"
    else:
        newest = _newest_wheel(package.name, asking)
        choice = f"use {newest}, the newest version with a wheel" if newest else "no version has a wheel"
        hint = f"{choice}; or allow the build script to run on this machine: {consent}"
    return SolveError(problem, hint, more="source-package")


def _newest_wheel(name: str, asking: Asking) -> str | None:
    words = ["--only-binary", ":all:", "--no-deps", "--no-config", "--python", sys.executable]
    done = asking.ask(words, [name])
    packages = tomllib.loads(done.stdout).get("packages", ()) if not done.returncode else ()
    return next((str(one["version"]) for one in packages if "version" in one), None)


# -- archives whose metadata we know ---------------------------------------------------------------------


@cache
def known_sources() -> tuple[JsonDict, ...]:
    """Archives that were inspected: their metadata is what their build scripts produce, though not marked static.

    ``scripts/record-source-metadata`` makes the list.
    """
    text = Path(__file__).with_name("known_sources.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


def _settings(known: Sequence[JsonDict], folder: Path) -> Path:
    """A file of settings for uv, and in place of all that it would look for: it takes these metadata as they are."""
    path = folder / "uv.toml"
    keys = ("name", "version", "requires-dist", "requires-python", "provides-extra")
    tables = (
        "[[dependency-metadata]]\n" + "".join(f"{key} = {json.dumps(one[key])}\n" for key in keys) for one in known
    )
    path.write_text("\n".join(tables), encoding="utf-8")
    return path


def _differs(known: JsonDict, answer: Mapping[str, Any]) -> bool:
    """Whether an index has another file under that name and version: then nothing is known of it."""
    same = [one for one in answer.get("packages", ()) if one["name"] == known["name"]]
    return any(
        one.get("version") in (None, known["version"]) and set(_digests(one)) != {known["sha256"]} for one in same
    )


def _digests(package: Mapping[str, Any]) -> Iterator[str | None]:
    """Of the files that may be installed; a wheel or another source is another file."""
    files = [*package.get("wheels", ()), package.get("archive"), package.get("sdist"), package.get("vcs")]
    yield from (one.get("hashes", {}).get("sha256") for one in files if one)
