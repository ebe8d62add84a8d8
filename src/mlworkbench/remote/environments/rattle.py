"""Installs conda packages with py-rattler: ``python -I -S rattle.py REQUEST``, a process of its own.

REQUEST is a file: {"path": where py-rattler is, "prefix", "cache", "packages": entries of a lock}. Lines on stdout
say how far it is. Files are hard links of the cache's where they hold nothing of the prefix.

With "check", a folder for notes, no package may contain paths that lead out of the prefix: py-rattler writes where they
lead. A package that has no note yet must be a file ("from").
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Awaitable, Callable, Dict, Optional

_OWN = "__clobbers__"  # folder in the prefix that py-rattler uses for files of several packages


def main(request: Dict[str, Any]) -> None:
    sys.path.insert(0, request["path"])
    import rattler  # noqa: PLC0415 - found only now

    for package in request["packages"] if request.get("check") else ():
        check_paths(rattler, package, request["check"])
    records = [_record(rattler, one) for one in request["packages"]]
    reporter: Any = _Reporter(len(records))
    work = rattler.install(
        records,
        target_prefix=request["prefix"],
        cache_dir=request["cache"],
        show_progress=False,
        reporter=reporter,
    )
    asyncio.run(_run(work))


def check_paths(rattler: Any, package: Dict[str, Any], checked: str) -> None:
    """Raise ValueError if a path of the package leads elsewhere. What was checked once is known by its SHA-256.

    The package is unpacked as py-rattler does it for its cache: an archive may contain two lists of paths.
    """
    mark = os.path.join(checked, package["sha256"])
    if os.path.exists(mark):
        return
    from rattler.package_streaming import extract  # noqa: PLC0415 - found only now

    folder = "%s.%d" % (mark, os.getpid())
    os.makedirs(folder, 0o700)
    try:
        extract(Path(package["from"][len("file://") :]), Path(folder))
        listed = rattler.PathsJson.from_package_directory_with_deprecated_fallback(folder)
        for path in (str(entry.relative_path) for entry in listed.paths):
            parts = path.replace("\\", "/").split("/")
            if os.path.isabs(path) or ".." in parts or parts[0] == _OWN:
                raise ValueError("%s contains a path that leads out of the environment: %s" % (package["name"], path))
    finally:
        shutil.rmtree(folder)
    with open(mark, "w", encoding="ascii"):
        pass


async def _run(work: Awaitable[None]) -> None:
    await work


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
    return rattler.RepoDataRecord(record, one["url"].rsplit("/", 1)[1], one.get("from") or one["url"], channel)


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
    sys.stdout.flush()
    # py-rattler's threads may still want to report something: one in ten times that ends an interpreter which winds up
    # in a crash.
    os._exit(code)
