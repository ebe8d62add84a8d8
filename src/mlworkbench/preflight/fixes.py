"""Apply the fixes of findings to the files of a project, leaving all other bytes unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ..config.file_editor import replace_file, scalar_text
from ..config.project_files import is_outside
from ..config.yaml_tree import Mapping, Node, Scalar, Sequence, decode, display_path, parse, read_bytes, to_python
from ..errors import ConfigError
from .finding import Finding, Replacement

_YAML = (".yml", ".yaml")


def apply_fixes(findings: Iterable[Finding], root: Path) -> list[Finding]:
    """Apply the fixes and return the fixed findings.

    Only the first fix for an entry is applied, so check the project again.
    """
    chosen: dict[tuple[str, int, str], Finding] = {}
    for finding in findings:
        # A link in a cloned project may point anywhere, so never write outside the project.
        if finding.fix and not is_outside(finding.fix.file, root):
            chosen.setdefault((finding.fix.file, finding.fix.line, finding.fix.old), finding)
    applied: list[Finding] = []
    for file in sorted({fix[0] for fix in chosen}):
        in_file = [finding for key, finding in chosen.items() if key[0] == file]
        applied += _fix_file(Path(file), root, sorted(in_file, key=lambda item: -(item.line or 0)))
    return sorted(applied, key=lambda item: (item.file, item.line or 0))


def _fix_file(path: Path, root: Path, findings: list[Finding]) -> list[Finding]:
    """Apply fixes from the last line to the first, so that earlier line numbers stay valid."""
    filename = display_path(path)
    data = read_bytes(path, filename)
    bom = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    text, applied = decode(data, filename), []
    for finding in findings:
        assert finding.fix is not None
        changed = _fix_yaml(text, finding.fix, filename) if path.suffix in _YAML else _fix_line(text, finding.fix)
        if changed is not None:
            text = changed
            applied.append(finding)
    if applied:
        replace_file(path, bom + text.encode(), filename, root)
    return applied


def _fix_line(text: str, fix: Replacement) -> str | None:
    """Fix a line of a text file. The line must contain the entry exactly once."""
    lines = text.splitlines(keepends=True)
    if not 1 <= fix.line <= len(lines) or lines[fix.line - 1].count(fix.old) != 1:
        return None
    line = lines[fix.line - 1]
    new = fix.new
    if fix.file.endswith(".toml"):
        before, after = line[: line.index(fix.old)], line[line.index(fix.old) + len(fix.old) :]
        if new is None or before[-1:] not in ("'", '"') or after[:1] != before[-1:]:
            return None  # the entry is not a separate quoted string
        new = new.replace(before[-1], '"' if before[-1] == "'" else "'")
    lines[fix.line - 1] = "" if new is None else line.replace(fix.old, new)
    return "".join(lines)


def _fix_yaml(text: str, fix: Replacement, filename: str) -> str | None:
    """Fix an entry in a YAML list. Return None unless the new text parses to the expected value."""
    before = parse(text.encode(), filename)
    matches = [node for node in _scalars(before) if node.line == fix.line and node.text.strip() == fix.old]
    if len(matches) != 1:
        return None
    target = matches[0]
    expected = _expected_value(before, target, fix.new)
    for changed in _candidates(text, target, fix.new):
        try:
            if to_python(parse(changed.encode(), filename)) == expected:
                return changed
        except ConfigError:
            continue
    return None


def _candidates(text: str, target: Scalar, new: str | None) -> Iterator[str]:
    """Yield candidates for the new text, plain style first."""
    if new is None:
        start = text.rfind("\n", 0, target.start) + 1
        end = text.find("\n", target.end)
        yield text[:start] + text[end + 1 :] if end >= 0 else text[:start]
        return
    if not target.style:
        yield text[: target.start] + new + text[target.end :]
    yield text[: target.start] + scalar_text(new, target.style) + text[target.end :]


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _scalars(item)
    else:
        for _, value in node.pairs:
            yield from _scalars(value)


def _expected_value(node: Node, target: Scalar, new: str | None) -> object:
    """Return the value of a tree after one scalar is replaced, or removed from its list."""
    if isinstance(node, Mapping):
        return {key.text: _expected_value(value, target, new) for key, value in node.pairs}
    if isinstance(node, Sequence):
        items = [item for item in node.items if new is not None or item is not target]
        # A block list without items becomes null, such as `- pip:` with nothing below it.
        return [_expected_value(item, target, new) for item in items] or (None if not node.flow else [])
    return new if node is target else to_python(node)
