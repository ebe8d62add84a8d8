"""Start a program without notifications of network changes: Chromium drops all connections whenever an interface
appears or disappears on the machine, and other tests create and remove interfaces all the time.

    python without_netlink.py PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

NETLINK = 16
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # architecture, number of socket(2)
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def block_netlink() -> None:
    """Make socket(AF_NETLINK, …) fail for this process and its children."""
    entry = _SOCKET.get(platform.machine())
    if entry is None:
        return
    architecture, number = entry
    steps = (
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),
        (_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, 16),
        (_EQUAL, 0, 1, NETLINK),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (38, 1, 0, 0, 0),
        (22, 2, ctypes.create_string_buffer(program), 0, 0),
    ):  # PR_SET_NO_NEW_PRIVS, then PR_SET_SECCOMP with the filter
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    block_netlink()
    os.execv(sys.argv[1], sys.argv[1:])
