"""Files for other programs: Perfetto's timeline, TensorBoard's events, figures and tables."""

import json
import struct

import numpy as np
import pytest

import offbeat
from folders import make
from offbeat.core.errors import ConfigError
from offbeat.folders.finding import find
from offbeat.folders.run_files import RunFiles
from offbeat.report import chrome_trace, tensorboard
from offbeat.report.draw import as_matplotlib
from offbeat.report.draw.figure import Axis, Figure, Heat
from offbeat.report.export import save_figures, save_tables
from offbeat.report.figures import spacetime, workers
from offbeat.report.figures.gallery import FigureView
from offbeat.report.groups import group


def test_the_timeline_is_valid_in_chromes_trace_format(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", workers=3, gradients=30))
    path = chrome_trace.write([run], tmp_path / "trace.json")
    found = json.loads(path.read_text())
    assert set(found) == {"displayTimeUnit", "traceEvents"}
    events = found["traceEvents"]
    for e in events:
        assert {"ph", "name", "pid", "tid", "ts"} <= set(e)
        assert e["ph"] in "MXisf"
        assert isinstance(e["pid"], int)
        assert isinstance(e["tid"], int)
        assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0
        if e["ph"] == "i":
            assert e["s"] in "gpt"
        if e["ph"] in "sf":
            assert "id" in e
    rows = run.trace().to_pylist()
    slices = [e for e in events if e["ph"] == "X"]
    assert [(e["tid"] - 1, e["ts"], e["dur"]) for e in slices] == [
        (
            r["worker"],
            pytest.approx(r["started"] * 1e6, abs=1e-3),
            pytest.approx((r["computed"] - r["started"]) * 1e6, abs=2e-3),
        )
        for r in rows
    ]
    # Every flow that starts, ends, and not before it started.
    starts = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(ends[i] >= starts[i] for i in starts)
    assert len(starts) == sum(r["applied"] for r in rows)
    names = {(e["tid"], e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert names == {(0, "server"), (1, "worker 0"), (2, "worker 1"), (3, "worker 2")}


def test_the_checksum_is_crc32c():
    """Known answers: RFC 3720, B.4, and the usual check value."""
    assert tensorboard.crc32c(b"123456789") == 0xE3069283
    assert tensorboard.crc32c(bytes(32)) == 0x8A9136AA
    assert tensorboard.crc32c(bytes([255] * 32)) == 0x62A8AB43
    assert tensorboard.crc32c(bytes(range(32))) == 0x46DD794E


def read_records(data):
    """A slow reader of the format: yields the payloads, checks the lengths."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12 : at + 12 + length]
        assert len(payload) == length
        yield payload
        at += 12 + length + 4
    assert at == len(data)


def fields(data):
    """The fields of a protobuf message: (number, value)."""

    def varint(at):
        n = shift = 0
        while True:
            byte = data[at]
            n |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return n, at

    at, out = 0, []
    while at < len(data):
        key, at = varint(at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            length, at = varint(at)
            value, at = data[at : at + length], at + length
        out.append((number, value))
    return out


def test_tensorboards_events_hold_every_metric(tmp_path):
    run = RunFiles.open(make(tmp_path / "a", accuracy=(0.1, 0.6, 0.9)))
    tensorboard.write([run], tmp_path / "tb")
    (path,) = (tmp_path / "tb").rglob("*tfevents*")
    first, *rest = [fields(r) for r in read_records(path.read_bytes())]
    assert dict(first)[3] == b"brain.Event:2"
    found = {}
    for message in rest:
        event = dict(message)
        value = dict(fields(dict(fields(event[5]))[1]))
        found.setdefault(value[1].decode(), []).append((event.get(2, 0), event[1], value[2]))
    samples, times = run.metric("samples"), run.metric("time")
    assert [v for _, _, v in found["accuracy"]] == pytest.approx([0.1, 0.6, 0.9])
    assert [s for s, _, _ in found["accuracy"]] == samples.astype(int).tolist()
    assert [t for _, t, _ in found["accuracy"]] == times.tolist()
    assert len(found["train_loss"]) == 2  # nothing before the first evaluation


def test_every_figure_and_table_of_a_report_becomes_a_file(tmp_path):
    for solver in ("asgd", "sync"):
        for seed in range(2):
            make(tmp_path / "runs" / f"{solver}-{seed}", solver=solver, seed=seed)
    runs = find([tmp_path / "runs"])
    saving = save_figures(runs, "svg", 3.35, None)(tmp_path / "figures")
    figures = [next(saving) for _ in range(5)]  # the views of the first figure, and the first of the second
    assert len({f.name for f in figures}) == 5
    head = (tmp_path / "figures" / "curve-accuracy.svg").read_text()[:2000]
    assert 'width="241' in head  # 3.35 inches of 72 points
    written = list(save_tables(runs, None, None)(tmp_path / "tables"))
    assert {p.suffix for p in written} == {".csv", ".md", ".tex"}
    with pytest.raises(ConfigError, match=r"unknown format 'gif'"):
        save_figures(runs, "gif", 3.35, None)


def test_figures_for_papers_come_without_a_title_on_request(tmp_path):
    runs = find([make(tmp_path / "a", solver="asgd")])
    for title in (True, False):
        for path in save_figures(runs, "svg", 3.35, None, title=title)(tmp_path / str(title)):
            if path.stem == "curve-loss":
                assert (">Loss<" in path.read_text()) == title
                assert "virtual time (s)" in path.read_text()


def test_a_run_reports_and_plots_itself_from_memory_and_from_its_folder(tmp_path):
    kept = offbeat.train("quadratic", "asgd", 3, budget="40updates", out=tmp_path / "run")
    loose = offbeat.train("quadratic", "asgd", 3, budget="40updates", out=False)
    for run in (kept, loose):
        page = run.report(tmp_path / "x.html")
        assert 'id="library"' in (tmp_path / "x.html").read_text(encoding="utf-8"), "it needs no network"
        assert "iframe" in page._repr_html_()
        figure = run.plot.loss()
        assert isinstance(figure, Figure)
        assert "<svg" in figure._repr_svg_()
        assert figure.plotly().data[0].type == "scatter"
        for name in ("staleness", "gap", "timeline", "spacetime", "updates", "breakdown"):
            assert isinstance(getattr(run.plot, name)(), Figure)
        with pytest.raises(ConfigError, match="no 'accuracy'"):
            run.plot.accuracy()
        with pytest.raises(ConfigError, match="unknown axis 'sample'"):
            run.plot.loss("sample")


def test_the_timeline_agrees_with_the_books_of_the_engine(tmp_path):
    """Without barrier and queue nothing waits: what is drawn sums to what the workers were charged."""
    cluster = offbeat.Cluster.parse(workers=3, compute="normal(10ms, 3ms)", latency="2ms", delay="5ms@1")
    run = offbeat.train("quadratic", "asgd", cluster, budget="60updates", out=tmp_path / "run")
    files = RunFiles.open(run.path)
    end = files.trace_end
    for a, booked in zip(workers.activities(files), files.summary["per_worker"], strict=True):
        drawn = {k: float(np.diff(np.clip(v, 0, end), axis=1).sum()) for k, v in workers._pieces(a, end).items()}
        assert sum(drawn.values()) == pytest.approx(end)
        assert drawn["computing"] == pytest.approx(booked["computing"], abs=1e-9)
        assert drawn["delayed"] == pytest.approx(booked["delayed"], abs=1e-9)
        assert (drawn["delayed"] > 0) == (a.worker == 1)
        # What was under way when the run ended is not known to have arrived: at most one message each.
        assert drawn["communicating"] == pytest.approx(booked["communicating"], abs=4.1e-3)
    shown = next(iter(workers.timeline(FigureView(group([files]))).views.values()))
    assert {m.name: m.colour for m in shown.marks}["delayed"] == "@delayed"


def test_gradients_applied_at_the_same_instant_share_a_label():
    alike = offbeat.train("quadratic", "sync", 3, budget="2updates", out=False).plot.spacetime()
    mixed = offbeat.train("quadratic", "asgd", 3, budget="6updates", out=False).plot.spacetime()
    assert alike.marks[-1].labels == ["3 x 0", "", ""] * 2
    assert mixed.marks[-1].labels == ["0, 1, 2", "", "", "3 x 2", "", ""]


def test_a_label_without_room_is_left_out():
    ends = [{"staleness": 10 + k, "time": t} for k, t in enumerate([1.0, 1.1, 2.0, 2.0])]
    assert spacetime._labels(ends, [0.0] * 4, letter=0.01) == ["10", "11", "12, 13", ""]
    assert spacetime._labels(ends, [0.0] * 4, letter=0.1) == ["10", "", "12, 13", ""]
    assert spacetime._labels(ends, [0.0, 1.0, 0.0, 1.0], letter=0.1) == ["10", "11", "12", "13"]


@pytest.mark.parametrize("names", [["a long name of many words"] * 8, ["short", "names"]])
def test_a_legend_is_not_wider_than_its_picture(names):
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(3.35, 5), layout="constrained")
    lines = [canvas.add_subplot().plot([0, 1])[0] for _ in names]
    as_matplotlib._legend_below(canvas, lines, names, most=4)
    (legend,) = canvas.legends
    canvas.draw_without_rendering()
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= canvas.bbox.width


def test_a_colour_with_a_meaning_is_named_even_if_it_is_the_only_one():
    run = offbeat.train("quadratic", "asgd", 2, budget="6updates", out=False)
    for figure in (run.plot.breakdown(), run.plot.timeline()):
        assert [m.name for m in figure.marks] == ["computing"]
        assert figure.plotly().layout.showlegend


def test_a_value_too_large_for_tensorboard_is_as_large_as_can_be():
    assert tensorboard.event(0.0, 1, "loss", 1e300).endswith(struct.pack("<f", 3.4028234663852886e38))
    assert tensorboard.event(0.0, 1, "loss", -1e300).endswith(struct.pack("<f", -3.4028234663852886e38))


def test_a_heat_map_of_one_column_has_cells_as_wide_as_a_step():
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().subplots()
    as_matplotlib._heat(axes, Heat(["4"], ["a", "b"], [[1.0], [2.0]], "s", texts=[["1"], ["2"]], low=0.0, high=10.0))
    (mesh,) = axes.collections
    corners = mesh.get_coordinates()
    assert (corners[..., 0].min(), corners[..., 0].max()) == (-0.5, 0.5)
    assert (corners[..., 1].min(), corners[..., 1].max()) == (-0.5, 1.5)
    assert [t.get_color() for t in axes.texts] == ["white", "white"], "dark cells, by the scale alone"


def test_a_logarithmic_axis_has_the_ticks_it_was_given_and_no_others():
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().subplots()
    as_matplotlib._axis(axes, "x", Axis("depth", log=True, ticks=((1.0, "1"), (8.0, "8"))))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "8"]
    assert list(axes.get_xticks(minor=True)) == []
