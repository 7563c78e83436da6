"""A program for JAX on many hosts: initialize() without arguments, a gather and a psum."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
gathered = multihost_utils.process_allgather(np.array([rank + 1.0]))
assert gathered.ravel().tolist() == [float(i + 1) for i in range(size)], gathered

mesh = Mesh(np.array(jax.devices()), ("ranks",))
rows = NamedSharding(mesh, PartitionSpec("ranks"))
mine = jax.make_array_from_process_local_data(rows, np.array([float(rank + 1)]))
add = jax.shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh,
                    in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec())
total = float(jax.jit(add)(mine).addressable_data(0)[0])
assert int(os.environ["JAX_PROCESS_ID"]) == rank and int(os.environ["JAX_NUM_PROCESSES"]) == size
print(f"jax rank {rank} of {size}, {len(jax.devices())} devices, sum {total:.0f}", flush=True)
jax.distributed.shutdown()
