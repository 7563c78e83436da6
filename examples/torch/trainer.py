"""The training of `dtrun bench --train`: a small net that learns digits, over a communicator of dtrun.

    dtrun -np 4 -H s1:2,s2:2 python3 trainer.py --epochs 3 --compression int8 --error-feedback
    dtrun bench --train --algorithms parallel,int8 -H s1:2,s2:2 --html t.html

Ranks share each batch, so what is learnt is what one rank alone would learn, but for rounding. The gradients of all
layers are averaged in one call, between computing and stepping, so that the times of both can be told apart. Rank 0
prints a record of the lab: a line of JSON. A communicator for a GPU (--gpu) is NCCL's, and the net is there, too.
"""
import argparse
import ctypes
import json
import os
import socket
import sys
import time

try:
    import torch
    from dtrun import Worker
    from dtrun.collectives import Communicator
except ModuleNotFoundError as error:
    missing = {"torch": "PyTorch: pip install torch"}.get(error.name, f"the module {error.name}")
    print(json.dumps({"type": "error", "text":
                      f"training needs {missing}; {sys.executable} on {socket.gethostname()} does not have it (--python "
                      "names another Python)"}))
    sys.exit(1)
from torch import nn
from torch.nn.functional import cross_entropy

import digits

FIRST_STEPS = 5  # in which memory is touched for the first time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--data", metavar="DIR", help="MNIST's files; without it digits are drawn")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=256, help="of all ranks; of each in weak scaling")
    parser.add_argument("--scaling", choices=["strong", "weak"], default="strong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss-scale", type=float, default=1.0)
    parser.add_argument("--compression", default="none", help="as Communicator.allreduce() has it")
    parser.add_argument("--error-feedback", action="store_true")
    parser.add_argument("--stochastic", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="the net is on a GPU, and NCCL is what ranks talk through")
    return parser.parse_args()


def make_net(model):
    if model == "mlp":
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    else:
        net = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(),
                            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    for p in net.parameters():  # as He et al. 2015 draw them
        nn.init.kaiming_uniform_(p, nonlinearity="relu") if p.dim() > 1 else nn.init.zeros_(p)
    return net


def array(tensor):
    """A float tensor as an array for a communicator: nothing is copied."""
    if tensor.is_cuda:
        return tensor
    return (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())


class Ranks:
    """What the ranks do together."""

    def __init__(self, chosen, worker):
        self.worker, self.rank, self.size = worker, worker.rank, worker.world_size
        self.how = {} if chosen.compression == "none" else {
            "compression": chosen.compression, "stochastic": chosen.stochastic, "always": True}
        self.feedback, self.number, self.bucket = chosen.error_feedback, 0, None
        began = time.monotonic()
        self.comm = Communicator(worker, device_memory=chosen.gpu) if self.size > 1 else None
        bootstrap = max(self.gather((time.monotonic() - began) * 1e3))
        if self.comm is not None:
            self.tell(bootstrap)

    def tell(self, bootstrap):
        facts = dict(line.split(": ", 1) for line in self.comm.facts.splitlines() if ": " in line)
        facts.pop("backend", None)
        slots = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        self.show({"type": "comm", "backend": self.comm.backend, "why": self.comm.why, "bootstrap_ms": bootstrap,
                   "version": facts.pop("version", ""), "transport": facts.pop("transport", ""),
                   "oversubscribed": slots > (os.cpu_count() or slots), "details": facts})

    def show(self, record):
        if self.rank == 0:
            print(json.dumps(record), flush=True)

    def gather(self, value):
        """Of all ranks, by rank."""
        self.number += 1
        return [json.loads(each) for each in self.worker.fence(f"trainer/{self.number}", json.dumps(value))]

    def begin(self, net):
        """All have rank 0's weights, and gradients that stay where they are."""
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
            if self.comm is not None:
                self.comm.broadcast(array(p.detach()))
        if self.comm is None:
            return
        gradients = [p.grad for p in net.parameters()]
        self.errors = [torch.zeros_like(g) for g in gradients] if self.feedback else []
        self.bucket = self.comm.bucket([array(g) for g in gradients], [array(e) for e in self.errors] or None)

    def average(self):
        if self.bucket is not None:
            self.bucket.allreduce("average", **self.how)

    def part(self, count):
        """This rank's part of so many things."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)


class Batches:
    """The numbers of the images of each step, the same on all ranks."""

    def __init__(self, chosen, count, ranks):
        self.count, self.weak = count, chosen.scaling == "weak"
        self.batch = chosen.global_batch * (ranks.size if self.weak else 1)
        if self.batch < ranks.size or (not self.weak and self.batch > count):
            raise SystemExit(f"a global batch of {self.batch} does not fit {ranks.size} ranks and {count} images")
        # In weak scaling each rank learns from as many images as one alone, of which some come again.
        self.steps = max(count // chosen.global_batch, 1)
        self.random = torch.Generator().manual_seed(chosen.seed + 1000)
        self.order = torch.empty(0, dtype=torch.long)

    def epoch(self):
        if not self.weak:
            self.order = self.order[:0]
        for _ in range(self.steps):
            while len(self.order) < self.batch:
                self.order = torch.cat([self.order, torch.randperm(self.count, generator=self.random)])
            picks, self.order = self.order[:self.batch], self.order[self.batch:]
            yield picks


def median(times):
    later = sorted(times[min(FIRST_STEPS, len(times) // 2):])
    return later[(len(later) - 1) // 2] * 1e3 if later else 0.0


class Training:
    def __init__(self, chosen, ranks, data):
        self.chosen, self.ranks = chosen, ranks
        where = torch.device("cuda", torch.cuda.current_device()) if chosen.gpu else torch.device("cpu")
        self.is_gpu = chosen.gpu
        (self.images, self.labels), self.test_set = ([part.to(where) for part in half] for half in data)
        self.batches = Batches(chosen, len(self.labels), ranks)
        self.rate = min(0.05 * self.batches.batch / 64, 0.1)
        torch.manual_seed(chosen.seed)
        self.net = make_net(chosen.model).to(where)
        self.optimizer = torch.optim.SGD(self.net.parameters(), self.rate / chosen.loss_scale, momentum=0.9)
        self.step_s, self.comm_s, self.seconds, self.by_epoch = [], [], 0.0, []

    def finish(self):
        if self.is_gpu:  # whose time to compute would be taken for communication
            torch.cuda.synchronize()

    def step(self, picks):
        """:return: the summed loss of this rank's images"""
        began = time.perf_counter()
        mine = picks[self.ranks.part(len(picks))].to(self.labels.device)
        for p in self.net.parameters():
            p.grad.zero_()
        loss = cross_entropy(self.net(self.images[mine]), self.labels[mine], reduction="sum")
        # The mean over ranks is to be that of the batch, also where ranks have parts of different sizes.
        (loss * (self.chosen.loss_scale * self.ranks.size / len(picks))).backward()
        self.finish()
        computed = time.perf_counter()
        self.ranks.average()
        self.comm_s.append(time.perf_counter() - computed)
        self.optimizer.step()
        self.step_s.append(time.perf_counter() - began)
        return loss.detach()

    def run(self):
        self.ranks.begin(self.net)
        self.started = unix_ms()
        for _ in range(self.chosen.epochs):
            began = time.perf_counter()
            loss = sum(self.step(picks) for picks in self.batches.epoch())
            self.finish()
            self.seconds += time.perf_counter() - began
            self.test(float(loss))

    def test(self, loss):
        epoch = {"epoch": len(self.by_epoch) + 1, "ended_unix_ms": unix_ms()}
        images, labels = (half[self.ranks.part(len(half))] for half in self.test_set)
        with torch.no_grad():
            right = sum(int((self.net(some).argmax(1) == truth).sum())
                        for some, truth in zip(images.split(512), labels.split(512)))
        rights, losses, seconds = zip(*self.ranks.gather([right, loss, self.seconds]))
        epoch.update(accuracy=sum(rights) / len(self.test_set[1]), seconds=max(seconds), tested_unix_ms=unix_ms(),
                     loss=sum(losses) / (self.batches.steps * self.batches.batch))
        self.by_epoch.append(epoch)

    def record(self):
        steps, comms = zip(*self.ranks.gather([median(self.step_s), median(self.comm_s)]))
        step_ms, comm_ms = sum(steps) / len(steps), sum(comms) / len(comms)
        last, chosen = self.by_epoch[-1], self.chosen
        return {"type": "train", "model": chosen.model, "data": "MNIST" if chosen.data else "generated digits",
                "scaling": chosen.scaling, "epochs": chosen.epochs, "global_batch": self.batches.batch,
                "seed": chosen.seed, "loss_scale": chosen.loss_scale, "step_ms": step_ms, "comm_ms": comm_ms,
                "compute_ms": step_ms - comm_ms, "samples_per_s": self.batches.batch * 1e3 / step_ms,
                "accuracy": last["accuracy"], "loss": last["loss"], "seconds": last["seconds"],
                "train_samples": len(self.labels), "test_samples": len(self.test_set[1]),
                "learning_rate": self.rate, "start_unix_ms": self.started, "by_epoch": self.by_epoch}


def unix_ms():
    return time.time_ns() // 1_000_000


def main():
    begun = unix_ms()
    chosen = options()
    if chosen.gpu and not torch.cuda.is_available():
        raise SystemExit("--gpu: torch finds no GPU here")
    if chosen.gpu:  # for the communicator, too
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.set_num_threads(1)  # also of a rank alone, so that what speeds up is more ranks
    data = [digits.from_folder(chosen.data, train) if chosen.data else digits.drawn(*([6000, 1] if train else [2000, 2]))
            for train in (True, False)]
    with Worker() as worker:
        ranks = Ranks(chosen, worker)
        training = Training(chosen, ranks, data)
        training.run()
        ranks.show({**training.record(), "init_unix_ms": begun})
        if ranks.comm is not None:
            ranks.comm.close()


if __name__ == "__main__":
    main()
