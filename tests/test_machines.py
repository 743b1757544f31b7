"""Time by machine: what the workers of each spent, and nothing of it lost."""

from offbeat.lab.runs.summary import per_machine


def test_the_seconds_of_machines_are_those_of_their_workers():
    shares = [
        {"present": 4.0, "computing": 3.0},
        {"present": 4.0, "computing": 1.0},
        {"present": 2.0, "computing": 2.0},
    ]
    assert per_machine(shares, ["b", "a", "b"]) == [
        {"machine": "a", "workers": 1, "present": 4.0, "computing": 1.0},
        {"machine": "b", "workers": 2, "present": 6.0, "computing": 5.0},
    ]
    assert per_machine(shares, []) == []
    assert per_machine(shares, ["", "", "a"]) == [{"machine": "a", "workers": 1, "present": 2.0, "computing": 2.0}]
