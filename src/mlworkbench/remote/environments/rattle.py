"""Installs conda packages with py-rattler: ``python -I -S rattle.py REQUEST``, a process of its own.

REQUEST is a file: {"path": where py-rattler is, "prefix", "cache", "packages": entries of a lock}. Lines on stdout
say how far it is. Files are hard links of the cache's where they hold nothing of the prefix.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

TYPE_CHECKING = False  # as in typing, whose import would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, Awaitable, Callable, Dict, Optional


def main(request: Dict[str, Any]) -> None:
    sys.path.insert(0, request["path"])
    import rattler  # noqa: PLC0415 - found only now

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
