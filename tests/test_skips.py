"""What was skipped is counted and explained."""

from types import SimpleNamespace

from skips import reasons


def test_skips_are_grouped_by_their_reason_the_most_frequent_first():
    whys = ["no chromium is installed", "this user may write anywhere", "no chromium is installed"]
    reports = [SimpleNamespace(longrepr=("tests/test_x.py", 3, f"Skipped: {why}")) for why in whys]
    assert reasons(reports) == ["2 x no chromium is installed", "1 x this user may write anywhere"]
