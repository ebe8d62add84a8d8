"""Endpoints to list, read, save, and check project files. Paths are relative to the project folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from ...errors import MlwError, UsageError
from .. import file_saving
from ..backend import Backend
from ..queries import files
from ..queries.editor_checks import problems_in
from ..security_headers import SANDBOX

_MAX_PATH = 4000
FilePath = Annotated[str, Query(min_length=1, max_length=_MAX_PATH, description="Path of the file in the project")]
Folder = Annotated[str, Query(max_length=_MAX_PATH, description='Path of the folder; "" is the project folder')]
_Path = Annotated[str, Field(min_length=1, max_length=_MAX_PATH)]
_Text = Annotated[str, Field(max_length=2 * files.MAX_TEXT)]


class Text(BaseModel):
    """A project file; `text` is null unless the file can be edited."""

    path: str
    kind: str = Field(description="text, picture, or other")
    size: int
    modified: float
    text: str | None = None
    digest: str = Field("", description="SHA-256 of the file; pass it as `base` when saving")
    reason: str = Field("", description="Why `text` is null")


class SaveRequest(BaseModel):
    """A file to save."""

    path: _Path
    text: _Text
    base: str | None = Field(None, max_length=64, description="Digest of the file as it was read; omit it to overwrite")


class CheckRequest(BaseModel):
    """A text to check."""

    path: _Path
    text: _Text


class Problem(BaseModel):
    """A problem in a file."""

    line: int | None
    severity: str
    message: str
    hint: str | None


class ListingsRequest(BaseModel):
    """Folders to list."""

    folders: list[Annotated[str, Field(max_length=_MAX_PATH)]] = Field(max_length=200)


class MoveRequest(BaseModel):
    """A new path for a file or folder."""

    path: _Path
    to: _Path


class CreateRequest(BaseModel):
    """The path of a new file or folder."""

    path: _Path


def _listing(root: Path, folder: str) -> files.Listing:
    try:
        return files.listing(root, folder)
    except MlwError:
        return files.Listing(folder, (), 0, gone=True)


def _text(content: files.Content) -> Text:
    fields = {name: getattr(content, name) for name in ("path", "kind", "size", "modified", "digest", "reason")}
    return Text(**fields, text=content.text if content.kind == "text" else None)


def _save(root: Path, request: SaveRequest) -> dict[str, str]:
    """Save text with the line endings and byte order mark of the existing file."""
    windows = marked = False
    try:
        content = files.read(root, request.path)
        windows, marked = content.windows, content.marked
    except UsageError:
        raise
    except MlwError:
        pass  # the file does not exist yet
    data = files.encode_text(request.text.replace("\r\n", "\n"), windows, marked)
    return {"digest": file_saving.save(root, request.path, data, request.base)}


def routes(backend: Backend) -> APIRouter:
    router = APIRouter(prefix="/projects/{key}", tags=["files"])
    _add_read_routes(router, backend)
    _add_write_routes(router, backend)
    return router


def _root(backend: Backend, key: str) -> Path:
    return backend.projects.open(key).root


def _add_read_routes(router: APIRouter, backend: Backend) -> None:
    @router.get("/files", summary="List a project folder")
    async def list_folder(key: str, folder: Folder = "") -> files.Listing:
        return await backend.call(lambda _: files.listing(_root(backend, key), folder))

    @router.post("/files/listings", summary="List several folders")
    async def list_folders(key: str, body: ListingsRequest) -> list[files.Listing]:
        return await backend.call(lambda _: [_listing(_root(backend, key), folder) for folder in body.folders])

    @router.get("/files/search", summary="Search files and folders by path")
    async def search(key: str, text: Annotated[str, Query(min_length=1, max_length=200)]) -> list[files.Entry]:
        return await backend.call(lambda _: files.search(_root(backend, key), text))

    @router.get("/file", summary="Read a text file")
    async def read(key: str, path: FilePath) -> Text:
        return _text(await backend.call(lambda _: files.read(_root(backend, key), path)))

    @router.post("/file/check", summary="Check the text of a file for problems")
    async def check(key: str, body: CheckRequest) -> list[Problem]:
        problems = await backend.call(
            lambda _: problems_in(backend.projects.open(key), files.check_path(body.path), body.text)
        )
        return [
            Problem(line=problem.line, severity=problem.severity, message=problem.message, hint=problem.hint)
            for problem in problems
        ]

    @router.get("/picture", summary="Get an image of the project", response_class=Response)
    async def picture(key: str, path: FilePath) -> Response:
        data, kind = await backend.call(lambda _: files.read_image(_root(backend, key), path))
        headers = {"content-security-policy": SANDBOX, "content-disposition": "attachment"}
        return Response(data, media_type=kind, headers=headers)


def _add_write_routes(router: APIRouter, backend: Backend) -> None:
    @router.put("/file", summary="Save a file atomically; 409 if it has changed on disk")
    async def save(key: str, body: SaveRequest) -> dict[str, str]:
        return await backend.call(lambda _: _save(_root(backend, key), body))

    @router.post("/file", summary="Create an empty file")
    async def create_file(key: str, body: CreateRequest) -> dict[str, str]:
        await backend.call(lambda _: file_saving.create_file(_root(backend, key), body.path))
        return {"path": body.path}

    @router.post("/folder", summary="Create a folder")
    async def create_folder(key: str, body: CreateRequest) -> dict[str, str]:
        await backend.call(lambda _: file_saving.create_folder(_root(backend, key), body.path))
        return {"path": body.path}

    @router.post("/files/rename", summary="Rename or move a file or folder")
    async def rename(key: str, body: MoveRequest) -> dict[str, str]:
        await backend.call(lambda _: file_saving.rename(_root(backend, key), body.path, body.to))
        return {"path": body.to}

    @router.delete("/files", summary="Delete a file, or a folder with its contents")
    async def delete(key: str, path: FilePath) -> dict[str, str]:
        await backend.call(lambda _: file_saving.delete(_root(backend, key), path))
        return {"deleted": path}
