"""A client for MLflow's REST API that uses only the standard library.

Credentials come only from MLflow's own environment variables. Responses are limited in size.
Redirects are not followed, because they would send the password to another server. Several threads can share a client.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from ...errors import HostError, Unreachable, UsageError
from ...model import JsonDict
from ...remote.shared.untrusted_json import parse_json
from .connections import ConnectError, Connections, Response

Result = TypeVar("Result")

_API = "/api/{}/mlflow/"
_ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/"
_TEMPORARY_CODES = (408, 429, 502, 503, 504)  # HTTP status codes of temporary errors
_MAX_ATTEMPTS = 5
_PAUSE = 0.5  # seconds before the second attempt; doubles with each attempt
_MAX_MESSAGE = 300
_MAX_VERSION = 50
_REDIRECTS = (301, 302, 303, 307, 308)
_TRUE = ("true", "1")


class RequestRejected(HostError):
    """A request that the server rejected. ``error_code`` is MLflow's error code."""

    def __init__(self, message: str, hint: str | None, code: str) -> None:
        super().__init__(message, hint)
        self.error_code = code


class Server:
    """An MLflow server."""

    def __init__(self, uri: str, environ: Mapping[str, str] | None = None) -> None:
        self.uri = validate_uri(uri)
        environ = os.environ if environ is None else environ
        self._headers = {"User-Agent": "mlworkbench", **_credentials(environ)}
        timeout = _parse_timeout(environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT"))
        self._connections = Connections(self.uri, _tls_context(environ), timeout)
        self._prefix = urlsplit(self.uri).path
        self._has_responded = False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    def abort(self) -> None:
        """Make all requests fail, also those of other threads."""
        self._connections.abort()

    def get(self, path: str, *, api: str = "2.0", **query: str | int) -> JsonDict:
        """Send a GET request to the MLflow API: ``get("runs/get", run_id=…)``."""
        return self._json("GET", f"{_API.format(api)}{path}?{urlencode(query)}", None)

    def post(self, path: str, body: JsonDict, *, retry: bool = True, api: str = "2.0") -> JsonDict:
        """Send a POST request.

        ``retry=False`` disables retries, for requests that must not be executed twice.
        """
        return self._json("POST", _API.format(api) + path, body, retry)

    def patch(self, path: str, body: JsonDict) -> JsonDict:
        return self._json("PATCH", _API.format("2.0") + path, body)

    def version(self) -> str:
        """Return the version of MLflow, or an empty string if the server does not report it."""
        try:
            data = self._retry(lambda: self._send("GET", "/version", None, {}))
        except HostError:
            return ""
        return data[:_MAX_VERSION].decode("ascii", "replace")

    def _json(self, method: str, path: str, body: JsonDict | None, retry: bool = True) -> JsonDict:
        data = (
            None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        )
        headers = {"Content-Type": "application/json"} if data is not None else {}
        return self._retry(lambda: self._parse_response(self._send(method, path, data, headers, retry)), retry)

    def put(self, root: str, name: str, file: BinaryIO, size: int) -> None:
        """Upload ``size`` bytes of a file as an artifact of a run. ``root`` is the run's artifact URI."""
        path = f"{self._artifact_path(root)}/{quote(name)}"
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}

        def send() -> bytes:
            file.seek(0)
            return self._send("PUT", path, _LimitedReader(file, size), headers)

        self._retry(send)

    def _retry(self, action: Callable[[], Result], retry: bool = True) -> Result:
        for left in reversed(range(_MAX_ATTEMPTS if retry else 1)):
            try:
                return action()
            except _TemporaryError as failure:
                if not left or self._connections.is_aborted:
                    raise failure.error from None
                time.sleep(_PAUSE * 2 ** (_MAX_ATTEMPTS - 1 - left))
        raise AssertionError("there is at least one attempt")

    def accepts_uploads(self, root: str) -> bool:
        """Return whether the server accepts uploads for this artifact URI."""
        return urlsplit(root).scheme == "mlflow-artifacts"

    def _artifact_path(self, root: str) -> str:
        address, server = urlsplit(root), urlsplit(self.uri)
        if address.netloc and address.netloc != server.netloc:
            raise HostError(
                f"this server stores artifacts on another server, {address.netloc}",
                "mlw does not send the credentials of one server to another",
            )
        return f"{_ARTIFACTS}{quote(address.path.strip('/'))}"

    # -- sending requests --------------------------------------------------------------------------

    def _send(
        self, method: str, path: str, body: bytes | _LimitedReader | None, headers: dict[str, str], retry: bool = True
    ) -> bytes:
        try:
            response = self._connections.request(
                method, self._prefix + path, body, {**headers, **self._headers}, reuse=retry
            )
        except ConnectError as error:
            unreachable = self._unreachable(error.reason)
            raise _TemporaryError(unreachable) if self._has_responded else unreachable from None
        except (OSError, http.client.HTTPException) as error:  # the connection was closed during the response
            raise _TemporaryError(self._unreachable(error)) from None
        if response.status >= 300:
            raise self._http_error(response)
        if response.data is None:
            raise self._not_mlflow()
        self._has_responded = True
        return response.data

    def _parse_response(self, data: bytes) -> JsonDict:
        try:
            response = parse_json(data or b"{}")
        except ValueError:
            raise self._not_mlflow() from None
        if not isinstance(response, dict):
            raise self._not_mlflow()
        return response

    def _http_error(self, response: Response) -> Exception:
        if response.status in _REDIRECTS:
            location = response.location[:_MAX_MESSAGE]
            return HostError(
                f"{self.uri} redirects to {location}",
                "use the address of the MLflow server itself",
                more="mlflow-server",
            )
        if response.status in (401, 403):
            return HostError(
                f"the MLflow server at {self.uri} refused the login (HTTP {response.status})",
                "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
                more="mlflow-server",
            )
        code, message = _error_details(response)
        if response.status in _TEMPORARY_CODES:
            failure = HostError(
                f"the MLflow server at {self.uri} failed (HTTP {response.status}): {message}", "try again later"
            )
            return _TemporaryError(failure)
        if not code:
            return self._not_mlflow(f"HTTP {response.status}")
        return RequestRejected(f"the MLflow server at {self.uri} refused: {message}", None, code)

    def _unreachable(self, reason: Any) -> HostError:
        message = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return Unreachable(
            f"cannot connect to the MLflow server at {self.uri}: {str(message)[:_MAX_MESSAGE]}",
            "check that it is running; start one with 'mlflow server --host 127.0.0.1 --port 5000'",
            more="mlflow-server",
        )

    def _not_mlflow(self, detail: str = "no JSON") -> HostError:
        return HostError(f"{self.uri} is not an MLflow server ({detail})", "check the address", more="mlflow-server")


class _TemporaryError(Exception):
    """A temporary error, after which the request can be retried."""

    def __init__(self, error: HostError) -> None:
        super().__init__(error.message)
        self.error = error


class _LimitedReader:
    """The first ``size`` bytes of a file that may still grow."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(min(self._left, count) if count >= 0 else self._left)
        self._left -= len(data)
        return data


def _error_details(response: Response) -> tuple[str, str]:
    """Return MLflow's error code and message."""
    try:
        body = parse_json(response.data or b"")
        code, message = str(body["error_code"]), str(body.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", "no reason given"
    return code, " ".join(message.split())[:_MAX_MESSAGE] or code


def validate_uri(uri: str) -> str:
    """Return the address without a trailing slash; raise UsageError if it is invalid."""
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
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError("MLFLOW_TRACKING_TOKEN is not a valid token", "check that it contains no line break")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
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


def _parse_timeout(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and int(text) else 120.0
