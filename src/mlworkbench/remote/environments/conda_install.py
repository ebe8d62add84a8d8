"""Installs conda packages with py-rattler: ``python -I -S rattle.py REQUEST``, a process of its own.

REQUEST is a file: {"path": where py-rattler is, "prefix", "cache", "work", "packages": entries of a lock}. Lines on
stdout say how far it is; a failure with a hint is also written to REQUEST.failure. Files are hard links of the cache's
where they hold nothing of the prefix.

The cache contains unpacked packages by the SHA-256 of their archives. py-rattler's own cache has one slot for a name,
version, and build: whoever filled the slot first decides what all others get. So py-rattler gets a cache folder for
this build only, below "work", whose slots are links to the right content.

With "check", no package may contain paths or links that lead out of the prefix: py-rattler reads and writes where they
lead. A package that the cache does not contain must then be a file ("from"). "library" is the ``lib/python3.x`` of the
prefix.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

_OWN = "__clobbers__"  # folder in the prefix that py-rattler uses for files of several packages
# Files that py-rattler reads to find out what to install, and how.
_METADATA = ("index.json", "paths.json", "files", "has_prefix", "no_link", "no_softlink", "link.json")
_MOST_METADATA = 1 << 26  # bytes of one file: the largest packages have some 10 MB
_MOST_STEPS = 4096  # to resolve a link; hostile links can make the path longer with each step
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNPACKED_AT_ONCE = 8
# The number is that of the check: what an older version checked counts as unchecked.
_CHECKED = ".paths-1"
_LEADS_OUT = "%s contains a path outside the environment: %s"


class Mismatch(ValueError):
    """A package is not what the lock says."""

    hint = "re-resolve with --upgrade"


def main(request: Dict[str, Any]) -> None:
    sys.path.insert(0, request["path"])
    import rattler  # noqa: PLC0415 - found only now

    work = request["work"]
    if os.path.lexists(work):  # of a build that was killed
        shutil.rmtree(work)
    os.makedirs(os.path.join(work, "slots"), 0o700)
    try:
        asyncio.run(_install(rattler, request))
    finally:
        # py-rattler may still write after an error. The next build of this environment removes what is left then.
        shutil.rmtree(work, ignore_errors=True)


async def _install(rattler: Any, request: Dict[str, Any]) -> None:
    packages, cache, slots = request["packages"], request["cache"], os.path.join(request["work"], "slots")
    await unpack_files(packages, cache, request["work"])
    if request["check"]:
        contents = [(package, check_paths(rattler, package, cache)) for package in packages]
        check_together(contents, request["library"])
    records = [_record(rattler, package) for package in packages]
    link_slots(packages, cache, slots)
    reporter: Any = _Reporter(len(records))
    await rattler.install(
        records, target_prefix=request["prefix"], cache_dir=slots, show_progress=False, reporter=reporter
    )
    adopt_slots(packages, cache, slots)


# -- the cache -----------------------------------------------------------------------------------------


def content_of(cache: str, package: Dict[str, Any]) -> str:
    """The folder of the unpacked package. Raises ValueError for a package without SHA-256."""
    if not _DIGEST.fullmatch(package.get("sha256") or ""):
        raise ValueError("%s has no SHA-256" % package["name"])
    return os.path.join(cache, package["sha256"])


async def unpack_files(packages: List[Dict[str, Any]], cache: str, work: str) -> None:
    """Unpack the packages that are files ("from") and not in the cache yet. Raises ValueError for another content.

    py-rattler's installer verifies no digest of a file.
    """
    from rattler.networking import Client  # noqa: PLC0415 - found only now
    from rattler.package_streaming import download_and_extract  # noqa: PLC0415

    client, limit = Client(), asyncio.Semaphore(_UNPACKED_AT_ONCE)

    async def unpack(package: Dict[str, Any]) -> None:
        content = content_of(cache, package)
        if not package.get("from") or os.path.isdir(content):
            return
        folder = os.path.join(work, package["sha256"])
        async with limit:
            sha256, _ = await download_and_extract(client, Path(package["from"]).as_uri(), Path(folder))
        if sha256.hex() != package["sha256"]:
            raise Mismatch("%s does not match the lock file: its SHA-256 differs" % package["name"])
        _move(folder, content)

    results = await asyncio.gather(*[unpack(package) for package in packages], return_exceptions=True)
    for result in results:
        if result is not None:
            raise result


def link_slots(packages: List[Dict[str, Any]], cache: str, slots: str) -> None:
    """Let py-rattler find the packages that the cache contains. Raises ValueError if two want the same slot."""
    owners: Dict[str, str] = {}
    for package in packages:
        content = content_of(cache, package)
        for name in _slot_names(package):
            if "/" in name or owners.setdefault(name, content) != content:
                raise ValueError("%s has an invalid file name: %s" % (package["name"], name))
            if os.path.isdir(content):
                os.symlink(content, os.path.join(slots, name))


def adopt_slots(packages: List[Dict[str, Any]], cache: str, slots: str) -> None:
    """Move what py-rattler downloaded for this build to the cache.

    It verifies the SHA-256 of downloads over HTTP, and of nothing else.
    """
    for package in packages:
        if not package["url"].startswith(("https://", "http://")):
            continue
        for name in _slot_names(package):
            slot = os.path.join(slots, name)
            if os.path.isdir(slot) and not os.path.islink(slot):
                _move(slot, content_of(cache, package))


def _move(folder: str, content: str) -> None:
    try:
        os.rename(folder, content)
    except OSError as error:  # another build was faster; its content is the same
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _slot_names(package: Dict[str, Any]) -> Set[str]:
    """Names by which versions of py-rattler look for a package: by its record, or by the file in its address."""
    stem = re.sub(r"(\.conda|\.tar\.bz2)\Z", "", package["url"].rsplit("/", 1)[1])
    return {"%s-%s-%s" % (package["name"].lower(), package["version"], package["build"]), stem}


# -- paths of packages ---------------------------------------------------------------------------------


def check_paths(rattler: Any, package: Dict[str, Any], cache: str) -> Dict[str, Any]:
    """Folders and links of a package in the cache. Raises ValueError if a path leads outside of it.

    A file beside the package contains what was found once.
    """
    folder = content_of(cache, package)
    mark = folder + _CHECKED
    if os.path.exists(mark):
        with open(mark, encoding="ascii") as file:
            known: Dict[str, Any] = json.load(file)
            return known
    content = _inspect(rattler, package["name"], folder)
    part = "%s.%d" % (mark, os.getpid())
    with open(part, "w", encoding="ascii") as file:
        json.dump(content, file)
    os.replace(part, mark)
    return content


def check_together(packages: List[Tuple[Dict[str, Any], Dict[str, Any]]], library: str) -> None:
    """Raise ValueError if a link leads out of the prefix, or a package has paths below a link.

    ``packages``: entries of the lock, each with what ``check_paths`` returned.
    """
    links: Dict[str, Set[str]] = {}
    owners: Dict[str, str] = {}
    folders: Dict[str, str] = {}
    for package, content in packages:
        # The channel's index and the package may differ in this: check both places.
        for pure in {content["pure"], package.get("noarch") == "python"}:
            for path, target in content["links"].items():
                place = _installed(path, pure, library)
                links.setdefault(place, set()).add(target)
                owners[place] = package["name"]
            for path in content["folders"]:
                place = _installed(path, pure, library)
                while place and place not in folders:
                    folders[place] = package["name"]
                    place = place.rpartition("/")[0]
    for place in links:
        if place in folders:
            text = "%s contains paths under %s, which is a link in %s"
            raise ValueError(text % (folders[place], place, owners[place]))
        if not _stays_inside(place, links):
            raise ValueError(_LEADS_OUT % (owners[place], "%s -> %s" % (place, " or ".join(sorted(links[place])))))


def _inspect(rattler: Any, name: str, folder: str) -> Dict[str, Any]:
    """What ``check_together`` needs of an unpacked package. Raises ValueError if a path leads outside of it."""
    for file in _METADATA:
        if _kind(name, folder, "info/" + file, set()) not in (None, stat.S_IFREG):
            raise ValueError("%s contains invalid metadata: info/%s is not a file" % (name, file))
        path = os.path.join(folder, "info", file)
        if os.path.exists(path) and os.path.getsize(path) > _MOST_METADATA:  # it is read into memory
            raise ValueError("%s contains invalid metadata: info/%s is too large" % (name, file))
    paths = _listed(folder)
    for path in paths:
        parts = path.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or ".." in path.split("\\") or parts[0] == _OWN:
            raise ValueError(_LEADS_OUT % (name, path))
    entries = rattler.PathsJson.from_package_directory_with_deprecated_fallback(folder).paths
    if sorted(str(entry.relative_path) for entry in entries) != sorted(paths):
        raise ValueError("%s contains a file list that mlw and py-rattler parse differently" % name)
    real: Set[str] = set()
    links: Dict[str, str] = {}
    for entry in entries:
        path, wanted = str(entry.relative_path), _wanted(entry.path_type)
        if _kind(name, folder, path, real) not in (None, wanted):
            raise ValueError("%s lists %s with a different file type than it contains" % (name, path))
        if wanted == stat.S_IFLNK:
            links[path] = _target(folder, path)
    with open(os.path.join(folder, "info", "index.json"), encoding="utf-8") as index:
        pure = json.load(index, object_pairs_hook=_unique).get("noarch") == "python"
    return {"pure": pure, "folders": sorted({path.rpartition("/")[0] for path in paths}), "links": links}


def _listed(folder: str) -> List[str]:
    """The package's paths, letter by letter: py-rattler's Python objects omit a leading ``./``, and it installs it."""
    try:
        with open(os.path.join(folder, "info", "paths.json"), encoding="utf-8") as file:
            listed = json.load(file, object_pairs_hook=_unique)
    except FileNotFoundError:
        with open(os.path.join(folder, "info", "files"), encoding="utf-8", newline="\n") as file:
            return [line[:-1] if line.endswith("\r") else line for line in file.read().rstrip("\n").split("\n") if line]
    return [str(entry["_path"]) for entry in listed["paths"]]


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a package's metadata contains a duplicate key")
    return dict(pairs)


def _wanted(kind: Any) -> int:
    if kind.softlink:
        return stat.S_IFLNK
    return stat.S_IFDIR if kind.directory else stat.S_IFREG


def _kind(name: str, folder: str, path: str, real: Set[str]) -> Optional[int]:
    """Type of a file in an unpacked package, None if there is none. Its folders must not be links.

    ``real``: folders that were checked before.
    """
    parent = path.rpartition("/")[0]
    if parent and parent not in real:
        if _kind(name, folder, parent, real) not in (None, stat.S_IFDIR):
            raise ValueError("%s contains a path under a link or a file: %s" % (name, path))
        real.add(parent)
    try:
        return stat.S_IFMT(os.lstat(_encoded(folder, path)).st_mode)
    except FileNotFoundError:
        return None  # py-rattler reports it


def _target(folder: str, path: str) -> str:
    try:
        return os.readlink(_encoded(folder, path)).decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


def _encoded(folder: str, path: str) -> bytes:
    """As py-rattler does it in every locale."""
    return os.path.join(os.fsencode(folder), path.encode("utf-8"))


def _installed(path: str, pure: bool, library: str) -> str:
    """Where py-rattler installs a path of a package; ``pure``: of Python code for all platforms."""
    first, _, rest = path.partition("/")
    if pure and first == "site-packages":
        return "%s/%s" % (library, path)
    return "bin/" + rest if pure and first == "python-scripts" and rest else path


def _stays_inside(path: str, links: Dict[str, Set[str]]) -> bool:
    """Whether a link leads to the prefix or below, also by way of other links."""
    start = tuple(path.split("/"))
    waiting: List[Tuple[Tuple[str, ...], Tuple[str, ...]]] = [(start[:-1], start[-1:])]
    seen = set()
    while waiting:
        state = where, rest = waiting.pop()
        if not rest or state in seen:
            continue
        seen.add(state)
        if len(seen) > _MOST_STEPS or (rest[0] == ".." and not where):
            return False
        if rest[0] == "..":
            waiting.append((where[:-1], rest[1:]))
            continue
        targets = links.get("/".join((*where, rest[0])))
        if targets is None:
            waiting.append(((*where, rest[0]), rest[1:]))
            continue
        for target in targets:
            if target.startswith("/"):
                return False
            waiting.append((where, tuple(part for part in target.split("/") if part not in ("", ".")) + rest[1:]))
    return True


def _record(rattler: Any, one: Dict[str, Any]) -> Any:
    build = rattler.BuildString(one["build"]) if hasattr(rattler, "BuildString") else one["build"]
    record = rattler.PackageRecord(
        one["name"],
        one["version"],
        build,
        one["build_number"],
        one["subdir"],
        noarch=one.get("noarch"),
        depends=one["depends"],
        sha256=_bytes(one.get("sha256")),
        md5=_bytes(one.get("md5")),
        size=one.get("size"),
        python_site_packages_path=one.get("python_site_packages_path"),
    )
    channel = one["url"].rpartition("/")[0].rpartition("/")[0] + "/"
    return rattler.RepoDataRecord(record, one["url"].rsplit("/", 1)[1], one["url"], channel)


def _bytes(text: Optional[str]) -> Optional[bytes]:
    return bytes.fromhex(text) if text else None


class _Reporter:
    """Counts. Whatever else a newer py-rattler reports is passed over."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def on_link_complete(self, *_: object) -> None:
        self._done += 1
        sys.stdout.write("conda: %d of %d packages\n" % (self._done, self._total))
        sys.stdout.flush()

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("on_"):
            return lambda *_: 0
        raise AttributeError(name)


if __name__ == "__main__":
    code = 0
    try:
        with open(sys.argv[1], "rb") as file:
            main(json.loads(file.read()))
    except BaseException as error:  # noqa: BLE001 - the builder tells it; a traceback would say no more
        sys.stdout.write("error: %s\n" % error)
        code = 1
        if isinstance(error, Mismatch):
            with open(sys.argv[1] + ".failure", "w", encoding="utf-8") as told:
                json.dump({"message": str(error), "hint": error.hint}, told)
    sys.stdout.flush()
    # py-rattler's threads may still want to report something: one in ten times that ends an interpreter which winds up
    # in a crash.
    os._exit(code)
