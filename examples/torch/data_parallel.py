"""One process, several devices: each forward pass splits the batch among copies of the net.

On GPUs this is torch.nn.DataParallel. That does nothing on CPUs, so there the devices are threads, which
share the weights instead of copying them.
"""
from concurrent.futures import ThreadPoolExecutor

import torch

import common
import net


class OnThreads(torch.nn.Module):
    """What DataParallel does, with threads in place of GPUs."""

    def __init__(self, model, threads):
        super().__init__()
        self.model, self.threads = model, threads
        self.pool = ThreadPoolExecutor(threads)

    def forward(self, pictures):
        grad = torch.is_grad_enabled()

        def forward_part(part):
            with torch.set_grad_enabled(grad):  # each thread has its own setting
                return self.model(part)
        return torch.cat(list(self.pool.map(forward_part, pictures.chunk(self.threads))))


chosen = common.options(devices=(2, "GPUs, or threads where there are none"))
where = common.device(chosen)
model = net.whole(chosen.model).to(where)
if where.type == "cuda":
    if torch.cuda.device_count() < chosen.devices:
        raise SystemExit(f"this machine has {torch.cuda.device_count()} GPUs, not {chosen.devices}")
    model = torch.nn.DataParallel(model, list(range(chosen.devices)))
else:
    torch.set_num_threads(1)  # of each of our threads
    model = OnThreads(model, chosen.devices)
optimizer = torch.optim.Adam(model.parameters(), lr=chosen.lr)
data = common.Data(chosen)
meter = common.train(data, 0, 1, common.usual_step(model, optimizer, where))
accuracy = data.accuracy(lambda pictures: model(pictures.to(where)))
common.report("DataParallel", 1, 1, f"{chosen.devices} x {where.type}", meter.rate(),
              common.memory(), accuracy)
