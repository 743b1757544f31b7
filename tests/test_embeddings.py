"""The two formats of the word2vec program: read back to the bit, and by gensim."""

import numpy as np
import pytest

from offbeat.core.errors import DataError
from offbeat.tasks.word2vec.formats import load, save

WORDS = ("the", "moon", "zwölf", "日本")
VECTORS = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
VECTORS[0, 0] = np.float32(10.0)  # 0x41200000: a blank among the bytes
VECTORS[1, 1] = np.float32(1e-42)


@pytest.mark.parametrize("binary", [False, True])
def test_what_is_saved_is_loaded_to_the_bit(tmp_path, binary):
    save(tmp_path / "e", WORDS, VECTORS, binary=binary)
    words, vectors = load(tmp_path / "e")
    assert words == WORDS
    assert vectors.tobytes() == VECTORS.tobytes()


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_opens_them_and_we_open_gensims(tmp_path, binary):
    models = pytest.importorskip("gensim.models")
    save(tmp_path / "ours", WORDS, VECTORS, binary=binary)
    theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert tuple(theirs.index_to_key) == WORDS
    assert np.array_equal(theirs.vectors, VECTORS)
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    words, vectors = load(tmp_path / "theirs")
    assert words == WORDS
    np.testing.assert_allclose(vectors, VECTORS, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no word2vec embeddings"),
        (b"hello world\n", "holds no word2vec embeddings"),
        (b"2 3\na 1 2 3\nb 1 2\n", "line 3 must hold a word and 3 numbers"),
        (b"2 3\na " + bytes(12) + b"b " + bytes(3), "announces 2 words and holds 1"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content, says):
    (tmp_path / "e").write_bytes(content)
    with pytest.raises(DataError, match=says):
        load(tmp_path / "e")


def test_nothing_half_written_is_left(tmp_path):
    with pytest.raises(DataError, match="cannot write"):
        save(tmp_path / "no" / "e", WORDS, VECTORS, binary=True)
    with pytest.raises(ValueError):
        save(tmp_path / "e", WORDS[:3], VECTORS, binary=True)
    assert list(tmp_path.iterdir()) == []
