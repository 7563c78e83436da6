"""A student's first Horovod program: a small convolutional net that learns to read digits.

The digits are drawn here, a font of 5x7 dots at random places, with noise: nothing is downloaded.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

# Seven rows of five dots for each digit.
FONT = """
01110 00100 01110 11111 00010 11111 00110 11111 01110 01110
10001 01100 10001 00010 00110 10000 01000 00001 10001 10001
10011 00100 00001 00100 01010 11110 10000 00010 10001 10001
10101 00100 00010 00010 10010 00001 11110 00100 01110 01111
11001 00100 00100 00001 11111 00001 10001 01000 10001 00001
10001 00100 01000 10001 00010 10001 10001 01000 10001 00010
01110 01110 11111 01110 00010 01110 01110 01000 01110 01100
"""
SIDE = 14


def digits(count, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = [line.split() for line in FONT.split("\n") if line]
    glyphs = torch.tensor([[[float(dot) for dot in row[digit]] for row in rows]
                           for digit in range(10)])
    labels = torch.randint(10, (count,), generator=generator)
    images = 0.6 * torch.rand(count, 1, SIDE, SIDE, generator=generator) - 0.5
    tops = torch.randint(3, 6, (count,), generator=generator)
    lefts = torch.randint(4, 7, (count,), generator=generator)
    for image, label, top, left in zip(images, labels, tops, lefts):
        image[0, top:top + 7, left:left + 5] += 2 * glyphs[label]
    return TensorDataset(images, labels)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 8, 3)
        self.second = torch.nn.Conv2d(8, 16, 3)
        self.third = torch.nn.Linear(16 * 2 * 2, 64)
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.first(x), 2))
        x = F.relu(F.max_pool2d(self.second(x), 2))
        x = F.relu(self.third(x.flatten(1)))
        return F.log_softmax(self.last(x), dim=1)


def mean_over_ranks(value, name):
    return hvd.allreduce(torch.tensor(float(value)), name=name).item()


def test(model, loader):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    return mean_over_ranks(right / seen, "accuracy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    training, testing = digits(2048, seed=1), digits(512, seed=2)
    sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(training, batch_size=args.batch_size, sampler=sampler)
    test_loader = DataLoader(testing, batch_size=256, sampler=DistributedSampler(
        testing, num_replicas=hvd.size(), rank=hvd.rank()))

    model = Net()
    scaler = 1 if args.use_adasum else hvd.size()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * scaler, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average)

    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
        accuracy = test(model, test_loader)
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.4f}", flush=True)


main()
