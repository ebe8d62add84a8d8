"""Environment variables for uv when it reads text from a project or an index.

uv replaces ``${NAME}`` in the URLs of requirements, including those in package metadata: an index
could require ``https://…/${AWS_SECRET_ACCESS_KEY}``. Therefore uv gets only the variables that it
needs, and no secrets. uv replaces only uppercase names, so proxy settings, which may contain a
password, are passed in lowercase. Indexes with passwords are written to the requirements file
(``channels``), never to the environment. The same applies to passwords from ``.netrc`` and the
keyring, which uv would send over plain HTTP and to every port of a host (``credentials``).
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
# uv uses git to clone package repositories and their submodules: without hooks, and only from servers. A direct path
# is allowed, because uv clones from its own cache; git rejects paths in submodules. uv's result is checked for
# local repositories (``local_files.check_repository``).
_GIT = (
    ("core.hooksPath", os.devnull),
    ("protocol.allow", "never"),
    *((f"protocol.{name}.allow", "always") for name in ("https", "ssh")),
    *((f"protocol.{name}.allow", "user") for name in ("http", "git", "file")),
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the user's environment that uv needs."""
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
    """Return variables with git settings that override those of the user and the repository."""
    settings = {"GIT_CONFIG_COUNT": str(len(_GIT))}
    for number, (name, value) in enumerate(_GIT):
        settings |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return settings
