"""Every rank adds its own number."""
import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum)
if hvd.rank() == 0:
    print(f"{hvd.size()} ranks: sum {total.item():.0f}")
