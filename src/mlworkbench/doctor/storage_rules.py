"""Findings about the data folder and the run history. This module has no side effects."""

from __future__ import annotations

from pathlib import PureWindowsPath
from shlex import quote

from ..hosts.host_facts import Store
from ..targets.machine_check import ERROR, OK, WARNING, Finding, Size, scarcity
from .laptop_facts import HistoryState, Home, Laptop

_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o055
_SYNC_FOLDERS = ("Dropbox", "OneDrive", "Google Drive", "GoogleDrive", "iCloud", "Mobile Documents", "Nextcloud")
_DISK_FULL_ERRORS = ("No space left on device", "Disk quota exceeded")
_SET_HOME_HINT = "set MLW_HOME to a writable folder"
_FREE_SPACE_HINT = "free some space; 'mlw experiment clean' lists files that mlw can delete"


def diagnose_storage(laptop: Laptop, size: Size) -> list[Finding]:
    """Return findings about the data folder and, if the folder exists, about the history."""
    folder = _folder(laptop.home)
    findings = [folder] if folder.state != OK else [_space(folder, laptop.home, laptop.machine.store, size)]
    history = laptop.history
    return findings if history is None else [*findings, _history(history, size), *_leftovers(history, size)]


def _folder(home: Home) -> Finding:
    description = f"{home.folder} ({'MLW_HOME' if home.is_configured else 'default'})"
    if home.problem in _DISK_FULL_ERRORS:
        return Finding("data folder", ERROR, f"{description}: {home.problem}", _FREE_SPACE_HINT, "disk-full")
    if home.problem:
        return Finding(
            "data folder", ERROR, f"{description} cannot be used: {home.problem}", _SET_HOME_HINT, "history-unusable"
        )
    if not home.exists:
        return Finding("data folder", OK, f"{description} does not exist yet; the first command creates it")
    if not home.is_own:
        hint = "set MLW_HOME to a folder that you own"
        return Finding("data folder", ERROR, f"{description} belongs to another user", hint, "history-unusable")
    if home.mode & _OTHERS_WRITE:
        hint = f"chmod 700 {quote(home.folder)}"
        return Finding("data folder", ERROR, f"{description}: writable by other users", hint, "history-unusable")
    if home.mode & _OTHERS_READ:
        message = f"{description}: readable by other users, including your code and logs"
        return Finding("data folder", WARNING, message, f"chmod 700 {quote(home.folder)}")
    return Finding("data folder", OK, description)


def _space(folder: Finding, home: Home, store: Store, size: Size) -> Finding:
    description = folder.found
    if store.free is not None:
        description += f", {size(store.free)} free"
    scarce = scarcity("data folder", store, description, _FREE_SPACE_HINT)
    if scarce:
        return scarce
    if store.network:
        hint = "set MLW_HOME to a folder on a local disk"
        message = (
            f"{description}, on a network file system ({store.filesystem}), which is slow and has unreliable locks"
        )
        return Finding("data folder", WARNING, message, hint, "history-damaged")
    synced = _synced(home.folder)
    if synced:
        message = f"{description}, in a synchronized folder ({synced}), which damages databases"
        return Finding("data folder", WARNING, message, "set MLW_HOME to another folder", "history-damaged")
    return Finding("data folder", OK, description)


def _synced(folder: str) -> str | None:
    """Return the sync service, such as OneDrive, whose folder contains a path, or None.

    Windows paths may contain both kinds of slashes.
    """
    parts = [part.lower() for part in PureWindowsPath(folder).parts]
    return next((name for name in _SYNC_FOLDERS if any(part.startswith(name.lower()) for part in parts)), None)


def _history(history: HistoryState, size: Size) -> Finding:
    if history.problem:
        message = f"the run history {history.path} cannot be used: {history.problem}"
        return Finding("history", ERROR, message, "make it readable and writable for your user", "history-damaged")
    if not history.exists:
        return Finding("history", OK, "no runs yet")
    if history.damage:
        message = f"the index of the history is damaged: {history.damage}"
        hint = "rebuild it from the run folders with 'mlw history rebuild'; the next command also does this"
        return Finding("history", ERROR, message, hint, "history-damaged")
    if history.version is not None and history.version > history.supported_version:
        versions = f"version {history.version}; this one supports {history.supported_version}"
        message = f"{history.path} was written by a newer mlw ({versions})"
        return Finding("history", ERROR, message, "upgrade mlworkbench, or use another MLW_HOME", "history-unusable")
    if history.version is not None and history.version < history.supported_version:
        message = f"{size(history.size)}, from an older version of mlw; the next command upgrades it"
        return Finding("history", OK, message)
    count = f"{history.runs} run{'s' * (history.runs != 1)}"
    description = f"{count}, {history.unfinished} not finished, {size(history.size)}"
    if history.busy:
        hint = f"find the program with: fuser {quote(history.path)}"
        return Finding("history", WARNING, f"{description}; locked by another program", hint, "history-unusable")
    return Finding("history", OK, f"{description}, {'all pages' if history.is_fully_checked else 'tables'} verified")


def _leftovers(history: HistoryState, size: Size) -> list[Finding]:
    findings = []
    if history.interrupted:
        what = "a submission was" if history.interrupted == 1 else f"{history.interrupted} submissions were"
        hint = (
            "list them with 'mlw ps'; finish one with 'mlw experiment resume RUN', or cancel it with 'mlw cancel RUN'"
        )
        findings.append(Finding("leftovers", WARNING, f"{what} interrupted", hint, "submit-interrupted"))
    if history.set_aside:
        kept = [path for path in history.set_aside if not path.endswith(("-wal", "-shm"))] or list(history.set_aside)
        what = "a damaged index was" if len(kept) == 1 else f"{len(kept)} damaged indexes were"
        hint = "the history was rebuilt from the run folders; you can delete these files"
        findings.append(Finding("leftovers", WARNING, f"{what} renamed to {kept[-1]}", hint, "history-damaged"))
    return findings
