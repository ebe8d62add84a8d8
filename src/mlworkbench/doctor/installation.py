"""How mlw was installed, and how to add missing parts to that installation."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..remote.shared.untrusted_json import parse_json

UI = ("nicegui", "fastapi", "uvicorn")
# Import names of required packages.
CORE = ("apsw", "click", "jmespath", "keyring", "packaging", "platformdirs", "pynvml", "rich", "yaml")


def missing(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if find_spec(name) is None)


def source() -> tuple[Path | None, bool]:
    """Return the installation's source folder, if it still exists, and whether it is editable."""
    package = _distribution()
    try:
        origin = parse_json((package.read_text("direct_url.json") if package else None) or "{}")
    except ValueError:
        return None, False
    parts = urlsplit(str(origin.get("url") or ""))
    folder = Path(url2pathname(parts.path)) if parts.scheme == "file" else None
    if folder is None or not (folder / "pyproject.toml").is_file():
        return None, False
    return folder, bool((origin.get("dir_info") or {}).get("editable"))


def install_ui() -> str:
    """Return the command that installs the packages of ``mlw ui`` for this Python interpreter."""
    folder, editable = source()
    if folder:
        requirements = ["--editable", f"{folder}[ui]"] if editable else [f"{folder}[ui]"]
    else:
        requirements = _extra("ui")
        if "pipx" in Path(sys.prefix).parts:
            return shlex.join(["pipx", "inject", "mlworkbench", *requirements])
    if find_spec("pip") is None:  # as in environments created by uv
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *requirements])
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def _extra(name: str) -> list[str]:
    """Return the extra's packages individually, because mlw itself may not be on any index."""
    package = _distribution()
    lines = [line.partition(";") for line in (package.requires if package else None) or ()]
    requirements = [
        line.strip().replace(" ", "") for line, _, marker in lines if f'extra == "{name}"' in marker.replace("'", '"')
    ]
    return requirements or [f"mlworkbench[{name}]"]


def _distribution() -> Distribution | None:
    try:
        return distribution("mlworkbench")
    except PackageNotFoundError:
        return None
