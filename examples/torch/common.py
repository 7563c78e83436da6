"""What all experiments share: their options, their data, the loop over it, and the line they print."""
import argparse
import gc
import json
import os
import resource
import time

import torch
# While there is no process group: its functions would keep that for ever, as their default.
import torch.distributed.nn
from torch.nn.functional import cross_entropy

import digits


def options(**defaults):
    """Options of the command line. `defaults` are added to it: name=(default, help)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["small", "resnet50"], default="small")
    parser.add_argument("--data", metavar="DIR", help="MNIST's files; without it digits are drawn")
    parser.add_argument("--samples", type=int, default=8192, help="pictures to train with")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="of each process")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    for name, (value, text) in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, type=type(value), default=value, help=text)
    return parser.parse_args()


def place():
    """Rank, number of ranks, rank on this host, number of hosts: what the launcher says."""
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_WORLD_SIZE"
    return (int(os.environ.get(name, alone)) for name, alone in zip(names, (0, 1, 0, 1)))


def device(chosen, index=0):
    if chosen.cpu or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", index % torch.cuda.device_count())


def backend(where):
    return "gloo" if where.type == "cpu" else "nccl"


class Data:
    """Pictures to learn from and others to test with, the same in every process."""

    def __init__(self, chosen):
        tests = max(256, chosen.samples // 8)
        if chosen.data:
            self.train = digits.from_folder(chosen.data, True, chosen.samples)
            self.test = digits.from_folder(chosen.data, False, tests)
        else:
            self.train, self.test = digits.drawn(chosen.samples, 1), digits.drawn(tests, 2)
        self.batch, self.epochs = chosen.batch, chosen.epochs

    def batches(self, rank=0, world=1):
        """This rank's share of every epoch, shuffled. All ranks have the same number of batches."""
        pictures, labels = self.train
        for epoch in range(self.epochs):
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
            mine = order[rank::world][:len(labels) // world]
            for part in mine.split(self.batch):
                if len(part) == self.batch or len(mine) < self.batch:
                    yield pictures[part], labels[part]

    def accuracy(self, predict):
        """Share of the test pictures that `predict`, pictures to scores, gets right."""
        pictures, labels = self.test
        with torch.no_grad():
            parts = [predict(part).argmax(1).cpu() for part in pictures.split(256)]
        return (torch.cat(parts) == labels).float().mean().item()


class Meter:
    """Throughput and memory. The first batch is not counted: it warms caches and connections up."""

    def __init__(self):
        self.samples, self.began, self.ended = 0, None, None

    def count(self, samples):
        """After each batch of this process."""
        self.ended = time.perf_counter()
        if self.began is None:
            self.began = self.ended
        else:
            self.samples += samples

    def rate(self):
        return self.samples / (self.ended - self.began) if self.samples else 0.0


def train(data, rank, world, step):
    """Calls `step` with each batch of this rank. \\return a Meter of this rank"""
    meter = Meter()
    for pictures, labels in data.batches(rank, world):
        step(pictures, labels)
        meter.count(len(labels))
    return meter


def usual_step(model, optimizer, where):
    """Forward, backward, update: what a process does with a batch when a wrapper does the rest."""
    def step(pictures, labels):
        optimizer.zero_grad()
        loss = cross_entropy(model(pictures.to(where)), labels.to(where))
        loss.backward()
        optimizer.step()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
    return step


def total_and_most(values, where):
    """Sums and maxima over all ranks of torch.distributed."""
    total, most = (torch.tensor(values, dtype=torch.float64, device=where) for _ in range(2))
    torch.distributed.all_reduce(total)
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    return total.tolist(), most.tolist()


def memory():
    """The most that this process has held: MB of main memory, MB of GPU memory."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gpus = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    return resident, sum(torch.cuda.max_memory_allocated(gpu) for gpu in gpus) / 2 ** 20


def leave(destroy=torch.distributed.destroy_process_group):
    """Ends the process group. A program first deletes what holds it, as DDP's model and optimizers do.

    Gloo's threads end with the group; one that still works while Python ends would abort the process.
    """
    gc.collect()
    destroy()


def report(experiment, processes, hosts, where, rate, memories, accuracy, **more):
    """One line of JSON, of one process. \\param memories  as memory(), the most of any process"""
    print(json.dumps({"experiment": experiment, "processes": processes, "hosts": hosts,
                      "device": str(where), "samples_per_second": round(rate, 1),
                      "memory_mb": round(memories[0]), "gpu_memory_mb": round(memories[1]),
                      "accuracy": round(accuracy, 4),
                      "torch": torch.__version__.split("+")[0], **more}), flush=True)
