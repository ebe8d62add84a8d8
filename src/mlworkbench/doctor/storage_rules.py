"""The data folder and the run history → findings. Pure."""

from __future__ import annotations

from pathlib import PureWindowsPath
from shlex import quote

from ..hosts.facts import Store
from ..targets.check import ERROR, OK, WARNING, Finding, Size, scarcity
from .facts import Home, Laptop, Past

_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o055
_SYNCED = ("Dropbox", "OneDrive", "Google Drive", "GoogleDrive", "iCloud", "Mobile Documents", "Nextcloud")
_FULL = ("No space left on device", "Disk quota exceeded")
_ANOTHER = "set MLW_HOME to a writable folder"
_ROOM = "free some space; 'mlw experiment clean' lists files that mlw can delete"


def judge_storage(laptop: Laptop, size: Size) -> list[Finding]:
    """Nothing can be said of a history in a folder that cannot be used."""
    folder = _folder(laptop.home)
    findings = [folder] if folder.state != OK else [_space(folder, laptop.home, laptop.machine.store, size)]
    past = laptop.past
    return findings if past is None else [*findings, _history(past, size), *_leftovers(past, size)]


def _folder(home: Home) -> Finding:
    found = f"{home.folder} ({'MLW_HOME' if home.named else 'default'})"
    if home.problem in _FULL:
        return Finding("data folder", ERROR, f"{found}: {home.problem}", _ROOM, "disk-full")
    if home.problem:
        return Finding("data folder", ERROR, f"{found} cannot be used: {home.problem}", _ANOTHER, "history-unusable")
    if not home.there:
        return Finding("data folder", OK, f"{found} does not exist yet; the first command creates it")
    if not home.mine:
        hint = "set MLW_HOME to a folder that you own"
        return Finding("data folder", ERROR, f"{found} belongs to another user", hint, "history-unusable")
    if home.mode & _OTHERS_WRITE:
        hint = f"chmod 700 {quote(home.folder)}"
        return Finding("data folder", ERROR, f"{found}: writable by other users", hint, "history-unusable")
    if home.mode & _OTHERS_READ:
        words = f"{found}: readable by other users, including your code and logs"
        return Finding("data folder", WARNING, words, f"chmod 700 {quote(home.folder)}")
    return Finding("data folder", OK, found)


def _space(folder: Finding, home: Home, store: Store, size: Size) -> Finding:
    found = folder.found
    if store.free is not None:
        found += f", {size(store.free)} free"
    scarce = scarcity("data folder", store, found, _ROOM)
    if scarce:
        return scarce
    if store.network:
        hint = "set MLW_HOME to a folder on a local disk"
        words = f"{found}, on a network file system ({store.filesystem}), which is slow and has unreliable locks"
        return Finding("data folder", WARNING, words, hint, "history-damaged")
    synced = _synced(home.folder)
    if synced:
        words = f"{found}, in a synchronized folder ({synced}), which damages databases"
        return Finding("data folder", WARNING, words, "set MLW_HOME to another folder", "history-damaged")
    return Finding("data folder", OK, found)


def _synced(folder: str) -> str | None:
    """Of Windows as well, whose paths have either slash. Services add words: "OneDrive - Work", "Dropbox (Old)"."""
    parts = [part.lower() for part in PureWindowsPath(folder).parts]
    return next((name for name in _SYNCED if any(part.startswith(name.lower()) for part in parts)), None)


def _history(past: Past, size: Size) -> Finding:
    if past.problem:
        words = f"the run history {past.path} cannot be used: {past.problem}"
        return Finding("history", ERROR, words, "make it readable and writable for your user", "history-damaged")
    if not past.there:
        return Finding("history", OK, "no runs yet")
    if past.damage:
        words = f"the index of the history is damaged: {past.damage}"
        hint = "rebuild it from the run folders with 'mlw history rebuild'; the next command also does this"
        return Finding("history", ERROR, words, hint, "history-damaged")
    if past.version is not None and past.version > past.known:
        words = f"{past.path} was written by a newer mlw (version {past.version}; this one supports {past.known})"
        return Finding("history", ERROR, words, "upgrade mlworkbench, or use another MLW_HOME", "history-unusable")
    if past.version is not None and past.version < past.known:
        return Finding("history", OK, f"{size(past.size)}, from an older version of mlw; the next command upgrades it")
    found = f"{past.runs} run{'s' * (past.runs != 1)}, {past.unfinished} not finished, {size(past.size)}"
    if past.busy:
        hint = f"find the program with: fuser {quote(past.path)}"
        return Finding("history", WARNING, f"{found}; locked by another program", hint, "history-unusable")
    return Finding("history", OK, f"{found}, {'all pages' if past.whole else 'tables'} verified")


def _leftovers(past: Past, size: Size) -> list[Finding]:
    found = []
    if past.stranded:
        what = "a submission was" if past.stranded == 1 else f"{past.stranded} submissions were"
        hint = (
            "list them with 'mlw ps'; finish one with 'mlw experiment resume RUN', or cancel it with 'mlw cancel RUN'"
        )
        found.append(Finding("leftovers", WARNING, f"{what} interrupted", hint, "submit-interrupted"))
    if past.aside:
        kept = [path for path in past.aside if not path.endswith(("-wal", "-shm"))] or list(past.aside)
        what = "a damaged index was" if len(kept) == 1 else f"{len(kept)} damaged indexes were"
        hint = "the history was rebuilt from the run folders; you can delete these files"
        found.append(Finding("leftovers", WARNING, f"{what} renamed to {kept[-1]}", hint, "history-damaged"))
    return found
