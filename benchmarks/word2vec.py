"""Words per second of word2vec against gensim, with 1 and 2 threads, and WordSim-353 of both. Ratios only.

Skip-gram, dimension 100, window 5, 5 negatives, subsampling 1e-3, words that come 5 times or more, learning rate from
0.025 down to nearly 0, one pass over the first 20 MB of text8. Both train on the same words, read, tokenised and
counted beforehand; what is timed is training alone. Repeats alternate, so that a busy machine slows both; the median
counts; CPU time is shown beside it, for busy machines. Ends with code 1 if a median ratio is below the bound, or the
correlation worse than gensim's by more than 0.02.

    python benchmarks/word2vec.py [--repeats 3] [--megabytes 20] [--json FILE]
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

BOUND, SLACK = 3.0, 0.02
DIM, WINDOW, NEGATIVES, SAMPLE, MIN_COUNT, RATE = 100, 5, 5, 1e-3, 5, 0.025


def ours(task: Any, threads: int, seed: int) -> tuple[float, float, float]:
    """(seconds, WordSim-353, CPU seconds) of one pass on the threads engine."""
    from offbeat.engines.protocol import ToTheMark
    from offbeat.engines.threads import Threads

    engine = Threads(task, None, lambda work: RATE * (1 - work / task.size), workers=threads, seed=seed)
    engine.next_samples, engine.loss_limit = task.size, math.inf
    started = time.process_time()
    engine.run(ToTheMark())
    cpu = time.process_time() - started
    engine.close()
    return engine.now, task.evaluate(engine.point, None)["wordsim353"], cpu


def gensims(sentences: list[list[str]], pairs: Path, threads: int, seed: int) -> tuple[float, float, float]:
    """The same of gensim."""
    from gensim.models import Word2Vec

    options = {"vector_size": DIM, "window": WINDOW, "negative": NEGATIVES, "sample": SAMPLE, "min_count": MIN_COUNT}
    model = Word2Vec(**options, sg=1, alpha=RATE, workers=threads, seed=seed)
    model.build_vocab(sentences)
    started, cpu = time.perf_counter(), time.process_time()
    model.train(sentences, total_examples=len(sentences), epochs=1)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return seconds, float(model.wv.evaluate_word_pairs(str(pairs))[1][0]), cpu


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()

    from offbeat.tasks.word2vec.quality import required
    from offbeat.tasks.word2vec.skipgram import Word2Vec, text_file

    limit = int(chosen.megabytes * 1e6)
    pairs = required("wordsim353")
    with open(text_file("text8")) as file:
        words = file.read(limit).split()
    sentences = [words[i : i + 1000] for i in range(0, len(words), 1000)]
    shape = {"dim": DIM, "window": WINDOW, "negatives": NEGATIVES}
    task = Word2Vec("text8", **shape, sample=SAMPLE, min_count=MIN_COUNT, held_out=0.0, limit=limit)
    task.sweep(task.init(0).x.dense(), 0, 2000, RATE, 0)  # compiled before anything is timed

    failed = False
    found = []
    for threads in chosen.threads:
        runs = []
        for seed in range(chosen.repeats):
            mine, theirs = ours(task, threads, seed), gensims(sentences, pairs, threads, seed)
            runs.append((theirs[0] / mine[0], mine[1], theirs[1], theirs[2] / mine[2]))
            print(
                f"  {threads} threads, seed {seed}: {runs[-1][0]:.2f}x gensim ({len(words) / mine[0]:,.0f} words/s; "
                f"{runs[-1][3]:.2f}x by CPU time), "
                f"WordSim-353 {mine[1]:.3f} (gensim {theirs[1]:.3f})",
                flush=True,
            )
        ratio, score, reference, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        good = ratio >= BOUND and score >= reference - SLACK
        failed |= not good
        found.append(
            {
                "threads": threads,
                "ratio": ratio,
                "cpu_ratio": cpu,
                "wordsim353": score,
                "gensim": reference,
                "good": good,
            }
        )
        print(
            f"{threads} threads: {ratio:.2f}x gensim's words/s (bound {BOUND:g}x; {cpu:.2f}x by CPU time), "
            f"WordSim-353 {score:.3f}, gensim {reference:.3f}: {'ok' if good else 'BELOW THE BOUND'}"
        )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
