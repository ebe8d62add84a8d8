"""The files of a project: tree, text, saving, what is wrong in them. Paths are relative to the project's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from ...errors import MlwError, UsageError
from .. import saving
from ..answers import files
from ..answers.checks import problems_in
from ..desk import Desk
from ..headers import SANDBOX

_LONGEST = 4000
At = Annotated[str, Query(min_length=1, max_length=_LONGEST, description="Path of the file in the project")]
Folder = Annotated[str, Query(max_length=_LONGEST, description='Path of the folder; "" is the project folder')]
_Path = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
_Text = Annotated[str, Field(max_length=2 * files.LARGEST)]


class Text(BaseModel):
    """A project file; `text` is null unless the file can be edited."""

    path: str
    kind: str = Field(description="text, picture, or other")
    size: int
    modified: float
    text: str | None = None
    digest: str = Field("", description="SHA-256 of the file; pass it as `base` when saving")
    reason: str = Field("", description="Why `text` is null")


class Saved(BaseModel):
    """A file to save."""

    path: _Path
    text: _Text
    base: str | None = Field(None, max_length=64, description="Digest of the file as it was read; omit it to overwrite")


class Checked(BaseModel):
    """A text to check."""

    path: _Path
    text: _Text


class Problem(BaseModel):
    """A problem in a file."""

    line: int | None
    severity: str
    message: str
    hint: str | None


class Opened(BaseModel):
    """Folders to list."""

    folders: list[Annotated[str, Field(max_length=_LONGEST)]] = Field(max_length=200)


class Moved(BaseModel):
    """A new path for a file or folder."""

    path: _Path
    to: _Path


class Made(BaseModel):
    """The path of a new file or folder."""

    path: _Path


def _listing(root: Path, folder: str) -> files.Listing:
    try:
        return files.listing(root, folder)
    except MlwError:
        return files.Listing(folder, (), 0, gone=True)


def _text(content: files.Content) -> Text:
    known = {name: getattr(content, name) for name in ("path", "kind", "size", "modified", "digest", "reason")}
    return Text(**known, text=content.text if content.kind == "text" else None)


def _save(root: Path, wanted: Saved) -> dict[str, str]:
    """With the line ends and the mark that the file has."""
    windows = marked = False
    try:
        known = files.read(root, wanted.path)
        windows, marked = known.windows, known.marked
    except UsageError:
        raise
    except MlwError:
        pass  # it is not there yet
    data = files.encoded(wanted.text.replace("\r\n", "\n"), windows, marked)
    return {"digest": saving.save(root, wanted.path, data, wanted.base)}


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/projects/{key}", tags=["files"])
    _reading(router, desk)
    _changing(router, desk)
    return router


def _root(desk: Desk, key: str) -> Path:
    return desk.projects.open(key).root


def _reading(router: APIRouter, desk: Desk) -> None:
    @router.get("/files", summary="List a project folder")
    async def folder(key: str, folder: Folder = "") -> files.Listing:
        return await desk.ask(lambda _: files.listing(_root(desk, key), folder))

    @router.post("/files/listings", summary="List several folders")
    async def folders(key: str, opened: Opened) -> list[files.Listing]:
        return await desk.ask(lambda _: [_listing(_root(desk, key), folder) for folder in opened.folders])

    @router.get("/files/search", summary="Search files and folders by path")
    async def search(key: str, text: Annotated[str, Query(min_length=1, max_length=200)]) -> list[files.Entry]:
        return await desk.ask(lambda _: files.search(_root(desk, key), text))

    @router.get("/file", summary="Read a text file")
    async def read(key: str, path: At) -> Text:
        return _text(await desk.ask(lambda _: files.read(_root(desk, key), path)))

    @router.post("/file/check", summary="Check the text of a file for problems")
    async def check(key: str, wanted: Checked) -> list[Problem]:
        found = await desk.ask(lambda _: problems_in(desk.projects.open(key), files.checked(wanted.path), wanted.text))
        return [Problem(line=one.line, severity=one.severity, message=one.message, hint=one.hint) for one in found]

    @router.get("/picture", summary="Get an image of the project", response_class=Response)
    async def picture(key: str, path: At) -> Response:
        data, kind = await desk.ask(lambda _: files.picture(_root(desk, key), path))
        headers = {"content-security-policy": SANDBOX, "content-disposition": "attachment"}
        return Response(data, media_type=kind, headers=headers)


def _changing(router: APIRouter, desk: Desk) -> None:
    @router.put("/file", summary="Save a file atomically; 409 if it has changed on disk")
    async def save(key: str, wanted: Saved) -> dict[str, str]:
        return await desk.ask(lambda _: _save(_root(desk, key), wanted))

    @router.post("/file", summary="Create an empty file")
    async def make(key: str, made: Made) -> dict[str, str]:
        await desk.ask(lambda _: saving.make_file(_root(desk, key), made.path))
        return {"path": made.path}

    @router.post("/folder", summary="Create a folder")
    async def make_folder(key: str, made: Made) -> dict[str, str]:
        await desk.ask(lambda _: saving.make_folder(_root(desk, key), made.path))
        return {"path": made.path}

    @router.post("/files/rename", summary="Rename or move a file or folder")
    async def rename(key: str, moved: Moved) -> dict[str, str]:
        await desk.ask(lambda _: saving.rename(_root(desk, key), moved.path, moved.to))
        return {"path": moved.to}

    @router.delete("/files", summary="Delete a file, or a folder with its contents")
    async def delete(key: str, path: At) -> dict[str, str]:
        await desk.ask(lambda _: saving.delete(_root(desk, key), path))
        return {"deleted": path}
