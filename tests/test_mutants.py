"""The suite rejects every mutant in tests/mutants: applied to a copy of the package, each must make its tests fail."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import offbeat

PACKAGE = Path(offbeat.__file__).parent
TESTS = Path(__file__).parent


class Mutant(NamedTuple):
    what: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [
    Mutant(**values)
    for path in sorted((TESTS / "mutants").glob("*.toml"))
    for values in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
]


def test_the_list_is_long_enough_and_says_what_each_mutant_is():
    assert len(MUTANTS) >= 25
    assert len({m[1:] for m in MUTANTS}) == len(MUTANTS)
    assert all(m.what for m in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_the_text_of_a_mutant_still_occurs_and_once_only(mutant):
    assert (PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert (TESTS / mutant.tests.split()[0]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.what)
def test_a_mutant_is_rejected(mutant, tmp_path):
    copy = tmp_path / "offbeat"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / mutant.file
    file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new, 1), encoding="utf-8")
    name, *words = mutant.tests.split(maxsplit=1)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "120",
        str(TESTS / name),
    ]
    command += ["-k", words[0]] if words else []
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=env, cwd=TESTS.parent, capture_output=True, text=True, timeout=300, check=False)
    # 1: tests failed. 0: the mutant lives. 2 and more: the tests could not run, which proves nothing.
    assert done.returncode == 1, (
        f"{mutant.what}: pytest says {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-500:]}"
    )
