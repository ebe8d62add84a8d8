"""Checks of the documentation: links resolve, commands exist, lists are complete."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from mlworkbench import errors
from mlworkbench.cli.command_tree import mlw
from mlworkbench.plan import INHERITED
from mlworkbench.remote.shared import shell_variables

ROOT = Path(__file__).parents[1]
SITE = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", *SITE]


def commands(text):
    """Yield every `mlw …` command in code, as words without options and values."""
    for match in re.finditer(r"(?:^\$ |`)mlw ((?:[a-z]+(?:-[a-z]+)*[ |`]?)+)", text, re.MULTILINE):
        yield match.group(1).replace("`", " ").split()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_every_error_code_is_documented():
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.MlwError)]
    text = (ROOT / "docs/reference/machine-readable-output.md").read_text()
    assert [kind.code for kind in kinds if f"\n| `{kind.code}` |" not in text] == []
    coded = [kind for kind in kinds if "code" in vars(kind)]
    assert len({kind.code for kind in coded}) == len(coded), "a code names one class"


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page):
    for words in commands((ROOT / page).read_text()):
        group = mlw
        for word in words:
            if not isinstance(group, click.Group):
                break
            names = word.split("|")
            for one in names:
                assert group.get_command(click.Context(group), one), f"{page}: mlw {' '.join(words)}"
            group = group.get_command(click.Context(group), names[0])


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page):
    for line in shown_commands((ROOT / page).read_text()):
        check_options(line, page)


def check_options(line, page):
    command, rest = mlw, shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.get_command(click.Context(command), rest.pop(0))
        assert command, f"{page}: {line}"
    options = {name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options.update(dict.fromkeys(("-h", "--help"), click.Option(["-h"], is_flag=True)))
    while rest:
        word = rest.pop(0)
        if word == "--" or (command.name == "submit" and (word == "-m" or not word.startswith("-"))):
            break  # the remaining words are arguments of the script
        if word.startswith("-"):
            option = word.partition("=")[0]
            assert option in options, f"{page}: {line}: {word}"
            if not getattr(options[option], "is_flag", False) and "=" not in word and rest:
                rest.pop(0)


def shown_commands(text):
    """Yield the lines of code blocks that are mlw commands."""
    for block in re.findall(r"^ *```(?:console|bash)\n(.*?)```", text, re.MULTILINE | re.DOTALL):
        yield from (line.strip().removeprefix("$ ") for line in block.splitlines() if re.match(r" *(\$ )?mlw ", line))


def test_the_tests_that_the_security_model_names_exist():
    table = (ROOT / "docs/explanation/security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", table))
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) >= 30
    assert named - defined == set()


def test_there_are_commands_to_check():
    assert len(list(commands((ROOT / "docs" / "reference" / "everyday-commands.md").read_text()))) >= 30
    assert sum(len(list(shown_commands((ROOT / page).read_text()))) for page in PAGES) >= 100


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert sorted(f"docs/{name}" for name in re.findall(r": (\S+\.md)$", menu, re.MULTILINE)) == SITE


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|^\$ )make ([a-z0-9]+)", (ROOT / page).read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"


def test_both_setup_commands_are_in_the_readme():
    text = (ROOT / "README.md").read_text()
    assert "\n$ make demo\n" in text and "\n$ make test\n" in text


def test_the_picture_in_the_readme_shows_recorded_output():
    script = runpy.run_path(str(ROOT / "scripts" / "draw-gpu-run"))
    assert (ROOT / "docs" / "images" / "gpu-run.svg").read_text() == script["draw"](), "run scripts/draw-gpu-run"


def test_the_gpu_verdicts_in_the_tutorial_were_recorded():
    recorded = (ROOT / "benchmarks" / "gpu" / "samples.md").read_text().splitlines()
    shown = (ROOT / "docs" / "tutorial" / "first-gpu-run.md").read_text().splitlines()
    verdicts = [line for line in shown if line.startswith(("GPU used:", "GPU cause:", "Remedy:", "Metrics:"))]
    assert len(verdicts) >= 5 and set(verdicts) <= set(recorded)


def test_inherited_and_passed_variables_are_all_documented():
    text = (ROOT / "docs" / "reference" / "environment-variables.md").read_text()
    for name in (*INHERITED, *shell_variables.DEFAULT):
        assert f"`{name}`" in text, name


def test_exit_codes_are_all_documented():
    page = ROOT / "docs" / "reference" / "everyday-commands.md"
    section = page.read_text().split("## Exit codes")[1].split("##")[0]
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.MlwError)]
    for kind in kinds:
        assert str(kind.exit_code) in section, kind


def test_every_command_has_help_and_an_example():
    for path, command in walk(mlw, "mlw"):
        assert command.help, path
        assert "Example: mlw" in (command.epilog or ""), path


def test_examples_can_be_typed():
    """Every example uses existing commands and options, and the command that it is listed under."""
    for path, command in walk(mlw, "mlw"):
        for line in command.epilog.removeprefix("Example: ").split(" && "):
            if line.startswith("mlw "):
                check_options(line, f"{path} --help")
        short = {"mlw logs", "mlw ls", "mlw ps", "mlw show", "mlw cancel", "mlw status", "mlw submit", "mlw"}
        # Short forms and aliases show the example of the full command; `experiment submit` shows that of `submit`.
        alias = path in short or path.startswith("mlw target") or path == "mlw experiment submit"
        assert alias or command.epilog.startswith(f"Example: {path}"), f"{path}: {command.epilog}"


def walk(command, path):
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from walk(command.get_command(click.Context(command), name), f"{path} {name}")


def test_nothing_names_a_package_registry_host():
    hosts = re.compile(
        r"(?i)\b(?:pypi\.org|files\.pythonhosted\.org|registry\.npmjs\.org|deb\.debian\.org|docker\.io)\b"
    )
    places = ("*.md", "docs/**/*.md", "examples/**/*.*", "src/**/*.*", "Makefile", "mkdocs.yml", "scripts/*")
    for path in [one for place in places for one in ROOT.glob(place)]:
        if path.is_file() and path.suffix != ".pyc":
            assert not hosts.search(path.read_text(errors="replace")), path
