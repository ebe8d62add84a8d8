"""A small package index over HTTP for pip and uv, and wheels to publish there."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.machines.network import read

PACKAGES = (".whl", ".conda", ".tar.bz2", ".tar.gz", ".json")


def wheel(folder: Path, name: str, version: str, origin: str, *requires: str, extra: str = "", code: str = "") -> Path:
    """Build a wheel with one module that records its origin. ``extra`` is the name of an extra that ``requires`` uses.

    ``code`` is additional code for the module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    about = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    about += [f"Provides-Extra: {extra}"] * bool(extra) + [f"Requires-Dist: {member}" for member in requires]
    content = {
        f"{name}.py": f"ORIGIN = {origin!r}\n{code}",
        f"{info}/METADATA": "\n".join([*about, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{member},sha256={_digest(text)},{len(text.encode())}" for member, text in content.items()]
    with zipfile.ZipFile(path, "w") as file:
        for member, text in content.items():
            file.writestr(member, text)
        file.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
    return path


def sdist(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """Build a source distribution with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def about(name: str, version: str, *requires: str, metadata: str = "2.1") -> str:
    """Return the text of a PKG-INFO. From metadata version 2.2 on, its fields are static."""
    lines = [f"Metadata-Version: {metadata}", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {requirement}" for requirement in requires), ""])


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Index:
    """Serve wheels below a folder: ``/NAME/simple/PACKAGE/`` is an index of NAME, ``/NAME/`` lists all its files.
    The folder may also contain files of a conda channel.

    ``key`` is user:password, if required. ``got`` lists the files that were served: (client, path). ``asked`` lists all
    requests: path with query, user, and password. During every request, while the client's processes are alive, the
    command lines of all processes on this machine are searched for ``secret``.
    """

    def __init__(self, folder: Path, host: str, key: str | None = None) -> None:
        self.folder, self.host, self.key = folder, host, key
        self.secret = (key or "").partition(":")[2]
        self.got: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.refused = 0
        self.seen: list[str] = []
        self.port = 0
        self.suffix = ""  # added to each link to a file, before the digest
        self.keeps = True  # whether clients may cache files

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def url_with_key(self) -> str:
        return f"http://{self.key}@{self.host}:{self.port}"

    def fetched(self, client: str) -> set[str]:
        """Return the names of the files that a client downloaded."""
        return {Path(path).name for whose, path in self.got if whose == client}

    def page(self, path: str) -> str | None:
        """Return the page at a path, or None if there is none."""
        parts = [unquote(part) for part in path.split("/") if part]
        paths = sorted((self.folder / parts[0]).iterdir()) if parts and ".." not in parts else []
        files = [file for file in paths if file.name.endswith((".whl", ".tar.gz"))]
        if parts[1:2] == ["simple"]:
            files = [file for file in files if parts[2:] == [file.name.split("-")[0].replace("_", "-")]]
        elif len(parts) != 1:
            return None
        links = (
            f'<a href="/{parts[0]}/{file.name}{self.suffix}#sha256={_sha256(file)}">{file.name}</a>' for file in files
        )
        return "<!DOCTYPE html><html><body>" + "<br>".join(links) + "</body></html>" if files else None

    def look(self) -> None:
        if self.secret:
            lines = [read(file).replace("\0", " ") for file in Path("/proc").glob("[0-9]*/cmdline")]
            self.seen += [line for line in lines if self.secret in line]


def _credentials(header: str | None) -> str:
    return base64.b64decode(header.partition(" ")[2]).decode("utf-8", "replace") if header else ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def serve_index(folder: Path, host: str = "127.0.0.1", key: str | None = None) -> Iterator[Index]:
    """Run an index server."""
    index = Index(folder, host, key)
    expected = "Basic " + base64.b64encode(key.encode()).decode() if key else None

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            index.look()
            index.asked.append(f"{self.path} {_credentials(self.headers.get('Authorization'))}")
            if expected not in (None, self.headers.get("Authorization")):
                index.refused += 1
                return self.answer(401, b"")
            if path.endswith(PACKAGES):
                if not (folder / unquote(path).lstrip("/")).is_file():
                    return self.answer(404, b"")
                if self.command == "GET":
                    index.got.append((self.client_address[0], path))
                return self.answer(200, (folder / unquote(path).lstrip("/")).read_bytes())
            page = index.page(path)
            return self.answer(404 if page is None else 200, (page or "").encode(), "text/html")

        do_HEAD = do_GET

        def answer(self, code: int, data: bytes, kind: str = "application/octet-stream") -> None:
            self.send_response(code)
            if code == 401:
                self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Type", kind)
            if index.keeps and kind != "text/html":
                self.send_header("Cache-Control", "max-age=600")  # like real indexes, whose files never change
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    index.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
