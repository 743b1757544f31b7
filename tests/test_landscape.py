"""The loss around trajectories: the plane, the grid on it, and what is drawn."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import offbeat
from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.task import Point
from offbeat.lab.runs.tasks import build_task
from offbeat.lab.studies.landscape import compute, filter_normalised, principal, trajectory
from offbeat.report.draw.as_plotly import spec
from offbeat.report.draw.figure import Axis, Figure, Heat, Path3, Surface
from offbeat.report.figures import loss_surface


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs that save their way, made on the command line, so that their task can be built again."""
    root = tmp_path_factory.mktemp("runs")
    for solver in ("asgd", "sync"):
        words = ["run", "digits", "--solver", solver, "--workers", "2", "--budget", "0.4epochs"]
        words += ["--saves-per-epoch", "20", "--out", str(root / solver), "--json"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["offbeat", *words])
            with pytest.raises(SystemExit) as e:
                cli.main()
        assert e.value.code == 0
    return [root / "asgd", root / "sync"]


def test_the_plane_is_that_of_the_principal_components():
    g = torch.Generator().manual_seed(0)
    points = torch.randn(12, 300, generator=g, dtype=torch.float64) * torch.linspace(5, 0.1, 300)
    plane = principal(points)
    centred = (points - points.mean(0)).numpy()
    _, values, rows = np.linalg.svd(centred, full_matrices=False)  # another way to the same components
    for mine, theirs in ((plane.u, rows[0]), (plane.v, rows[1])):
        assert abs(float(mine @ torch.from_numpy(theirs))) == pytest.approx(1.0)
    where = plane.project(points)
    assert where[:, 0].square().sum().item() == pytest.approx(values[0] ** 2)
    assert where[:, 1].square().sum().item() == pytest.approx(values[1] ** 2)


def test_the_inverse_of_the_projection_gives_the_point_back():
    g = torch.Generator().manual_seed(1)
    plane = principal(torch.randn(5, 40, generator=g, dtype=torch.float64))
    assert plane.project(plane.point(0.3, -1.2)[None].double()).tolist()[0] == pytest.approx([0.3, -1.2], abs=1e-5)


def test_random_directions_have_the_norm_of_each_filter_and_leave_biases_alone():
    layout = Layout.of([("conv", (4, 3, 5, 5)), ("bias", (4,)), ("fc", (10, 16))])
    x = torch.randn(layout.size, generator=torch.Generator().manual_seed(2))
    plane = filter_normalised(x, layout, seed=3)
    for d in (plane.u, plane.v):
        conv, bias, fc = layout.views(d)
        wanted_conv, _, wanted_fc = layout.views(x.double())
        assert conv.flatten(1).norm(dim=1).tolist() == pytest.approx(wanted_conv.flatten(1).norm(dim=1).tolist())
        assert fc.norm(dim=1).tolist() == pytest.approx(wanted_fc.norm(dim=1).tolist())
        assert not bias.any()
    assert abs(float(torch.cosine_similarity(plane.u, plane.v, 0))) < 0.3
    assert torch.equal(filter_normalised(x, layout, seed=3).u, plane.u)


def test_every_point_of_the_grid_has_the_held_out_loss_of_its_parameters(runs, tmp_path):
    assert compute(runs, tmp_path / "land", grid=3, pool=2)
    found = loss_surface.read(tmp_path / "land")
    points = torch.cat([trajectory(p).points for p in runs]).double()
    plane = principal(points)
    task = build_task("digits", {}, 32)
    for i, b in enumerate(found.b):
        for j, a in enumerate(found.a):
            scores = task.evaluate(Point(plane.point(a, b)), lambda f, items: [f(k) for k in items])
            assert found.loss[i, j] == pytest.approx(scores["loss"], rel=1e-5)
    for walk, path in zip(found.walks, runs, strict=True):
        last = trajectory(path).points[-1]
        scores = task.evaluate(Point(last), lambda f, items: [f(k) for k in items])
        assert walk.loss[-1] == pytest.approx(scores["loss"], rel=1e-5)
    assert 0.5 < sum(found.about.explained) <= 1.0


def test_the_numbers_do_not_depend_on_the_pool_and_are_computed_once(runs, tmp_path):
    assert compute(runs, tmp_path / "a", grid=3, pool=1)
    assert compute(runs, tmp_path / "b", grid=3, pool=2)
    for name in ("grid.parquet", "paths.parquet"):
        assert pq.read_table(tmp_path / "a" / name).equals(pq.read_table(tmp_path / "b" / name))
    assert not compute(runs, tmp_path / "a", grid=3)
    assert compute(runs, tmp_path / "a", grid=3, directions="random")


def test_surface_and_contours_are_drawn_with_a_path_for_each_run(runs, tmp_path):
    compute(runs, tmp_path / "land", grid=4)
    found = loss_surface.read(tmp_path / "land")
    surface, contour = loss_surface.charts(found)
    for figure in surface.views.values():
        assert sum(isinstance(m, Surface) for m in figure.marks) == 1
        assert [m.name for m in figure.marks if isinstance(m, Path3)] == ["asgd", "sync"]
    for figure in contour.views.values():
        heat = figure.marks[0]
        assert isinstance(heat, Heat)
        assert heat.contours
    assert "of the variance" in loss_surface.page(found).html()


def test_runs_without_a_saved_way_are_refused_in_one_line(tmp_path):
    run = offbeat.train("quadratic", "asgd", 2, budget="10updates", out=tmp_path / "a")
    with pytest.raises(ConfigError, match="--saves-per-epoch"):
        compute([run.path], tmp_path / "land")


def test_points_on_a_line_span_no_plane():
    line = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None] * torch.ones(10, dtype=torch.float64)
    with pytest.raises(ConfigError, match="on a line"):
        principal(line)


@pytest.mark.parametrize("side", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_the_surface_is_seen_from_below_its_slope(side):
    """The viewer stands at the low corner, in both kinds of pictures; a point that diverged does not matter."""
    b, a = np.mgrid[-1:1:5j, -1:1:5j]
    z = 3.0 - (side[0] * a + side[1] * b)  # low at the corner `side`
    z[0, 2] = np.inf
    azimuth = np.radians(loss_surface._below(z))
    assert np.sign(np.round([np.cos(azimuth), np.sin(azimuth)], 9)).tolist() == list(side)
    drawn = Figure("s", Axis("x"), Axis("y"), (Surface(a[0], b[:, 0], z, "loss", loss_surface._below(z)),))
    eye = spec(drawn)["layout"]["scene"]["camera"]["eye"]
    assert np.sign([eye["x"], eye["y"]]).tolist() == list(side)
