"""A small text about two things, a task on it, and the command line: what the tests of word2vec share."""

import numpy as np
import pytest

from offbeat import cli

SEA = ["sea", "ship", "wind", "sail", "wave", "port"]
SKY = ["star", "moon", "comet", "orbit", "planet", "light"]


def two_topics(sentences=3000, seed=0):
    """Sentences about the sea and sentences about the sky, with little words that mean nothing in both."""
    rng = np.random.default_rng(seed)
    lines = []
    for k in range(sentences):
        words = rng.choice(SEA if k % 2 else SKY, size=6).tolist()
        words.insert(int(rng.integers(6)), "the")
        words.insert(int(rng.integers(6)), "of")
        lines.append(" ".join(words))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def topics_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "topics.txt"
    path.write_text(two_topics())
    return path


@pytest.fixture
def data_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path_factory.getbasetemp() / "topics-data"))


@pytest.fixture
def word2vec_task(topics_file, data_cache):
    from offbeat.tasks.word2vec.skipgram import Word2Vec

    return Word2Vec(str(topics_file), dim=8, window=3, negatives=3, sample=0.05)


@pytest.fixture
def command(monkeypatch, tmp_path, capsys, data_cache):
    """The command line, in this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr("sys.argv", ["offbeat", *args])
        with pytest.raises(SystemExit) as e:
            cli.main()
        captured = capsys.readouterr()
        return e.value.code, captured.out, captured.err

    return run
