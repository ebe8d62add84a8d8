"""Former commands and options are translated; arguments of the user's script are not changed."""

from __future__ import annotations

import click
import pytest

from mlworkbench.cli.command_tree import UnknownCommand, mlw
from mlworkbench.cli.former_commands import FORMER_OPTIONS, OPTIONS_WITH_VALUE, translate_arguments
from mlworkbench.cli.submit import submit

CASES = [
    ("execute start -c local train.py", "experiment submit -c local train.py"),
    ("execute start -t docker train.py --runconfig x", "experiment submit -t docker train.py --runconfig x"),
    ("experiment submit --runconfig local train.py", "experiment submit --run-configuration local train.py"),
    ("submit --runconfig=local train.py", "submit --run-configuration=local train.py"),
    ("history promote -r x --assets model -n m", "history promote -r x --artifact-path model -n m"),
    ("history info -r x --artifacts log", "history info -r x --artifact log"),
    ("asset download -l a.link --output-directory d", "asset download -l a.link -d d"),
    ("asset download --output-directory=d -l a.link", "asset download -d d -l a.link"),
    ("runconfigurations list", "runconfiguration list"),
    ("computecontext list", "computetarget list"),
    ("computecontext attach --cluster --name a", "computetarget attach cluster --name a"),
    ("computetarget attach --type remotedocker -n a", "computetarget attach remotedocker -n a"),
    ("computetarget attach -n a -t cluster", "computetarget attach cluster -n a"),
]


@pytest.mark.parametrize(("old", "new"), CASES, ids=[old for old, _ in CASES])
def test_former_commands_are_translated(old, new):
    arguments, hint = translate_arguments(old.split())
    assert arguments == new.split()
    assert hint is not None and hint.startswith("hint: '") and "' is now '" in hint
    assert translate_arguments(arguments) == (arguments, None), "current arguments are not changed"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["submit", "train.py", "--runconfig", "x"],
        ["submit", "--", "execute", "start", "--runconfig"],
        ["submit", "-m", "pkg", "--runconfig", "x"],
        ["submit", "--name", "execute", "train.py", "--assets"],
        ["submit", "--env", "A=--runconfig", "train.py"],
        ["logs", "execute"],
        ["computetarget", "attach", "--help"],
        ["computetarget", "attach", "remote", "-t", "x"],
        ["project", "create", "--name", "execute"],
    ],
)
def test_other_arguments_are_not_changed(arguments):
    assert translate_arguments(list(arguments)) == (arguments, None)


def test_the_hint_contains_no_values():
    _, hint = translate_arguments(["computecontext", "attach", "--password=hunter2", "--cluster"])
    assert hint is not None and "hunter2" not in hint


def test_removed_commands_are_explained():
    assert translate_arguments(["hostacct", "create"]) == (["hostacct", "create"], None), "the command itself says it"
    with pytest.raises(UnknownCommand) as caught:
        mlw.main(["hostacct", "create"], prog_name="mlw", standalone_mode=False)
    assert "model management" in caught.value.message and "mlw history download" in (caught.value.hint or "")


def test_the_hint_shows_the_new_position_of_the_type():
    assert translate_arguments("computetarget attach --type cluster -n a".split())[1] == (
        "hint: 'computetarget attach --type' is now 'computetarget attach cluster'"
    )
    assert translate_arguments("computetarget attach -n a".split())[1] is None, "the command knows what the file says"


def test_the_list_of_submit_options_with_a_value_is_complete():
    names = {
        name
        for option in submit.params
        if isinstance(option, click.Option) and not option.is_flag
        for name in option.opts
    }
    assert names | set(FORMER_OPTIONS["submit",]) == OPTIONS_WITH_VALUE
