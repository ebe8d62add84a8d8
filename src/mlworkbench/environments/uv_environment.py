"""The environment variables that uv gets when it reads text of a project or of an index.

uv replaces ``${NAME}`` in the addresses of requirements, also in those that packages name in their metadata: an index
could ask for ``https://…/${AWS_SECRET_ACCESS_KEY}``. So uv gets only what it needs, and no secret. Names are replaced
in upper case only, therefore proxies, which may hold a password, are passed in lower case. Indexes with their passwords
are in the file of requirements (``channels.py``), never in the environment. So are passwords of ``.netrc`` and of a
keyring, which uv would send over plain HTTP, and to every port of a host (``credentials.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_PASSED = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "PYTHON_KEYRING_BACKEND"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP"),  # Windows
    *("USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
)
_UV = (
    *("INDEX_STRATEGY", "PRERELEASE", "RESOLUTION", "FORK_STRATEGY", "EXCLUDE_NEWER", "TORCH_BACKEND", "NO_BUILD"),
    *("NO_BINARY", "CONSTRAINT", "OVERRIDE", "BUILD_CONSTRAINT", "SYSTEM_CERTS", "NATIVE_TLS", "INSECURE_HOST"),
    *("CACHE_DIR", "NO_CACHE", "OFFLINE", "HTTP_TIMEOUT", "HTTP_CONNECT_TIMEOUT", "REQUEST_TIMEOUT", "HTTP_RETRIES"),
    *("CONCURRENT_DOWNLOADS", "CONCURRENT_BUILDS", "CREDENTIALS_DIR", "PYTHON_DOWNLOADS"),
    *("GIT_LFS", "NO_GITHUB_FAST_PATH", "LINK_MODE"),
)
# uv's git clones repositories that packages name, with their submodules: without hooks, and from servers only. A path
# is allowed at first hand, because uv clones from its own cache; git refuses one that a submodule names. The answer of
# uv is checked for repositories of this machine (``local_files.check_repository``).
_GIT = (
    ("core.hooksPath", os.devnull),
    ("protocol.allow", "never"),
    *((f"protocol.{name}.allow", "always") for name in ("https", "ssh")),
    *((f"protocol.{name}.allow", "user") for name in ("http", "git", "file")),
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What uv needs of the user's environment."""
    names = (*_PASSED, *(f"UV_{name}" for name in _UV))
    passed = {name: environ[name] for name in names if name in environ}
    passed["NETRC"] = os.devnull
    passed.update(_git_settings())
    for name in _PROXIES:
        value = environ.get(name) or environ.get(name.upper())
        if value:
            passed[name] = value
    return passed


def _git_settings() -> dict[str, str]:
    """Variables that git reads as settings; they outweigh those of the user and of a repository."""
    settings = {"GIT_CONFIG_COUNT": str(len(_GIT))}
    for number, (name, value) in enumerate(_GIT):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return settings
