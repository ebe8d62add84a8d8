"""What the pages of projects and files rest on: names that stay inside, texts that stay whole, forms, readmes."""

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

from mlworkbench.config.project import create_project
from mlworkbench.errors import MlwError, UsageError
from mlworkbench.report.linediff import LineDiff
from mlworkbench.resubmit import submit_words, typed_command
from mlworkbench.ui import drafts as ui_drafts
from mlworkbench.ui import saving
from mlworkbench.ui.answers import files, folders, forms
from mlworkbench.ui.answers.checks import problems_in
from mlworkbench.ui.answers.projects import Projects, key_of
from mlworkbench.ui.drafts import Draft, Drafts
from mlworkbench.ui.parts import readme
from mlworkbench.ui.parts.difference import difference_lines
from mlworkbench.ui.parts.readme import tree_of
from mlworkbench.ui.parts.runbar import split, submission


@pytest.fixture
def project(tmp_path):
    return create_project("demo", tmp_path)


# -- names -----------------------------------------------------------------------------------------

OUTSIDE = ("..", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "", "a\0b", "x" * 5000, "a/.", "\udcff")


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_name_that_could_lead_out_is_refused(project, path):
    for work in (
        lambda: files.read(project.root, path),
        lambda: files.picture(project.root, path),
        lambda: files.stamp(project.root, path),
        lambda: saving.save(project.root, path, b"", None),
        lambda: saving.make_file(project.root, path),
        lambda: saving.make_folder(project.root, path),
        lambda: saving.rename(project.root, "train.py", path),
        lambda: saving.rename(project.root, path, "other.py"),
        lambda: saving.delete(project.root, path),
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
        lambda: saving.save(project.root, "leak.txt", b"x", None),
        lambda: saving.save(project.root, "up/secret.txt", b"x", None),
        lambda: saving.make_file(project.root, "up/new.txt"),
        lambda: saving.rename(project.root, "train.py", "up/train.py"),
        lambda: saving.delete(project.root, "up/secret.txt"),
    ):
        with pytest.raises(MlwError):
            work()
    assert [one.path for one in files.search(project.root, "secret")] == []
    saving.delete(project.root, "up")
    assert (tmp_path / "secret.txt").read_text() == "s3cret" and not (project.root / "up").is_symlink()


def test_listing_and_search_are_bounded(project, monkeypatch):
    monkeypatch.setattr(files, "MOST", 5)
    for number in range(9):
        (project.root / f"f{number}.txt").touch()
    (project.root / "zoo").mkdir()
    found = files.listing(project.root)
    assert [one.kind for one in found.entries][:2] == ["folder", "folder"] and len(found.entries) == 5
    assert found.more == 9


def test_environments_and_git_are_not_searched(project):
    for folder in (".git", "env", "src"):
        (project.root / folder).mkdir()
        (project.root / folder / "needle.py").touch()
    (project.root / "env" / "pyvenv.cfg").touch()
    assert [one.path for one in files.search(project.root, "NEEDLE")] == ["src/needle.py"]
    assert files.scripts(project.root) == ["train.py", "src/needle.py"]


# -- texts -----------------------------------------------------------------------------------------


def test_a_file_is_saved_whole_with_its_mode(project):
    path = project.root / "train.py"
    path.chmod(0o750)
    before = files.read(project.root, "train.py")
    digest = saving.save(project.root, "train.py", b"new\n", before.digest)
    assert path.read_bytes() == b"new\n" and stat.S_IMODE(path.stat().st_mode) == 0o750
    assert files.read(project.root, "train.py").digest == digest
    with pytest.raises(saving.Changed):
        saving.save(project.root, "train.py", b"newer\n", before.digest)
    path.unlink()
    with pytest.raises(saving.Changed):
        saving.save(project.root, "train.py", b"newer\n", digest)
    saving.save(project.root, "train.py", b"anew\n", "")
    with pytest.raises(saving.Changed):
        saving.save(project.root, "train.py", b"newer\n", "")
    assert path.read_bytes() == b"anew\n"
    assert not list(project.root.glob(".*.part"))


@pytest.mark.parametrize("data", [b"a\r\nb\r\n", b"\xef\xbb\xbfa\n", b"", "ü\U0001f600\n".encode(), b"no end"])
def test_line_ends_and_marks_stay(project, data):
    (project.root / "x.txt").write_bytes(data)
    found = files.read(project.root, "x.txt")
    assert "\r" not in found.text
    assert files.encoded(found.text, found.windows, found.marked) == data


@pytest.mark.parametrize(("name", "data", "kind", "reason"), [
    ("a.bin", b"\0", "other", "not text"),
    ("a.txt", b"\xff\xfe", "other", "not UTF-8"),
    ("a.csv", b"x" * (files.LARGEST + 1), "other", "larger"),
    ("a.PNG", b"\x89PNG", "picture", ""),
])  # fmt: skip
def test_what_is_no_text_is_described(project, name, data, kind, reason):
    (project.root / name).write_bytes(data)
    found = files.read(project.root, name)
    assert found.kind == kind and reason in found.reason


def test_a_pipe_in_the_project_holds_nobody(project):
    os.mkfifo(project.root / "pipe")
    with pytest.raises(UsageError):
        files.read(project.root, "pipe")


def test_nothing_is_replaced_by_a_new_name(project):
    saving.make_file(project.root, "src/deep/new.py")
    for work in (
        lambda: saving.make_file(project.root, "train.py"),
        lambda: saving.make_folder(project.root, "src"),
        lambda: saving.rename(project.root, "train.py", "readme.md"),
        lambda: saving.rename(project.root, "src", "src/inner"),
        lambda: saving.rename(project.root, "aml_config", "other"),
        lambda: saving.delete(project.root, "aml_config"),
        lambda: saving.delete(project.root, "not-there"),
        lambda: saving.make_file(project.root, "odd\nname"),
        lambda: saving.make_file(project.root, "odd "),
    ):
        with pytest.raises(MlwError):
            work()
    saving.rename(project.root, "train.py", "src/train.py")
    saving.delete(project.root, "src")
    assert not (project.root / "src").exists() and (project.root / "aml_config").is_dir()


def test_what_comes_meanwhile_is_not_replaced(project, monkeypatch):
    """Between our look and our rename somebody else makes the file."""
    target = project.root / "late.py"

    def late(*words, **named):
        target.write_text("theirs\n")
        return link(*words, **named)

    link = os.link
    monkeypatch.setattr(os, "link", late)
    with pytest.raises(UsageError, match="already exists"):
        saving.rename(project.root, "train.py", "late.py")
    assert target.read_text() == "theirs\n" and (project.root / "train.py").exists()
    target.unlink()
    with pytest.raises(saving.Changed, match="was created on disk"):
        saving.save(project.root, "late.py", b"ours\n", "")
    assert target.read_text() == "theirs\n" and not list(project.root.glob(".*.part"))


def test_disks_without_second_names(project, monkeypatch):
    def refuse(*words, **named):
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "link", refuse)
    saving.rename(project.root, "train.py", "other.py")
    saving.save(project.root, "deep/new.py", b"new\n", "")
    assert (project.root / "other.py").exists() and (project.root / "deep/new.py").read_bytes() == b"new\n"
    assert not (project.root / "train.py").exists() and not list(project.root.rglob(".*.part"))


def test_files_on_windows_are_told_of_in_words(project, monkeypatch):
    monkeypatch.setattr(files, "AVAILABLE", False)
    for work in (
        lambda: files.listing(project.root),
        lambda: files.read(project.root, "train.py"),
        lambda: saving.save(project.root, "train.py", b"", None),
        lambda: saving.delete(project.root, "train.py"),
    ):
        with pytest.raises(UsageError, match="Windows"):
            work()
    assert files.scripts(project.root) == []


def test_whoever_types_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    drafts, heard = Drafts(tmp_path / "drafts"), []

    def write(file, told):
        """While one is written another letter is typed; then the disk is full."""
        typist = threading.Thread(target=drafts.put, args=("k", Draft("b.py", "later", "", False, False)), daemon=True)
        typist.start()
        typist.join(10)
        heard.append(typist.is_alive())
        raise OSError(errno.ENOSPC, "full")

    drafts.put("k", Draft("a.py", "typed", "", False, False))
    with monkeypatch.context() as patch:
        patch.setattr(ui_drafts, "write_whole", write)
        with pytest.raises(OSError, match="full"):
            drafts.flush()
    assert heard == [False] and drafts.waiting
    drafts.flush()
    assert {one.text for one in Drafts(tmp_path / "drafts").of("k").values()} == {"typed", "later"}


def test_drafts_are_kept_and_saved_before_a_run(project, tmp_path):
    base = files.read(project.root, "train.py").digest
    drafts = Drafts(tmp_path / "drafts")
    drafts.put("k", Draft("train.py", "one\n", base, True, False))
    drafts.flush()
    assert all(stat.S_IMODE(one.stat().st_mode) & 0o077 == 0 for one in (tmp_path / "drafts").rglob("*"))
    again = Drafts(tmp_path / "drafts")
    assert again.of("k")["train.py"].text == "one\n" and again.of("other") == {}
    assert saving.save_drafts(project.root, again, "k") == ["train.py"]
    assert (project.root / "train.py").read_bytes() == b"one\r\n"
    assert Drafts(tmp_path / "drafts").of("k") == {}
    again.put("k", Draft("train.py", "two\n", base, False, False))
    with pytest.raises(saving.Changed):
        saving.save_drafts(project.root, again, "k")
    assert again.of("k")["train.py"].text == "two\n", "what could not be saved is still there"


# -- checks and forms ------------------------------------------------------------------------------


def test_the_text_is_checked_and_not_the_file(project):
    found = problems_in(project, "aml_config/local.compute", "type: local\nadress: x\n")
    assert [(one.path, one.line, one.severity) for one in found] == [("aml_config/local.compute", 2, "error")]
    assert found[0].hint == "did you mean 'address'?"
    named = problems_in(project, "aml_config/new.runconfig", "Target: nowhere\nFramework: Python\n")
    assert "unknown compute target 'nowhere'" in named[0].message and named[0].line == 1
    assert problems_in(project, "a.py", "def f(:\n")[0].line == 1
    assert problems_in(project, "a.json", '{\n"a": }')[0].line == 2
    assert problems_in(project, "a.txt", "def f(:") == []
    broken = problems_in(project, "aml_config/x.compute", "type:local\n")
    assert broken[0].line == 1 and str(project.root) not in broken[0].message and "tmp" not in broken[0].message


def test_a_form_from_the_text_and_back(project):
    path, text = "aml_config/x.compute", "# why\ntype: docker  # here\nshmSize: 0.10g\n"
    fields = {one.name: one for one in forms.form(path, text).fields}
    assert fields["type"].value == "docker" and fields["nvidiaDocker"].default == "false"
    assert "address" not in fields and fields["nvidiaDocker"].help
    text = forms.filled(path, text, "nvidiaDocker", "true")
    text = forms.filled(path, text, "mounts", "/data\n/models:/m:ro")
    assert text.startswith("# why\ntype: docker  # here\nshmSize: 0.10g\n") and "nvidiaDocker: true" in text
    assert {one.name: one.value for one in forms.form(path, text).fields}["mounts"] == "/data\n/models:/m:ro"
    assert forms.filled(path, forms.filled(path, text, "mounts", ""), "nvidiaDocker", "").endswith("0.10g\n")
    text = forms.filled("aml_config/x.runconfig", "Target: a\n", "EnvironmentVariables", "A: 1\nB=two words")
    assert "A: \"1\"" in text and "B: \"two words\"" in text  # fmt: skip
    assert forms.form(path, "type:docker").trouble and forms.form(path, "{type: docker}").trouble
    assert "address" in {one.name for one in forms.form(path, "type: remote\n").fields}
    assert forms.has_form(path) and not forms.has_form("x.compute") and not forms.has_form("aml_config/a/x.compute")


@pytest.mark.parametrize("value", ["a: b", "- x", "#x", "'", '"', "{}", "\\", "yes", "null", "*a", "&a", "x\ty", "é😀"])
def test_whatever_is_put_into_a_field_stays_a_value(value):
    text = forms.filled("aml_config/x.compute", "type: docker\nusername: me\n", "baseDockerImage", value)
    found = {one.name: one.value for one in forms.form("aml_config/x.compute", text).fields}
    assert found["baseDockerImage"] == value.strip() and found["username"] == "me"


# -- the run bar -----------------------------------------------------------------------------------


def test_arguments_are_taken_apart_as_a_shell_does():
    assert split("--lr 0.1 --text 'two words' a\\ b") == ["--lr", "0.1", "--text", "two words", "a b"]
    with pytest.raises(UsageError, match="no closing quotation"):
        split("--text 'open")


def test_no_text_of_the_user_becomes_an_option():
    more = {"name": "--dry-run", "tags": "-a, --force", "gpus": "--x"}
    asked = submission("--local", "--evil.py", ["--dry-run"], more)
    words = submit_words(asked)
    head, tail = words[: words.index("./--evil.py")], words[words.index("./--evil.py") :]
    assert tail == ["./--evil.py", "--dry-run"]
    assert head[5:] == ["--run-configuration=--local", "--name=--dry-run", "--gpus=--x", "--tag=-a", "--tag=--force"]
    assert (
        typed_command(submission("local", "train.py", ["two words"], {})) == "mlw submit -c local train.py 'two words'"
    )
    with pytest.raises(UsageError):
        submission("local", "", ["x"], {})


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
def test_a_readme_does_nothing(text):
    def walk(nodes):
        for node in nodes:
            if isinstance(node, list):
                yield node[0], node[1]
                yield from walk(node[2])

    for tag, attributes in walk(tree_of(text, "k", "readme.md")):
        assert tag in {"p", "a", "span", "h2", "h3", "strong", "code", "pre"} or tag == "img"
        assert set(attributes) <= {"href", "target", "rel", "src", "alt"}
        assert attributes.get("src", "/api/projects/k/picture?path=x").startswith("/api/projects/k/picture?path=")
        assert ".." not in attributes.get("src", "") and "secret" not in attributes.get("src", "")
        href = attributes.get("href", "/p/k/files?")
        assert href.startswith(("/p/k/files?", "http://evil.example/"))
        assert href.startswith("/p/") or attributes["rel"] == "noopener noreferrer"


def test_a_readme_in_a_folder_and_a_plain_one():
    assert tree_of("![a](i.png)", "k", "docs/readme.md")[0][2][0][1]["src"].endswith("path=docs%2Fi.png")
    assert tree_of("# not a title", "k", "readme.txt") == [["pre", {}, ["# not a title"]]]
    assert tree_of("- a\n- b\n", "k", "readme.md") == [["ul", {}, [["li", {}, ["a"]], ["li", {}, ["b"]]]]]


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


def times_of_parsing(text: str) -> float:
    """The least of some: others use the machine, too."""

    def once() -> float:
        begun = time.thread_time()
        tree_of(text, "k", "readme.md")
        return time.thread_time() - begun

    return min(once() for _ in range(3))


@cache
def time_of_an_ordinary(size: int) -> float:
    return times_of_parsing((ORDINARY * size)[:size])


@pytest.mark.parametrize("pattern", [*PATTERNS, WIDE])
def test_no_readme_costs_much_more_than_an_ordinary_one_of_its_size(pattern):
    size = 200_000
    hostile = pattern + "|\n" * size if pattern == WIDE else pattern * size
    assert times_of_parsing(hostile[:size]) < 6 * time_of_an_ordinary(size)


@pytest.mark.parametrize("pattern", ["![", "|a|\n|-|\n" + "|\n" * 50, "*a _b "])
def test_no_readme_just_below_the_limits_costs_much_more(pattern):
    size = 60_000
    count = readme._MOST_MARKUP // len(readme._MARKUP.findall(pattern))
    hostile = (pattern * count + "x" * size)[:size]
    assert tree_of(hostile, "k", "readme.md")[0][0] != "pre", "it is parsed"
    assert times_of_parsing(hostile) < 8 * time_of_an_ordinary(size)


def test_of_a_long_readme_the_rest_is_said_to_be_missing():
    tree = tree_of("some more words\n\n" * 20_000, "k", "docs/readme.md")
    assert tree[0] == ["p", {}, ["some more words"]]
    assert tree[-1][2][0].startswith("File truncated")
    assert tree[-1][2][1][:2] == ["a", {"href": "/p/k/files?path=docs%2Freadme.md"}]
    assert tree_of("a word", "k", "readme.md") == [["p", {}, ["a word"]]]
    plain = tree_of("[" * 30_000, "k", "readme.md")
    assert plain == [["pre", {}, ["[" * 30_000]]], "too much markup is shown as it is"


# -- projects and folders --------------------------------------------------------------------------


def test_forgotten_projects_stay_forgotten(project, tmp_path):
    projects = Projects(tmp_path / "projects.json")
    projects.meet({str(project.root): 5.0})
    assert [one.path for one in projects.known()] == [project.root]
    projects.forget(key_of(project.root))
    projects.meet({str(project.root): 6.0})
    assert projects.known() == []
    with pytest.raises(MlwError):
        projects.open(key_of(project.root))
    projects.remember(project.root)
    assert projects.open(key_of(project.root)).name == "demo"


def test_folders_are_completed(project, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / ".hidden").mkdir()
    assert [(one.name, one.project) for one in folders.complete("~/").places] == [("demo", True), ("data", False)]
    assert [one.name for one in folders.complete(f"{tmp_path}/DA").places] == ["data"]
    assert folders.complete(str(project.root)).project and not folders.complete("~/nothing/x").exists
    assert "No such file" in folders.complete("~/nothing/x").trouble
    assert folders.the_folder("demo") == Path(os.path.realpath(project.root))
    for wrong in ("~/nothing", "~/file", "a\0b"):
        with pytest.raises(UsageError):
            folders.the_folder(wrong)


def hostile_lines(seed, count):
    """Lines of 150 kinds in any order, none of them so frequent that difflib passes it over."""
    chosen = random.Random(seed)
    return [f"{chosen.randrange(150)}" for _ in range(count)]


def test_texts_that_are_made_to_be_compared_for_hours_are_not():
    old, new = ("\n".join(hostile_lines(seed, 60_000)) for seed in (1, 2))
    begun = time.thread_time()
    lines = difference_lines(old, new)
    hostile = time.thread_time() - begun
    assert len(lines) == 1 and "too many different lines" in lines[0]
    ordinary = [f"line {at} of a file" for at in range(60_000)]
    changed = [line if at % 10_000 else "changed" for at, line in enumerate(ordinary)]
    begun = time.thread_time()
    assert "-line 10000 of a file" in difference_lines("\n".join(ordinary), "\n".join(changed))
    assert hostile < 5 * (time.thread_time() - begun)


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abcd"), max_size=30))
def test_differences_are_those_of_difflib(old, new):
    assert LineDiff(100).unified(old, new, "a", "b") == list(difflib.unified_diff(old, new, "a", "b", lineterm=""))


def test_what_is_compared_is_bounded_in_all_files_together():
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


def test_a_difference_is_bounded():
    assert difference_lines("a\n", "a\n") == []
    assert len(difference_lines("", "x\n" * 100_000)) == 2000
