"""Endpoints for the outputs, code, and environment of a run. Files are always sent as downloads."""

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

from ...remote.shared.folder_tree import READ
from ..backend import Backend
from ..queries import code, output_zip, outputs
from ..security_headers import SANDBOX

_CHUNK = 1 << 18
Path = Annotated[str, Query(min_length=1, max_length=4096, description="Path relative to outputs/")]
Folder = Annotated[str, Query(max_length=4096, description="Path relative to outputs/; default: outputs/ itself")]
File = Annotated[str, Query(min_length=1, max_length=4096, description="Path of a file in the snapshot")]


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(tags=["outputs"])

    @router.get("/runs/{run}/outputs", summary="List an output folder of a run")
    async def listing(run: str, folder: Folder = "") -> outputs.Listing:
        return await backend.call(outputs.listing, run, folder)

    @router.get("/runs/{run}/outputs/file", summary="Download an output file")
    async def file(run: str, path: Path) -> StreamingResponse:
        handle, kind, growing = await backend.call(outputs.open_for_download, run, path)
        headers = {"content-disposition": _content_disposition(path), "content-security-policy": SANDBOX}
        size = os.fstat(handle).st_size
        if not growing:
            headers["content-length"] = str(size)
        return StreamingResponse(_stream(handle, size), media_type=kind, headers=headers)

    @router.get("/runs/{run}/outputs.zip", summary="Download all outputs as a zip file")
    async def all_outputs(run: str) -> StreamingResponse:
        name, data = await backend.call(output_zip.stream_zip, run)
        headers = {"content-disposition": _content_disposition(name), "content-security-policy": SANDBOX}
        return StreamingResponse(data, media_type="application/zip", headers=headers)

    @router.get("/runs/{run}/diagnostics.zip", summary="Download a diagnostics bundle; secrets are masked")
    async def diagnostics(run: str) -> StreamingResponse:
        run_id = await backend.call(lambda history: history.get(run).id)
        handle = await _create_diagnostics(backend, run_id)
        size = os.fstat(handle).st_size
        headers = {
            "content-disposition": _content_disposition(f"diagnostics-{run_id}.zip"),
            "content-security-policy": SANDBOX,
            "content-length": str(size),
        }
        return StreamingResponse(_stream(handle, size), media_type="application/zip", headers=headers)

    @router.get("/runs/{run}/code", summary="List the files of a run's snapshot")
    async def files(run: str) -> code.Code:
        return await backend.call(code.list_code, run)

    @router.get("/runs/{run}/code/file", summary="Read a file of a run's snapshot as text")
    async def text(run: str, path: File) -> code.Text:
        return await backend.call(code.read_text, run, path)

    @router.get("/runs/{run}/environment", summary="Get the environment of a run")
    async def environment(run: str) -> code.Environment:
        return await backend.call(code.environment, run)

    return router


async def _create_diagnostics(backend: Backend, run: str) -> int:
    """Create a diagnostics bundle and return a handle to the file, which is already unlinked."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="mlw-diagnostics-")
    try:
        path = os.path.join(folder, "bundle.zip")
        await backend.operations.run("experiment", "diagnostics", f"--run={run}", f"--to={path}", "--yes")
        return os.open(path, READ)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _content_disposition(path: str) -> str:
    """Return a Content-Disposition header into which the file name cannot inject other headers."""
    name = path.rpartition("/")[2]
    ascii_name = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name) or "output"
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name.encode('utf-8', 'replace'), safe='')}"


def _stream(handle: int, size: int) -> Iterator[bytes]:
    return _read(open(handle, "rb"), size)  # closed together with the iterator, even if it is never read


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        while size > 0 and (data := file.read(min(_CHUNK, size))):
            size -= len(data)
            yield data
