"""Old spellings become today's, and nothing of the user's script changes."""

from __future__ import annotations

import click
import pytest

from mlworkbench.cli.renames import OLD_OPTIONS, VALUED, translate
from mlworkbench.cli.submit import submit
from mlworkbench.cli.verbs import UnknownWord, mlw

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
def test_old_words(old, new):
    words, hint = translate(old.split())
    assert words == new.split()
    assert hint is not None and hint.startswith("hint: '") and "' is now '" in hint
    assert translate(words) == (words, None), "today's words are left alone"


@pytest.mark.parametrize(
    "words",
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
def test_all_else_stays(words):
    assert translate(list(words)) == (words, None)


def test_the_hint_holds_no_values():
    _, hint = translate(["computecontext", "attach", "--password=hunter2", "--cluster"])
    assert hint is not None and "hunter2" not in hint


def test_what_is_gone_is_explained():
    assert translate(["hostacct", "create"]) == (["hostacct", "create"], None), "the command itself says it"
    with pytest.raises(UnknownWord) as told:
        mlw.main(["hostacct", "create"], prog_name="mlw", standalone_mode=False)
    assert "model management" in told.value.message and "mlw history download" in (told.value.hint or "")


def test_the_hint_names_the_type_where_it_was():
    assert translate("computetarget attach --type cluster -n a".split())[1] == (
        "hint: 'computetarget attach --type' is now 'computetarget attach cluster'"
    )
    assert translate("computetarget attach -n a".split())[1] is None, "the command knows what the file says"


def test_submit_has_no_other_option_with_a_value():
    takes = {name for one in submit.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
    assert takes | set(OLD_OPTIONS["submit",]) == VALUED
