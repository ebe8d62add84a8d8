"""Project files: path safety, saving, forms, and readme files."""

from __future__ import annotations

import difflib
import errno
import os
import random
import stat
import threading
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.config.project_folder import create_project
from mlworkbench.errors import MlwError, UsageError
from mlworkbench.report.line_diff import LineDiff
from mlworkbench.resubmit import submit_words, typed_command
from mlworkbench.ui import drafts as ui_drafts
from mlworkbench.ui import file_saving
from mlworkbench.ui.components import readme_view
from mlworkbench.ui.components.diff_view import difference_lines
from mlworkbench.ui.components.readme_view import parse_readme
from mlworkbench.ui.components.run_bar import build_request, split_arguments
from mlworkbench.ui.drafts import Draft, Drafts
from mlworkbench.ui.queries import config_forms, files, folder_suggestions
from mlworkbench.ui.queries.editor_checks import problems_in
from mlworkbench.ui.queries.projects import Projects, key_of


@pytest.fixture
def project(tmp_path):
    return create_project("demo", tmp_path)


# -- names -----------------------------------------------------------------------------------------

OUTSIDE = ("..", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "", "a\0b", "x" * 5000, "a/.", "\udcff")


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_outside_the_project_are_refused(project, path):
    for work in (
        lambda: files.read(project.root, path),
        lambda: files.read_image(project.root, path),
        lambda: files.stamp(project.root, path),
        lambda: file_saving.save(project.root, path, b"", None),
        lambda: file_saving.create_file(project.root, path),
        lambda: file_saving.create_folder(project.root, path),
        lambda: file_saving.rename(project.root, "train.py", path),
        lambda: file_saving.rename(project.root, path, "other.py"),
        lambda: file_saving.delete(project.root, path),
    ):
        with pytest.raises(UsageError):
            work()


def test_links_are_never_followed(project, tmp_path):
    (tmp_path / "secret.txt").write_text("s3cret")
    os.symlink(tmp_path / "secret.txt", project.root / "leak.txt")
    os.symlink(tmp_path, project.root / "up")
    for work in (
        lambda: files.read(project.root, "leak.txt"),
        lambda: files.read(project.root, "up/secret.txt"),
        lambda: files.listing(project.root, "up"),
        lambda: file_saving.save(project.root, "leak.txt", b"x", None),
        lambda: file_saving.save(project.root, "up/secret.txt", b"x", None),
        lambda: file_saving.create_file(project.root, "up/new.txt"),
        lambda: file_saving.rename(project.root, "train.py", "up/train.py"),
        lambda: file_saving.delete(project.root, "up/secret.txt"),
    ):
        with pytest.raises(MlwError):
            work()
    assert [entry.path for entry in files.search(project.root, "secret")] == []
    file_saving.delete(project.root, "up")
    assert (tmp_path / "secret.txt").read_text() == "s3cret" and not (project.root / "up").is_symlink()


def test_listing_and_search_are_bounded(project, monkeypatch):
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    for number in range(9):
        (project.root / f"f{number}.txt").touch()
    (project.root / "zoo").mkdir()
    listing = files.listing(project.root)
    assert [entry.kind for entry in listing.entries][:2] == ["folder", "folder"] and len(listing.entries) == 5
    assert listing.more == 9


def test_environments_and_git_are_not_searched(project):
    for folder in (".git", "env", "src"):
        (project.root / folder).mkdir()
        (project.root / folder / "needle.py").touch()
    (project.root / "env" / "pyvenv.cfg").touch()
    assert [entry.path for entry in files.search(project.root, "NEEDLE")] == ["src/needle.py"]
    assert files.scripts(project.root) == ["train.py", "src/needle.py"]


# -- texts -----------------------------------------------------------------------------------------


def test_file_is_saved_atomically_with_its_mode(project):
    path = project.root / "train.py"
    path.chmod(0o750)
    before = files.read(project.root, "train.py")
    digest = file_saving.save(project.root, "train.py", b"new\n", before.digest)
    assert path.read_bytes() == b"new\n" and stat.S_IMODE(path.stat().st_mode) == 0o750
    assert files.read(project.root, "train.py").digest == digest
    with pytest.raises(file_saving.FileChanged):
        file_saving.save(project.root, "train.py", b"newer\n", before.digest)
    path.unlink()
    with pytest.raises(file_saving.FileChanged):
        file_saving.save(project.root, "train.py", b"newer\n", digest)
    file_saving.save(project.root, "train.py", b"anew\n", "")
    with pytest.raises(file_saving.FileChanged):
        file_saving.save(project.root, "train.py", b"newer\n", "")
    assert path.read_bytes() == b"anew\n"
    assert not list(project.root.glob(".*.part"))


@pytest.mark.parametrize("data", [b"a\r\nb\r\n", b"\xef\xbb\xbfa\n", b"", "ü\U0001f600\n".encode(), b"no end"])
def test_line_endings_and_byte_order_marks_are_kept(project, data):
    (project.root / "x.txt").write_bytes(data)
    content = files.read(project.root, "x.txt")
    assert "\r" not in content.text
    assert files.encode_text(content.text, content.windows, content.marked) == data


@pytest.mark.parametrize(("name", "data", "kind", "reason"), [
    ("a.bin", b"\0", "other", "not text"),
    ("a.txt", b"\xff\xfe", "other", "not UTF-8"),
    ("a.csv", b"x" * (files.MAX_TEXT + 1), "other", "larger"),
    ("a.PNG", b"\x89PNG", "picture", ""),
])  # fmt: skip
def test_files_that_are_not_text_are_described(project, name, data, kind, reason):
    (project.root / name).write_bytes(data)
    content = files.read(project.root, name)
    assert content.kind == kind and reason in content.reason


def test_pipe_does_not_block(project):
    os.mkfifo(project.root / "pipe")
    with pytest.raises(UsageError):
        files.read(project.root, "pipe")


def test_create_and_rename_never_replace(project):
    file_saving.create_file(project.root, "src/deep/new.py")
    for work in (
        lambda: file_saving.create_file(project.root, "train.py"),
        lambda: file_saving.create_folder(project.root, "src"),
        lambda: file_saving.rename(project.root, "train.py", "readme.md"),
        lambda: file_saving.rename(project.root, "src", "src/inner"),
        lambda: file_saving.rename(project.root, "aml_config", "other"),
        lambda: file_saving.delete(project.root, "aml_config"),
        lambda: file_saving.delete(project.root, "not-there"),
        lambda: file_saving.create_file(project.root, "odd\nname"),
        lambda: file_saving.create_file(project.root, "odd "),
    ):
        with pytest.raises(MlwError):
            work()
    file_saving.rename(project.root, "train.py", "src/train.py")
    file_saving.delete(project.root, "src")
    assert not (project.root / "src").exists() and (project.root / "aml_config").is_dir()


def test_concurrently_created_file_is_not_replaced(project, monkeypatch):
    """Another program creates the file between our check and our rename."""
    target = project.root / "late.py"

    def late(*args, **kwargs):
        target.write_text("theirs\n")
        return link(*args, **kwargs)

    link = os.link
    monkeypatch.setattr(os, "link", late)
    with pytest.raises(UsageError, match="already exists"):
        file_saving.rename(project.root, "train.py", "late.py")
    assert target.read_text() == "theirs\n" and (project.root / "train.py").exists()
    target.unlink()
    with pytest.raises(file_saving.FileChanged, match="was created on disk"):
        file_saving.save(project.root, "late.py", b"ours\n", "")
    assert target.read_text() == "theirs\n" and not list(project.root.glob(".*.part"))


def test_file_system_without_hard_links(project, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "link", refuse)
    file_saving.rename(project.root, "train.py", "other.py")
    file_saving.save(project.root, "deep/new.py", b"new\n", "")
    assert (project.root / "other.py").exists() and (project.root / "deep/new.py").read_bytes() == b"new\n"
    assert not (project.root / "train.py").exists() and not list(project.root.rglob(".*.part"))


def test_file_editor_reports_windows_as_unsupported(project, monkeypatch):
    monkeypatch.setattr(files, "AVAILABLE", False)
    for work in (
        lambda: files.listing(project.root),
        lambda: files.read(project.root, "train.py"),
        lambda: file_saving.save(project.root, "train.py", b"", None),
        lambda: file_saving.delete(project.root, "train.py"),
    ):
        with pytest.raises(UsageError, match="Windows"):
            work()
    assert files.scripts(project.root) == []


def test_typing_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    drafts, blocked = Drafts(tmp_path / "drafts"), []

    def write(file, data):
        """Type text in another thread during the write, then fail as on a full disk."""
        typist = threading.Thread(target=drafts.put, args=("k", Draft("b.py", "later", "", False, False)), daemon=True)
        typist.start()
        typist.join(10)
        blocked.append(typist.is_alive())
        raise OSError(errno.ENOSPC, "full")

    drafts.put("k", Draft("a.py", "typed", "", False, False))
    with monkeypatch.context() as patch:
        patch.setattr(ui_drafts, "write_atomic", write)
        with pytest.raises(OSError, match="full"):
            drafts.flush()
    assert blocked == [False] and drafts.has_unwritten
    drafts.flush()
    assert {draft.text for draft in Drafts(tmp_path / "drafts").for_project("k").values()} == {"typed", "later"}


def test_drafts_are_kept_and_saved_before_a_run(project, tmp_path):
    base = files.read(project.root, "train.py").digest
    drafts = Drafts(tmp_path / "drafts")
    drafts.put("k", Draft("train.py", "one\n", base, True, False))
    drafts.flush()
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in (tmp_path / "drafts").rglob("*"))
    again = Drafts(tmp_path / "drafts")
    assert again.for_project("k")["train.py"].text == "one\n" and again.for_project("other") == {}
    assert file_saving.save_drafts(project.root, again, "k") == ["train.py"]
    assert (project.root / "train.py").read_bytes() == b"one\r\n"
    assert Drafts(tmp_path / "drafts").for_project("k") == {}
    again.put("k", Draft("train.py", "two\n", base, False, False))
    with pytest.raises(file_saving.FileChanged):
        file_saving.save_drafts(project.root, again, "k")
    assert again.for_project("k")["train.py"].text == "two\n", "a draft that could not be saved is kept"


# -- checks and forms ------------------------------------------------------------------------------


def test_editor_text_is_checked_instead_of_the_file(project):
    problems = problems_in(project, "aml_config/local.compute", "type: local\nadress: x\n")
    assert [(problem.path, problem.line, problem.severity) for problem in problems] == [
        ("aml_config/local.compute", 2, "error")
    ]
    assert problems[0].hint == "did you mean 'address'?"
    unknown_target = problems_in(project, "aml_config/new.runconfig", "Target: nowhere\nFramework: Python\n")
    assert "unknown compute target 'nowhere'" in unknown_target[0].message and unknown_target[0].line == 1
    assert problems_in(project, "a.py", "def f(:\n")[0].line == 1
    assert problems_in(project, "a.json", '{\n"a": }')[0].line == 2
    assert problems_in(project, "a.txt", "def f(:") == []
    broken = problems_in(project, "aml_config/x.compute", "type:local\n")
    assert broken[0].line == 1 and str(project.root) not in broken[0].message and "tmp" not in broken[0].message


def test_form_round_trip(project):
    path, text = "aml_config/x.compute", "# why\ntype: docker  # here\nshmSize: 0.10g\n"
    fields = {field.name: field for field in config_forms.build_form(path, text).fields}
    assert fields["type"].value == "docker" and fields["nvidiaDocker"].default == "false"
    assert "address" not in fields and fields["nvidiaDocker"].help
    text = config_forms.apply_field(path, text, "nvidiaDocker", "true")
    text = config_forms.apply_field(path, text, "mounts", "/data\n/models:/m:ro")
    assert text.startswith("# why\ntype: docker  # here\nshmSize: 0.10g\n") and "nvidiaDocker: true" in text
    assert {field.name: field.value for field in config_forms.build_form(path, text).fields}[
        "mounts"
    ] == "/data\n/models:/m:ro"
    assert config_forms.apply_field(
        path, config_forms.apply_field(path, text, "mounts", ""), "nvidiaDocker", ""
    ).endswith("0.10g\n")
    text = config_forms.apply_field(
        "aml_config/x.runconfig", "Target: a\n", "EnvironmentVariables", "A: 1\nB=two words"
    )
    assert "A: \"1\"" in text and "B: \"two words\"" in text  # fmt: skip
    assert (
        config_forms.build_form(path, "type:docker").trouble and config_forms.build_form(path, "{type: docker}").trouble
    )
    assert "address" in {field.name for field in config_forms.build_form(path, "type: remote\n").fields}
    assert (
        config_forms.has_form(path)
        and not config_forms.has_form("x.compute")
        and not config_forms.has_form("aml_config/a/x.compute")
    )


@pytest.mark.parametrize("value", ["a: b", "- x", "#x", "'", '"', "{}", "\\", "yes", "null", "*a", "&a", "x\ty", "é😀"])
def test_field_value_is_always_quoted(value):
    text = config_forms.apply_field("aml_config/x.compute", "type: docker\nusername: me\n", "baseDockerImage", value)
    values = {field.name: field.value for field in config_forms.build_form("aml_config/x.compute", text).fields}
    assert values["baseDockerImage"] == value.strip() and values["username"] == "me"


# -- run bar ---------------------------------------------------------------------------------------


def test_arguments_are_split_like_in_a_shell():
    assert split_arguments("--lr 0.1 --text 'two words' a\\ b") == ["--lr", "0.1", "--text", "two words", "a b"]
    with pytest.raises(UsageError, match="no closing quotation"):
        split_arguments("--text 'open")


def test_user_text_never_becomes_an_option():
    more = {"name": "--dry-run", "tags": "-a, --force", "gpus": "--x"}
    request = build_request("--local", "--evil.py", ["--dry-run"], more)
    arguments = submit_words(request)
    head, tail = arguments[: arguments.index("./--evil.py")], arguments[arguments.index("./--evil.py") :]
    assert tail == ["./--evil.py", "--dry-run"]
    assert head[5:] == ["--run-configuration=--local", "--name=--dry-run", "--gpus=--x", "--tag=-a", "--tag=--force"]
    assert (
        typed_command(build_request("local", "train.py", ["two words"], {}))
        == "mlw submit -c local train.py 'two words'"
    )
    with pytest.raises(UsageError):
        build_request("local", "", ["x"], {})


# -- readme ----------------------------------------------------------------------------------------

EVIL = (
    "[x](javascript:alert(1))", "[x](JAVASCRIPT:alert(1))", "[x](java\tscript:alert(1))", "[x](data:text/html,x)",
    "[x](vbscript:x)", "[x](<javascript:alert(1)>)", "<a href='javascript:x'>x</a>", "<img src=x onerror=alert(1)>",
    "![x](javascript:x)", "![x](data:image/svg+xml,<svg onload=x>)", "![x](http://evil.example/i.png)",
    "![x](//evil.example/i.png)", "[x](//evil.example)", "![x](../../secret.png)", "[x](\\\\evil\\x)",
    "[x]: javascript:x\n\n[x]",
    "<javascript:alert(1)>", "[x](file:///etc/passwd)", "[x](/etc/passwd)", "![x](%2e%2e/secret.png)", "[x](blob:x)",
    "<script>alert(1)</script>", "<style>*{}</style>", "<iframe src=x>", "[x](http:)",
)  # fmt: skip


@pytest.mark.parametrize("text", EVIL)
def test_readme_markup_is_harmless(text):
    def walk(nodes):
        for node in nodes:
            if isinstance(node, list):
                yield node[0], node[1]
                yield from walk(node[2])

    for tag, attributes in walk(parse_readme(text, "k", "readme.md")):
        assert tag in {"p", "a", "span", "h2", "h3", "strong", "code", "pre"} or tag == "img"
        assert set(attributes) <= {"href", "target", "rel", "src", "alt"}
        assert attributes.get("src", "/api/projects/k/picture?path=x").startswith("/api/projects/k/picture?path=")
        assert ".." not in attributes.get("src", "") and "secret" not in attributes.get("src", "")
        href = attributes.get("href", "/p/k/files?")
        assert href.startswith(("/p/k/files?", "http://evil.example/"))
        assert href.startswith("/p/") or attributes["rel"] == "noopener noreferrer"


def test_readme_in_folder_and_plain_readme():
    assert parse_readme("![a](i.png)", "k", "docs/readme.md")[0][2][0][1]["src"].endswith("path=docs%2Fi.png")
    assert parse_readme("# not a title", "k", "readme.txt") == [["pre", {}, ["# not a title"]]]
    assert parse_readme("- a\n- b\n", "k", "readme.md") == [["ul", {}, [["li", {}, ["a"]], ["li", {}, ["b"]]]]]


ORDINARY = """
## A heading

Some text with `code`, **strong words** and [a link](docs/x.md), as ordinary files have them, over
several lines that are about as long as this one. See the [next section](#next) for more of it.

- a list with *some* items
- and ![an image](x.png)

| column | other |
| --- | --- |
| 1 | 2 |
| 3 | 4 |
"""
PATTERNS = ("[", "![", "[a](", "*a _b ", "~~a ", "c* ", "x\n", "<", "&", "[]", "`", "> ", "- ", "|\n", "a|", "[x]: ")
WIDE = "|" + "a|" * 1000 + "\n|" + "-|" * 1000 + "\n"


def parsing_time(text: str) -> float:
    """Return the minimum CPU time of several measurements, because other processes disturb them."""

    def once() -> float:
        begun = time.thread_time()
        parse_readme(text, "k", "readme.md")
        return time.thread_time() - begun

    return min(once() for _ in range(3))


@cache
def ordinary_parsing_time(size: int) -> float:
    return parsing_time((ORDINARY * size)[:size])


@pytest.mark.parametrize("pattern", [*PATTERNS, WIDE])
def test_parsing_time_of_hostile_readme(pattern):
    size = 200_000
    hostile = pattern + "|\n" * size if pattern == WIDE else pattern * size
    assert parsing_time(hostile[:size]) < 6 * ordinary_parsing_time(size)


@pytest.mark.parametrize("pattern", ["![", "|a|\n|-|\n" + "|\n" * 50, "*a _b "])
def test_parsing_time_of_readme_just_below_limits(pattern):
    size = 60_000
    count = readme_view._MAX_MARKUP // len(readme_view._MARKUP.findall(pattern))
    hostile = (pattern * count + "x" * size)[:size]
    assert parse_readme(hostile, "k", "readme.md")[0][0] != "pre", "it is parsed"
    assert parsing_time(hostile) < 8 * ordinary_parsing_time(size)


def test_long_readme_is_truncated_with_a_note():
    tree = parse_readme("some more words\n\n" * 20_000, "k", "docs/readme.md")
    assert tree[0] == ["p", {}, ["some more words"]]
    assert tree[-1][2][0].startswith("File truncated")
    assert tree[-1][2][1][:2] == ["a", {"href": "/p/k/files?path=docs%2Freadme.md"}]
    assert parse_readme("a word", "k", "readme.md") == [["p", {}, ["a word"]]]
    plain = parse_readme("[" * 30_000, "k", "readme.md")
    assert plain == [["pre", {}, ["[" * 30_000]]], "too much markup is shown as it is"


# -- projects and folders --------------------------------------------------------------------------


def test_forgotten_projects_stay_forgotten(project, tmp_path):
    projects = Projects(tmp_path / "projects.json")
    projects.discover({str(project.root): 5.0})
    assert [entry.path for entry in projects.recent()] == [project.root]
    projects.forget(key_of(project.root))
    projects.discover({str(project.root): 6.0})
    assert projects.recent() == []
    with pytest.raises(MlwError):
        projects.open(key_of(project.root))
    projects.add(project.root)
    assert projects.open(key_of(project.root)).name == "demo"


def test_folder_suggestions(project, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / ".hidden").mkdir()
    assert [(place.name, place.project) for place in folder_suggestions.suggest_folders("~/").places] == [
        ("demo", True),
        ("data", False),
    ]
    assert [place.name for place in folder_suggestions.suggest_folders(f"{tmp_path}/DA").places] == ["data"]
    assert (
        folder_suggestions.suggest_folders(str(project.root)).project
        and not folder_suggestions.suggest_folders("~/nothing/x").exists
    )
    assert "No such file" in folder_suggestions.suggest_folders("~/nothing/x").trouble
    assert folder_suggestions.resolve_folder("demo") == Path(os.path.realpath(project.root))
    for wrong in ("~/nothing", "~/file", "a\0b"):
        with pytest.raises(UsageError):
            folder_suggestions.resolve_folder(wrong)


def hostile_lines(seed, count):
    """Return lines of 150 kinds in random order, none so frequent that difflib ignores it."""
    generator = random.Random(seed)
    return [f"{generator.randrange(150)}" for _ in range(count)]


def test_hostile_texts_are_not_compared():
    old, new = ("\n".join(hostile_lines(seed, 60_000)) for seed in (1, 2))
    started = time.thread_time()
    lines = difference_lines(old, new)
    hostile = time.thread_time() - started
    assert len(lines) == 1 and "too many different lines" in lines[0]
    ordinary = [f"line {at} of a file" for at in range(60_000)]
    changed = [line if at % 10_000 else "changed" for at, line in enumerate(ordinary)]
    started = time.thread_time()
    assert "-line 10000 of a file" in difference_lines("\n".join(ordinary), "\n".join(changed))
    assert hostile < 5 * (time.thread_time() - started)


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30))
def test_differences_match_difflib(old, new):
    assert LineDiff(100).unified(old, new, "a", "b") == list(difflib.unified_diff(old, new, "a", "b", lineterm=""))


def test_comparison_budget_covers_all_files():
    old, new = hostile_lines(1, 60_000), hostile_lines(2, 60_000)
    budget = LineDiff(100)
    assert budget.unified(old, new, "a", "b") is None
    assert budget.unified(["a"], ["b"], "a", "b"), "others are compared all the same"
    for _ in range(3):
        budget.unified(old, new, "a", "b")
    assert budget.unified(["a"], ["b"], "a", "b") is None
    long = LineDiff(100)
    for _ in range(60):
        shown = long.unified([], ["x" * 250_000], "a", "b")
    assert shown is None, "what is shown counts, too"


def test_difference_is_bounded():
    assert difference_lines("a\n", "a\n") == []
    assert len(difference_lines("", "x\n" * 100_000)) == 2000
