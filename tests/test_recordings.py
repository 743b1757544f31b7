"""Recordings that are not ours: read as they are meant, refused in one line where they are not."""

import gzip
import json
import os

import numpy as np
import pytest

from offbeat.core.errors import ConfigError, StoreError
from offbeat.folders.recordings import is_recording, read_recording
from offbeat.lab.studies.calibrate import calibrate


def trace(path, events, **more):
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return path


def step(name, start, length, pid=1, tid=1, **more):
    return {"ph": "X", "name": name, "ts": start, "dur": length, "pid": pid, "tid": tid, **more}


def test_a_table_has_a_column_a_worker(tmp_path):
    (tmp_path / "plain.csv").write_text("0.1,0.2\n0.3,0.4\n0.5,\n")
    found = read_recording(tmp_path / "plain.csv")
    assert found.kind == "table"
    assert [(w.who, w.seconds.tolist()) for w in found.workers] == [
        ("worker 0", [0.1, 0.3, 0.5]),
        ("worker 1", [0.2, 0.4]),
    ]
    (tmp_path / "named.csv").write_text("fast,slow_ms\n10ms,20\n0.03,40\n")
    assert [(w.who, w.seconds.tolist()) for w in read_recording(tmp_path / "named.csv").workers] == [
        ("fast", [0.01, 0.03]),
        ("slow_ms", [0.02, 0.04]),
    ]


def test_a_table_may_have_a_row_a_step(tmp_path):
    (tmp_path / "long.csv").write_text("step,worker,ms,samples\n0,10,5,64\n0,9,4,64\n1,10,6,32\n")
    found = read_recording(tmp_path / "long.csv").workers
    assert [(w.who, w.seconds.tolist(), w.samples.tolist()) for w in found] == [
        ("worker 9", [0.004], [64]),
        ("worker 10", [0.005, 0.006], [64, 32]),
    ]


def test_steps_of_torch_profiler_are_found_among_all_else(tmp_path):
    events = [
        step("aten::mm", 5, 1),
        step("ProfilerStep#8", 2000, 700, cat="user_annotation"),
        step("ProfilerStep#7", 1000, 500, cat="user_annotation"),
        step("ProfilerStep#7", 1000, 400, tid=7, cat="gpu_user_annotation"),
    ]
    path = trace(tmp_path / "t.json", events, distributedInfo={"rank": 3, "backend": "nccl"})
    found = read_recording(path)
    assert found.kind == "torch.profiler"
    (worker,) = found.workers
    assert worker.who == "rank 3"
    assert worker.seconds.tolist() == pytest.approx([500e-6, 700e-6])
    assert worker.started.tolist() == pytest.approx([0, 1000e-6])
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_recording(packed).workers[0].seconds.tolist() == worker.seconds.tolist()


def test_a_real_export_of_torch_profiler_is_read(tmp_path):
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=4)) as prof:
        for _ in range(6):
            torch.ones(8, 8) @ torch.ones(8, 8)
            prof.step()
    prof.export_chrome_trace(str(tmp_path / "real.json"))
    (worker,) = read_recording(tmp_path / "real.json").workers
    assert 3 <= len(worker.seconds) <= 5
    assert (worker.seconds > 0).all()


def test_pairs_of_begin_and_end_are_slices_and_names_choose_among_them(tmp_path):
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "gpu 0"}},
        {"ph": "B", "name": "train_step", "ts": 0, "pid": 1, "tid": 2},
        {"ph": "B", "name": "forward", "ts": 10, "pid": 1, "tid": 2},
        {"ph": "E", "ts": 30, "pid": 1, "tid": 2},
        {"ph": "E", "ts": 100, "pid": 1, "tid": 2},
        {"ph": "X", "name": "train_step", "ts": 50, "dur": 70, "pid": 1, "tid": 10},
    ]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(events))
    found = read_recording(path, "train_*").workers
    assert [(w.who, w.seconds.tolist()) for w in found] == [
        ("gpu 0", pytest.approx([100e-6])),
        ("thread 10", pytest.approx([70e-6])),
    ]
    with pytest.raises(StoreError, match=r"which slices are steps\? Name them with --steps; it has 'train_step' \(2"):
        read_recording(path)
    with pytest.raises(StoreError, match=r"no slice is called 'x'; it has 'train_step' \(2 times\), 'forward'"):
        read_recording(path, "x")


def test_what_we_export_can_be_read_back(tmp_path):
    import offbeat
    from offbeat.folders.run_files import RunFiles
    from offbeat.report.chrome_trace import write

    run = offbeat.train("quadratic", "asgd", 2, budget="30updates", compute=["10ms", "20ms@1"], out=tmp_path / "run")
    write([RunFiles.open(tmp_path / "run")], tmp_path / "ours.json")
    found = read_recording(tmp_path / "ours.json").workers
    assert [w.who for w in found] == ["worker 0", "worker 1"]
    assert found[0].seconds == pytest.approx(0.01)
    assert found[0].samples.tolist() == [1] * len(found[0].seconds)
    assert sum(len(w.seconds) for w in found) == run.trace["applied"].to_pylist().count(True)


BAD = {
    "empty.csv": (b"", "it is empty"),
    "words.csv": (b"a,b\nc,d\n", "line 2: a time must be seconds from 0, or like '12ms', got 'c'"),
    "negative.csv": (b"1,2\n1,-2\n", "line 2: a time must be seconds from 0, or like '12ms', got '-2'"),
    "nan.csv": (b"1,2\nnan,2\n", "line 2: a time must be seconds from 0"),
    "wide.csv": (b"1,2\n1,2,3\n", "line 2 has 3 columns, and the first one 2"),
    "hollow.csv": (b"a,b\n1,\n2,\n", "column 'b' has no times"),
    "noise.csv": (b"\xff\xfe\x00", "it is not text"),
    "long.csv": (b"worker,what\n0,1\n", "beside `worker` it needs one column of times"),
    "count.csv": (b"worker,s,batch\n0,1,many\n", "line 2: samples must be a whole number from 1, got 'many'"),
    "text.json": (b"hello", "it is not JSON"),
    "other.json": (b'{"a": 1}', "it is no trace in Chrome's format"),
    "kind.json": (b'{"traceEvents": [{"ph": 7}]}', "it is no trace in Chrome's format"),
    "deep.json": (b"[" * 100_000, "."),
    "none.json": (b'{"traceEvents": []}', "which slices are steps.*it has no slices"),
    "time.json": (
        b'[{"ph": "X", "cat": "gradient", "name": "s", "ts": "soon", "dur": 1}]',
        "a time must be a number of microseconds, got 'soon'",
    ),
    "back.json": (b'[{"ph": "X", "cat": "gradient", "name": "s", "ts": 0, "dur": -1}]', "must be seconds from 0"),
    "gone.json.gz": (b"\x1f\x8b\x00\x00", "it is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_damaged_is_one_line(name, tmp_path, shell):
    data, said = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StoreError, match=said):
        read_recording(tmp_path / name)
    code, out, err = shell("calibrate", tmp_path / name)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_pipes_bombs_and_escapes_do_no_harm(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(StoreError, match="is a pipe"):
        read_recording(tmp_path / "pipe.csv")
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b"[" + b" " * 2**28 + b"]", 9))
    with pytest.raises(StoreError, match="unpacked it has more than"):
        read_recording(tmp_path / "bomb.json.gz")
    path = trace(tmp_path / "t.json", [step("\x1b[31mred", 0, 1)])
    with pytest.raises(StoreError) as told:
        read_recording(path)
    assert "\x1b" not in str(told.value)
    with pytest.raises(StoreError, match="is not there"):
        read_recording(tmp_path / "nothing.csv")


def test_a_table_calibrates_a_cluster_with_a_slower_worker(tmp_path):
    rng = np.random.default_rng(0)
    times = np.stack([rng.lognormal(-3, 0.1, 500), 2 * rng.lognormal(-3, 0.1, 500)])
    (tmp_path / "t.csv").write_text("\n".join(f"{a:.6f},{b:.6f}" for a, b in times.T))
    assert is_recording(tmp_path / "t.csv")
    found = calibrate([tmp_path / "t.csv"])
    assert found.cluster.workers == 2
    fast, slow = (found.cluster.mean_compute(i, 1) for i in (0, 1))
    assert fast == pytest.approx(np.mean(times[0]), rel=0.02)
    assert slow / fast == pytest.approx(2, rel=0.05)
    assert found.noise.spread == pytest.approx(0.1, rel=0.1)
    assert any(said.startswith("latency and bandwidth") for said in found.unknown)
    with pytest.raises(ConfigError, match="--steps is for traces"):
        calibrate([tmp_path / "t.csv"], steps="x")
    (tmp_path / "few.csv").write_text("1\n2\n")
    with pytest.raises(ConfigError, match="has too few steps: 20 are needed"):
        calibrate([tmp_path / "few.csv"])
