"""The runner of documentation pages detects wrong pages (tests/machines/pages.py)."""

from __future__ import annotations

import pytest

from tests.machines import pages
from tests.machines.pages import PageRunner, blocks, commands, inline, merge, missing, plain_arguments

GOOD = """
# A page

In `aml_config/box.compute`:

```yaml
type: remote
mounts:
  - /new
```

```console
$ mkdir -p there && cd there
$ echo "RunId: demo-calm-heron-2x9d in $PWD, 12.5 kB"; echo more
RunId: demo-swift-otter-7k2q in …/there, 4 MB
…
```

```bash
word=kept
echo "$word" > file
```

!!! note
    Say `mlw history list` or
    `mlw show RUN`.

    ```console
    $ cat file
    kept
    ```
"""


@pytest.fixture
def runner(laptop, tmp_path, monkeypatch):
    """Return a function that creates a runner for a page with the given text."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)

    def make_runner(text):
        (tmp_path / "page.md").write_text(text)
        return PageRunner(laptop, "page.md", timeout=20)

    return make_runner


def test_a_page_is_followed_from_top_to_bottom(runner, laptop):
    path = laptop.home / "aml_config" / "box.compute"
    path.parent.mkdir()
    path.write_text("type: local\nmounts:\n  - /old\n  - /older\naddress: 10.0.0.7\n")
    made = runner(GOOD)
    made.run()
    assert made.ran[-1] == "cat file" and len(made.ran) == 4
    assert path.read_text() == "address: 10.0.0.7\ntype: remote\nmounts:\n  - /new\n"
    assert inline("page.md") == ["mlw history list", "mlw show RUN"]


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("mkdir -p there", "mkdir --parrents there", "ended with 1, not 0"),
        ("/there, 4 MB", "/here, 4 MB", "printed no line like"),
        ("    kept\n", "    gone\n", "printed no line like"),
        ('echo "$word"', "false; echo", "ended with 1, not 0"),
        ("In `aml_config/box.compute`:", "In that file:", "which file is this?"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(runner, right, wrong, words):
    assert right in GOOD
    made = runner(GOOD.replace(right, wrong))
    with pytest.raises(AssertionError, match=words):
        made.run()


def test_mlw_itself_is_asked(runner):
    made = runner("```console\n$ mlw project create --nmae demo\n```\n")
    with pytest.raises(AssertionError, match="ended with 2, not 0"):
        made.run()


def test_a_command_that_needs_no_shell_has_the_folder_and_the_variables_of_the_shell(runner, laptop):
    steps = ["mkdir there", "cd there", 'export MLW_HOME="$PWD/store"', "mlw history list"]
    steps.append("mlw project create --name 'demo'  # a fork")
    assert plain_arguments(steps[-1]) == ["mlw", "project", "create", "--name", "demo"]
    assert (
        not plain_arguments(steps[2])
        and not plain_arguments("mlw ps > file")
        and not plain_arguments('mlw show "$run"')
    )
    assert plain_arguments("mlw ps --query '[].run_id'")[-1] == "[].run_id"
    runner("```console\n" + "".join(f"$ {step}\n" for step in steps) + "```\n").run()
    assert (laptop.home / "there" / "store").is_dir() and (laptop.home / "there" / "demo" / "aml_config").is_dir()


def test_commands_that_a_page_does_not_have_cannot_be_special(runner):
    made = runner(GOOD)
    with pytest.raises(AssertionError, match="no such command"):
        made.on_command("mlw nothing")
    with pytest.raises(AssertionError):
        made.assign_file("nothing", None)


def test_what_is_shown_is_compared_with_some_grace():
    said = "Status:    Completed after 3.1 s\nbest: demo-a-b-12 \x1b[1mlr=0.5\x1b[0m\n"
    assert missing(("Status:  Completed after 0.1 s", "…"), said) == []
    assert missing(("Status: Failed after 0.1 s",), said) == ["Status: Failed after 0.1 s"]
    assert missing(("best: … lr=0.1",), said) == [] and missing(("best: … lr=x",), said) != []


def test_blocks_know_their_file(tmp_path):
    (first, second, third) = blocks("a\n\n`one.yml`, then `two.yml`:\n\n```yaml\na: 1\n```\n" + "```text\n```\n" * 2)
    assert (first.file, second.file, third.kind) == ("two.yml", None, "text")
    assert [one.text for one in commands(next(blocks("```bash\na\nb\n```\n")))] == ["a\nb"]
    merge(tmp_path / "new.py", "print()\n")
    merge(tmp_path / "new.py", "print(1)\n")
    assert (tmp_path / "new.py").read_text() == "print(1)\n"
