"""Pip packages by uv: from requirements and a platform to exact files with their digests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError, NotFetched, SolveError
from ..model import JsonDict
from ..remote.shared.network_errors import why_not_reached
from ..remote.shared.programs import is_shim, safe_path, which
from .build_guard import guard_words
from .channels import Indexes, keyring_filler, mask, user_indexes, without_secret
from .credentials import credentials_in, headers_for, withheld
from .dependencies import PipLine
from .local_files import allowed_file, check_repository, digest_of, folders_of, local_path
from .platforms import Platform
from .sources import Asking, Builds, resolve
from .uv_environment import uv_environment
from .uv_process import run_bounded
from .words import one_line, shorten

_NOISE = re.compile(r"^(warning|hint|Resolved|Using)\b")
_BUILDS = re.compile(r"Failed to (?:build|download and build) `([^`]+)`")


@dataclass(frozen=True)
class Wanted:
    """What to look for, where, and for which Python on which platform."""

    lines: Sequence[str]
    platform: Platform
    python: str  # "3.11" or "3.11.9"
    indexes: Indexes = Indexes()
    constraints: Sequence[str] = ()
    provided: Mapping[str, str] = field(default_factory=dict)  # installed already, by conda: name → version
    root: Path = field(default_factory=Path)
    file: str = "the project"
    options: Sequence[str] = ()  # of uv: --pre, --no-deps …
    builds: Builds = Builds()
    cache: Path | None = None  # a folder that stays: uv is asked faster
    folders: Sequence[Path] = ()  # outside the project, whose packages may be used


@dataclass(frozen=True)
class Found:
    """Entries of a lock, and those of them that are files of this machine: digest → path."""

    packages: tuple[JsonDict, ...]
    files: Mapping[str, Path]


def solve_pip(wanted: Wanted, environ: Mapping[str, str]) -> Found:
    """Exact files for what is wanted, dependencies included."""
    if not wanted.lines:
        return Found((), {})
    with tempfile.TemporaryDirectory(prefix="mlw-solve-") as folder:
        answer = _compile(wanted, Path(folder), environ)
    own = user_indexes(environ, wanted.root)
    folders = [wanted.root, *wanted.folders, *folders_of(own.places(), wanted.root)]
    return _found(answer, wanted, folders)


def requirement(line: PipLine) -> str:
    """One entry as uv reads it, from the project's folder."""
    name = (line.name or "") + (f"[{','.join(line.extras)}]" if line.extras else "")
    marker = f" ; {line.marker}" if line.marker else ""
    place = line.url or (f"./{line.path}" if line.path else None)
    if place is None:
        text = name + line.specifier
    elif line.name and line.url:
        text = f"{name} @ {place}"
    else:
        text = place
    return " ".join([text + marker, *(f"--hash={one}" for one in line.hashes)])


def find_uv(environ: Mapping[str, str]) -> str:
    """uv's program: the one beside mlw, else the first on PATH."""
    beside = Path(sys.prefix) / ("Scripts" if os.name == "nt" else "bin") / ("uv.exe" if os.name == "nt" else "uv")
    if beside.is_file():
        return str(beside)
    found = which("uv", environ.get("PATH"))
    if not found or is_shim(found):  # uv runs in the project, where a shim would start what the project names
        hint = "install it in the environment of mlw: pip install uv"
        raise SolveError("pip packages require uv, which is not installed", hint)
    return found


def run_uv(
    words: Sequence[str], environ: Mapping[str, str], folder: Path, *, reads_project: bool = True
) -> subprocess.CompletedProcess[str]:
    """uv's answer, with the user's own settings in the environment.

    ``reads_project``: what it reads may name variables, so that it gets none that could hold a secret.
    """
    given = uv_environment(environ) if reads_project else environ
    # Certificates of this machine: companies have their own. A file named in the environment still wins.
    settings = {"UV_SYSTEM_CERTS": "1", **given, "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    settings["PATH"] = safe_path(environ.get("PATH"))  # where uv looks for git
    return run_bounded([find_uv(environ), *words], settings, folder)


# -- asking uv ---------------------------------------------------------------------------------------


def _compile(wanted: Wanted, folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """uv's answer, a pylock.toml. No package of it runs code here, but for those that the user has allowed."""
    source, limits = folder / "requirements.in", folder / "constraints.txt"
    stubs = folder / "provided"
    stubs.mkdir()
    for name, version in wanted.provided.items():
        write_stub(stubs, name, version)
    links = [f"-f {stubs}"] if wanted.provided else []
    _write(limits, [*wanted.constraints, *(f"{name}=={version}" for name, version in wanted.provided.items())])
    words = ["pip", "compile", str(source), "--format", "pylock.toml", "--no-header", "--no-annotate", "--quiet"]
    words += ["--python-platform", wanted.platform.uv, "--python-version", wanted.python]
    # As pip does it: files of that time name a second index for some packages, and pip took the best of both.
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match", **environ, "UV_PYTHON_DOWNLOADS": "never"}
    if settings.pop("UV_NO_CACHE", None):
        settings["UV_CACHE_DIR"] = str(folder / "cache")  # what was built must be found again when uv is asked again

    fill = keyring_filler(environ, wanted.root)

    def ask(options: Sequence[str], lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
        _write(source, [*map(fill, wanted.indexes.lines()), *links, *map(fill, lines)])
        return run_uv([*words, *options], settings, wanted.root)

    options = ["--constraint", str(limits), *wanted.options]
    for name in wanted.provided:
        options += ["--no-emit-package", name]
    asking = Asking(
        ask=ask,
        explain=lambda said: _explain(said, wanted, folder, withheld(wanted.indexes.places(), environ)),
        fetch=lambda url, path: _fetch(url, path, [*map(fill, wanted.indexes.places())], environ),
        guard=guard_words(find_uv(environ), run_uv, settings, wanted.cache or folder),
        options=options,
        lines=wanted.lines,
        file=wanted.file,
        builds=wanted.builds,
    )
    return resolve(asking, folder)


def _fetch(url: str, path: Path, places: Sequence[str], environ: Mapping[str, str]) -> str:
    from ..remote.environments import tools  # noqa: PLC0415 - seldom needed, and slow to import

    headers = headers_for(url, credentials_in((*places, url)), environ)
    host = urlsplit(url).netloc.rpartition("@")[2]
    try:
        return tools.fetch(urlsplit(url)._replace(netloc=host).geturl(), str(path), headers)
    except tools.NotFetched as error:
        raise NotFetched(f"cannot fetch {mask(url)}: {error.why}", "try again", more="index-not-reached") from None


def _write(path: Path, lines: Iterable[str]) -> None:
    """Readable by this user only: an index's address may hold a password."""
    lines = list(lines)
    broken = next((line for line in lines if not one_line(line)), None)
    if broken is not None:  # what follows the line break would be an option of uv
        raise ConfigError(f"{mask(broken[:200])!r} is not a single line", "use one line per package or option")
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(line + "\n" for line in lines)


def write_stub(folder: Path, name: str, version: str) -> None:
    """An empty wheel in place of a package that conda installs: pip's packages must fit it, and are not to bring it."""
    base = f"{re.sub('[-_.]+', '_', name)}-{version}"
    info = f"{base}.dist-info"
    with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def _explain(said: str, wanted: Wanted, folder: Path, unnamed: str | None) -> SolveError:
    """``unnamed``: an index that got no password, although the user has one for its host."""
    lines = [line for line in mask(said).splitlines() if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.startswith("error:")), 0)
    told = [line for line in lines[start:] if not _NOISE.match(line)]
    text = "\n".join(told).replace(str(folder), "").removeprefix("error: ")
    text = re.sub(r"^\s*cause: ", "", text, flags=re.MULTILINE)
    built = _BUILDS.search(text)
    if built:  # the traceback of a build is long, and its last line says it
        text = f"{told[0].removeprefix('error: ')}\n{told[-1].strip()}"
        hint = f"no wheel of {built[1]} for Python {wanted.python}: use another version"
    elif why_not_reached(text):
        hint = "check the internet connection and the proxy variables"
        return NotFetched(f"cannot reach the package index:\n{shorten(text)}", hint, more="index-not-reached")
    elif "was not found in the package registry" in " ".join(text.split()):  # uv breaks its lines anywhere
        hint = f"check the spelling in {wanted.file}, or add the index that has it with --extra-index-url"
    else:
        hint = f"change the versions in {wanted.file}"
    if unnamed:
        hint += (
            f"; mlw does not send your .netrc password to {unnamed}, an index of the project; if you trust it, run:"
            f" mlw settings add index-hosts {unnamed}"
        )
    problem = f"cannot resolve the pip packages of {wanted.file}:\n{shorten(text)}"
    return SolveError(problem, hint, more="cannot-be-solved")


# -- its answer --------------------------------------------------------------------------------------


def _found(answer: Mapping[str, Any], wanted: Wanted, folders: Sequence[Path]) -> Found:
    packages, files = [], {}
    for one in answer.get("packages", ()):
        made, path = _entry(one, wanted, folders)
        packages.append(made)
        if path is not None:
            files[str(made["sha256"])] = path
    return Found(tuple(sorted(packages, key=lambda one: str(one["name"]))), files)


def _entry(one: Mapping[str, Any], wanted: Wanted, folders: Sequence[Path]) -> tuple[JsonDict, Path | None]:
    made: JsonDict = {"name": one["name"], "version": one.get("version")}
    if "vcs" in one:
        vcs = one["vcs"]
        check_repository(str(one["name"]), str(vcs.get("url") or vcs.get("path") or ""))
        url, _ = without_secret(str(vcs["url"]))
        return {**made, "git": url, "commit": vcs["commit-id"], "folder": vcs.get("subdirectory")}, None
    if "directory" in one:
        hint = "build a wheel and use that"
        raise ConfigError(f"{one['name']} is a folder; installing packages from source folders is not supported", hint)
    file = (one.get("wheels") or [None])[0] or one.get("archive") or one.get("sdist")
    if file is None:
        raise SolveError(f"the index has no file for {one['name']} {one.get('version')}", "use another version")
    path = local_path(file, wanted.root)
    sha256 = file.get("hashes", {}).get("sha256")
    if path is not None:
        path = allowed_file(str(one["name"]), path, folders)
        data = {"file": path.name, "sha256": sha256 or digest_of(path), "size": path.stat().st_size}
        return {**made, **data}, path
    if not sha256:
        raise SolveError(
            f"the index has no SHA-256 for {one['name']} {one.get('version')}",
            "download the file into the project and reference it under `pip:`",
        )
    url, private = without_secret(str(file["url"]))
    private = private or urlsplit(url).netloc in wanted.indexes.hosts_with_password()
    made = {**made, "url": url, "sha256": sha256, "size": file.get("size")}
    return {**made, "private": True} if private else made, None
