"""What every answer carries, so that a browser lends none of it to anybody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .admission import Door

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
_NEVER = (b"server", b"access-control-allow-origin", b"access-control-allow-credentials")
SANDBOX = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; frame-ancestors 'none'"


def policy(door: Door) -> str:
    """NiceGUI needs inline scripts and eval; everything comes from here, and no other site may frame it."""
    # 'self' covers sockets in newer browsers; an address of IPv6 cannot be written here at all.
    sockets = " ".join(f"ws://{host}" for host in sorted(door.hosts) if "[" not in host)
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            f"connect-src 'self' {sockets}",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def harden(send: Send, door: Door) -> Send:
    """``send`` with the headers in place. A stricter policy of the application's own stays: that of an output file."""
    fallback = policy(door).encode()

    async def hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            own = next((value for name, value in given if name == _POLICY and value.startswith(b"sandbox")), fallback)
            kept = [(name, value) for name, value in given if name not in (*_FIXED, *_NEVER, _POLICY)]
            if not any(name == b"cache-control" for name, _ in kept):
                kept.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*kept, *_FIXED.items(), (_POLICY, own)]}
        await send(message)

    return hardened
