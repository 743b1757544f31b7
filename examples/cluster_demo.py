"""`make cluster-demo`: four Ray nodes on this machine, one of them slow, one killed half-way; a report at the end.

The nodes are processes of this machine, on the loopback: a stand-in for machines, with everything but the network real.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

# Before Ray is imported: authentication, and nothing that listens beyond the loopback.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "1")


class LosesANode:
    """Kills a node once so much of the run is done."""

    def __init__(self, cluster: Any, node: Any, updates: int) -> None:
        self._cluster, self._node, self._updates = cluster, node, updates

    def on_evaluation(self, metrics: dict[str, Any]) -> None:
        print(f"{metrics['updates']:5} updates  accuracy {metrics['accuracy']:.3f}", flush=True)
        if self._node is not None and metrics["updates"] >= self._updates:
            print("      a node loses its power", flush=True)
            self._cluster.remove_node(self._node, allow_graceful=False)
            self._node = None


def main(out: Path, epochs: int) -> int:
    from ray.cluster_utils import Cluster

    import offbeat

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
        cluster.wait_for_nodes()
        updates = epochs * 45  # of the digits' 1,437 pictures in batches of 32
        machines = offbeat.Cluster.parse(workers=4, delay="20ms@1")
        run = offbeat.train(
            "digits",
            "asgd",
            machines,
            engine="ray",
            budget=f"{epochs}epochs",
            settings={"ray.address": cluster.address, "ray.wait": "10s"},
            callbacks=[LosesANode(cluster, nodes[-1], updates // 2)],
            out=out / "run",
            again=True,
        )
        for incident in run.summary["incidents"]:
            print(f"      {incident}")
        print(f"{run.status}: accuracy {run.summary['accuracy']:.3f}, lost updates: {run.summary['lost_updates']}")
        run.report(out / "report.html")
        print(f"report  {out / 'report.html'}")
        return 0 if run.status == "done" else 1
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("cluster-demo"))
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    sys.exit(main(given.out, given.epochs))
