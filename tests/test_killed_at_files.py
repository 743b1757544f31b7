"""Killed at a file operation, before or after it: every solver on every engine, and whoever starts their processes.

Each solver is killed at a few operations, by lot, and every kind of operation on each engine at least once; with
OFFBEAT_STORM set, at all of them. On Ray the lot also says which solvers, since a run takes seconds there. OFFBEAT_LOT
is the number of the lot, and a failure tells it.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from offbeat.core.budget import Amount, Budget
from offbeat.engines.local import Launcher
from offbeat.engines.real.transport import RunError
from offbeat.lab.contract import Case
from processes import LIMIT, alive, by_age, descendants, marked, until
from real import ON_ONE_MACHINE, ONE_OF_EACH, on
from storm_runs import check_finished, plan, run
from strikes import At, Disk, KilledError, contents, dealt, differences, drawn, struck

pytestmark = [pytest.mark.processes, pytest.mark.slow]
LOT = int(os.environ.get("OFFBEAT_LOT") or 739937)
STORM = bool(os.environ.get("OFFBEAT_STORM"))
HERE = Path(__file__).parent
ENGINE = {"on processes": "local", "on threads": "debug", "on ray": "ray"}


def some(cases, share):
    """One case of `share`, by lot; all of them in a storm."""
    return cases if STORM else [c for i, c in enumerate(cases) if (i + LOT) % share == 0]


def chosen(seen, solvers, solver, *, also=0):
    """The operations to strike at, and whether before or after them: all, or those that the lot says."""
    kinds = list(Counter(seen))
    if STORM:
        return [
            (At(k, n), after) for k, times in Counter(seen).items() for n in range(times) for after in (False, True)
        ]
    names = [c.solver for c in solvers]
    mine = dealt(kinds, names.index(solver), len(names), LOT)
    more = random.Random(f"{LOT}/{solver}").sample(kinds, also)
    return drawn(seen, [*mine, *more], f"{LOT}/{solver}/when")


def told(at, after):
    """Shown when a test fails."""
    print(f"lot {LOT}: {'after' if after else 'before'} {at}")


# -- simulations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_simulation_goes_on_to_the_same_bits_and_files(tmp_path, case):
    with struck(Disk()) as disk:
        run(plan(case), tmp_path / "whole" / "run")
    whole, folder = contents(tmp_path / "whole" / "run"), tmp_path / "run"
    for at, after in chosen(disk.seen, ONE_OF_EACH, case.solver, also=1):
        told(at, after)
        with pytest.raises(KilledError), struck(Disk(at, after=after)):
            run(plan(case), folder)
        assert run(plan(case), folder, seconds=1000.0).status == "done"
        assert not differences(contents(folder), whole)
        shutil.rmtree(folder)


# -- real engines ------------------------------------------------------------------------------------------------------

PAIRS = {place: on([place], ONE_OF_EACH) for place in ON_ONE_MACHINE}
PAIRS["on ray"] = some(on(["on ray"], ONE_OF_EACH), 5)


@pytest.mark.parametrize(("place", "case"), [pair for pairs in PAIRS.values() for pair in pairs])
def test_a_real_run_goes_on_after_its_driver_died(tmp_path, starter, place, case):
    """A death that is played: processes are ended in order, but nothing more reaches the disk."""
    made = plan(case, ENGINE[place])
    with struck(Disk()) as disk:
        run(made, tmp_path / "whole" / "run", starter)
    check_finished(made, case, tmp_path / "whole" / "run")
    for at, after in chosen(disk.seen, [pair.values[1] for pair in PAIRS[place]], case.solver):
        told(at, after)
        folder = tmp_path / "run"
        for time in dict.fromkeys((at.time, at.time // 2, 0)):  # another time there may be fewer of the kind
            with struck(Disk(At(at.kind, time), after=after)) as disk:
                try:
                    run(plan(case, ENGINE[place]), folder, starter)
                except KilledError:
                    break
            shutil.rmtree(folder)
        assert disk.done
        assert run(plan(case, ENGINE[place]), folder, starter, seconds=1000.0).status == "done"
        check_finished(made, case, folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize("solver", ["plain", "hogwild"])
def test_a_run_in_place_goes_on_after_its_driver_died(tmp_path, word2vec_task, solver):
    case, folder = Case(solver, workers=1 if solver == "plain" else 2), tmp_path / "run"
    usual = plan(case, "threads", word2vec_task)
    made = replace(usual, budget=Budget.parse("2epochs"), evaluate_every=Amount(8000, "samples"), saves_per_epoch=2)
    with struck(Disk()) as disk:
        run(made, tmp_path / "whole" / "run")
    whole = contents(tmp_path / "whole" / "run")
    for at, after in chosen(disk.seen, [Case("plain"), Case("hogwild")], solver):
        told(at, after)
        with pytest.raises(KilledError), struck(Disk(at, after=after)):
            run(made, folder)
        assert run(made, folder, seconds=1000.0).status == "done"
        check_finished(made, case, folder)
        assert set(contents(folder)) == set(whole)
        if solver == "plain":  # with one thread there is one order
            assert contents(folder)["weights.safetensors"] == whole["weights.safetensors"]
        shutil.rmtree(folder)


# -- kills that are not played -----------------------------------------------------------------------------------------


def killed_for_good(tmp_path, engine, case, at, after):
    """A driver in a process of its own, killed there; nothing of it is left but its folder."""
    mark = f"OFFBEAT_STORM_RUN={uuid.uuid4()}"
    own = tmp_path / "temporary"
    own.mkdir(exist_ok=True)
    name, _, value = mark.partition("=")
    env = {**os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(own), name: value}
    words = [str(tmp_path / "run"), engine, str(case), at.kind, str(at.time), str(int(after))]
    driver = [sys.executable, str(HERE / "storm_runs.py"), *words]
    done = subprocess.run(driver, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    until(lambda: not marked(mark), "the end of all processes of the run")
    assert not list(own.iterdir())
    return done.returncode != 0


REALLY = ("asgd", "sync", "easgd", "allreduce", "hogwild", "all-to-all")
"""One of each way to be in touch: with a server, a barrier, springs, all-reduce, shared memory, messages."""
KINDS = [c for c in ONE_OF_EACH if c.solver in REALLY]


@pytest.mark.parametrize("case", ONE_OF_EACH if STORM else KINDS, ids=str)
def test_nothing_is_left_of_a_driver_that_was_killed(tmp_path, launcher, case):
    made = plan(case, "local")
    with struck(Disk()) as disk:
        run(made, tmp_path / "whole" / "run", launcher)
    kinds = sorted(set(disk.seen))
    mine = kinds if STORM else random.Random(f"{LOT}/{case}").sample(kinds, 1)
    for at, after in drawn(disk.seen, mine, f"{LOT}/{case}/for good"):
        told(at, after)
        folder = tmp_path / "run"
        if not killed_for_good(tmp_path, "local", case, at, after):
            shutil.rmtree(folder)
            assert killed_for_good(tmp_path, "local", case, At(at.kind), after)
        assert run(plan(case, "local"), folder, launcher, seconds=1000.0).status == "done"
        check_finished(made, case, folder)
        shutil.rmtree(folder)


# -- those who start the others, and those who are started -------------------------------------------------------------


def kill(who, launcher):
    """A process of the run that this launcher has in hand."""
    forker = next((p for p in descendants(launcher) if descendants(p)), None)
    if who != "launcher" and forker is None:
        return  # the run is over, or has not begun
    below = [] if forker is None else by_age(descendants(forker))
    number = {"launcher": launcher, "forker": forker, "server": below[0] if below else None}
    os.kill(number.get(who) or below[-1], signal.SIGKILL)


WHO = ["launcher", "forker", "server", "worker"]
STRUCK = [
    (c, who) for i, c in enumerate(ONE_OF_EACH if STORM else KINDS) for who in WHO if STORM or who == WHO[(i + LOT) % 4]
]


@pytest.mark.parametrize(("case", "who"), STRUCK, ids=str)
def test_a_run_goes_on_though_one_of_its_processes_died_at_a_file_operation(tmp_path, launcher, case, who):
    made = plan(case, "local")
    with struck(Disk()) as disk:
        run(made, tmp_path / "whole" / "run", launcher)
    kinds = [k for k in sorted(set(disk.seen)) if STORM or "checkpoint" in k or "trace" in k]
    mine = kinds if STORM else random.Random(f"{LOT}/{who}/{case}").sample(kinds, 1)
    for at, after in drawn(disk.seen, mine, f"{LOT}/{who}/{case}/when"):
        told(at, after)
        folder, own = tmp_path / "run", Launcher()
        number = own._process.pid
        fails = who in ("launcher", "forker")
        try:
            with struck(Disk(at, after=after, deed=lambda: kill(who, number))):  # noqa: B023 - it runs within the loop
                run(plan(case, "local"), folder, own)
        except RunError as e:  # unless it needed nobody any more
            if not fails or not re.match("the process that starts the others was lost|processes cannot be", str(e)):
                raise
        finally:
            family = descendants(number)
            own.close()
        until(lambda: not any(map(alive, family)), "the end of all processes")  # noqa: B023
        assert run(plan(case, "local"), folder, launcher, seconds=1000.0).status == "done"
        check_finished(made, case, folder)
        shutil.rmtree(folder)
