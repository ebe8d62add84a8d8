"""What every answer carries, so that a browser lends none of it to anybody else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .admission import Request

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
_POLICY = b"content-security-policy"
# NiceGUI's own files, with its version in their address; it recognizes them only where there is no secret path.
_LASTING = re.compile(rb"/_nicegui/[0-9.]+/(?!dynamic_resources/)")
_NEVER = (b"server", b"access-control-allow-origin", b"access-control-allow-credentials")
SANDBOX = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; frame-ancestors 'none'"


def policy(host: str) -> str:
    """NiceGUI needs inline scripts and eval; everything comes from here, and no other site may frame it.

    ``host``: that of the request and no other, for one of our names is secret; empty if the request is refused.
    """
    # 'self' covers sockets in newer browsers; an address of IPv6 cannot be written here at all.
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
    """Where a redirect leads, without the name of the host and the secret path."""
    path = location.removeprefix(f"http://{request.host}".encode("latin-1"))
    base = f"{request.base}/".encode()
    if not request.base or not path.startswith(base):
        return path
    return b"./" + b"../" * (request.path.count(b"/") - 1) + path.removeprefix(base)


def harden(send: Send, request: Request, admitted: bool) -> Send:
    """``send`` with the headers in place. A stricter policy of the application's own stays: that of an output file."""
    fallback = policy(request.host if admitted else "").encode()
    kept_long = bool(request.base) and _LASTING.match(request.path) is not None

    async def hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            own = next((value for name, value in given if name == _POLICY and value.startswith(b"sandbox")), fallback)
            kept = [(name, value) for name, value in given if name not in (*_FIXED, *_NEVER, _POLICY)]
            kept = [(name, _relative(value, request) if name == b"location" else value) for name, value in kept]
            if not any(name == b"cache-control" for name, _ in kept):
                lasting = kept_long and message["status"] == 200
                kept.append((b"cache-control", b"private, max-age=31536000, immutable" if lasting else b"no-store"))
            message = {**message, "headers": [*kept, *_FIXED.items(), (_POLICY, own)]}
        await send(message)

    return hardened
