"""What a run left behind: its outputs, its code, its environment. Files are only ever downloads."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Annotated, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from ...remote.shared.tree import READ
from ..answers import code, outputs, zipped
from ..desk import Desk
from ..headers import SANDBOX

_CHUNK = 1 << 18
Path = Annotated[str, Query(min_length=1, max_length=4096, description="Path relative to outputs/")]
Folder = Annotated[str, Query(max_length=4096, description="Path relative to outputs/; default: outputs/ itself")]
File = Annotated[str, Query(min_length=1, max_length=4096, description="Path of a file in the snapshot")]


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["outputs"])

    @router.get("/runs/{run}/outputs", summary="List an output folder of a run")
    async def listing(run: str, folder: Folder = "") -> outputs.Listing:
        return await desk.ask(outputs.listing, run, folder)

    @router.get("/runs/{run}/outputs/file", summary="Download an output file")
    async def file(run: str, path: Path) -> StreamingResponse:
        handle, kind, growing = await desk.ask(outputs.opened, run, path)
        headers = {"content-disposition": _attached(path), "content-security-policy": SANDBOX}
        size = os.fstat(handle).st_size
        if not growing:
            headers["content-length"] = str(size)
        return StreamingResponse(_bytes(handle, size), media_type=kind, headers=headers)

    @router.get("/runs/{run}/outputs.zip", summary="Download all outputs as a zip file")
    async def everything(run: str) -> StreamingResponse:
        name, data = await desk.ask(zipped.zipped, run)
        headers = {"content-disposition": _attached(name), "content-security-policy": SANDBOX}
        return StreamingResponse(data, media_type="application/zip", headers=headers)

    @router.get("/runs/{run}/diagnostics.zip", summary="Download a diagnostics bundle; secrets are masked")
    async def diagnostics(run: str) -> StreamingResponse:
        found = await desk.ask(lambda history: history.get(run).id)
        handle = await _bundle(desk, found)
        size = os.fstat(handle).st_size
        headers = {
            "content-disposition": _attached(f"diagnostics-{found}.zip"),
            "content-security-policy": SANDBOX,
            "content-length": str(size),
        }
        return StreamingResponse(_bytes(handle, size), media_type="application/zip", headers=headers)

    @router.get("/runs/{run}/code", summary="List the files of a run's snapshot")
    async def files(run: str) -> code.Code:
        return await desk.ask(code.tree, run)

    @router.get("/runs/{run}/code/file", summary="Read a file of a run's snapshot as text")
    async def text(run: str, path: File) -> code.Text:
        return await desk.ask(code.text, run, path)

    @router.get("/runs/{run}/environment", summary="Get the environment of a run")
    async def environment(run: str) -> code.Environment:
        return await desk.ask(code.environment, run)

    return router


async def _bundle(desk: Desk, run: str) -> int:
    """Of a file that is gone from its folder already: nobody has to remember to remove it."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="mlw-diagnostics-")
    try:
        place = os.path.join(folder, "bundle.zip")
        await desk.errands.do("experiment", "diagnostics", f"--run={run}", f"--to={place}", "--yes")
        return os.open(place, READ)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _attached(path: str) -> str:
    """A file name that no header can be made of."""
    name = path.rpartition("/")[2]
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._- ") else "_" for char in name) or "output"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name.encode('utf-8', 'replace'), safe='')}"


def _bytes(handle: int, size: int) -> Iterator[bytes]:
    return _read(open(handle, "rb"), size)  # closed with whoever holds it, also if nobody ever reads


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        while size > 0 and (data := file.read(min(_CHUNK, size))):
            size -= len(data)
            yield data
