"""Resolve pip packages with uv: from requirements and a platform to exact files with digests."""

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
from ..remote.shared.network_errors import find_network_error
from ..remote.shared.program_lookup import is_shim, safe_path, which
from .credentials import credentials_in, headers_for, withheld_host
from .dependencies import PipLine
from .local_files import allowed_file, check_repository, digest_of, local_folders, local_path
from .no_build_python import guard_options
from .package_sources import Indexes, keyring_filler, mask, strip_secret, user_indexes
from .platforms import Platform
from .solver_messages import is_single_line, shorten
from .source_builds import BuildPolicy, ResolveContext, resolve
from .uv_process import run_limited
from .uv_variables import uv_environment

_NOISE = re.compile(r"^(warning|hint|Resolved|Using)\b")
_BUILD_FAILURE = re.compile(r"Failed to (?:build|download and build) `([^`]+)`")


@dataclass(frozen=True)
class PipRequest:
    """The pip packages to resolve, their sources, the Python version, and the platform."""

    lines: Sequence[str]
    platform: Platform
    python: str  # "3.11" or "3.11.9"
    indexes: Indexes = Indexes()
    constraints: Sequence[str] = ()
    provided: Mapping[str, str] = field(default_factory=dict)  # already installed by conda: name → version
    root: Path = field(default_factory=Path)
    file: str = "the project"
    options: Sequence[str] = ()  # for uv: --pre, --no-deps …
    builds: BuildPolicy = BuildPolicy()
    cache: Path | None = None  # persistent folder that speeds up later uv calls
    folders: Sequence[Path] = ()  # allowed folders outside the project


@dataclass(frozen=True)
class PipResult:
    """The lock entries and the local files among them, as digest → path."""

    packages: tuple[JsonDict, ...]
    files: Mapping[str, Path]


def solve_pip(request: PipRequest, environ: Mapping[str, str]) -> PipResult:
    """Resolve the packages and their dependencies to exact files."""
    if not request.lines:
        return PipResult((), {})
    with tempfile.TemporaryDirectory(prefix="mlw-solve-") as folder:
        answer = _compile(request, Path(folder), environ)
    user = user_indexes(environ, request.root)
    folders = [request.root, *request.folders, *local_folders(user.addresses(), request.root)]
    return _to_result(answer, request, folders)


def format_requirement(line: PipLine) -> str:
    """Format an entry for uv, which runs in the project folder."""
    name = (line.name or "") + (f"[{','.join(line.extras)}]" if line.extras else "")
    marker = f" ; {line.marker}" if line.marker else ""
    location = line.url or (f"./{line.path}" if line.path else None)
    if location is None:
        text = name + line.specifier
    elif line.name and line.url:
        text = f"{name} @ {location}"
    else:
        text = location
    return " ".join([text + marker, *(f"--hash={digest}" for digest in line.hashes)])


def find_uv(environ: Mapping[str, str]) -> str:
    """Return the path of uv: the one installed with mlw, else the first one on PATH."""
    bundled = Path(sys.prefix) / ("Scripts" if os.name == "nt" else "bin") / ("uv.exe" if os.name == "nt" else "uv")
    if bundled.is_file():
        return str(bundled)
    path = which("uv", environ.get("PATH"))
    if not path or is_shim(path):  # in the project folder, a shim starts the program that the project selects
        hint = "install it in the environment of mlw: pip install uv"
        raise SolveError("pip packages require uv, which is not installed", hint)
    return path


def run_uv(
    arguments: Sequence[str], environ: Mapping[str, str], folder: Path, *, reads_project: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run uv with the user's settings and return its result.

    If ``reads_project`` is true, uv does not get variables that may contain secrets, because project
    files may refer to them.
    """
    allowed = uv_environment(environ) if reads_project else environ
    # Use the system certificates, which include company certificates. A file set in the environment takes precedence.
    settings = {"UV_SYSTEM_CERTS": "1", **allowed, "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    settings["PATH"] = safe_path(environ.get("PATH"))  # where uv looks for git
    return run_limited([find_uv(environ), *arguments], settings, folder)


# -- running uv --------------------------------------------------------------------------------------


def _compile(request: PipRequest, folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return uv's result, a ``pylock.toml``. Only packages that the user allows may run code here."""
    source, limits = folder / "requirements.in", folder / "constraints.txt"
    stubs = folder / "provided"
    stubs.mkdir()
    for name, version in request.provided.items():
        write_stub(stubs, name, version)
    links = [f"-f {stubs}"] if request.provided else []
    _write(limits, [*request.constraints, *(f"{name}=={version}" for name, version in request.provided.items())])
    arguments = ["pip", "compile", str(source), "--format", "pylock.toml", "--no-header", "--no-annotate", "--quiet"]
    arguments += ["--python-platform", request.platform.uv_name, "--python-version", request.python]
    # Select the best version from all indexes, as pip does: old files list a second index for some packages.
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match", **environ, "UV_PYTHON_DOWNLOADS": "never"}
    if settings.pop("UV_NO_CACHE", None):
        settings["UV_CACHE_DIR"] = str(folder / "cache")  # so that later uv calls find the builds

    fill = keyring_filler(environ, request.root)

    def ask(options: Sequence[str], lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
        _write(source, [*map(fill, request.indexes.lines()), *links, *map(fill, lines)])
        return run_uv([*arguments, *options], settings, request.root)

    options = ["--constraint", str(limits), *request.options]
    for name in request.provided:
        options += ["--no-emit-package", name]
    asking = ResolveContext(
        run_uv=ask,
        explain=lambda stderr: _explain(stderr, request, folder, withheld_host(request.indexes.addresses(), environ)),
        fetch=lambda url, path: _fetch(url, path, [*map(fill, request.indexes.addresses())], environ),
        guard=guard_options(find_uv(environ), run_uv, settings, request.cache or folder),
        options=options,
        lines=request.lines,
        file=request.file,
        builds=request.builds,
    )
    return resolve(asking, folder)


def _fetch(url: str, path: Path, addresses: Sequence[str], environ: Mapping[str, str]) -> str:
    from ..remote.environments import build_tools  # noqa: PLC0415 - seldom needed, and slow to import

    headers = headers_for(url, credentials_in((*addresses, url)), environ)
    host = urlsplit(url).netloc.rpartition("@")[2]
    try:
        return build_tools.fetch(urlsplit(url)._replace(netloc=host).geturl(), str(path), headers)
    except build_tools.NotFetched as error:
        raise NotFetched(f"cannot fetch {mask(url)}: {error.why}", "try again", more="index-not-reached") from None


def _write(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file that only this user can read, as index URLs may contain passwords."""
    lines = list(lines)
    broken = next((line for line in lines if not is_single_line(line)), None)
    if broken is not None:  # uv would read text after a line break as an option
        raise ConfigError(f"{mask(broken[:200])!r} is not a single line", "use one line per package or option")
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(line + "\n" for line in lines)


def write_stub(folder: Path, name: str, version: str) -> None:
    """Write an empty wheel for a conda package, so that pip packages match it and never replace it."""
    base = f"{re.sub('[-_.]+', '_', name)}-{version}"
    info = f"{base}.dist-info"
    with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def _explain(stderr: str, request: PipRequest, folder: Path, host: str | None) -> SolveError:
    """Convert uv's error output to a SolveError.

    ``host`` is an index host to which mlw did not send the user's password, or None.
    """
    lines = [line for line in mask(stderr).splitlines() if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.startswith("error:")), 0)
    message_lines = [line for line in lines[start:] if not _NOISE.match(line)]
    text = "\n".join(message_lines).replace(str(folder), "").removeprefix("error: ")
    text = re.sub(r"^\s*cause: ", "", text, flags=re.MULTILINE)
    failure = _BUILD_FAILURE.search(text)
    if failure:  # a build traceback is long; its last line is the reason
        text = f"{message_lines[0].removeprefix('error: ')}\n{message_lines[-1].strip()}"
        hint = f"no wheel of {failure[1]} for Python {request.python}: use another version"
    elif find_network_error(text):
        hint = "check the internet connection and the proxy variables"
        return NotFetched(f"cannot reach the package index:\n{shorten(text)}", hint, more="index-not-reached")
    elif "was not found in the package registry" in " ".join(text.split()):  # uv may wrap the text anywhere
        hint = f"check the spelling in {request.file}, or add the index that has it with --extra-index-url"
    else:
        hint = f"change the versions in {request.file}"
    if host:
        hint += (
            f"; mlw does not send your .netrc password to {host}, an index of the project; if you trust it, run:"
            f" mlw settings add index-hosts {host}"
        )
    problem = f"cannot resolve the pip packages of {request.file}:\n{shorten(text)}"
    return SolveError(problem, hint, more="cannot-be-solved")


# -- parsing uv's result -----------------------------------------------------------------------------


def _to_result(answer: Mapping[str, Any], request: PipRequest, folders: Sequence[Path]) -> PipResult:
    packages, files = [], {}
    for package in answer.get("packages", ()):
        entry, path = _to_lock_entry(package, request, folders)
        packages.append(entry)
        if path is not None:
            files[str(entry["sha256"])] = path
    return PipResult(tuple(sorted(packages, key=lambda package: str(package["name"]))), files)


def _to_lock_entry(
    package: Mapping[str, Any], request: PipRequest, folders: Sequence[Path]
) -> tuple[JsonDict, Path | None]:
    entry: JsonDict = {"name": package["name"], "version": package.get("version")}
    if "vcs" in package:
        vcs = package["vcs"]
        check_repository(str(package["name"]), str(vcs.get("url") or vcs.get("path") or ""))
        url, _ = strip_secret(str(vcs["url"]))
        return {**entry, "git": url, "commit": vcs["commit-id"], "folder": vcs.get("subdirectory")}, None
    if "directory" in package:
        hint = "build a wheel and use that"
        raise ConfigError(
            f"{package['name']} is a folder; installing packages from source folders is not supported", hint
        )
    file = (package.get("wheels") or [None])[0] or package.get("archive") or package.get("sdist")
    if file is None:
        raise SolveError(f"the index has no file for {package['name']} {package.get('version')}", "use another version")
    path = local_path(file, request.root)
    sha256 = file.get("hashes", {}).get("sha256")
    if path is not None:
        path = allowed_file(str(package["name"]), path, folders)
        data = {"file": path.name, "sha256": sha256 or digest_of(path), "size": path.stat().st_size}
        return {**entry, **data}, path
    if not sha256:
        raise SolveError(
            f"the index has no SHA-256 for {package['name']} {package.get('version')}",
            "download the file into the project and reference it under `pip:`",
        )
    url, private = strip_secret(str(file["url"]))
    private = private or urlsplit(url).netloc in request.indexes.hosts_with_password()
    entry = {**entry, "url": url, "sha256": sha256, "size": file.get("size")}
    return {**entry, "private": True} if private else entry, None
