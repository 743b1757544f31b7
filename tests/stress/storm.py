"""`make stress`: every test of real processes under stress, many times, beside processes that keep the machine busy.

What pytest says is passed on as it comes. A pass ends at its first failure, or with `--all` at its end, with the
command that shows it again; the storm ends with that pass. Everything after `--` goes to pytest.
"""

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # and not longer than we are there


@contextlib.contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many loops beside us; they end with us, however we end."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def passed_on(command: list[str]) -> tuple[int, list[str]]:
    """Runs it, and passes on what it says as it comes; its exit code, and its lines."""
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        except BaseException:
            running.terminate()
            raise
    return running.returncode, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how often")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--busy", type=int, default=2, help="loops beside the tests")
    parser.add_argument("--at-once", type=int, default=4, help="tests beside each other: more than cores, many sleep")
    parser.add_argument("--all", action="store_true", help="a pass goes on after a failure")
    options, rest = parser.parse_known_args()
    rest = [a for a in rest if a != "--"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the loops are ended
    begun = time.monotonic()
    with busy(options.busy):
        for k, seed in enumerate(range(options.first, options.first + options.seeds), 1):
            wanted = ["-m", "processes", "--stress", str(seed), "-n", str(options.at_once), "--dist", "loadgroup"]
            wanted += ["--timeout", "600", *([] if options.all else ["-x"]), *rest]
            command = [sys.executable, "-m", "pytest", *wanted]
            status, lines = passed_on(command)
            if status != 0:
                again = shlex.join(["pytest", *wanted])
                print(f"stress: seed {seed} failed (pass {k} of {options.seeds}); again: {again}")
                return 1
            passed = next((line for line in reversed(lines) if re.search(r"\b\d+ passed", line)), "passed")
            print(f"stress: pass {k} of {options.seeds}, seed {seed}: {passed}", flush=True)
    took = time.monotonic() - begun
    print(f"stress: passes without a failure: {options.seeds}, beside {options.busy} busy loops, in {took:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
