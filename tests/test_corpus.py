"""Text to numbers: streamed, split, cached; and everything a text can be that is no good."""

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from offbeat.core.errors import ConfigError, DataError, OffbeatWarning
from offbeat.tasks.word2vec import corpus, encoded
from offbeat.tasks.word2vec.text import tokens

WORDS = ["sun", "moon", "star", "sea", "ship", "wind"]


def prose(n, seed=0, line=0):
    rng = np.random.default_rng(seed)
    words = [WORDS[i] for i in rng.zipf(1.6, n) % len(WORDS)]
    if not line:
        return " ".join(words)
    return "\n".join(" ".join(words[i : i + line]) for i in range(0, n, line))


def write(tmp_path, text, name="text"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def decoded(ids, words):
    """Sentences of an encoded text."""
    out, sentence = [], []
    for w in ids.tolist():
        sentence.append(words[w if w >= 0 else ~w])
        if w < 0:
            out.append(sentence)
            sentence = []
    assert not sentence, "a text ends with the end of a sentence"
    return out


def load(path, tmp_path, **options):
    return corpus.load(path, tmp_path / "cache", **{"min_count": 1, "held_out": 0.0, **options})


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1 << 20])
def test_words_are_the_same_however_the_file_is_read(tmp_path, chunk):
    text = "Über die Brücke: 3 Schiffe, d'accord?\nснег\n\n日本 foo_bar x" * 5
    found = [t for part in tokens(write(tmp_path, text), chunk=chunk) for t in part]
    assert found == re.findall(r"[^\W_]+|\n", text.lower())


def test_one_giant_line_is_read_in_pieces(tmp_path):
    text = prose(50_000)
    parts = list(tokens(write(tmp_path, text), chunk=1000))
    assert max(len(p) for p in parts) < 600
    assert [t for p in parts for t in p] == text.split()


def test_a_word_without_end_is_cut(tmp_path):
    found = [t for part in tokens(write(tmp_path, b"a" * 100_000), chunk=4096) for t in part]
    assert "".join(found) == "a" * 100_000
    assert max(map(len, found)) < 10_000


def test_sentences_come_back_as_they_were(tmp_path):
    path = write(tmp_path, prose(2000, line=17))
    found = load(path, tmp_path, block=10**9)
    lines = [line.split() for line in path.read_text().splitlines()]
    assert decoded(found.train, found.words) == lines
    assert found.counts.tolist() == [n for _, n in sorted_counts(w for line in lines for w in line)]
    assert list(found.words) == [w for w, _ in sorted_counts(w for line in lines for w in line)]


def sorted_counts(words):
    return sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))


def test_rare_words_leave_no_gap(tmp_path):
    path = write(tmp_path, "a b rare a b\nodd\na a b")
    found = load(path, tmp_path, min_count=2)
    assert decoded(found.train, found.words) == [["a", "b", "a", "b"], ["a", "a", "b"]]


def test_the_split_takes_whole_blocks_evenly_and_loses_nothing(tmp_path):
    text = " ".join(f"w{i:05d}" for i in range(20_000))
    found = load(write(tmp_path, text), tmp_path, held_out=0.15, block=100, max_words=None)
    train = [int(w[1:]) for s in decoded(found.train, found.words) for w in s]
    assert len(train) == 17_000
    blocks = sorted({w // 100 for w in train})
    assert len(blocks) == 170  # whole blocks: 100 words each
    held = sorted(set(range(200)) - set(blocks))
    assert set(np.diff(held)) == {6, 7}
    assert len(found.held_out) == 0  # all its words are unknown: the vocabulary is that of the training part


def test_held_out_blocks_are_made_of_known_words(tmp_path):
    found = load(write(tmp_path, prose(20_000)), tmp_path, held_out=0.15, block=100)
    assert len(found.held_out) == 3000
    assert len(found.train) == 17_000
    assert found.counts.sum() == 17_000


def test_a_second_load_reads_the_cache_and_a_changed_text_does_not(tmp_path, monkeypatch):
    path = write(tmp_path, prose(3000))
    first = load(path, tmp_path)
    monkeypatch.setattr(corpus, "count", lambda *_: pytest.fail("counted again"))
    again = load(path, tmp_path)
    assert (again.train == first.train).all()
    assert again.words == first.words
    monkeypatch.undo()
    write(tmp_path, prose(3000, seed=1))
    assert not np.array_equal(load(path, tmp_path).train, first.train)


def test_a_text_is_mapped_and_not_held_in_memory(tmp_path):
    assert isinstance(load(write(tmp_path, prose(3000)), tmp_path).train, np.memmap)


def test_the_limit_cuts_by_bytes(tmp_path):
    text = prose(3000)
    found = load(write(tmp_path, text), tmp_path, limit=1000)
    assert decoded(found.train, found.words) == [text[:1000].split()]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (b"", {}, "holds no words"),
        (b" \n ... \n", {}, "holds no words"),
        (b"a b c d", {"min_count": 5}, "none of its 4 words comes 5 times or more"),
        (b"x" * 100_000, {"min_count": 5}, f"the most frequent, '{'x' * 40}...', 1 times"),
        (b"good \xff bad", {}, "is not UTF-8: byte 0xff at 5"),
        ("é".encode("latin-1") * 3, {}, "is not UTF-8: byte 0xe9 at 0"),
        (b"a a b", {"held_out": 1.0}, "held_out must be a share from 0 to below 1, got 1.0"),
        (b"a a b", {"min_count": 0}, "must be 1 or more"),
    ],
)
def test_a_text_that_is_no_good_is_refused_in_one_line(tmp_path, text, options, says):
    with pytest.raises((DataError, ConfigError)) as e:
        load(write(tmp_path, text), tmp_path, **options)
    assert says in str(e.value)
    assert "\n" not in str(e.value)
    assert not list((tmp_path / "cache").rglob("corpus.json"))


def test_the_place_of_a_wrong_byte_is_right_in_any_chunk(tmp_path):
    for at in (10, 4095, 4096, 4097, 9000):
        data = bytearray(b"word " * 2000)
        data[at] = 0xFE
        with pytest.raises(DataError, match=f"0xfe at {at:,};"):
            list(tokens(write(tmp_path, bytes(data)), chunk=4096))


def test_wrong_bytes_can_be_dropped_and_a_character_cut_by_the_end_is(tmp_path):
    assert next(tokens(write(tmp_path, b"go\xff \xffon now"), "ignore")) == ["go", "on"]
    assert [t for p in tokens(write(tmp_path, b"one two " + "ö".encode()[:1])) for t in p] == ["one", "two"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nowhere: No such file"):
        load(tmp_path / "nowhere", tmp_path)


# -- a cache that is not what it should be -----------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "a flipped bit":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 64
        path.write_bytes(data)
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        path.write_bytes(b"[" * 100_000)


@pytest.mark.parametrize("name", ["train.i32", "held_out.i32", "vocabulary.txt", "corpus.json"])
@pytest.mark.parametrize("how", ["gone", "empty", "short", "a flipped bit", "a pipe", "a link", "deep nesting"])
def test_a_damaged_cache_is_made_anew_with_a_warning(tmp_path, name, how):
    path = write(tmp_path, prose(3000))
    first = load(path, tmp_path, held_out=0.3, block=100)
    expected = first.train.tolist(), first.held_out.tolist(), first.words, first.counts.tolist()
    (folder,) = (tmp_path / "cache" / "word2vec").iterdir()
    damage(folder / name, how)
    if (name, how) == ("corpus.json", "short"):  # its last byte is a line end
        again = load(path, tmp_path, held_out=0.3, block=100)
    else:
        with pytest.warns(OffbeatWarning, match=r"is (damaged|missing).*: it is made anew"):
            again = load(path, tmp_path, held_out=0.3, block=100)
    assert (again.train.tolist(), again.held_out.tolist(), again.words, again.counts.tolist()) == expected
    assert [p.name for p in (tmp_path / "cache" / "word2vec").iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("train.i32", np.array([0, 1, 10**6], dtype=np.int32).tobytes()),
        ("train.i32", np.array([0, 1, -(2**31)], dtype=np.int32).tobytes()),
        ("train.i32", b"12345"),
        ("held_out.i32", np.array([10**6], dtype=np.int32).tobytes()),
        ("vocabulary.txt", b"a 1\n"),
        ("vocabulary.txt", b"a 1\na 2\n"),
        ("vocabulary.txt", b"a 1\nb 0\n"),
        ("vocabulary.txt", b"a 1\nb " + b"9" * 30 + b"\n"),
        ("vocabulary.txt", b"a 1\nb\n"),
        ("vocabulary.txt", b"\xff 1\nb 2\n"),
    ],
)
def test_forged_sums_do_not_make_a_number_an_address(tmp_path, name, data):
    """Whoever can write the cache can write its sums, too; what is out of range is still refused."""
    path = write(tmp_path, prose(3000))
    load(path, tmp_path)
    (folder,) = (tmp_path / "cache" / "word2vec").iterdir()
    (folder / name).write_bytes(data)
    encoded.write_note(folder, {})
    with pytest.raises(encoded.Damaged, match=f"{name} is damaged"):
        encoded.read_corpus(folder, "")


def test_a_cache_that_cannot_be_made_anew_is_one_line(tmp_path):
    path = write(tmp_path, prose(3000))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "word2vec").write_text("in the way")
    with pytest.raises(DataError, match="cannot write the encoded text to"):
        load(path, tmp_path)


def test_many_may_encode_at_once(tmp_path):
    path = write(tmp_path, prose(3000))
    with ThreadPoolExecutor(4) as pool:
        processes = [pool.submit(load, path, tmp_path, block=10 + k % 2) for k in range(8)]
    assert {len(p.result().train) for p in processes}
    assert len(list((tmp_path / "cache" / "word2vec").iterdir())) == 2
