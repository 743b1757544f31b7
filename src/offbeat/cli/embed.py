"""`offbeat embed`: what a word2vec run has learnt."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat.cli.options import JsonOpt
from offbeat.cli.output import json_safe, print_rows
from offbeat.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from offbeat.tasks.word2vec.formats import Embeddings

RunArg = Annotated[Path, typer.Argument(metavar="RUN", help="a word2vec run's folder, or a file in word2vec format")]


def neighbours(
    run: RunArg,
    word: Annotated[str, typer.Argument(help="a word of the vocabulary")],
    count: Annotated[int, typer.Option(help="how many")] = 10,
    as_json: JsonOpt = False,
) -> None:
    """The words that are nearest to a word, by cosine."""
    from offbeat.tasks.word2vec.quality import neighbours

    if count < 1:
        raise ConfigError(f"--count must be a number from 1, got {count}")
    found = neighbours(word.lower(), *_open(run), count)
    if as_json:
        print(json.dumps([{"word": w, "cosine": c} for w, c in found]))
    else:
        print_rows([{"word": w, "cosine": f"{c:.3f}"} for w, c in found])


def evaluate(run: RunArg, as_json: JsonOpt = False) -> None:
    """WordSim-353 and SimLex-999 (Spearman's correlation), and analogies (share right), as far as they are here."""
    from offbeat.tasks.word2vec.quality import JudgedPairs, analogies, data_file

    words, vectors = _open(run)
    index = {w: i for i, w in enumerate(words)}
    rows: list[dict[str, Any]] = []
    for name in ("wordsim353", "simlex999"):
        if not data_file(name).is_file():
            rows.append({"test": name, "score": None, "of": f"not here: offbeat data get {name}"})
            continue
        pairs = JudgedPairs.read(data_file(name), index)
        score = None if pairs is None else pairs.correlation(vectors[pairs.rows])
        known = 0 if pairs is None else len(pairs.judged)
        rows.append({"test": name, "score": score, "of": f"{known} pairs with both words known"})
    name = "questions-words"
    if data_file(name).is_file():
        found = analogies(data_file(name), words, vectors).values()
        right, asked = sum(r for r, _ in found), sum(n for _, n in found)
        rows.append({"test": "analogies", "score": right / asked if asked else None, "of": f"{asked} questions"})
    else:
        rows.append({"test": "analogies", "score": None, "of": f"not here: offbeat data get {name}"})
    if as_json:
        print(json.dumps(json_safe(rows)))
    else:
        print_rows([{**r, "score": "-" if r["score"] is None else f"{r['score']:.3f}"} for r in rows])


def save(
    run: RunArg,
    to: Annotated[Path, typer.Option("--out", help="the file to write")],
    form: Annotated[str, typer.Option("--format", help="text or binary")] = "text",
) -> None:
    """Write the embeddings in word2vec's text or binary format, which gensim opens."""
    from offbeat.tasks.word2vec.formats import save

    if form not in ("text", "binary"):
        raise ConfigError(f"--format must be text or binary, got {form!r}")
    words, vectors = _open(run)
    save(to, words, vectors, binary=form == "binary")
    print(f"{len(words):,} words of {vectors.shape[1]} numbers in {to}")


def _open(run: Path) -> "Embeddings":
    """The embeddings of a run's folder, or of a file."""
    from offbeat.folders.run_files import RunFiles
    from offbeat.folders.tensor_files import read_embeddings
    from offbeat.tasks.word2vec.formats import Embeddings, load

    if run.is_file():
        return load(run)
    found = RunFiles.open(run)
    if not found.has("vocabulary.txt"):
        raise StoreError(f"{run} is a run of {found.task}: it has no vocabulary")
    words, vectors = read_embeddings(run)
    return Embeddings(words, vectors.numpy())
