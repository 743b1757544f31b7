"""What is shared: queues and equal shares, one step at a time, and what queueing theory says of them."""

from collections.abc import Sequence
from math import factorial, inf


def first_come(arrivals: Sequence[tuple[float, float]], rate: float) -> list[float]:
    """When each of (time, work) is finished if they are served one after another, in this order."""
    free, done = 0.0, []
    for time, work in arrivals:
        free = max(free, time) + work / rate
        done.append(free)
    return done


def equal_shares(arrivals: Sequence[tuple[float, float]], capacity: float, limit: float = inf) -> list[float]:
    """When each of (time, work) is finished if all at work get min(limit, capacity / how many) at every moment.

    From one moment at which somebody comes or goes to the next, all are brought forward.
    """
    left: dict[int, float] = {}
    done = [inf] * len(arrivals)
    coming = sorted(range(len(arrivals)), key=lambda k: arrivals[k][0])
    now = 0.0
    while left or coming:
        rate = min(limit, capacity / len(left)) if left else 0.0
        ends = {k: now + work / rate for k, work in left.items()}
        next_end = min(ends.values(), default=inf)
        next_come = arrivals[coming[0]][0] if coming else inf
        if next_end <= next_come:
            first = min(ends, key=lambda k: (ends[k], k))
            left = {k: work - (next_end - now) * rate for k, work in left.items() if k != first}
            done[first] = now = next_end
        else:
            left = {k: work - (next_come - now) * rate for k, work in left.items()}
            k = coming.pop(0)
            left[k], now = arrivals[k][1], next_come
    return done


def waiting_md1(arrival_rate: float, service: float) -> float:
    """Mean wait before service, Poisson arrivals and a constant service (Pollaczek and Khinchine)."""
    load = arrival_rate * service
    return load * service / (2 * (1 - load))


def repairmen(workers: int, think: float, service: float) -> tuple[float, float]:
    """(throughput, mean number waiting) of M/M/1//N: each worker thinks, then is served, all times exponential."""
    r = service / think
    weights = [factorial(workers) // factorial(workers - n) * r**n for n in range(workers + 1)]
    p = [w / sum(weights) for w in weights]
    return (1 - p[0]) / service, sum((n - 1) * q for n, q in enumerate(p) if n)
