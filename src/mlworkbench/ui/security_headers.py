"""Security headers for every response."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .request_policy import Request

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_FIXED = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
_CSP_HEADER = b"content-security-policy"
# Versioned NiceGUI files. Below the secret path, NiceGUI does not recognize them as cacheable.
_CACHEABLE = re.compile(rb"/_nicegui/[0-9.]+/(?!dynamic_resources/)")
_REMOVED = (b"server", b"access-control-allow-origin", b"access-control-allow-credentials")
SANDBOX = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; frame-ancestors 'none'"


def content_security_policy(host: str) -> str:
    """Return the Content-Security-Policy.

    NiceGUI needs inline scripts and ``eval``. No other site may embed a page in a frame. ``host`` is
    the host of the request, or empty if the request is refused. The server's other hosts are not
    listed, because the list would reveal its secret host name.
    """
    # Older browsers do not include WebSockets in 'self'. A policy cannot contain IPv6 addresses.
    sockets = f" ws://{host}" if host and "[" not in host else ""
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            f"connect-src 'self'{sockets}",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def _relative(location: bytes, request: Request) -> bytes:
    """Return a redirect target without the host name and the secret path."""
    path = location.removeprefix(f"http://{request.host}".encode("latin-1"))
    base = f"{request.base}/".encode()
    if not request.base or not path.startswith(base):
        return path
    return b"./" + b"../" * (request.path.count(b"/") - 1) + path.removeprefix(base)


def harden(send: Send, request: Request, admitted: bool) -> Send:
    """Return a ``send`` function that adds the headers.

    A stricter policy, such as that of an output file, is preserved.
    """
    fallback = content_security_policy(request.host if admitted else "").encode()
    is_cacheable = bool(request.base) and _CACHEABLE.match(request.path) is not None

    async def send_hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            policy = next(
                (value for name, value in headers if name == _CSP_HEADER and value.startswith(b"sandbox")), fallback
            )
            kept = [(name, value) for name, value in headers if name not in (*_FIXED, *_REMOVED, _CSP_HEADER)]
            kept = [(name, _relative(value, request) if name == b"location" else value) for name, value in kept]
            if not any(name == b"cache-control" for name, _ in kept):
                cache = is_cacheable and message["status"] == 200
                kept.append((b"cache-control", b"private, max-age=31536000, immutable" if cache else b"no-store"))
            message = {**message, "headers": [*kept, *_FIXED.items(), (_CSP_HEADER, policy)]}
        await send(message)

    return send_hardened
