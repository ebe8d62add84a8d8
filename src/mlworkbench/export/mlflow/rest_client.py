"""An MLflow server, spoken to by its REST interface with the standard library: nothing has to be installed here.

Who we are is told by MLflow's own environment variables only. Answers are bounded, and no redirect is followed: it
would carry the password elsewhere.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from ...errors import HostError, Unreachable, UsageError
from ...model import JsonDict
from ...remote.shared.untrusted import parse_json

_API = "/api/2.0/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
_LONGEST = 256 * 1024 * 1024  # bytes of an answer
_PASSING = (408, 429, 502, 503, 504)  # troubles that pass
_TRIES = 5
_PAUSE = 0.5  # seconds before the second try; twice as long before each further one
_WORDS = 300
_TRUE = ("true", "1")


class Refused(HostError):
    """The server understood, and said no; ``error_code`` is MLflow's own word for the reason."""

    def __init__(self, message: str, hint: str | None, code: str) -> None:
        super().__init__(message, hint)
        self.error_code = code


class Server:
    """One server at one address."""

    def __init__(self, uri: str, environ: Mapping[str, str] | None = None) -> None:
        self.uri = checked(uri)
        environ = os.environ if environ is None else environ
        self._headers = {"User-Agent": "mlworkbench", **_credentials(environ)}
        self._timeout = _seconds(environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT"))
        self._answered = False
        context = urllib.request.HTTPSHandler(context=_context(environ))
        self._opener = urllib.request.build_opener(_NoRedirect, context)

    def get(self, path: str, **asked: str | int) -> JsonDict:
        """Of MLflow's interface: ``get("runs/get", run_id=…)``."""
        return self._json("GET", f"{_API}{path}?{urlencode(asked)}", None)

    def post(self, path: str, body: JsonDict, *, again: bool = True) -> JsonDict:
        """``again`` False: it must not happen twice, so it is not tried again after a doubt."""
        return self._json("POST", _API + path, body, again)

    def _json(self, method: str, path: str, body: JsonDict | None, again: bool = True) -> JsonDict:
        data = (
            None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        )
        headers = {"Content-Type": "application/json"} if data is not None else {}
        for left in reversed(range(_TRIES if again else 1)):
            try:
                return self._answer(self._send(urllib.request.Request(self.uri + path, data, headers, method=method)))
            except _Passing as trouble:
                if not left:
                    raise trouble.error from None
                time.sleep(_PAUSE * 2 ** (_TRIES - 1 - left))
        raise AssertionError("there is at least one try")

    def put(self, root: str, name: str, file: BinaryIO, size: int) -> None:
        """A file of ``size`` bytes to the artifacts of a run, whose place the server told as ``root``."""
        for left in reversed(range(_TRIES)):
            file.seek(0)
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            request = urllib.request.Request(
                self._place(root) + "/" + quote(name), _Part(file, size), headers, method="PUT"
            )
            try:
                self._send(request)
                return
            except _Passing as trouble:
                if not left:
                    raise trouble.error from None
                time.sleep(_PAUSE * 2 ** (_TRIES - 1 - left))

    def takes(self, root: str) -> bool:
        """Whether artifacts of this place go through the server itself."""
        return urlsplit(root).scheme == "mlflow-artifacts"

    def _place(self, root: str) -> str:
        where, own = urlsplit(root), urlsplit(self.uri)
        if where.netloc and where.netloc != own.netloc:
            raise HostError(
                f"this server stores artifacts on another server, {where.netloc}",
                "mlw does not send the credentials of one server to another",
            )
        return f"{self.uri}{_ARTIFACTS}{quote(where.path.strip('/'))}"

    # -- one request -------------------------------------------------------------------------------

    def _send(self, request: urllib.request.Request) -> bytes:
        for name, value in self._headers.items():
            request.add_header(name, value)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                data: bytes = response.read(_LONGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except urllib.error.URLError as error:
            lost = self._unreachable(error.reason)
            raise _Passing(lost) if self._answered else lost from None
        except (OSError, http.client.HTTPException) as error:  # it went away while it answered
            raise _Passing(self._unreachable(error)) from None
        if len(data) > _LONGEST:
            raise self._stranger()
        self._answered = True
        return data

    def _answer(self, data: bytes) -> JsonDict:
        try:
            found = parse_json(data or b"{}")
        except ValueError:
            raise self._stranger() from None
        if not isinstance(found, dict):
            raise self._stranger()
        return found

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        if error.code in (301, 302, 303, 307, 308):
            to = str(error.headers.get("Location", "elsewhere"))[:_WORDS]
            return HostError(
                f"{self.uri} redirects to {to}", "use the address of the MLflow server itself", more="mlflow-server"
            )
        if error.code in (401, 403):
            return HostError(
                f"the MLflow server at {self.uri} refused the login (HTTP {error.code})",
                "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
                more="mlflow-server",
            )
        code, words = self._said(error)
        if error.code in _PASSING:
            told = HostError(f"the MLflow server at {self.uri} failed (HTTP {error.code}): {words}", "try again later")
            return _Passing(told)
        if not code:
            return self._stranger(f"HTTP {error.code}")
        return Refused(f"the MLflow server at {self.uri} refused: {words}", None, code)

    def _said(self, error: urllib.error.HTTPError) -> tuple[str, str]:
        """MLflow's word for the reason, and its sentence."""
        try:
            found = parse_json(error.read(1 << 20))
            code, words = str(found["error_code"]), str(found.get("message") or "")
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
            return "", "no reason given"
        return code, " ".join(words.split())[:_WORDS] or code

    def _unreachable(self, reason: Any) -> HostError:
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return Unreachable(
            f"cannot connect to the MLflow server at {self.uri}: {str(words)[:_WORDS]}",
            "check that it is running; start one with 'mlflow server --host 127.0.0.1 --port 5000'",
            more="mlflow-server",
        )

    def _stranger(self, more: str = "no JSON") -> HostError:
        return HostError(f"{self.uri} is not an MLflow server ({more})", "check the address", more="mlflow-server")


class _Passing(Exception):
    """A trouble that may pass: worth another try."""

    def __init__(self, error: HostError) -> None:
        super().__init__(error.message)
        self.error = error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Part:
    """The first ``size`` bytes of a file, which may grow meanwhile."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(min(self._left, count) if count >= 0 else self._left)
        self._left -= len(data)
        return data


def checked(uri: str) -> str:
    """The address without a slash at its end; UsageError if it is none that we can use."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise UsageError("invalid address in --mlflow", "for example: --mlflow http://127.0.0.1:5000") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "--mlflow does not accept a user name or password in the address",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(
            f"--mlflow {uri} is not the address of an MLflow server",
            "for a store without a server, run 'mlflow server --backend-store-uri … --port 5000' and use --mlflow http://127.0.0.1:5000",
        )
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    user, password = environ.get("MLFLOW_TRACKING_USERNAME"), environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        both = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {both}"}
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError("MLFLOW_TRACKING_TOKEN is not a valid token", "check that it contains no line break")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _context(environ: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or None)
        if environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
            context.load_cert_chain(environ["MLFLOW_TRACKING_CLIENT_CERT_PATH"])
    except OSError as error:
        raise UsageError(
            f"cannot read a certificate: {error.strerror or error}", "check MLFLOW_TRACKING_*_CERT_PATH"
        ) from None
    if environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in _TRUE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and int(text) else 120.0
