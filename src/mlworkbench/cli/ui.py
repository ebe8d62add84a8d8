"""``mlw ui``: the Workbench in the browser."""

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
from .options import debugging, in_project, maybe_project

if TYPE_CHECKING:
    from ..paths import UserPaths
    from ..ui.address import Style
    from ..ui.server import Places


_PORT = "Port (default: first free port starting at 8521; random with --address path)"


@click.command(epilog="Example: mlw ui --no-browser")
@click.option("--port", type=click.IntRange(1, 65535), help=_PORT)
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
@in_project
@debugging
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
    from ..ui import address, running, server  # noqa: PLC0415 - other commands do without

    if host and style == "hostname":
        raise UsageError("--address hostname cannot be combined with --host", "remove one of them")
    _expect_parts()
    paths = user_paths()
    files = server.places(paths)
    here = maybe_project(folder)
    _leave_the_project(paths)
    style = style or address.default_style(host)
    known = address.known_address(files.address) if host is None else None
    if known:
        link = running.running_link(files.running, known, style, port)
        if link:
            render.message("mlw ui is already running")
            _open(files, link, browser)
            return
    password = _password(host) if host else None
    # In a path, the secret does not keep pages apart that another program has opened at the same port before.
    listening = server.listen(host, port, random_port=style == "path" and not keep_address)
    made = server.Server(listening, files, style, password, any_local_user, keep_address)
    _open(files, made.link(), browser)  # it takes its time, too, and waits for us if it is quicker
    from ..ui.app import make  # noqa: PLC0415 - takes a second

    made.serve(make(paths, here.root if here else None, made.link))
    render.message("mlw ui stopped; runs continue")


def _leave_the_project(paths: UserPaths) -> None:
    """Libraries start helpers with ``python -c`` and programs by their names, which are looked for in the current
    folder: that is none of a project. A data folder that was named relative to it stays the same."""
    if os.environ.get("MLW_HOME"):
        os.environ["MLW_HOME"] = str(paths.home)
    os.chdir(paths.home / "ui")


def _expect_parts() -> None:
    """Before a link is printed that leads nowhere."""
    missing = [name for name in ("nicegui", "fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        from ..laptop.installed import install_ui  # noqa: PLC0415 - slow, and needed only then

        raise UsageError(
            f"packages for mlw ui are not installed: {', '.join(missing)}",
            f"install them with: {install_ui()}",
            more="ui-not-installed",
        )


def _open(files: Places, link: str, browser: bool) -> None:
    """The link is printed in any case: a machine without a browser of its own is reached through a tunnel."""
    render.message(f"ML Workbench: {link}")
    render.message("hint: this single-use link is valid for two minutes; Ctrl-C stops the server, runs continue")
    if browser:
        from ..ui.server import opener_file  # noqa: PLC0415 - see ui

        webbrowser.open(opener_file(files, link))


def _password(host: str) -> str:
    render.warn(
        f"mlw ui will listen on {host}: anyone with the password can run programs as you, and traffic is not encrypted"
    )
    if not sys.stdin.isatty():
        raise UsageError("cannot prompt for a password: no terminal", "run 'mlw ui --host' in a terminal")
    return str(click.prompt("Set a password for the browser UI", hide_input=True, confirmation_prompt=True, err=True))
