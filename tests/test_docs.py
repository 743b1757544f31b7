"""What the README and the pages of docs/ say is true: examples run, commands exist, links lead somewhere."""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from offbeat import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(240)
def test_the_first_example_is_ten_lines_and_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = blocks(README, "python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    exec(compile(example, "README.md", "exec"), {})
    accuracy = float(capsys.readouterr().out.split()[0])
    assert accuracy > 0.9
    assert len(list(Path("runs").iterdir())) == 1


# Pages that are gone through from top to bottom, as a reader would.
SLOW = ("clusters.md", "python.md", "uneven.md")
WALKED = ("runs.md", *(pytest.param(page, marks=pytest.mark.slow) for page in SLOW))


def walk(page: str, folder: Path) -> list[tuple[str, str, str]]:
    """What a page does, what it says comes out, and what does. "Save this as `x`:" names the file of the next block.

    Python blocks share their names; a text block after one is what it prints. In a console block, lines after a command
    are what it prints.
    """
    found: list[tuple[str, str, str]] = []
    names: dict[str, object] = {"__name__": "__main__"}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for before, language, block in re.findall(r"(.*?)^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        saved = re.search(r"[Ss]ave (?:this|it) as `([^`]+)`[^\n]*\n\n\Z", before)
        if saved:
            (folder / saved[1]).write_text(block, encoding="utf-8")
        elif language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, page, "exec"), names)
            found.append((block, "", printed.getvalue()))
        elif language == "text" and not before.strip():
            found[-1] = (found[-1][0], block, found[-1][2])
        elif language == "console":
            for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
                found.append((command, wanted, shell(command, folder)))
    return found


def shell(command: str, folder: Path) -> str:
    """What the command prints; it must succeed."""
    words = shlex.split(command, comments=True)
    assert words[0] == "offbeat", command
    done = subprocess.run(
        [sys.executable, "-m", "offbeat", *words[1:]],
        cwd=folder, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WALKED)
def test_a_page_does_what_it_says_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    same = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    steps = walk(page, tmp_path)
    assert sum(bool(wanted) for _, wanted, _ in steps) >= 3
    for done, wanted, came in steps:
        assert not wanted or doctest.OutputChecker().check_output(wanted, came, same), f"{done}\n{came}"


COMMANDS = [
    (page.name, line.strip())
    for page in PAGES
    for block in blocks(page.read_text(encoding="utf-8"), "(?:sh|bash|console|text)?")
    for line in block.splitlines()
    if line.strip().startswith("offbeat ")
]


def test_there_are_commands_to_look_at():
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_in_the_docs_exists_with_its_options(page, line):
    line = line.split("#")[0].removesuffix("\\").strip()
    words = shlex.split(line.replace("[", " ").replace("]", " "))[1:]
    command = typer.main.get_command(cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands"), f"{page}: no such command in {line!r}"
    known = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts)}
    values = False  # whether this word is the value of the option before
    for word in words:
        if word.startswith("-") and not values:
            assert word.split("=")[0] in [*known, "--help", "-h"], f"{page}: {word} in {line!r}"
        values = word in known and word.startswith("-") and not getattr(known[word], "is_flag", False)


LINKS = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    if not re.match(r"[a-z]+:", target)
]


@pytest.mark.parametrize(("page", "target"), LINKS, ids=lambda v: v.name if isinstance(v, Path) else v)
def test_every_link_leads_somewhere(page, target):
    file, _, anchor = target.partition("#")
    found = (page.parent / file) if file else page
    assert found.exists()
    if anchor and found.suffix == ".md":
        heads = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("offbeat ru", "run"),
        ("offbeat run dig", "digits"),
        ("offbeat run digits --solver asg", "asgd"),
        ("offbeat list so", "solvers"),
        *((f"offbeat {command} --engine lo", "local") for command in ("run digits", "compare digits", "sweep x.toml")),
    ],
)
def test_the_shell_completes_commands_tasks_and_solvers(words, found):
    code = "import sys; sys.argv = ['offbeat']; from offbeat import cli; cli.main()"
    asked = {"_OFFBEAT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert found in done.stdout.split(), done.stderr
