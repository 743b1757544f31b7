"""Parameters and checkpoints of a folder: safetensors, which hold numbers and nothing else."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import torch
from msgspec import Meta, Struct
from safetensors import SafetensorError, safe_open

from offbeat.core.errors import StoreError
from offbeat.core.legible import legible
from offbeat.core.task import Point
from offbeat.folders.description import Count, Seconds
from offbeat.folders.limits import MOST_JSON, room
from offbeat.folders.opening import opened, read_bytes
from offbeat.folders.plain_values import T


class _Weights(Struct):
    segments: Annotated[list[str], Meta(min_length=1)]


class _Save(Struct):
    samples: Count
    updates: Count = 0
    time: Seconds = 0.0


def read_point(folder: Path, name: str = "weights.safetensors") -> Point:
    """Parameters, flat, and buffers."""
    tensors, note = read_tensors(folder, name, _Weights)
    try:
        x = torch.cat([tensors[f"param.{n}"].reshape(-1) for n in note.segments])
    except KeyError as e:
        raise StoreError(f"{folder / name} cannot be read: it has no {legible(e.args[0])}") from None
    except RuntimeError as e:
        raise StoreError(f"{folder / name} cannot be read: {legible(e)}") from None
    if not x.is_floating_point():
        raise StoreError(f"{folder / name} cannot be read: parameters of the type {x.dtype}")
    buffers = {n.removeprefix("buffer."): t for n, t in tensors.items() if n.startswith("buffer.")}
    return Point(x, buffers or None)


def read_save(folder: Path, name: str) -> tuple[torch.Tensor, int]:
    """A snapshot of the parameters along the way, and after how many samples."""
    tensors, note = read_tensors(folder, name, _Save)
    x = tensors.get("x")
    if x is None or x.dim() != 1 or not x.is_floating_point():
        raise StoreError(f"{folder / name} cannot be read: it holds no flat parameters")
    return x, note.samples


def read_embeddings(folder: Path) -> tuple[tuple[str, ...], torch.Tensor]:
    """The words of a word2vec run, and a vector for each."""
    tensors, _ = read_tensors(folder, "weights.safetensors", _Weights)
    vectors = tensors.get("param.inputs")
    try:
        text = read_bytes(folder, "vocabulary.txt", MOST_JSON).decode("utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        raise StoreError(f"{folder / 'vocabulary.txt'} cannot be read: it is not there, or not text") from None
    words = tuple(legible(line.rpartition(" ")[0]) for line in text.split("\n")[: text.count("\n")])
    if vectors is None or vectors.dim() != 2 or vectors.dtype != torch.float32 or len(vectors) != len(words):
        raise StoreError(f"{folder} cannot be read: it has {len(words):,} words, and not as many vectors")
    return words, vectors


def read_tensors(folder: Path, name: str, kind: type[T]) -> tuple[dict[str, torch.Tensor], T]:
    """All tensors, in memory of their own, and the note in the file's metadata as a value of that type.

    Where they lie in the file is where torch would begin none, and sums of them could have other bits.
    """
    path = folder / name
    try:
        with opened(folder, name, room()), safe_open(path, framework="pt") as f:
            written = (f.metadata() or {}).get("offbeat", "")
            if len(written) > MOST_JSON:
                raise ValueError("its note is too long")
            note = msgspec.convert(json.loads(written), kind)
            return {k: f.get_tensor(k).clone() for k in f.keys()}, note  # noqa: SIM118
    except FileNotFoundError:
        raise StoreError(f"{folder} has no {name}") from None
    except json.JSONDecodeError:
        raise StoreError(f"{path} cannot be read: it has no note of ours") from None
    except RecursionError:
        raise StoreError(f"{path} cannot be read: its note is nested too deeply") from None
    except (OSError, SafetensorError, ValueError, TypeError, RuntimeError, msgspec.ValidationError) as e:
        reason = legible(str(e).splitlines()[0] if str(e) else type(e).__name__)
        raise StoreError(f"{path} cannot be read: {reason[:300]}") from None
