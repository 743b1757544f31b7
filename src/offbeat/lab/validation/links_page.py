"""What only slow links have on the page: how they were made, and what was found of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offbeat.core.units import counted, format_duration, format_rate

if TYPE_CHECKING:
    from offbeat.lab.validation.validate import Validation

_LITTLE = 0.1  # of a round: what batches and the server may take where links are to count
_SHARING = {None: "-", "fifo": "one after another", "fair": "at once, equal shares"}


def about(found: "Validation") -> Iterator[str]:
    yield "## Slow links between hosts\n"
    yield (
        "Measured by `offbeat validate --links`, which needs root, `ip`, `tc` and Ray. There is a host for driver and "
        "server and one for each worker: network namespaces of one machine, with addresses of their own around a "
        "switch, and a Ray node each. `tbf` limits what passes each host's link, each way. A cluster is fitted to one "
        "half of the runs, for each kind of links, and predicts the other half: other numbers of workers, another "
        "rule, another size of messages.\n"
    )
    yield (
        f"**All hosts share this machine's {counted(found.before.cores, 'core')}.** So the configurations have "
        "little to compute, and messages go in the clear: links, and not the processor, are to be what a round takes.\n"
    )
    if not found.processor:
        return
    broken = {name: share for name, share in found.processor.items() if share > _LITTLE}
    if broken:
        named = "; ".join(f"{name} ({share:.0%})" for name, share in broken.items())
        yield (
            f"**In {len(broken)} of {len(found.processor)} cases that was not so**: batches and the server took more "
            f"than {_LITTLE:.0%} of a round, and the processor was waited for. They say little about links: {named}.\n"
        )
    else:
        yield f"Batches and the server took {max(found.processor.values()):.1%} of a round at most.\n"


def what_was_found(found: "Validation") -> Iterator[str]:
    """Links as they are, beside what `calibrate` makes of the runs, which does not know."""
    yield "### Links as they are, and as they were found\n"
    yield (
        "`tbf` counts whole frames: of 1,514 bytes, 1,448 are a message's. So 95.6% of a rate is what can be found; a "
        "little more where messages are small, because 8 kB pass at once after a pause. `calibrate` knows nothing of "
        "the rates.\n"
    )
    yield "| a worker's link | found | the server's link | found | shared | latency found |"
    yield "|---:|---:|---:|---:|---|---:|"
    for links in found.found.values():
        told = format_rate(links.worker_told), format_rate(links.server_told)
        seen = _beside(links.worker, links.worker_told), _beside(links.server, links.server_told)
        cells = [told[0], seen[0], told[1], seen[1], _SHARING[links.sharing], _short(links.latency)]
        yield f"| {' | '.join(cells)} |"
    yield ""
    said = [f"- {name}: cannot tell {what}" for name, links in found.found.items() for what in links.unknown]
    yield from said
    if said:
        yield ""


def _beside(rate: float | None, told: float) -> str:
    return "-" if rate is None else f"{format_rate(float(f'{8 * rate:.3g}') / 8)} ({rate / told:.1%})"


def _short(seconds: float) -> str:
    return format_duration(float(f"{seconds:.2g}"))


def how() -> Iterator[str]:
    yield (
        "Not covered: networks with a latency worth the name, losses, links that differ from worker to "
        "worker, and hosts with processors of their own.\n"
    )
