"""The submit request of the command line, the HTTP API, and Python: its fields, checks, and command line."""

from __future__ import annotations

import dataclasses

import pytest

from mlworkbench.cli.submit import submit as submit_command
from mlworkbench.errors import UsageError
from mlworkbench.resubmit import submit_options, typed_command
from mlworkbench.submit_request import Request, SweepOptions
from mlworkbench.ui.api.submit import Submission

FIELDS = {one.name for one in dataclasses.fields(Request)}
# Consents can be given only on the command line, where users see what they allow.
NOT_OVER_HTTP = {"upgrade", "allow_builds", "send_packages", "unchecked", "allow_mounts", "allow_networks"}
# Options of the command itself, which are not part of the request.
NOT_REQUESTED = {"wait", "dry_run", "folder", "output", "query", "debug", "no_color", "help"}
SWEEP = {"axes", "random", "max_runs", "parallel", "seed", "metric", "goal"}
RENAMED = {
    "runconfig": "configuration",
    "variables": "environment",
    "mounts": "allow_mounts",
    "networks": "allow_networks",
}


def test_the_http_api_offers_the_fields_of_a_request_with_their_defaults():
    assert set(Submission.model_fields) - {"project", "wait"} == FIELDS - NOT_OVER_HTTP
    asked = Submission(project="key")
    assert dataclasses.replace(asked.request(), secrets={}) == Request()


def test_the_values_of_secrets_reach_the_request_and_no_text():
    asked = Submission(project="key", script="train.py", secrets={"TOKEN": "sesame", "OTHER": None})
    request = asked.request()
    assert request.secret_names == ("TOKEN", "OTHER") and request.secret_values == {"TOKEN": "sesame"}
    assert "sesame" not in repr(request) + repr(asked) + typed_command(request)


def test_a_variable_without_a_value_is_passed_by_name():
    request = Submission(project="key", script="train.py", environment={"A": None, "B": ""}).request()
    assert submit_options(request) == ["--env=A", "--env=B=", "train.py"]


def test_every_option_of_submit_is_a_field():
    names = {RENAMED.get(one.name, one.name) for one in submit_command.params} - NOT_REQUESTED - SWEEP
    assert names == FIELDS - {"script", "arguments", "module", "command", "sweep"}


def test_every_field_becomes_words():
    given = {"timeout": "5m", "gpus": 1, "secrets": ["S"], "environment": {"A": "b"}, "sweep": SweepOptions(["lr=1,2"])}
    for name in FIELDS - {"script", "module", "command", "arguments"}:
        kind = {one.name: one.default for one in dataclasses.fields(Request)}[name]
        value = given.get(name, ["x"] if kind == () else True if kind is False else "x")
        words = submit_options(Request("train.py", ["a"], **{name: value}))
        assert len(words) == 3 and words[1:] == ["train.py", "a"], (name, words)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"script": "a.py", "module": "b"}, "script, module, and command are mutually exclusive"),
        ({"arguments": ["a"]}, "arguments require a script, module, or command"),
        ({"locked": "run", "upgrade": True}, "--locked and --upgrade cannot be used together"),
        ({"environment": {"a b": "1"}}, "'a b' is not a valid variable name"),
        ({"secrets": ["1X"]}, "'1X' is not a valid variable name"),
        ({"timeout": "1h30"}, "--timeout: invalid duration '1h30'"),
        ({"timeout": 0}, "--timeout: invalid duration '0'"),
        ({"timeout": float("inf")}, "--timeout: invalid duration 'inf'"),
        ({"key": "a\nb"}, "--key contains unprintable characters"),
        ({"gpus": ""}, "--gpus : the GPU request is empty"),
    ],
)
def test_what_is_invalid_everywhere_is_refused(wrong, message):
    with pytest.raises(UsageError) as caught:
        Request(**wrong).check()
    assert caught.value.message == message and caught.value.hint


def test_a_single_text_is_not_a_list():
    for name in ("arguments", "tags", "allow_mounts"):
        with pytest.raises(UsageError, match=f"{name} is a text, not a list"):
            Request("train.py", **{name: "--lr 1"})


def test_numbers_are_accepted():
    request = Request("train.py", ["--lr", 0.1], gpus=2, timeout=90.5)
    request.check()
    assert request.entry.arguments == ("--lr", "0.1")
    assert (request.gpu_request, request.time_limit) == ("2", 90.5)
