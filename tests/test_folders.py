"""ImageNet-style folders, on generated pictures."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

import offbeat
from offbeat.core.errors import ConfigError, DataError
from offbeat.data.pictures import MEAN, STD, decode, listing
from offbeat.tasks.image_folder import folder_task
from tiny_data import files_under


def picture(path, width=40, height=30, seed=0, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return pixels


@pytest.fixture
def folder(tmp_path):
    """Two classes, of odd shapes and kinds."""
    root = tmp_path / "birds"
    for i in range(6):
        picture(root / "train" / "wren" / f"{i}.png", 40 + 3 * i, 30, seed=i)
        picture(root / "train" / "crow" / f"{i}.jpg", 30, 44 - i, seed=10 + i, mode="L" if i % 2 else "RGB")
    picture(root / "val" / "crow" / "a.png", seed=20, mode="P")
    picture(root / "val" / "wren" / "b.png", seed=21, mode="RGBA")
    return root


def make(root, cache, **options):
    return folder_task(root, "logistic", options.pop("size", 24), options.pop("resize", 28), cache, options)


def test_classes_are_numbered_by_name_and_files_are_in_order(folder):
    found, classes = listing(folder / "train")
    assert classes == ["crow", "wren"]
    assert [p.name for p in found.files] == [f"{i}.jpg" for i in range(6)] + [f"{i}.png" for i in range(6)]
    assert found.labels.tolist() == [0] * 6 + [1] * 6


def test_the_shorter_side_is_resized_and_the_centre_taken(tmp_path):
    """A picture whose columns are numbered: after halving, the crop holds the middle columns."""
    columns = np.tile(np.arange(80, dtype=np.uint8)[None, :, None], (40, 1, 3))
    Image.fromarray(columns).save(tmp_path / "a.png")
    got = decode(tmp_path / "a.png", resize=20, crop=16)
    assert got.shape == (3, 16, 16)
    halved = np.arange(80).reshape(40, 2).mean(1)[(40 - 16) // 2 :][:16]  # 80x40 -> 40x20 -> columns 12 to 27
    assert np.abs(got[0, 8] - halved).max() <= 1
    tall = decode(picture_file(tmp_path, 30, 90), resize=20, crop=16)
    assert tall.shape == (3, 16, 16)


def picture_file(tmp_path, width, height):
    picture(tmp_path / "tall.png", width, height)
    return tmp_path / "tall.png"


def test_nothing_is_resized_where_nothing_need_be(tmp_path):
    pixels = picture(tmp_path / "a.png", 28, 28)
    got = decode(tmp_path / "a.png", resize=28, crop=20)
    assert np.array_equal(got, pixels[4:24, 4:24].transpose(2, 0, 1))


def test_decoded_once_and_decoded_each_time_are_the_same(folder, tmp_path):
    kept, fresh = make(folder, tmp_path / "cache"), make(folder, None)
    at = np.array([11, 0, 5])
    for a, b in zip(kept._train.batch(at), fresh._train.batch(at), strict=True):
        assert torch.equal(a, b)
    x, y = kept._train.batch(at)
    first = decode(folder / "train" / "crow" / "0.jpg", 28, 24) / 255
    expected = (first - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    np.testing.assert_allclose(x[1].numpy(), expected, atol=1e-5)
    assert y.tolist() == [1, 0, 0]
    assert (kept.size, kept.classes, kept.layout.size) == (12, ["crow", "wren"], 2 * (3 * 24 * 24 + 1))


def test_the_second_load_reads_no_picture(folder, tmp_path, monkeypatch):
    make(folder, tmp_path / "cache")
    before = files_under(tmp_path / "cache")
    assert len(before) == 2
    monkeypatch.setattr("offbeat.data.pictures.decode", lambda *_: pytest.fail("decoded again"))
    make(folder, tmp_path / "cache")
    assert files_under(tmp_path / "cache") == before


def test_a_changed_folder_is_decoded_anew(folder, tmp_path):
    old = make(folder, tmp_path / "cache")._train.batch(np.array([0]))[0]
    picture(folder / "train" / "crow" / "0.jpg", 33, 37, seed=99)
    new = make(folder, tmp_path / "cache")._train.batch(np.array([0]))[0]
    assert not torch.equal(old, new)
    file = folder / "train" / "crow" / "0.jpg"
    before = files_under(tmp_path / "cache")
    os.utime(file, ns=(1, 1))  # as long as before: its time alone tells
    make(folder, tmp_path / "cache")
    assert len(files_under(tmp_path / "cache")) == len(before) + 1


def test_a_folder_trains_by_name(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "data"))
    task = offbeat.named_task("image-folder", path=str(folder), model="lenet5", size=28, resize=32)
    run = offbeat.train(task, "asgd", 2, budget="4updates", batch=3, partition="split-labels", out=tmp_path / "run")
    assert run.status == "done"
    assert files_under(tmp_path / "data")[0].startswith("folders/")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50", "googlenet-v2"])
def test_imagenets_models_take_a_step_at_full_size(folder, tmp_path, model):
    task = folder_task(folder, model, 224, 256, tmp_path / "cache", {})
    point = task.init(0)
    got = task.gradient(point, np.array([0, 11]), 0)
    assert got.value.shape == point.x.shape
    assert np.isfinite(got.loss)
    assert got.norm > 0


# Bad input


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / "train" / "crow" / "3.jpg").write_bytes(b"no"), "3.jpg cannot be read as a picture: "),
        (lambda r: cut(r / "train" / "wren" / "2.png"), "2.png cannot be read as a picture: "),
        (lambda r: (r / "train" / "owl").mkdir(), "owl has no pictures (.jpg, "),
        (lambda r: picture(r / "val" / "owl" / "a.png"), "has a class 'owl' that the training set does not have"),
        (lambda r: remove(r / "val"), "has no val, validation or test folder"),
        (lambda r: remove(r / "train"), "train: No such file or directory"),
        (lambda r: remove(r / "train" / "crow", r / "val" / "crow"), "training samples of task 'birds/logistic' have"),
    ],
)
def test_a_folder_that_is_wrong_is_named_and_nothing_half_written(folder, tmp_path, damage, message):
    damage(folder)
    with pytest.raises(DataError) as caught:
        make(folder, tmp_path / "cache")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [f for f in files_under(tmp_path / "cache") if not f.endswith(".u8")] == []


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def remove(*folders):
    import shutil

    for folder in folders:
        shutil.rmtree(folder)


def test_a_folder_too_large_for_the_disk_is_told_before_anything_is_written(folder, tmp_path, monkeypatch):
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 100))
    with pytest.raises(DataError, match=r"need 20.736kB and .* has 100B: set OFFBEAT_DATA .* or task.decoded=false"):
        make(folder, tmp_path / "cache")
    assert files_under(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "task.path must be a folder with train/<class>"),
        ({"path": "x", "size": 300}, "task.size must be from 1 to task.resize, got 300 of 256"),
        ({"path": "x", "model": "resnet51"}, "unknown model 'resnet51'"),
        ({"path": "/nowhere/at/all"}, "cannot read /nowhere/at/all/train: No such file or directory"),
    ],
)
def test_wrong_options_of_a_folder(options, message):
    with pytest.raises(ConfigError) as caught:
        offbeat.named_task("image-folder", **options)
    assert message in str(caught.value)


def test_classes_are_called_by_their_names_in_the_run_folder(folder, tmp_path):
    task = make(folder, tmp_path / "cache")
    run = offbeat.train(
        task, "asgd", 2, budget="2updates", batch=2, partition="split-labels", out=tmp_path / "run", pool=0
    )
    assert run.partition["names"] == run.evaluation["test"]["classes"] == ["crow", "wren"]
