"""Counts steps from its checkpoint until a file is there, over torch.distributed, as torchrun's programs do.

Arguments: the file, and the checkpoint. All ranks leave in the same step.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

end, checkpoint = sys.argv[1:]
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
step = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"attempt{attempt} rank{rank}/{size}@{os.environ['DTRUN_HOST']} step {step} at {time.time():.3f}",
      flush=True)
while True:
    total = torch.tensor([1.0, float(os.path.exists(end))])
    dist.all_reduce(total)
    assert total[0] == size
    step += 1
    if rank == 0:
        with open(checkpoint + ".new", "w") as file:
            file.write(str(step))
        os.replace(checkpoint + ".new", checkpoint)
    if total[1] > 0:
        break
    time.sleep(0.02)
print(f"ended after step {step}", flush=True)
