"""Source packages from pip: resolved by static metadata, built with the user's consent, or rejected.

uv runs with ``no_build_python``: it reads the static metadata of source packages itself and stops
before running a build script. A version without a wheel is never replaced by another version.
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
from .dependencies import Dependencies
from .no_build_python import was_build_blocked
from .package_sources import mask, strip_secret

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_BUILDS = 20
_BUILD_FAILURE = re.compile(r"Failed to (?:build|download and build) `([A-Za-z0-9._-]+?)(==| @ )([^`]+)`")

Answer = CompletedProcess[str]


@dataclass(frozen=True)
class BuildPolicy:
    """Packages that may run their build scripts on this machine, by normalized name."""

    from_settings: frozenset[str] = frozenset()  # allowed in the user's settings, if from the user's indexes
    named: frozenset[str] = frozenset()  # allowed in this command, from any source
    dry_run: bool = False  # run no build scripts
    has_project_indexes: bool = False  # project indexes may have other packages with these names

    def for_project(self, dependencies: Dependencies) -> BuildPolicy:
        """Return the policy for a project."""
        return replace(
            self,
            has_project_indexes=bool(
                dependencies.index_url or dependencies.extra_index_urls or dependencies.find_links
            ),
        )

    def is_from_user_index(self, package: BlockedPackage) -> bool:
        """Return whether a package comes from the user's indexes.

        A project controls the packages at its own URLs and indexes, so consent in the settings does not
        apply to them.
        """
        return not package.by_url and not self.has_project_indexes

    def allows(self, package: BlockedPackage) -> bool:
        return package.name in (self.named | self.from_settings if self.is_from_user_index(package) else self.named)


@dataclass(frozen=True)
class BlockedPackage:
    """A source package whose build was blocked."""

    name: str
    by_url: bool
    location: str  # version, or URL without password

    @property
    def line(self) -> str:
        return f"{self.name} @ {self.location}" if self.by_url else f"{self.name}=={self.location}"


@dataclass(frozen=True)
class ResolveContext:
    """Everything needed to resolve with uv. ``run_uv`` takes options and requirement lines, and returns uv's result."""

    run_uv: Callable[[Sequence[str], Sequence[str]], Answer]
    explain: Callable[[str], SolveError]  # converts uv's error output to a SolveError
    fetch: Callable[[str, Path], str]  # downloads a URL to a file and returns its SHA-256
    guard: Sequence[str]  # options that block builds
    options: Sequence[str]
    lines: Sequence[str]
    file: str  # the file that lists the packages
    builds: BuildPolicy


def resolve(context: ResolveContext, folder: Path) -> dict[str, Any]:
    """Return uv's result, a ``pylock.toml``, without running builds that are not allowed."""
    known, built, archives = known_sources(), dict[BlockedPackage, Answer](), ArchiveCache(folder / "kept")
    while True:
        options = [
            *context.guard,
            *context.options,
            *archives.options,
            "--config-file",
            str(_write_settings(known, folder)),
        ]
        result = context.run_uv(options, context.lines)
        if not result.returncode:
            answer = archives.restore_urls(tomllib.loads(result.stdout))
            unchanged = tuple(source for source in known if not _differs(source, answer))
            if unchanged == known:
                return answer
            known = unchanged
            continue
        if not was_build_blocked(result.stderr):
            raise context.explain(result.stderr)
        package = _parse_blocked(result.stderr, context)
        if not context.builds.allows(package) or context.builds.dry_run:
            raise _refusal_error(package, context)
        if package in built:  # uv did not find the result of its build
            if built[package].returncode:
                raise context.explain(built[package].stderr)
            archives.add(package, context)
        elif len(built) == _MAX_BUILDS:
            hint = f"pin exact versions in {context.file}"
            raise SolveError(f"too many source packages to build: more than {_MAX_BUILDS}", hint)
        built[package] = _build(package, context, archives.options)


def _parse_blocked(stderr: str, context: ResolveContext) -> BlockedPackage:
    match = _BUILD_FAILURE.search(" ".join(stderr.split()))
    if match is None:
        raise SolveError(
            f"{context.file} lists a source package by URL only; finding its name would run its build script on this"
            " machine",
            "use NAME @ URL, or build a wheel and use that",
            more="source-package",
        )
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    return BlockedPackage(name, match[2] == " @ ", mask(match[3]))


def _build(package: BlockedPackage, context: ResolveContext, options: Sequence[str]) -> Answer:
    """Let uv build only this package. uv caches the metadata for the next call."""
    line = next(
        (candidate for candidate in context.lines if package.by_url and _refers_to(candidate, package)), package.line
    )
    arguments = ["--only-binary", ":all:", "--no-binary", package.name, "--no-config", "--python", sys.executable]
    return context.run_uv([*arguments, *options], [line])


def _refers_to(line: str, package: BlockedPackage) -> bool:
    """Return whether a project line contains the package's URL.

    The password is ignored, because uv does not print it.
    """
    parts = line.split(" ; ")[0].split(" --hash=")[0].split(" @ ")
    return strip_secret(parts[-1].strip())[0] == strip_secret(package.location)[0]


class ArchiveCache:
    """Local copies of archives from servers that prohibit caching, so that uv finds its builds again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: dict[str, Mapping[str, Any]] = {}  # URL of the local copy → archive on the index

    @property
    def options(self) -> list[str]:
        return ["--find-links", str(self._folder)] if self._sources else []

    def add(self, package: BlockedPackage, context: ResolveContext) -> None:
        result = context.run_uv([*context.guard, "--no-deps", "--no-config"], [package.line])
        packages = tomllib.loads(result.stdout).get("packages", ()) if not result.returncode else ()
        source = next((item["sdist"] for item in packages if "sdist" in item), None)
        url = str(source.get("url", "")) if source else ""
        path = self._folder / unquote(urlsplit(url).path).rsplit("/", 1)[-1]
        if not source or path.as_uri() in self._sources:
            raise SolveError(
                f"{package.line} was built, but its server does not allow caching, so the result is lost",
                "download the archive into the project and reference it there",
                more="source-package",
            )
        self._folder.mkdir(exist_ok=True)
        if context.fetch(url, path) != source.get("hashes", {}).get("sha256"):
            raise SolveError(f"SHA-256 of {mask(url)} does not match the index", "try again")
        self._sources[path.as_uri()] = source

    def restore_urls(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Replace the URLs of local copies in uv's result with those of the index."""
        for package in answer.get("packages", ()):
            if "sdist" in package:
                package["sdist"] = self._sources.get(str(package["sdist"].get("url")), package["sdist"])
        return answer


def _refusal_error(package: BlockedPackage, context: ResolveContext) -> SolveError:
    description = package.line if package.by_url else f"{package.name} {package.location}"
    problem = f"{description} is a source package without static metadata; resolving it would run its build script"
    allow = f"--allow-build {package.name}"
    # The browser UI has no --allow-build option, so the hint names a command instead.
    if context.builds.is_from_user_index(package):
        consent = f"{allow} (for the browser: mlw settings add allowed-builds {package.name})"
    elif package.name in context.builds.from_settings:
        consent = f"{allow} (your settings allow it only for packages from your own indexes; before submitting in the"
        consent += f" browser, run: mlw experiment prepare {allow})"
    else:
        consent = f"{allow} (before submitting in the browser, run: mlw experiment prepare {allow})"
    if context.builds.allows(package):
        hint = f"--dry-run does not run build scripts; run this first: mlw experiment prepare {allow}"
    elif package.by_url:
        hint = f"build a wheel and use that, or allow the build script to run on this machine: {consent}"
    else:
        newest = _newest_wheel(package.name, context)
        choice = f"use {newest}, the newest version with a wheel" if newest else "no version has a wheel"
        hint = f"{choice}; or allow the build script to run on this machine: {consent}"
    return SolveError(problem, hint, more="source-package")


def _newest_wheel(name: str, context: ResolveContext) -> str | None:
    arguments = ["--only-binary", ":all:", "--no-deps", "--no-config", "--python", sys.executable]
    result = context.run_uv(arguments, [name])
    packages = tomllib.loads(result.stdout).get("packages", ()) if not result.returncode else ()
    return next((str(package["version"]) for package in packages if "version" in package), None)


# -- archives with known metadata ------------------------------------------------------------------------


@cache
def known_sources() -> tuple[JsonDict, ...]:
    """Return the archives that are known to have correct metadata, although it is not marked static.

    Their metadata was compared with the result of a build. ``scripts/record-source-metadata`` writes
    the list.
    """
    text = Path(__file__).with_name("known_sources.json").read_text(encoding="utf-8")
    return tuple(json.loads(text))


def _write_settings(known: Sequence[JsonDict], folder: Path) -> Path:
    """Write a uv settings file with this metadata. uv then does not search for other settings files."""
    path = folder / "uv.toml"
    keys = ("name", "version", "requires-dist", "requires-python", "provides-extra")
    tables = (
        "[[dependency-metadata]]\n" + "".join(f"{key} = {json.dumps(source[key])}\n" for key in keys)
        for source in known
    )
    path.write_text("\n".join(tables), encoding="utf-8")
    return path


def _differs(known: JsonDict, answer: Mapping[str, Any]) -> bool:
    """Return whether an index has a different file, with unknown metadata, for this name and version."""
    packages = [package for package in answer.get("packages", ()) if package["name"] == known["name"]]
    return any(
        package.get("version") in (None, known["version"]) and set(_digests(package)) != {known["sha256"]}
        for package in packages
    )


def _digests(package: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield the digests of the files that may be installed.

    Wheels and other sources are included, because their metadata may differ from that of the known file.
    """
    files = [*package.get("wheels", ()), package.get("archive"), package.get("sdist"), package.get("vcs")]
    yield from (file.get("hashes", {}).get("sha256") for file in files if file)
