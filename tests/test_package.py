"""The package: sdist and wheel hold what they should, and work where nobody has seen the source."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import offbeat

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "offbeat").rglob("*.py")}
DATA = {
    p.relative_to(ROOT / "src").as_posix()
    for p in (ROOT / "src" / "offbeat").rglob("*")
    if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts
}


def test_the_version_is_the_same_everywhere():
    assert PROJECT["version"] == offbeat.__version__
    assert f"\nversion: {offbeat.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert next(line for line in changes.splitlines() if line.startswith("## ")) == f"## {offbeat.__version__}"


def test_what_a_first_run_needs_is_installed_without_extras_and_nothing_drawn_or_tested():
    names = {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
    assert names >= {"torch", "numpy", "pyarrow", "scikit-learn", "safetensors"}
    assert not names & {"matplotlib", "plotly", "pandas", "numba", "pytest", "pillow"}


def run(*words: object, folder: Path) -> str:
    """A command outside the repository, which knows nothing of it."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that is made of it; by the backend that pyproject names, no downloads."""
    pytest.importorskip("setuptools", minversion="68")
    source, out = tmp_path_factory.mktemp("source") / "offbeat", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    backend = "from setuptools import build_meta as b; "
    run(sys.executable, "-c", f"{backend}b.build_sdist({str(out)!r})", folder=source)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(source.parent / "unpacked", filter="data")
    (unpacked,) = (source.parent / "unpacked").iterdir()
    run(sys.executable, "-c", f"{backend}b.build_wheel({str(out)!r})", folder=unpacked)
    return out


@pytest.mark.slow
def test_the_wheel_has_every_module_and_every_file_beside_them(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= SOURCES | DATA
    assert {"offbeat/py.typed", "offbeat/solvers/references.bib"} <= DATA
    assert any(name.startswith("offbeat/report/assets/") for name in names)
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in names)


@pytest.mark.slow
def test_the_sdist_has_what_the_wheel_is_made_of(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{name}" for name in SOURCES | DATA} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_works_in_a_clean_environment_in_another_folder(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    # What offbeat needs comes from here, as links to what is installed: no download, and no offbeat but the wheel's.
    ours = {"offbeat", "__pycache__", "site-packages"}
    installed = [Path(place) for place in sys.path if Path(place).name == "site-packages"]
    for entry in (entry for place in installed for entry in place.iterdir()):
        foreign = entry.name not in ours and not entry.name.startswith(("offbeat", "__editable__"))
        if foreign and entry.suffix != ".pth" and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, folder=tmp_path)
    command, work = tmp_path / "env" / "bin" / "offbeat", tmp_path / "elsewhere"
    work.mkdir()

    assert str(site) in run(python, "-c", "import offbeat; print(offbeat.__file__)", folder=work)
    assert "Training out of sync" in run(command, "--help", folder=work)
    run(
        command,
        "run",
        "quadratic",
        "--solver",
        "asgd",
        "--workers",
        2,
        "--budget",
        "100updates",
        "--out",
        "r",
        folder=work,
    )
    assert "100 updates" in run(command, "show", "r", folder=work)
    run(command, "report", "r", "-o", "r.html", folder=work)
    page = (work / "r.html").read_text(encoding="utf-8")
    for asset in (ROOT / "src" / "offbeat" / "report" / "assets").glob("*.css"):
        assert asset.read_text(encoding="utf-8").strip()[:200] in page
    assert "@" in run(command, "cite", "asgd", folder=work)
