"""How mlw was installed, and how what is missing is added to that very installation."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..remote.shared.untrusted import parse_json

UI = ("nicegui", "fastapi", "uvicorn")
# Import names of what mlw cannot do without.
CORE = ("apsw", "click", "jmespath", "keyring", "packaging", "platformdirs", "pynvml", "rich", "yaml")


def missing(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if find_spec(name) is None)


def source() -> tuple[Path | None, bool]:
    """The folder that mlw was installed from, if it is still there; and whether changes in it count at once."""
    one = _distribution()
    try:
        told = parse_json((one.read_text("direct_url.json") if one else None) or "{}")
    except ValueError:
        return None, False
    parts = urlsplit(str(told.get("url") or ""))
    place = Path(url2pathname(parts.path)) if parts.scheme == "file" else None
    if place is None or not (place / "pyproject.toml").is_file():
        return None, False
    return place, bool((told.get("dir_info") or {}).get("editable"))


def install_ui() -> str:
    """The command that adds the parts of ``mlw ui`` to the Python that runs this."""
    place, editable = source()
    if place:
        words = ["--editable", f"{place}[ui]"] if editable else [f"{place}[ui]"]
    else:
        words = _extra("ui")
        if "pipx" in Path(sys.prefix).parts:
            return shlex.join(["pipx", "inject", "mlworkbench", *words])
    if find_spec("pip") is None:  # as in environments that uv makes
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *words])
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def _extra(name: str) -> list[str]:
    """What the extra names; by itself, because mlw may not be on any index."""
    one = _distribution()
    found = [line.partition(";") for line in (one.requires if one else None) or ()]
    words = [line.strip().replace(" ", "") for line, _, when in found if f'extra == "{name}"' in when.replace("'", '"')]
    return words or [f"mlworkbench[{name}]"]


def _distribution() -> Distribution | None:
    try:
        return distribution("mlworkbench")
    except PackageNotFoundError:
        return None
