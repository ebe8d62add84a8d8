"""Install conda packages with py-rattler in a separate process.

Run as ``python -I -S conda_install.py REQUEST``. REQUEST is a JSON file: {"path": folder of
py-rattler, "prefix", "cache", "work", "packages": entries of a lock file}. Progress is written to
stdout; a failure with a hint is also written to REQUEST.failure. Files that do not contain the
prefix are hard links to files in the cache.

The cache contains unpacked packages by the SHA-256 of their archives. py-rattler's own cache has
one slot per name, version, and build, so the first package in a slot would be used for all others.
Therefore py-rattler gets a cache folder for this build only, below "work", whose slots are links to
the right content.

With "check", packages must not contain paths or links that lead outside the prefix, because
py-rattler would follow them. A package that is not in the cache must then be a file ("from").
"library" is the ``lib/python3.x`` folder of the prefix.
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

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

_CLOBBERS = "__clobbers__"  # folder in the prefix for files that several packages contain
# Files that determine what py-rattler installs, and how.
_METADATA = ("index.json", "paths.json", "files", "has_prefix", "no_link", "no_softlink", "link.json")
_MAX_METADATA = 1 << 26  # maximum bytes per file; the largest known files have about 10 MB
_MAX_STEPS = 4096  # maximum steps to resolve a link; hostile links can extend the path with each step
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_UNPACKING = 8
# File suffix with the version of the check: packages checked by another version are checked again.
_CHECKED = ".paths-1"
_OUTSIDE = "%s contains a path outside the environment: %s"


class Mismatch(ValueError):
    """Error for a package that does not match the lock file."""

    hint = "re-resolve with --upgrade"


def main(request: Dict[str, Any]) -> None:
    sys.path.insert(0, request["path"])
    import rattler  # noqa: PLC0415 - importable only now

    work = request["work"]
    if os.path.lexists(work):  # left by a build that was killed
        shutil.rmtree(work)
    os.makedirs(os.path.join(work, "slots"), 0o700)
    try:
        asyncio.run(_install(rattler, request))
    finally:
        # py-rattler may still write after an error. The next build of this environment removes the rest.
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
    """Return the folder of the unpacked package. Raises ValueError for a package without a SHA-256."""
    if not _DIGEST.fullmatch(package.get("sha256") or ""):
        raise ValueError("%s has no SHA-256" % package["name"])
    return os.path.join(cache, package["sha256"])


async def unpack_files(packages: List[Dict[str, Any]], cache: str, work: str) -> None:
    """Unpack packages that are available as files ("from") and not in the cache.

    Raises ValueError if a digest differs from the lock file: py-rattler's installer does not verify the
    digests of files.
    """
    from rattler.networking import Client  # noqa: PLC0415 - importable only now
    from rattler.package_streaming import download_and_extract  # noqa: PLC0415

    client, limit = Client(), asyncio.Semaphore(_MAX_UNPACKING)

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
    """Link cached packages into py-rattler's slots. Raises ValueError if two packages need the same slot."""
    owners: Dict[str, str] = {}
    for package in packages:
        content = content_of(cache, package)
        for name in _slot_names(package):
            if "/" in name or owners.setdefault(name, content) != content:
                raise ValueError("%s has an invalid file name: %s" % (package["name"], name))
            if os.path.isdir(content):
                os.symlink(content, os.path.join(slots, name))


def adopt_slots(packages: List[Dict[str, Any]], cache: str, slots: str) -> None:
    """Move packages that py-rattler downloaded for this build to the cache.

    py-rattler verifies the SHA-256 of HTTP downloads only.
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
    """Return the slot names that different versions of py-rattler use for a package.

    They are based on the package's record or on the file name in its URL.
    """
    stem = re.sub(r"(\.conda|\.tar\.bz2)\Z", "", package["url"].rsplit("/", 1)[1])
    return {"%s-%s-%s" % (package["name"].lower(), package["version"], package["build"]), stem}


# -- paths of packages ---------------------------------------------------------------------------------


def check_paths(rattler: Any, package: Dict[str, Any], cache: str) -> Dict[str, Any]:
    """Return the folders and links of a package in the cache. Raises ValueError if a path leads outside.

    The result is stored in a file next to the package.
    """
    folder = content_of(cache, package)
    record_path = folder + _CHECKED
    if os.path.exists(record_path):
        with open(record_path, encoding="ascii") as file:
            record: Dict[str, Any] = json.load(file)
            return record
    content = _inspect(rattler, package["name"], folder)
    part = "%s.%d" % (record_path, os.getpid())
    with open(part, "w", encoding="ascii") as file:
        json.dump(content, file)
    os.replace(part, record_path)
    return content


def check_together(packages: List[Tuple[Dict[str, Any], Dict[str, Any]]], library: str) -> None:
    """Raise ValueError if a link leads outside the prefix, or a package has paths below a link.

    ``packages`` are entries of the lock file, each with the result of ``check_paths``.
    """
    links: Dict[str, Set[str]] = {}
    owners: Dict[str, str] = {}
    folders: Dict[str, str] = {}
    for package, content in packages:
        # The channel's index and the package may disagree: check both locations.
        for pure in {content["pure"], package.get("noarch") == "python"}:
            for path, target in content["links"].items():
                target_path = _installed_path(path, pure, library)
                links.setdefault(target_path, set()).add(target)
                owners[target_path] = package["name"]
            for path in content["folders"]:
                target_path = _installed_path(path, pure, library)
                while target_path and target_path not in folders:
                    folders[target_path] = package["name"]
                    target_path = target_path.rpartition("/")[0]
    for target_path in links:
        if target_path in folders:
            text = "%s contains paths under %s, which is a link in %s"
            raise ValueError(text % (folders[target_path], target_path, owners[target_path]))
        if not _stays_inside(target_path, links):
            raise ValueError(
                _OUTSIDE % (owners[target_path], "%s -> %s" % (target_path, " or ".join(sorted(links[target_path]))))
            )


def _inspect(rattler: Any, name: str, folder: str) -> Dict[str, Any]:
    """Return the data for ``check_together`` from an unpacked package. Raises ValueError if a path leads outside."""
    for file in _METADATA:
        if _file_type(name, folder, "info/" + file, set()) not in (None, stat.S_IFREG):
            raise ValueError("%s contains invalid metadata: info/%s is not a file" % (name, file))
        path = os.path.join(folder, "info", file)
        if os.path.exists(path) and os.path.getsize(path) > _MAX_METADATA:  # the file is read into memory
            raise ValueError("%s contains invalid metadata: info/%s is too large" % (name, file))
    paths = _read_paths(folder)
    for path in paths:
        parts = path.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or ".." in path.split("\\") or parts[0] == _CLOBBERS:
            raise ValueError(_OUTSIDE % (name, path))
    entries = rattler.PathsJson.from_package_directory_with_deprecated_fallback(folder).paths
    if sorted(str(entry.relative_path) for entry in entries) != sorted(paths):
        raise ValueError("%s contains a file list that mlw and py-rattler parse differently" % name)
    checked_folders: Set[str] = set()
    links: Dict[str, str] = {}
    for entry in entries:
        path, expected = str(entry.relative_path), _expected_type(entry.path_type)
        if _file_type(name, folder, path, checked_folders) not in (None, expected):
            raise ValueError("%s lists %s with a different file type than it contains" % (name, path))
        if expected == stat.S_IFLNK:
            links[path] = _read_link(folder, path)
    with open(os.path.join(folder, "info", "index.json"), encoding="utf-8") as index:
        pure = json.load(index, object_pairs_hook=_unique).get("noarch") == "python"
    return {"pure": pure, "folders": sorted({path.rpartition("/")[0] for path in paths}), "links": links}


def _read_paths(folder: str) -> List[str]:
    """Return the package's exact paths.

    Paths in py-rattler's Python objects lack a leading ``./``, which py-rattler uses when it installs.
    """
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


def _expected_type(kind: Any) -> int:
    if kind.softlink:
        return stat.S_IFLNK
    return stat.S_IFDIR if kind.directory else stat.S_IFREG


def _file_type(name: str, folder: str, path: str, checked_folders: Set[str]) -> Optional[int]:
    """Return the type of a file in an unpacked package; None if it is missing.

    The parent folders must not be links. Those in ``checked_folders`` have already been checked.
    """
    parent = path.rpartition("/")[0]
    if parent and parent not in checked_folders:
        if _file_type(name, folder, parent, checked_folders) not in (None, stat.S_IFDIR):
            raise ValueError("%s contains a path under a link or a file: %s" % (name, path))
        checked_folders.add(parent)
    try:
        return stat.S_IFMT(os.lstat(_encode_path(folder, path)).st_mode)
    except FileNotFoundError:
        return None  # py-rattler reports the missing file


def _read_link(folder: str, path: str) -> str:
    try:
        return os.readlink(_encode_path(folder, path)).decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


def _encode_path(folder: str, path: str) -> bytes:
    """Encode a path as py-rattler does in every locale."""
    return os.path.join(os.fsencode(folder), path.encode("utf-8"))


def _installed_path(path: str, pure: bool, library: str) -> str:
    """Return where py-rattler installs a path. ``pure``: the package is platform-independent Python."""
    first, _, rest = path.partition("/")
    if pure and first == "site-packages":
        return "%s/%s" % (library, path)
    return "bin/" + rest if pure and first == "python-scripts" and rest else path


def _stays_inside(path: str, links: Dict[str, Set[str]]) -> bool:
    """Return whether a link stays inside the prefix, directly or through other links."""
    start = tuple(path.split("/"))
    pending: List[Tuple[Tuple[str, ...], Tuple[str, ...]]] = [(start[:-1], start[-1:])]
    seen = set()
    while pending:
        state = folder, rest = pending.pop()
        if not rest or state in seen:
            continue
        seen.add(state)
        if len(seen) > _MAX_STEPS or (rest[0] == ".." and not folder):
            return False
        if rest[0] == "..":
            pending.append((folder[:-1], rest[1:]))
            continue
        targets = links.get("/".join((*folder, rest[0])))
        if targets is None:
            pending.append(((*folder, rest[0]), rest[1:]))
            continue
        for target in targets:
            if target.startswith("/"):
                return False
            pending.append((folder, tuple(part for part in target.split("/") if part not in ("", ".")) + rest[1:]))
    return True


def _record(rattler: Any, package: Dict[str, Any]) -> Any:
    build = rattler.BuildString(package["build"]) if hasattr(rattler, "BuildString") else package["build"]
    record = rattler.PackageRecord(
        package["name"],
        package["version"],
        build,
        package["build_number"],
        package["subdir"],
        noarch=package.get("noarch"),
        depends=package["depends"],
        sha256=_bytes(package.get("sha256")),
        md5=_bytes(package.get("md5")),
        size=package.get("size"),
        python_site_packages_path=package.get("python_site_packages_path"),
    )
    channel = package["url"].rpartition("/")[0].rpartition("/")[0] + "/"
    return rattler.RepoDataRecord(record, package["url"].rsplit("/", 1)[1], package["url"], channel)


def _bytes(text: Optional[str]) -> Optional[bytes]:
    return bytes.fromhex(text) if text else None


class _Reporter:
    """Progress reporter that counts installed packages. It ignores py-rattler's other events."""

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
    except BaseException as error:  # noqa: BLE001 - the builder reports the message; a traceback would not help
        sys.stdout.write("error: %s\n" % error)
        code = 1
        if isinstance(error, Mismatch):
            with open(sys.argv[1] + ".failure", "w", encoding="utf-8") as failure_file:
                json.dump({"message": str(error), "hint": error.hint}, failure_file)
    sys.stdout.flush()
    # py-rattler's threads may still report something, which crashes a terminating interpreter in one of ten cases.
    os._exit(code)
