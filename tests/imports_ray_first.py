"""A script that imports Ray before offbeat has said how: started by test_ray_runs.py. Prints where its Ray listens."""

import ray

from offbeat.engines.ray.connection import Connection

if __name__ == "__main__":
    assert not ray.is_initialized()
    connection = Connection(None, 1)
    print(ray.get(ray.remote(num_cpus=0)(ray.util.get_node_ip_address).remote()))
    connection.close()
