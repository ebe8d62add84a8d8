"""Parse hostile and invalid YAML files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.config.yaml_tree import MAX_BYTES, Mapping, Scalar, load, parse, to_python
from mlworkbench.errors import ConfigError

LOADERS = [pytest.param(yaml.CSafeLoader, id="C"), pytest.param(yaml.SafeLoader, id="Python")]

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
)

REFUSED = {
    "duplicate key": (
        "type: local\n# again\ntype: docker\n",
        "f:3: duplicate key 'type'; it is first defined on line 1",
    ),
    "duplicate in depth": ("a:\n  b: 1\n  b: 2\n", "f:3: duplicate key 'b'"),
    "alias bomb": (BOMB, "f:4: the file contains more than 10,000 values"),
    "recursive alias": ("a: &x\n  b: *x\n", "f:2: YAML alias *x refers to itself"),
    "alias to nothing": ("a: *x\n", "f:1: undefined YAML alias *x"),
    "many values": ("a:\n" + "- 1\n" * 10_001, "f:9999: the file contains more than 10,000 values"),
    "deep": ("a: " + "[" * 60 + "]" * 60, "f:1: values are nested deeper than 50 levels"),
    "python object": (
        "a: 1\nb: !!python/object/apply:os.system [id]\n",
        "f:2: YAML tag '!!python/object/apply:os.system'",
    ),
    "own tag": ("a: !secret x\n", "f:1: YAML tag '!secret' is not allowed"),
    "binary": ("a: !!binary aGk=\n", "f:1: YAML tag '!!binary' is not allowed"),
    "merge key": ("a: &a {b: 1}\nc:\n  <<: *a\n", "f:3: YAML merge keys (<<) are not supported"),
    "list on top": ("- a\n- b\n", "f:1: the file must be a mapping of keys to values, not a list"),
    "text on top": ("\nhello\n", "f:2: the file must be a mapping of keys to values, not a single string"),
    "two documents": ("a: 1\n---\nb: 2\n", "f:2: the file contains more than one YAML document"),
    "list as key": ("? [a]\n: b\n", "f:1: a key must be a string, not a list"),
    "NUL by escape": ('a: "x\\0y"\n', "f:1: a value contains a NUL"),
    "no space": ("type: remote\nnvidiaDocker:true\n", "f:2: not valid YAML"),
    "open quote": ("a: 1\nb: 'x\nc: 3\n", "f:2: not valid YAML"),
    "two colons": ("a: 1\nb: c: d\n", "f:2: not valid YAML: mapping values are not allowed"),
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(text: str, message: str, loader: type) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), "f", loader)
    assert caught.value.message.startswith(message)
    assert caught.value.path == "f"


HINTS = {
    "nvidiaDocker:true": "add a space after the colon: `nvidiaDocker: …`",
    "type: remote\nnvidiaDocker:true\naddress: x": "add a space after the colon: `nvidiaDocker: …`",
    "a:\n\t- x": "indent with spaces, not tabs",
    'a: "C:\\Users\\me"': "double the backslash, or use single quotes",
    "a: @home": "quote the value",
    "a: 'x": "close the quote or bracket",
    "a: [1, 2\nb: 3\n": "close the bracket: [ … ]",
    "a: {b: 1\nc: 3\n": "close the brace: { … }",
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("text", "hint"), HINTS.items(), ids=HINTS)
def test_errors_have_a_hint(text: str, hint: str, loader: type) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), "f", loader)
    assert caught.value.hint == hint


def test_errors_do_not_show_passwords() -> None:
    for text in ("password:hunter2", "type: remote\npassword:hunter2\n", "a: 'x\npassword: hunter2"):
        with pytest.raises(ConfigError) as caught:
            parse(text.encode(), "f")
        assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", {}),
        (b"# only words\n", {}),
        (b"---\n", {}),
        (b"\xef\xbb\xbfa: 1\r\nb:\r\n  - x\r\n", {"a": "1", "b": ["x"]}),
        (b'{"a": {"b": [true, null, "\\u00e9"]}}', {"a": {"b": ["true", None, "é"]}}),
        (b"a: 0.10\nb: 'null'\nc: ~\nd: !!str null\n", {"a": "0.10", "b": "null", "c": None, "d": "null"}),
        (b"a: &x [1, 2]\nb: *x\n", {"a": ["1", "2"], "b": ["1", "2"]}),
    ],
)
def test_read_as_written(data: bytes, value: object, loader: type) -> None:
    assert to_python(parse(data, "f", loader)) == value


@pytest.mark.parametrize("loader", LOADERS)
def test_every_value_has_its_position(loader: type) -> None:
    text = 'é: 1  # x\r\n"b😀":\r\n  - x\r\n  - y # c\r\n# end\r\nc:\r\n'
    (_, first), (_, second), (_, third) = parse(text.encode(), "f", loader).pairs
    assert (first.line, second.line, third.line) == (1, 3, 6)
    assert text[first.start : first.end] == "1"
    assert text[second.start : second.end] == "- x\r\n  - y"
    assert text[third.start : third.end] == ""
    assert text[: third.start].endswith("c:")


def test_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.compute"
    path.write_bytes(b"a: 1\n#".ljust(MAX_BYTES, b"x"))
    assert to_python(load(path)) == {"a": "1"}
    path.write_bytes(b"a: 1\n#".ljust(MAX_BYTES + 1, b"x"))
    with pytest.raises(ConfigError, match="x.compute: the file is larger than 1 MiB"):
        load(path)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.compute"
    path.write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError, match=r"x\.compute:2: the file is not UTF-8 text"):
        load(path)
    path.write_bytes("a: 1\n".encode("utf-16"))
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "UTF-16" in str(caught.value.hint)


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
@pytest.mark.timeout(60)
def test_special_files_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.compute")
    (tmp_path / "zero.compute").symlink_to("/dev/zero")
    for name in ("pipe.compute", "zero.compute"):
        with pytest.raises(ConfigError, match=f"{name}: not a regular file"):
            load(tmp_path / name)
    with pytest.raises(ConfigError, match="the file does not exist"):
        load(tmp_path / "none.compute")
    with pytest.raises(ConfigError, match="cannot read the file: Is a directory|not a regular file"):
        load(tmp_path)


def test_path_is_relative_to_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.compute").write_text("- a")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "sub" / "x.compute")
    assert caught.value.message.startswith("sub/x.compute:1: ")


YAML_LIKE = st.lists(
    st.sampled_from(
        [
            "a",
            "b: ",
            ": ",
            "- ",
            "\n",
            "  ",
            "\t",
            "&x ",
            "*x",
            "!!str ",
            "!y ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "'",
            '"',
            "|",
            ">",
            "#",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "? ",
            "<<: ",
            "~",
            "\\",
            "\\x",
            "\\U00110000",
            "\r",
            "0",
            "é",
            "\u2028",
        ]
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize("loader", LOADERS)
@given(data=st.one_of(st.binary(max_size=200), YAML_LIKE.map(str.encode), st.text(max_size=80).map(str.encode)))
def test_any_bytes_are_parsed_or_rejected(loader: type, data: bytes) -> None:
    try:
        outcome: object = parse(data, "f", loader)
    except ConfigError as error:
        outcome = error.message
    assert isinstance(outcome, Mapping) or str(outcome).startswith("f:")


@pytest.mark.parametrize(
    ("loader", "theirs"), [(yaml.CSafeLoader, yaml.CBaseLoader), (yaml.SafeLoader, yaml.BaseLoader)]
)
@given(text=YAML_LIKE)
def test_agrees_with_pyyaml(loader: type, theirs: type, text: str) -> None:
    """Text that both PyYAML's BaseLoader and our parser accept has the same value in both."""
    try:
        parsed = parse(text.encode(), "f", loader)
        expected = yaml.load(text, Loader=theirs)
    except (ConfigError, yaml.YAMLError):
        return
    assert _texts(parsed) == (expected if isinstance(expected, dict) else {})


def _texts(node: object) -> object:
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Mapping):
        return {key.text: _texts(value) for key, value in node.pairs}
    return [_texts(item) for item in node.items]  # type: ignore[attr-defined]
