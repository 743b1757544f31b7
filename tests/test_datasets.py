"""The table of datasets, the parsers, and the tensors; over real data too, where the cache has it."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError, DataError
from offbeat.data import arrays
from offbeat.data.arrays import IDX_IMAGES, IDX_LABELS, load, parse_cifar, parse_idx, text_file
from offbeat.data.datasets import DATASETS, Web, cache_dir, dataset, status
from offbeat.data.rawfiles import flaw
from tiny_data import idx, idx_contents, row, write


def as_bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


# The table


def test_importing_the_table_and_the_fetcher_imports_nothing_heavy():
    code = (
        "import sys, offbeat.data.datasets, offbeat.data.fetch, offbeat.data.arrays;"
        "print([m for m in ('torch', 'numpy', 'PIL', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == "[]"


def test_the_table_is_complete():
    for name, entry in DATASETS.items():
        assert entry.about, name
        assert entry.licence, name
        assert entry.embedded or len(entry.sources) >= 2, name  # the public address, then a registry
        assert entry.embedded or isinstance(entry.sources[0], Web), name
        assert all(re.fullmatch(r"[0-9a-f]{64}", file.sha256) and file.size > 0 for file in entry.files), name
        assert len(entry.mean) == len(entry.std) == {"idx": 1, "digits": 1, "cifar": 3, "text": 0}[entry.kind], name


def test_no_registry_host_is_written_in_the_sources():
    folder = Path(arrays.__file__).parent
    for path in folder.glob("*.py"):
        assert not re.search(r"pypi\.org|pythonhosted|npmjs|debian\.org|/opt/", path.read_text()), path.name


def test_an_unknown_name_gets_the_nearest_and_all_known_ones():
    with pytest.raises(ConfigError, match=r"unknown dataset 'minst' \(did you mean 'mnist'\?\); known: .*cifar10"):
        dataset("minst")


def test_the_cache_is_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "chosen"
    monkeypatch.delenv("OFFBEAT_DATA")
    assert cache_dir() == tmp_path / "xdg" / "offbeat"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "offbeat"


def test_status_tells_what_is_there(tmp_path):
    contents = idx_contents()
    table = {"digits": DATASETS["digits"], "tiny": row(contents), "cut": row(contents)}
    write(tmp_path / "tiny", contents)
    write(tmp_path / "cut", contents | {"t10k-labels-idx1-ubyte": b""})
    rows = {r.name: r for r in status(tmp_path, table)}
    assert [r.present for r in rows.values()] == [True, True, False]
    assert rows["tiny"].size == sum(map(len, contents.values()))
    assert not any(r.present for r in status(tmp_path / "nowhere") if r.name != "digits")


# Parsers


@settings(max_examples=50, deadline=None)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_idx_round_trip(shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    np.testing.assert_array_equal(parse_idx(as_bytes(idx(array)), 0x0800 + len(shape)), array)


@pytest.mark.parametrize(
    ("data", "magic", "message"),
    [
        (b"", IDX_LABELS, "shorter than its header"),
        (idx(np.zeros((2, 3, 3), np.uint8))[:9], IDX_IMAGES, "IDX file of 9 bytes is shorter than its header"),
        (idx(np.zeros(12, np.uint8)), IDX_IMAGES, "magic is 0x00000801, expected 0x00000803"),
        (b"\x1f\x8b\x08\x00" + bytes(8), IDX_LABELS, "magic is 0x1f8b0800"),
        (idx(np.zeros((0, 28, 28), np.uint8)), IDX_IMAGES, r"dimensions \[0, 28, 28\] hold nothing"),
        (idx(np.zeros((2, 3, 3), np.uint8))[:-1], IDX_IMAGES, "need 18 bytes, the file has 17"),
        (idx(np.zeros(5, np.uint8)) + b"\0", IDX_LABELS, "need 5 bytes, the file has 6"),
        (b"\0\0\x08\x03" + b"\xff" * 12, IDX_IMAGES, "the file has 0"),  # 2^96 bytes promised
    ],
)
def test_idx_that_is_not_idx(data, magic, message):
    with pytest.raises(DataError, match=message):
        parse_idx(as_bytes(data), magic)


def test_cifar_records_are_a_label_and_planar_rgb():
    record = bytes([7]) + bytes([10] * 1024) + bytes([20] * 1024) + bytes([30] * 1024)
    x, y = parse_cifar(as_bytes(record * 2), classes=10)
    assert x.shape == (2, 3, 32, 32)
    assert y.tolist() == [7, 7]
    assert [x[1, c].min() for c in range(3)] == [x[1, c].max() for c in range(3)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (bytes(3072), "3,072 bytes is not a number of 3073-byte"),
        (b"\x0a" + bytes(3072), "label 10 is"),
    ],
)
def test_cifar_that_is_not_cifar(data, message):
    with pytest.raises(DataError, match=message):
        parse_cifar(as_bytes(data), classes=10)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels-idx1-ubyte", np.full(6, 10, np.uint8), "label 10 is out of range, there are 10 classes"),
        ("t10k-labels-idx1-ubyte", np.zeros(3, np.uint8), "4 pictures but 3 labels"),
    ],
)
def test_labels_must_fit_the_pictures(tmp_path, name, array, message):
    contents = idx_contents() | {name: idx(array)}
    write(tmp_path / "tiny", contents)
    with pytest.raises(DataError, match=message):
        load("tiny", cache=tmp_path, table={"tiny": row(contents)})


# Tensors


def test_idx_becomes_standardised_tensors(tmp_path):
    contents = idx_contents()
    write(tmp_path / "tiny", contents)
    got = load("tiny", cache=tmp_path, table={"tiny": row(contents)})
    pixels = as_bytes(contents["train-images-idx3-ubyte"])[16:].reshape(6, 1, 28, 28).astype(np.float64)
    assert (got.name, got.classes) == ("tiny", 10)
    assert (got.train_x.dtype, got.train_y.dtype) == (torch.float32, torch.int64)
    assert got.test_x.shape == (4, 1, 28, 28)
    np.testing.assert_allclose(got.train_x.numpy(), (pixels / 255 - 0.4) / 0.2, atol=1e-5)
    assert got.test_y.tolist() == list(contents["t10k-labels-idx1-ubyte"][8:])


def test_cifar_is_standardised_per_channel_and_ends_with_the_test_file(tmp_path):
    rng = np.random.default_rng(0)
    records = [rng.integers(0, 10, (n, 3073), dtype=np.uint8) for n in (2, 3, 1)]
    contents = {name: r.tobytes() for name, r in zip(("a.bin", "b.bin", "test.bin"), records, strict=True)}
    write(tmp_path / "tiny", contents)
    got = load("tiny", cache=tmp_path, table={"tiny": row(contents, "cifar", channels=3)})
    stored = np.concatenate(records[:2])
    mean, std = np.array([0.4, 0.5, 0.6]).reshape(3, 1, 1), np.array([0.2, 0.3, 0.25]).reshape(3, 1, 1)
    np.testing.assert_allclose(got.train_x.numpy(), (stored[:, 1:].reshape(5, 3, 32, 32) / 255 - mean) / std, atol=1e-5)
    assert got.train_y.tolist() == stored[:, 0].tolist()
    assert got.test_y.tolist() == records[2][:, 0].tolist()


def bilinear(picture: np.ndarray, side: int) -> np.ndarray:
    """The definition, one pixel at a time: pixel centres at half-integers, edges repeated."""
    old = len(picture)
    out = np.empty((side, side))
    for i in range(side):
        for j in range(side):
            u, v = (max(0.0, (k + 0.5) * old / side - 0.5) for k in (i, j))
            a, b = int(u), int(v)
            c, d = min(a + 1, old - 1), min(b + 1, old - 1)
            top = (1 - (v - b)) * picture[a, b] + (v - b) * picture[a, d]
            low = (1 - (v - b)) * picture[c, b] + (v - b) * picture[c, d]
            out[i, j] = (1 - (u - a)) * top + (u - a) * low
    return out


@pytest.mark.parametrize("side", [32, 28, 14])
def test_resize_is_bilinear(tmp_path, side):
    contents = idx_contents()
    write(tmp_path / "tiny", contents)
    got = load("tiny", cache=tmp_path, resize=side, scaling="unit", table={"tiny": row(contents)})
    pixels = as_bytes(contents["train-images-idx3-ubyte"])[16:].reshape(6, 28, 28)
    assert got.train_x.shape == (6, 1, side, side)
    np.testing.assert_allclose(got.train_x[5, 0].numpy(), bilinear(pixels[5] / 255, side), atol=1e-5)


def test_load_refuses_what_it_cannot_do(tmp_path):
    table = {"tiny": row(idx_contents()), "words": row({"words": b"a b"}, "text")}
    with pytest.raises(DataError, match=r"tiny is not in .*; run: offbeat data get tiny$"):
        load("tiny", cache=tmp_path, table=table)
    with pytest.raises(ConfigError, match="words is text"):
        load("words", cache=tmp_path, table=table)
    with pytest.raises(ConfigError, match="tiny is pictures"):
        text_file("tiny", cache=tmp_path, table=table)
    with pytest.raises(DataError, match="offbeat data get words"):
        text_file("words", cache=tmp_path, table=table)
    with pytest.raises(ConfigError, match="resize must be at least 1, got 0"):
        load("digits", resize=0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"is truncated: 9 of 10 bytes"),
        (lambda data: data + b"x", r"is too long"),
        (lambda data: b"X" + data[1:], r"wrong checksum: SHA-256 [0-9a-f]{12}\.\.\., expected"),
    ],
)
def test_a_damaged_cache_is_noticed_on_load(tmp_path, damage, message):
    contents = idx_contents() | {"t10k-labels-idx1-ubyte": idx(np.zeros(2, np.uint8))}
    words = {"words": b"0123456789"}
    table = {"tiny": row(contents), "words": row(words, "text")}
    write(tmp_path / "tiny", contents | {"t10k-labels-idx1-ubyte": damage(contents["t10k-labels-idx1-ubyte"])})
    write(tmp_path / "words", {"words": damage(words["words"])})
    with pytest.raises(DataError, match=rf"{message}.*; run: offbeat data get tiny$"):
        load("tiny", cache=tmp_path, table=table)
    with pytest.raises(DataError, match=rf"{message}.*; run: offbeat data get words$"):
        text_file("words", cache=tmp_path, table=table)


def test_word2vec_does_not_train_on_a_damaged_text(tmp_path, monkeypatch):
    pytest.importorskip("numba")
    from offbeat.tasks.word2vec.skipgram import Word2Vec

    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
    write(tmp_path / "text8", {"text8": b" the sea the sea"})
    with pytest.raises(DataError, match=r"is truncated: 16 of .*; run: offbeat data get text8$"):
        Word2Vec("text8")


# Real data: digits always, the others where the cache has them

# Recorded with scikit-learn 1.9.
DIGITS_TEST_SHA256 = "fee112ab5eb8745b0185139e913ece8b52d6f4b75bb70986daa10a9ecaf66e6f"


def test_digits_are_all_of_scikit_learns_split_evenly():
    from sklearn.datasets import load_digits

    got = load("digits", resize=8, scaling="unit")
    assert (got.train_x.shape, got.test_x.shape) == ((1437, 1, 8, 8), (360, 1, 8, 8))
    known = load_digits()
    pairs = sorted(zip(map(bytes, known.images.astype(np.uint8)), known.target.tolist(), strict=True))
    x = (torch.cat([got.train_x, got.test_x]) * 16).to(torch.uint8).numpy()
    assert sorted(zip(map(bytes, x), torch.cat([got.train_y, got.test_y]).tolist(), strict=True)) == pairs
    exact = np.bincount(known.target) * 360 / 1797
    assert np.abs(np.bincount(got.test_y.numpy()) - exact).max() < 1


def test_digits_are_the_same_everywhere():
    """The split as bytes: a change of scikit-learn's file or of the split would silently change every result."""
    got = load("digits", resize=8, scaling="unit")
    stored = (got.test_x * 16).to(torch.uint8).numpy().tobytes() + got.test_y.to(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(stored).hexdigest() == DIGITS_TEST_SHA256


def test_digits_are_standardised():
    got = load("digits")
    assert got.train_x.shape == (1437, 1, 32, 32)
    assert abs(got.train_x.double().mean()) < 1e-5
    assert abs(got.train_x.double().std(correction=0) - 1) < 1e-5
    assert torch.equal(load("digits").test_x, got.test_x)


def real(name: str) -> Path:
    folder = cache_dir() / name
    if not all((folder / file.name).is_file() for file in DATASETS[name].files):
        pytest.skip(f"{name} is not in {cache_dir()}; offbeat data get {name}")
    return folder


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_the_scaling_constants_are_those_of_the_train_split(name):
    folder = real(name)
    *train_files, _ = DATASETS[name].files
    if name == "cifar10":
        x = np.concatenate([parse_cifar(np.fromfile(folder / f.name, np.uint8), 10)[0] for f in train_files])
    else:
        x = parse_idx(np.fromfile(folder / train_files[0].name, np.uint8), IDX_IMAGES)[:, None]
    values = np.arange(256) / 255
    for channel, (mean, std) in enumerate(zip(DATASETS[name].mean, DATASETS[name].std, strict=True)):
        share = np.bincount(x[:, channel].ravel(), minlength=256) / x[:, channel].size  # exact: a histogram of bytes
        assert abs(share @ values - mean) < 1e-6
        assert abs(np.sqrt(share @ (values - share @ values) ** 2) - std) < 1e-6


@pytest.mark.parametrize(
    ("name", "num_train", "shape"),
    [("mnist", 60_000, (1, 28, 28)), ("fashion-mnist", 60_000, (1, 28, 28)), ("cifar10", 50_000, (3, 32, 32))],
)
def test_real_pictures_load(name, num_train, shape):
    real(name)
    got = load(name)
    assert got.train_x.shape == (num_train, *shape)
    assert got.test_x.shape == (10_000, *shape)
    assert torch.bincount(got.test_y).sum() == 10_000
    if name != "mnist":  # the others are balanced
        assert set(torch.bincount(got.train_y).tolist()) == {num_train // 10}
    assert abs(float(got.train_x.mean())) < 1e-3


def test_real_text_has_the_published_counts():
    real("text8")
    assert len(text_file("text8").read_bytes().split()) == 17_005_207


@pytest.mark.parametrize(
    ("name", "comment", "count"),
    [("wordsim353", "#", 353), ("simlex999", "#", 999), ("questions-words", ":", 19_544)],
)
def test_real_word_lists_have_the_published_counts(name, comment, count):
    real(name)
    lines = text_file(name).read_text().splitlines()
    assert sum(1 for line in lines if line and not line.startswith(comment)) == count


def test_enwik8_is_a_wikipedia_dump():
    real("enwik8")
    assert text_file("enwik8").open("rb").read(10) == b"<mediawiki"


def test_a_changed_byte_of_a_real_file_is_noticed(tmp_path):
    file = DATASETS["wordsim353"].files[0]
    data = (real("wordsim353") / file.name).read_bytes()
    path = tmp_path / file.name
    path.write_bytes(data)
    assert flaw(path, file) is None
    path.write_bytes(data.replace(b"6.77", b"6.78", 1))
    assert "wrong checksum" in str(flaw(path, file))
