"""Ways to average gradients that `./dev bench ddp` compares: torch's own, and those of dtrun.torch."""
import functools
import gc
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from dtrun.torch import hooks

#: Steps until all ways do what they do from then on: torch arranges buckets in the first, compression begins in
#: the third, and is tried in eight calls of a bucket.
WARMUP = 10
START_STEP = 2
_ONE_BUCKET_MB = 1 << 20


class Way:
    """A net under DistributedDataParallel. Close it before the next one is made."""

    def __init__(self, net: torch.nn.Module, name: str) -> None:
        group, register = _WAYS[name]
        # Over gloo torch's PowerSGD mixes up the messages of buckets: what follows an allreduce is started
        # whenever that ends, which need not be the same order on all ranks. With one bucket there is one order.
        bucket_mb = _ONE_BUCKET_MB if register is _powersgd else None
        # All ranks have made the same net: it need not be sent. A gradient is a view of its bucket, so that DDP
        # does not copy it there and back.
        self.model: Any = DistributedDataParallel(net, init_sync=False, process_group=group(),
                                                  bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
        self.state: Optional[hooks.HookState] = register(self.model) if register else None

    def clear_stats(self) -> None:
        if self.state is not None:
            self.state.clear_stats()

    def stats(self, steps: int) -> Dict[str, float]:
        """What the hook says of a step, where it says something."""
        if self.state is None:
            return {}
        stats = self.state.stats()
        return {"buckets": stats.calls / steps, "reducing_ms": stats.seconds / steps * 1e3, "ratio": stats.ratio}

    def close(self) -> None:
        if self.state is not None:
            self.state.close()
        self.model = self.state = None
        gc.collect()


def _fp16(model: DistributedDataParallel) -> None:
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def _powersgd(model: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=START_STEP)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _own(format: str, model: DistributedDataParallel) -> hooks.HookState:
    return hooks.register(model, format)


def _gloo() -> Optional[dist.ProcessGroup]:
    return None


@functools.lru_cache(maxsize=None)
def _dtrun() -> Any:
    import dtrun.torch.backend  # noqa: F401  # makes the name known
    return dist.new_group(backend="dtrun")


_WAYS: Dict[str, Any] = {
    "torch f32": (_gloo, None),
    "torch fp16": (_gloo, _fp16),
    "PowerSGD 4": (_gloo, _powersgd),
    "dtrun f32": (_gloo, functools.partial(_own, "none")),
    "dtrun fp16": (_gloo, functools.partial(_own, "fp16")),
    "dtrun int8": (_gloo, functools.partial(_own, "int8")),
    "dtrun e4m3": (_gloo, functools.partial(_own, "e4m3")),
    "backend f32": (_dtrun, None),
}
