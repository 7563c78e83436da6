#!/usr/bin/env python3
"""Time of a step of DistributedDataParallel with and without compression of the gradients.

    torchrun --nproc-per-node 2 ddp_hook.py [--model mlp|transformer|tiny] [--steps 60] [--json FILE]
    dtrun -np 2 python3 ddp_hook.py ...

Formats: none, and fp16, bf16 and powersgd by torch's own hooks; int8 and e4m3 by dtrun.torch, whose hooks are for
models in host memory and for ranks that dtrun has started. Who names formats gets all of them, or an error. All
are measured in one process, so that they see the same machine. A step without synchronisation (`no_sync`) is the
computation alone; what a step takes longer is what its communication shows of itself. Runs on a GPU with NCCL, and
without one on the processor with gloo, which shows that it works and no more.
Ranks that share a GPU are time-sliced: their figures are not to be quoted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

try:
    import torch
except ImportError as missing:
    print(f"SKIPPED: no torch: {missing}")
    sys.exit(77)

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

FORMATS = ("none", "fp16", "bf16", "powersgd", "int8", "e4m3")
WARM_UP = 5


def share_of_gpus(rank: int, size: int) -> Optional[int]:
    """The number of this rank's GPU, or None. Ranks that share one pass for several hosts with NCCL."""
    if not torch.cuda.is_available():
        return None
    gpus = torch.cuda.device_count()
    if size > gpus:
        os.environ["NCCL_HOSTID"] = f"ddp-{rank}"
    torch.cuda.set_device(rank % gpus)
    return rank % gpus


def make_model(name: str) -> Tuple[nn.Module, Tuple[int, ...]]:
    """A network, and the shape of what it takes."""
    if name == "tiny":
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), (16, 64)
    if name == "mlp":  # 84 million parameters and little to compute: the wire decides
        layers: List[nn.Module] = []
        for _ in range(5):
            layers += [nn.Linear(4096, 4096), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(4096, 8)), (64, 4096)
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 12), nn.Linear(768, 8)), (4, 256, 768)


def register(ddp: DistributedDataParallel, name: str) -> str:
    """Has DDP compress; "", or why nobody can do that here."""
    if name == "none":
        return ""
    try:
        if name in ("fp16", "bf16"):
            ddp.register_comm_hook(None, getattr(default_hooks, f"{name}_compress_hook"))
        elif name == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif next(ddp.parameters()).device.type != "cpu":
            return "dtrun.torch.hooks are for models in host memory"
        else:
            from dtrun.torch import hooks
            hooks.register(ddp, name)
    except (ImportError, OSError, TypeError) as error:  # TypeError: torch's bf16 is for NCCL
        return str(error)
    return ""


class Training:
    """A network with one format."""

    def __init__(self, model: str, name: str, gpu: Optional[int]) -> None:
        torch.manual_seed(1)
        self.device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
        network, shape = make_model(model)
        self.ddp = DistributedDataParallel(network.to(self.device), device_ids=None if gpu is None else [gpu])
        self.absent = register(self.ddp, name)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-3)
        self.input = torch.randn(*shape, device=self.device)

    def step(self, synchronise: bool = True) -> float:
        """Milliseconds of a step."""
        self._wait()
        began = time.perf_counter()
        with contextlib.nullcontext() if synchronise else self.ddp.no_sync():
            loss = self.ddp(self.input).square().mean()
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._wait()
        self.loss = loss.item()
        return (time.perf_counter() - began) * 1e3

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def measure(model: str, name: str, gpu: Optional[int], steps: int) -> Dict[str, Any]:
    training = Training(model, name, gpu)
    if training.absent:
        return {"format": name, "absent": training.absent}
    for _ in range(WARM_UP):
        training.step()
    times = [training.step() for _ in range(steps)]
    loss = training.loss
    alone = [training.step(synchronise=False) for _ in range(max(3, steps // 4))]
    step, compute = statistics.median(times), statistics.median(alone)
    return {"format": name, "step_ms": step, "step_ms_p90": sorted(times)[int(0.9 * len(times))],
            "compute_ms": compute, "exposed_ms": step - compute, "loss": loss}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("mlp", "transformer", "tiny"), default="mlp")
    parser.add_argument("--format", default="", help="which, separated by commas; default: all that work here")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", default="", help="where rank 0 writes what it has found")
    arguments = parser.parse_args()
    names = arguments.format.split(",") if arguments.format else FORMATS
    if unknown := [name for name in names if name not in FORMATS]:
        parser.error(f"no format {', '.join(unknown)}: there are {', '.join(FORMATS)}")
    gpu = share_of_gpus(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo" if gpu is None else "nccl")
    try:
        rows = [measure(arguments.model, name, gpu, arguments.steps) for name in names]
        if dist.get_rank() == 0:
            found = {"model": arguments.model, "ranks": dist.get_world_size(), "torch": torch.__version__,
                     "device": "cpu" if gpu is None else torch.cuda.get_device_name(gpu), "steps": arguments.steps,
                     "rows": rows}
            for row in rows:
                print(json.dumps(row))
            if arguments.json:
                with open(arguments.json, "w", encoding="utf-8") as file:
                    json.dump(found, file, indent=1)
    finally:
        dist.destroy_process_group()
    return 1 if arguments.format and any("absent" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
