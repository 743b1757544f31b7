"""ImageNet-style folders as a task: `train/<class>/*.jpg` and `val/<class>/*.jpg`."""

from functools import partial
from pathlib import Path
from typing import Any

from torch.nn import functional as F

from offbeat.core.errors import ConfigError, DataError
from offbeat.data.datasets import cache_dir
from offbeat.data.pictures import PictureSamples, digest, listing, reader
from offbeat.tasks.models import build, model
from offbeat.tasks.module import ModuleTask

_TEST_NAMES = ("val", "validation", "test")


def image_folder(
    path: str = "",
    model: str = "resnet50",
    size: int = 224,
    resize: int = 256,
    decoded: bool = True,
    **options: Any,
) -> ModuleTask:
    """A folder of pictures: the shorter side resized to 256, the centre 224x224 taken, no augmentation.

    `decoded = false` decodes every batch anew, for folders too large to keep as bytes.
    """
    if not path:
        raise ConfigError("task.path must be a folder with train/<class>/*.jpg and val/<class>/*.jpg")
    if not 1 <= size <= resize:
        raise ConfigError(f"task.size must be from 1 to task.resize, got {size} of {resize}")
    return folder_task(
        Path(path).expanduser(), model, size, resize, cache_dir() / "folders" if decoded else None, options
    )


def folder_task(
    root: Path, model_name: str, size: int, resize: int, cache: Path | None, options: dict[str, Any]
) -> ModuleTask:
    """The task of one folder; `cache` is where its pictures are kept decoded, None: nowhere."""
    row = model(model_name)
    train, classes = listing(root / "train")
    held_out = next((root / name for name in _TEST_NAMES if (root / name).is_dir()), None)
    if held_out is None:
        raise DataError(f"{root} has no {', '.join(_TEST_NAMES[:-1])} or {_TEST_NAMES[-1]} folder")
    test, _ = listing(held_out, classes)
    shape = (3, size, size)
    build(model_name, shape, len(classes), options)
    splits = [PictureSamples(reader(found, resize, size, cache), found.labels) for found in (train, test)]
    return ModuleTask(
        partial(build, model_name, shape, len(classes), options),
        F.cross_entropy,
        *splits,
        name=f"{root.name}/{model_name}",
        defaults=dict(row.defaults),
        fingerprint="/".join(
            [*(digest(f, resize, size) for f in (train, test)), model_name, str(sorted(options.items()))]
        ),
        about={"dataset": str(root), "model": model_name, "input": list(shape), "resize": resize, **options},
        classes=classes,
    )
