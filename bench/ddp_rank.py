"""A rank of `./dev bench ddp`. Rank 0 prints a line of JSON for each round, net and way.

    ddp_rank.py PART,.. WAY,.. [OPTIONS]        PART is steps or accuracy
"""
import argparse
import json
import os
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import ddp_nets  # noqa: E402
from ddp_ways import WARMUP, Way  # noqa: E402

SENT_FILE = "/sys/class/net/eth0/statistics/tx_bytes"
#: Of `accuracy`: samples of a rank in a step, and how often in an epoch the net is tested.
BATCH, TESTS_IN_EPOCH = 16, 4
RATE, MOMENTUM = 0.02, 0.9


def say(**record: Any) -> None:
    if dist.get_rank() == 0:
        print(json.dumps(record), flush=True)


def over_ranks(value: float) -> float:
    """Sum of all ranks' values."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def sent_by_hosts() -> float:
    """Bytes that have left all hosts together; 0 where hosts have no interface of that name."""
    dist.barrier()
    sent = 0
    if os.environ["LOCAL_RANK"] == "0" and os.path.exists(SENT_FILE):
        with open(SENT_FILE, encoding="ascii") as file:
            sent = int(file.read())
    return over_ranks(sent)


def turns(ways: List[str], rounds: int) -> Iterator[Tuple[int, str]]:
    """Rounds and ways; each round begins with another way."""
    for number in range(rounds):
        turn = number % len(ways)
        for name in ways[turn:] + ways[:turn]:
            yield number, name


# ---- how long a step takes ----

def timed(step: Callable[[], None], number: int) -> List[float]:
    """Milliseconds of each step."""
    times = []
    for _ in range(number):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def measure(way: Way, loss_of: ddp_nets.Loss, steps: int) -> Dict[str, Any]:
    """Of a step: milliseconds, those without communication, processor milliseconds and bytes of all ranks."""
    optimizer = torch.optim.SGD(way.model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(way.model).backward()
        optimizer.step()

    timed(step, WARMUP)
    sent, used = sent_by_hosts(), time.process_time()
    way.clear_stats()
    times = timed(step, steps)
    used = time.process_time() - used
    found = {"ms": times, "bytes": (sent_by_hosts() - sent) / steps, "cpu_ms": over_ranks(used) / steps * 1e3,
             **way.stats(steps)}
    with way.model.no_sync():
        timed(step, 1)
        dist.barrier()
        found["alone_ms"] = timed(step, max(3, steps // 4))
    return found


def steps(chosen: argparse.Namespace) -> None:
    for net_name in chosen.nets:
        net, loss_of = ddp_nets.STEP_NETS[net_name](dist.get_rank())
        for number, name in turns(chosen.ways, chosen.rounds):
            way = Way(net, name)
            found = measure(way, loss_of, chosen.steps)
            way.close()
            say(part="steps", net=net_name, round=number + 1, way=name, **found)


# ---- how well, and how soon, a net learns ----

class Digits:
    """This rank's share of the pictures, the same for every seed and way; half as many again to test with."""

    def __init__(self, pictures: int) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        self.train = ddp_nets.digits.drawn(pictures // world, 1 + rank)
        self.test = ddp_nets.digits.drawn(pictures // 2 // world, 1001 + rank)

    def batches(self, seed: int) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        """Of one epoch, shuffled."""
        pictures, labels = self.train
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        for part in order.split(BATCH):
            if len(part) == BATCH:
                yield pictures[part], labels[part]

    def steps_in_epoch(self) -> int:
        return len(self.train[1]) // BATCH

    def accuracy(self, model: torch.nn.Module) -> float:
        """Per cent of all ranks' test pictures."""
        pictures, labels = self.test
        with torch.no_grad():
            right = sum(int((model(part).argmax(1) == wanted).sum())
                        for part, wanted in zip(pictures.split(256), labels.split(256)))
        return 100 * over_ranks(right) / over_ranks(len(labels))


def train(way: Way, data: Digits, seed: int, epochs: int) -> Dict[str, Any]:
    """The accuracy after so many steps, and seconds of all steps until then; tests are not counted."""
    optimizer = torch.optim.SGD(way.model.parameters(), lr=RATE, momentum=MOMENTUM)
    steps_in_epoch = data.steps_in_epoch()
    every = max(1, steps_in_epoch // TESTS_IN_EPOCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * steps_in_epoch)
    tests: List[Tuple[int, float, float]] = []
    seconds, done = 0.0, 0
    for epoch in range(epochs):
        for pictures, labels in data.batches(1000 * seed + epoch):
            begin = time.perf_counter()
            optimizer.zero_grad()
            cross_entropy(way.model(pictures), labels).backward()
            optimizer.step()
            schedule.step()
            seconds += time.perf_counter() - begin
            done += 1
            if done % every == 0:
                tests.append((done, seconds, data.accuracy(way.model.module)))
    return {"tests": tests}


def accuracy(chosen: argparse.Namespace) -> None:
    data = Digits(chosen.pictures)
    for number, name in turns(chosen.ways, chosen.seeds):
        way = Way(ddp_nets.reader(number + 1), name)
        found = train(way, data, number + 1, chosen.epochs)
        way.close()
        say(part="accuracy", seed=number + 1, way=name, **found)


def main() -> None:
    def words(text: str) -> List[str]:
        return text.split(",")

    parser = argparse.ArgumentParser()
    parser.add_argument("parts", type=words)
    parser.add_argument("ways", type=words)
    parser.add_argument("--nets", type=words, default=["gradients"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=8192, help="of all ranks together")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for part in chosen.parts:
        {"steps": steps, "accuracy": accuracy}[part](chosen)
    dist.destroy_process_group()


main()
