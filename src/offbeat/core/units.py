"""Times, sizes, rates and worker lists as people write them, both ways: what `format_*` writes, `parse_*` reads back.

Numbers are multiplied by their unit in decimal, so "30ms" is the float nearest to 0.03, and nothing is lost on the
way out and in again.
"""

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, DecimalException

from offbeat.core.errors import ConfigError

_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

_SECONDS: Mapping[str, Decimal] = {
    "": Decimal(1),
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),  # the micro sign
    "μs": Decimal("1e-6"),  # the Greek letter, which many keyboards give instead
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_BYTES: Mapping[str, Decimal] = {
    "": Decimal(1),
    **{f"{prefix}B": Decimal(factor) for prefix, factor in (_PREFIXES | _BINARY).items()},
}
_COUNTS: Mapping[str, Decimal] = {prefix: Decimal(factor) for prefix, factor in _PREFIXES.items()}
_BYTES_PER_SECOND: Mapping[str, Decimal] = {
    "": Decimal(1),
    **{f"{prefix}B/s": Decimal(factor) for prefix, factor in (_PREFIXES | _BINARY).items()},
    **{f"{prefix}{bit}": Decimal(n) / 8 for prefix, n in _PREFIXES.items() for bit in ("bps", "b/s", "bit/s")},
}

_A_TIME = "a time of 0 or more, such as '30ms' or '1.5s' (units: ns, us, ms, s, min, h; a bare number is seconds)"
_A_SIZE = "a whole number of bytes below 2^63, such as '10MB' or '1GiB' (units: B, kB, MB, ..., KiB, MiB, ...)"
_A_RATE = (
    "a rate of 0 or more, such as '10Gbps' or '1GB/s' (units: bps, B/s, with k, M, G, T; a bare number is bytes/s)"
)

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµμ/]*)")
_WORKERS = re.compile(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?")
# Wide enough that no float or 63-bit size is rounded here; our own, so that a caller's decimal context cannot matter.
_EXACT = Context(prec=60)


def shown(value: object) -> str:
    """`repr(value)`, kept to one line of at most 100 characters."""
    try:
        text = " ".join(repr(value).split("\n"))
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        text = f"<{type(value).__name__} too long to show>"
    return text if len(text) <= 100 else f"{text[:97]}..."


def parse_duration(value: object, what: str = "duration") -> float:
    """Seconds: "30ms", "1.5s", "2min", "1h", "100us", "10ns", or a number of seconds."""
    return _finite(value, what, _SECONDS, _A_TIME)


def parse_rate(value: object, what: str = "rate") -> float:
    """Bytes per second: "10Gbps" (bits), "1GB/s" (bytes), or a number of bytes per second."""
    return _finite(value, what, _BYTES_PER_SECOND, _A_RATE)


def parse_size(value: object, what: str = "size") -> int:
    """Bytes: "10MB" (decimal), "1GiB" (binary), or a number of bytes."""
    size = _quantity(value, _BYTES)
    # The bound comes first: the remainder of a huge decimal would be computed digit by digit.
    if size is None or size >= 2**63 or size != int(size):
        raise ConfigError(f"{what} must be {_A_SIZE}, got {shown(value)}")
    return int(size)


def parse_count(value: object, what: str = "count") -> int:
    """A whole number: "25.6M", "175G", 1000."""
    count = _quantity(value, _COUNTS)
    if count is None or count >= 2**63 or count != int(count):
        raise ConfigError(f"{what} must be a whole number from 0, such as 25600000 or '25.6M', got {shown(value)}")
    return int(count)


def parse_workers(value: object, num_workers: int, what: str = "the list of workers") -> tuple[int, ...]:
    """Worker numbers, sorted and unique: "0,3-5", "all", "0", or one integer."""
    allowed = f"{what} must be like '0,3-5', 'all' or one of {_range_of(num_workers)}, got {shown(value)}"
    if isinstance(value, int) and not isinstance(value, bool):
        check_worker(value, num_workers, what)
        return (value,)
    if not isinstance(value, str):
        raise ConfigError(allowed)
    if value.strip() == "all":
        return tuple(range(num_workers))
    workers: set[int] = set()
    for part in value.split(","):
        match = _WORKERS.fullmatch(part)
        if match is None:
            raise ConfigError(allowed)
        first = int(match[1])
        last = int(match[2] or first)
        check_worker(first, num_workers, what)
        check_worker(last, num_workers, what)
        if last < first:
            raise ConfigError(allowed)
        workers.update(range(first, last + 1))
    return tuple(sorted(workers))


def check_worker(worker: object, num_workers: int, what: str) -> None:
    """Refuses anything that is not the number of one of the workers."""
    if not isinstance(worker, int) or isinstance(worker, bool) or not 0 <= worker < num_workers:
        count = "there is 1 worker" if num_workers == 1 else f"there are {num_workers} workers"
        raise ConfigError(f"{what} names worker {shown(worker)}, but {count}: {_range_of(num_workers)}")


def format_duration(seconds: float) -> str:
    """The shortest usual form that `parse_duration` reads back to the same float: "30ms", "1.5s", "2min"."""
    seconds = parse_duration(seconds)
    for unit, length in (("h", 3600), ("min", 60)):
        # Whole minutes and hours only: 100 s is "100s", since no decimal of a minute is exactly that.
        if length <= seconds < 1e6 * length and seconds % length == 0:
            return f"{int(seconds / length)}{unit}"
    unit = "s"
    if 0 < seconds < 1:
        unit = "ms" if seconds >= 1e-3 else "us" if seconds >= 1e-6 else "ns"
    return _in_unit(seconds, unit, _SECONDS[unit])


def format_rate(bytes_per_second: float) -> str:
    """A rate in bits, as links are sold: "10Gbps"."""
    rate = parse_rate(bytes_per_second)
    unit = next((unit for unit in ("Tbps", "Gbps", "Mbps", "kbps") if rate >= _BYTES_PER_SECOND[unit]), "bps")
    return _in_unit(rate, unit, _BYTES_PER_SECOND[unit])


def format_size(num_bytes: int) -> str:
    """The shorter of the decimal and the binary form: "10MB", "1GiB"."""
    size = parse_size(num_bytes)
    prefix = next((prefix for prefix in "PTGMk" if size >= _PREFIXES[prefix]), "")
    texts = [f"{_plain(_EXACT.divide(Decimal(size), Decimal(_PREFIXES[prefix])))}{prefix}B"]
    texts += [f"{size // factor}{prefix}B" for prefix, factor in _BINARY.items() if size and size % factor == 0]
    return min(texts, key=len)


def format_workers(workers: Iterable[int]) -> str:
    """ "0,3-5" of (0, 3, 4, 5)."""
    runs: list[list[int]] = []
    for worker in sorted(set(workers)):
        if runs and worker == runs[-1][1] + 1:
            runs[-1][1] = worker
        else:
            runs.append([worker, worker])
    if not runs or runs[0][0] < 0:
        raise ConfigError(f"workers must be one or more numbers from 0, got {shown(workers)}")
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _finite(value: object, what: str, units: Mapping[str, Decimal], allowed: str) -> float:
    quantity = _quantity(value, units)
    number = math.inf if quantity is None else float(quantity)
    if not math.isfinite(number):
        raise ConfigError(f"{what} must be {allowed}, got {shown(value)}")
    return number


def _quantity(value: object, units: Mapping[str, Decimal]) -> Decimal | None:
    """The number times its unit; None for anything that is not a finite quantity of 0 or more."""
    # nan first: a decimal nan cannot even be compared.
    if isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
        return None
    quantity: Decimal
    if isinstance(value, int | float):
        quantity = Decimal(value)
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value.strip())) and match[2] in units:
        try:
            quantity = _EXACT.multiply(Decimal(match[1]), units[match[2]])
        except DecimalException:  # an exponent beyond anything decimal holds
            return None
    else:
        return None
    # copy_abs makes "-0" plain zero, and unlike abs never rounds.
    return quantity.copy_abs() if 0 <= quantity < Decimal("1e309") else None


def _in_unit(number: float, unit: str, factor: Decimal) -> str:
    return f"{_plain(_EXACT.divide(Decimal(repr(number)), factor))}{unit}"


def _plain(number: Decimal) -> str:
    number = number.normalize(_EXACT)
    text = f"{number:f}"
    return text if len(text) <= 24 else str(number)


def _range_of(num_workers: int) -> str:
    return "0" if num_workers == 1 else f"0-{num_workers - 1}"


def counted(count: int, what: str) -> str:
    """`1 worker`, `8 workers`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
