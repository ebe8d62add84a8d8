"""A submitted run in a Python program: its state, log, metrics, and outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.project_folder import Project, find_project
from ..errors import ConfigError, HistoryError, LaunchError, UsageError, WaitTimeout
from ..follow import Follower
from ..history.history_api import History
from ..hosts.unattached import UnattachedHost
from ..inferred_state import INTERRUPTED
from ..model import IN_CONTACT, Run, Status
from ..paths import UserPaths, user_name, user_paths
from ..runfiles.secret_masking import Mask
from .canceling import ask_to_end, await_end
from .open_run import current, folder_owner, named_run, open_follower, refuse_untracked
from .result_download import SweepChildren, download_selected_outputs, fetch_outputs, forget_unusable_image
from .run_messages import RunMessages
from .submission_frontend import Frontend, Write
from .submitting import check_request, known_secrets, start_run

if TYPE_CHECKING:
    from ..history.series.points import Points
    from ..runfiles.output_manifest import Output
    from ..submit_request import Request


class RunHandle:
    """A run in the history, as returned by ``mlworkbench.submit`` and ``mlworkbench.get_run``.

    A handle is thread-safe: it holds no connection or lock, and calls open what they need. Calls block;
    in a coroutine, use ``await asyncio.to_thread(handle.wait)``. Interrupting a call does not affect
    the run. Errors are subclasses of ``mlworkbench.errors.MlwError``; a run that fails is not an error.
    """

    def __init__(
        self, run_id: str, paths: UserPaths, frontend: Frontend, secrets: Mapping[str, str] | None = None
    ) -> None:
        self._id = run_id
        self._paths = paths
        self._frontend = frontend
        self._secrets = secrets or {}

    @property
    def id(self) -> str:
        """The run ID."""
        return self._id

    def __repr__(self) -> str:
        return f"<RunHandle {self._id}>"

    def run(self) -> Run:
        """Return the current record of the run: status, times, exit code, latest metrics, and more."""
        with self._history() as history:
            return current(history, history.load(self._id)[0])

    def status(self) -> Status:
        """Return the current status: a text such as ``"Running"`` or ``"Completed"``; ``.final`` if it has ended."""
        return self.run().status

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended and return its record.

        Downloads the log and the outputs of a remote run, as ``mlw logs -f`` does. Raises ``WaitTimeout``, which is
        also a ``TimeoutError``, if the run has not ended after ``timeout`` seconds; the run continues.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._opened() as follower:
            follower.refresh()
            for _ in self._followed(follower, until):
                continue
            if not follower.run.status.final:
                raise WaitTimeout(
                    f"run {self._id} has not ended after {timeout:g} s; it continues",
                    "call wait() again, or cancel the run with cancel()",
                )
            return self.run() if follower.run.id != self._id else follower.run

    def logs(self, follow: bool = False) -> Iterator[str]:
        """Iterate over the lines of the log, decoded as UTF-8 and without line ends.

        With ``follow``, new lines are returned as the script writes them, until the run has ended. Values of secrets
        that are known here are replaced by ``***``. The log itself is kept byte for byte in the run folder.
        """
        with self._opened() as follower:
            refuse_untracked(follower.run, "its output was not captured", "show what it logged with metrics()")
            follower.refresh()
            secrets = {**known_secrets(follower.run, Frontend(), self._secrets), **self._secrets}
            chunks = self._followed(follower, None) if follow else follower.chunks(live=False)
            yield from _lines(chunks, Mask(os.fsencode(value) for value in secrets.values()))

    def metrics(self, *names: str) -> dict[str, Points]:
        """Return the numeric metrics logged so far, or only ``names``: name → ``steps``, ``times``, and ``values``."""
        run = self.run()
        with self._history() as history:
            return history.metrics(run, *names)

    def outputs(self) -> list[Output]:
        """List the outputs of the run; each has ``path``, ``size`` in bytes, and ``sha256``."""
        from ..runfiles.output_manifest import outputs_of  # noqa: PLC0415 - most programs need no list

        with self._opened() as follower:
            folder = self._paths.root.run(follower.refresh().id)
            download_selected_outputs(follower, self._frontend, lambda output: False)
            if follower.run.outputs == 0:
                return []
            outputs, _ = outputs_of(folder)
            return [output for output in outputs() if output.is_collected]

    def download(self, to: str | os.PathLike[str], artifacts: Sequence[str] = (), *, overwrite: bool = False) -> Path:
        """Copy the outputs, or only ``artifacts`` (files and folders), to the folder ``to``, and return its path.

        Verifies the digest of each file. Files that exist with the same content are kept; other existing files raise
        ``HistoryError`` unless ``overwrite`` is true.
        """
        from ..runfiles.output_download import covers, download, normalize_name  # noqa: PLC0415 - for downloads only

        names = [normalize_name(artifact) for artifact in _listed(artifacts)]
        with self._opened() as follower:
            run = follower.refresh()
            download_selected_outputs(
                follower, self._frontend, lambda output: not names or any(covers(name, output.path) for name in names)
            )
            if run.outputs == 0 and not run.uncollected and not names:
                Path(to).mkdir(parents=True, exist_ok=True)
                return Path(to)
            outcome, _ = download(self._paths.root.run(run.id), os.fspath(to), names, overwrite=overwrite)
        if outcome.exists:
            raise HistoryError(
                f"{os.path.join(to, outcome.exists[0])} exists with different content; not replaced",
                "replace existing files with overwrite=True",
            )
        for path, why in outcome.failed[:1]:
            raise HistoryError(f"output {path} of run {self._id} was not copied: {why}", "call download() again")
        return Path(to)

    def cancel(self, *, grace: float | None = None, wait: bool = True) -> Run:
        """Cancel the run and return its record.

        Sends SIGTERM to all its processes, then SIGKILL after ``grace`` seconds (default: 30). Does nothing if the run
        has ended. Without ``wait``, returns before the run has ended.
        """
        with self._opened() as follower:
            refuse_untracked(follower.run, "mlw cannot cancel it", "stop it where it was started")
            if follower.refresh().status.final:
                return follower.run
            by = f"{user_name()} with RunHandle.cancel"
            ask_to_end(follower.history, follower, by, grace, self._frontend)
            if wait:
                await_end(follower.history, follower, self._frontend)
                if follower.run.spec.sweep:
                    self._children(follower).fetch_all()
            return follower.run

    def _followed(self, follower: Follower, until: float | None) -> Iterator[bytes]:
        """Yield the log until the run has ended; then download its results."""
        messages = RunMessages(self._frontend.message)
        messages.state_changed(follower.run)
        if isinstance(follower.target.host, UnattachedHost) and not follower.is_log_complete():
            raise follower.target.host.refusal  # the target cannot be contacted for the rest of the log
        if follower.run.contact != IN_CONTACT:
            messages.contact_changed(follower.run)
        children = self._children(follower) if follower.run.spec.sweep else None
        for data in follower.chunks(observer=messages, until=until):
            yield data
            if children:
                children.feed(data)
        if follower.run.detail == INTERRUPTED:
            raise LaunchError(
                f"the submission of run {self._id} was interrupted before the run started",
                f"submit it again with the same key, or run 'mlw experiment resume {self._id}'",
            )
        if not follower.run.status.final:
            return
        fetch_outputs(follower, self._frontend)
        forget_unusable_image(follower)
        if children:
            children.fetch_all()

    def _children(self, follower: Follower) -> SweepChildren:
        return SweepChildren(follower.history, follower.run.spec, follower.target, self._frontend)

    @contextmanager
    def _history(self) -> Iterator[History]:
        """Open a history for this call only, because it must not be shared between threads."""
        history = History(self._paths)
        try:
            yield history
        finally:
            history.close()

    @contextmanager
    def _opened(self) -> Iterator[Follower]:
        """Follow the run, or the run that contains it, on its target."""
        with self._history() as history:
            follower = open_follower(history, folder_owner(history, history.load(self._id)[0]))
            try:
                yield follower
            finally:
                follower.target.host.close()


def submit(project: Project | str | os.PathLike[str], request: Request, *, progress: Write | None = None) -> RunHandle:
    """Submit a run and return a handle to it, without waiting for its end.

    ``project`` is a project, or the path of a folder in it. ``request`` describes the run:
    ``submit(".", Request("train.py", ["--lr", "0.1"], configuration="local"))``.

    Does the same as ``mlw submit --detach``: it checks the project, uploads what changed, and starts the run on its
    target. If a run with the same ``key`` exists, that run is returned, and started if its submission was interrupted.

    ``progress`` is called with lines of text, such as warnings and the progress of uploads; for example ``print``. The
    handle uses it, too. Nothing is printed by default, and nothing is ever asked for: a secret without a value raises
    an error. No signal handlers are installed, and several threads can submit at once.

    Errors are subclasses of ``mlworkbench.errors.MlwError`` with ``message`` and ``hint``.
    """
    frontend, paths = Frontend(progress), user_paths()
    opened = project if isinstance(project, Project) else find_project(Path(project))
    history = History(paths)
    try:
        checked = check_request(history, request, frontend)
        claim_project(history, opened)
        started = start_run(history, opened, checked, frontend)
        started.follower.target.host.close()
        return RunHandle(started.follower.run.id, paths, frontend, started.secrets)
    finally:
        history.close()


def get_run(name: str, *, project: Project | str | os.PathLike[str] = ".", progress: Write | None = None) -> RunHandle:
    """Return a handle to a run of the history by its ID, a unique part of the ID, or its name.

    If there is no such run, ``UnknownName`` lists runs of ``project`` with similar names. ``progress``: see ``submit``.
    """
    paths = user_paths()
    history = History(paths)
    try:
        run = named_run(history, name, lambda: _maybe_project(project))
        return RunHandle(run.id, paths, Frontend(progress))
    finally:
        history.close()


def claim_project(history: History, project: Project) -> None:
    """Raise ``SameId`` if another folder has the same project ID."""
    from ..config.project_id_folders import claim_root  # noqa: PLC0415
    from ..history.run_counts import project_folders  # noqa: PLC0415

    claim_root(history.paths, project, lambda digits: project_folders(history, digits))


def _maybe_project(project: Project | str | os.PathLike[str]) -> Project | None:
    if isinstance(project, Project):
        return project
    try:
        return find_project(Path(project))
    except ConfigError:
        return None


def _listed(artifacts: Sequence[str]) -> Sequence[str]:
    if isinstance(artifacts, str):
        raise UsageError("artifacts is a text, not a list", f"for example: artifacts=[{artifacts!r}]")
    return artifacts


def _lines(chunks: Iterator[bytes], mask: Mask) -> Iterator[str]:
    rest = b""
    for data in chunks:
        *lines, rest = (rest + mask.feed(data)).split(b"\n")
        yield from (_text(line) for line in lines)
    *lines, rest = (rest + mask.end()).split(b"\n")
    yield from (_text(line) for line in lines)
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").removesuffix("\r")
