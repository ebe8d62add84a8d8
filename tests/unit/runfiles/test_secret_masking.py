from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.runfiles.secret_masking import Mask


def apply(mask: Mask, *chunks: bytes) -> bytes:
    return b"".join(mask.feed(chunk) for chunk in chunks) + mask.end()


def split_at(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, *(place % (len(data) + 1) for place in places), len(data)})
    return [data[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False)]


def naive(needles: set[bytes], data: bytes) -> bytes:
    """Reference implementation: mask every occurrence, and merge those that overlap."""
    spans = sorted(
        (at, at + len(needle)) for needle in needles for at in range(len(data)) if data[at : at + len(needle)] == needle
    )
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    for start, end in reversed(merged):
        data = data[:start] + b"***" + data[end:]
    return data


SECRET = b"hunter2-and-more?>"
B64 = base64.b64encode(SECRET)
ODD = 'a "quoted" \\ and ünusual secret'


@pytest.mark.parametrize(
    ("values", "data", "shown"),
    [
        ([SECRET], b"password: " + SECRET + b"\n", b"password: ***\n"),
        ([SECRET], b"nothing here\n", b"nothing here\n"),
        ([], b"anything", b"anything"),
        ([b""], b"anything", b"anything"),
        ([b"abc"], b"abc abcd", b"abc abcd"),  # too short to mask
        ([b"abcd"], b"abcdabcd", b"******"),
        ([b"abcd", b"abcdefgh"], b"abcdefgh abcd", b"*** ***"),  # the longest match wins
        ([b"abcdef", b"defghi"], b"abcdefghi", b"***"),  # overlapping values are masked together
        ([b"aaaa"], b"xaaaaaaax", b"x***x"),
        ([b"bcde", b"abcdefgh"], b"abcdef", b"a***f"),  # a held-back prefix contains another value
        ([SECRET], b"Basic " + B64 + b" x", b"Basic *** x"),
        ([SECRET], base64.urlsafe_b64encode(SECRET), b"***"),
        ([b"four!"], b"[" + base64.b64encode(b"four!") + b"]", b"[***]"),
        ([b"four!"], b"[" + base64.b64encode(b"four!").rstrip(b"=") + b"]", b"[***]"),
        ([b"tok-123\n"], b"tok-123 dG9rLTEyMwo=dG9rLTEyMw==", b"*** ******"),
        ([ODD.encode()], json.dumps([ODD]).encode(), b'["***"]'),
        ([ODD.encode()], json.dumps([ODD], ensure_ascii=False).encode(), b'["***"]'),
        ([ODD.encode()], repr([ODD]).encode(), b"['***']"),
        ([ODD.encode()], f"?token={quote(ODD, safe='')}&x".encode(), b"?token=***&x"),
        ([b"-----BEGIN\r\nMIIabc\nxy\n"], b"MIIabc xy -----BEGIN", b"*** xy ***"),
    ],
)
def test_masked_values(values: list[bytes], data: bytes, shown: bytes) -> None:
    assert apply(Mask(values), data) == shown
    for place in range(len(data)):
        assert apply(Mask(values), data[:place], data[place:]) == shown
    assert apply(Mask(values), *(data[i : i + 1] for i in range(len(data)))) == shown


def test_wrapped_base64() -> None:
    value = bytes(range(200))
    out = apply(Mask([value]), base64.encodebytes(value))
    assert out == b"***\n" * 4


# Few letters, so that values start, end, and overlap everywhere.
LETTERS = st.lists(st.sampled_from([b"a", b"b", b"\n"]), max_size=12).map(b"".join)


@given(st.lists(LETTERS, max_size=4), st.lists(LETTERS, max_size=8).map(b"".join), st.lists(st.integers(0, 99)))
def test_any_chunking_equals_the_whole(values: list[bytes], data: bytes, places: list[int]) -> None:
    mask = Mask(values)
    out = apply(mask, *split_at(data, places))
    assert out == naive(set(mask._needles), data)
    for value in values:
        for line in (value, *value.split(b"\n")):
            assert len(line) < 4 or line not in out


@given(
    st.binary(min_size=4, max_size=40).filter(lambda value: b"*" not in value),
    st.lists(st.binary(max_size=10)),
    st.sampled_from([bytes, base64.b64encode, base64.urlsafe_b64encode]),
    st.lists(st.integers(0, 200)),
)
def test_a_value_never_appears(value: bytes, around: list[bytes], form: object, places: list[int]) -> None:
    written = form(value)  # type: ignore[operator]
    data = written.join([b"", *around, b""])
    out = apply(Mask([value]), *split_at(data, places))
    assert value not in out
    assert written not in out


@given(st.binary(min_size=4, max_size=30), st.binary(max_size=50))
def test_only_a_prefix_is_held_back(value: bytes, data: bytes) -> None:
    mask = Mask([value])
    mask.feed(data)
    held = mask._held
    assert not held or any(needle.startswith(held) and needle != held for needle in mask._needles)


def test_ordinary_output_is_not_delayed() -> None:
    mask = Mask([SECRET])
    assert mask.feed(b"step 1\n") == b"step 1\n"
    assert mask.feed(b"hunt") == b""
    assert mask.feed(b"ing") == b"hunting"


def test_speed_with_five_secrets() -> None:
    line = b"2024-01-01 12:00:00 INFO epoch 3 step 1200 loss=0.1234 acc=0.98 some ordinary text here\n"
    chunk = line * 700
    mask = Mask([b"s3cr3t-value-%d-abcdef" % number for number in range(5)])
    began = time.process_time()
    for _ in range(300):
        mask.feed(chunk)
    assert time.process_time() - began < 2  # 9 MB/s, a hundredth of the actual speed
