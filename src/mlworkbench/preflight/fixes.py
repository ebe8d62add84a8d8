"""Writes what the findings propose into the files of the project; every other byte stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ..config.place import leads_out
from ..config.rewrite import replace_file, scalar_text
from ..config.yamlfile import Mapping, Node, Scalar, Sequence, decode, parse, plain, read_bytes, show_path
from ..errors import ConfigError
from .finding import Finding, Replacement

_YAML = (".yml", ".yaml")


def apply(findings: Iterable[Finding], root: Path) -> list[Finding]:
    """Those that were put right. Of several on one entry the first counts; look again afterwards."""
    chosen: dict[tuple[str, int, str], Finding] = {}
    for finding in findings:
        # A link in a cloned project may lead anywhere: nothing outside is written.
        if finding.fix and not leads_out(finding.fix.file, root):
            chosen.setdefault((finding.fix.file, finding.fix.line, finding.fix.old), finding)
    done: list[Finding] = []
    for file in sorted({fix[0] for fix in chosen}):
        mine = [finding for place, finding in chosen.items() if place[0] == file]
        done += _change(Path(file), root, sorted(mine, key=lambda one: -(one.line or 0)))
    return sorted(done, key=lambda one: (one.file, one.line or 0))


def _change(path: Path, root: Path, findings: list[Finding]) -> list[Finding]:
    """From the last line to the first, so that the lines before keep their numbers."""
    shown = show_path(path)
    data = read_bytes(path, shown)
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    text, done = decode(data, shown), []
    for finding in findings:
        assert finding.fix is not None
        changed = _in_yaml(text, finding.fix, shown) if path.suffix in _YAML else _in_line(text, finding.fix)
        if changed is not None:
            text = changed
            done.append(finding)
    if done:
        replace_file(path, mark + text.encode(), shown, root)
    return done


def _in_line(text: str, fix: Replacement) -> str | None:
    """A file of lines: the entry must be there exactly once."""
    lines = text.splitlines(keepends=True)
    if not 1 <= fix.line <= len(lines) or lines[fix.line - 1].count(fix.old) != 1:
        return None
    line = lines[fix.line - 1]
    new = fix.new
    if fix.file.endswith(".toml"):
        before, after = line[: line.index(fix.old)], line[line.index(fix.old) + len(fix.old) :]
        if new is None or before[-1:] not in ("'", '"') or after[:1] != before[-1:]:
            return None  # an entry that does not stand in quotes of its own
        new = new.replace(before[-1], '"' if before[-1] == "'" else "'")
    lines[fix.line - 1] = "" if new is None else line.replace(fix.old, new)
    return "".join(lines)


def _in_yaml(text: str, fix: Replacement, shown: str) -> str | None:
    """A list in YAML. What the new text says is compared with what it should say, whatever the file looks like."""
    before = parse(text.encode(), shown)
    places = [node for node in _scalars(before) if node.line == fix.line and node.text.strip() == fix.old]
    if len(places) != 1:
        return None
    place = places[0]
    wanted = _with(before, place, fix.new)
    for changed in _ways(text, place, fix.new):
        try:
            if plain(parse(changed.encode(), shown)) == wanted:
                return changed
        except ConfigError:
            continue
    return None


def _ways(text: str, place: Scalar, new: str | None) -> Iterator[str]:
    """The new text, plainest first."""
    if new is None:
        start = text.rfind("\n", 0, place.start) + 1
        end = text.find("\n", place.end)
        yield text[:start] + text[end + 1 :] if end >= 0 else text[:start]
        return
    if not place.style:
        yield text[: place.start] + new + text[place.end :]
    yield text[: place.start] + scalar_text(new, place.style) + text[place.end :]


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _scalars(item)
    else:
        for _, value in node.pairs:
            yield from _scalars(value)


def _with(node: Node, place: Scalar, new: str | None) -> object:
    """What a tree says once a value in it is another one, or gone from its list."""
    if isinstance(node, Mapping):
        return {key.text: _with(value, place, new) for key, value in node.pairs}
    if isinstance(node, Sequence):
        kept = [item for item in node.items if new is not None or item is not place]
        # The last one of a block takes its list along: `- pip:` with nothing below it says null.
        return [_with(item, place, new) for item in kept] or (None if not node.flow else [])
    return new if node is place else plain(node)
