"""``mlw ui``: open ML Workbench in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from ..paths import user_paths
from . import render
from .options import get_project_or_none, global_options, project_option

if TYPE_CHECKING:
    from ..paths import UserPaths
    from ..ui.cookie_isolation import Style
    from ..ui.server import ServerFiles


_PORT_HELP = "Port (default: first free port starting at 8521; random with --address path)"


@click.command(epilog="Example: mlw ui --no-browser")
@click.option("--port", type=click.IntRange(1, 65535), help=_PORT_HELP)
@click.option("--browser/--no-browser", default=True, help="Open the browser (default), or only print the link")
@click.option("--host", metavar="ADDRESS", help="Also accept connections from other machines; asks for a password")
@click.option("--any-local-user", is_flag=True, help="Accept connections from other users of this machine (Linux)")
@click.option(
    "--address",
    "style",
    type=click.Choice(("hostname", "path")),
    help="Secret part of the link: a host name under .localhost (default on Linux) or a path",
)
@click.option(
    "--keep-address",
    is_flag=True,
    help="Keep the address and sessions of the last server; only for machines without other users",
)
@project_option
@global_options
def ui(
    port: int | None,
    browser: bool,
    host: str | None,
    any_local_user: bool,
    style: Style | None,
    keep_address: bool,
    folder: str | None,
) -> None:
    """Open ML Workbench in the browser.

    Without --host, only this machine can connect, and only with the printed link. Ctrl-C stops the server; runs
    continue.
    """
    from ..ui import cookie_isolation, server, server_discovery  # noqa: PLC0415 - slow to import

    if host and style == "hostname":
        raise UsageError("--address hostname cannot be combined with --host", "remove one of them")
    _check_packages()
    paths = user_paths()
    files = server.server_files(paths)
    project = get_project_or_none(folder)
    _leave_project_folder(paths)
    style = style or cookie_isolation.default_style(host)
    address = cookie_isolation.load_address(files.address) if host is None else None
    if address:
        link = server_discovery.running_link(files.running, address, style, port)
        if link:
            render.message("mlw ui is already running")
            _open_browser(files, link, browser)
            return
    password = _prompt_password(host) if host else None
    # Use a random port: a secret path does not isolate mlw from pages that another program served on this port.
    sock = server.listen(host, port, random_port=style == "path" and not keep_address)
    web_server = server.Server(sock, files, style, password, any_local_user, keep_address)
    _open_browser(files, web_server.link(), browser)  # before the slow import; the browser waits for the server
    from ..ui.app import create_app  # noqa: PLC0415 - takes a second to import

    web_server.serve(create_app(paths, project.root if project else None, web_server.link))
    render.message("mlw ui stopped; runs continue")


def _leave_project_folder(paths: UserPaths) -> None:
    """Change to a folder outside the project.

    Libraries run ``python -c`` or start programs by name. Both may search the current folder. A
    relative MLW_HOME is made absolute first.
    """
    if os.environ.get("MLW_HOME"):
        os.environ["MLW_HOME"] = str(paths.home)
    os.chdir(paths.home / "ui")


def _check_packages() -> None:
    """Raise if packages of the UI are missing, before a link is printed."""
    missing = [name for name in ("nicegui", "fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        from ..doctor.installation import install_ui  # noqa: PLC0415 - slow to import

        raise UsageError(
            f"packages for mlw ui are not installed: {', '.join(missing)}",
            f"install them with: {install_ui()}",
            more="ui-not-installed",
        )


def _open_browser(files: ServerFiles, link: str, browser: bool) -> None:
    """Print the link, which is needed behind a tunnel, and open the browser."""
    render.message(f"ML Workbench: {link}")
    render.message("hint: this single-use link is valid for two minutes; Ctrl-C stops the server, runs continue")
    if browser:
        from ..ui.server import opener_file  # noqa: PLC0415 - slow to import

        webbrowser.open(opener_file(files, link))


def _prompt_password(host: str) -> str:
    render.warn(
        f"mlw ui will listen on {host}: anyone with the password can run programs as you, and traffic is not encrypted"
    )
    if not sys.stdin.isatty():
        raise UsageError("cannot prompt for a password: no terminal", "run 'mlw ui --host' in a terminal")
    return str(click.prompt("Set a password for the browser UI", hide_input=True, confirmation_prompt=True, err=True))
