"""The lab's exercise: compressors of gradients with 16 and 8 bits, beside those that dtrun has.

    dtrun -np 2 python3 bit_compressors.py
    dtrun -np 4 -H s1:2,s2:2 python3 bit_compressors.py --epochs 4

A compressor is a class with compress() and decompress(), as Horovod's are. Bit16Compressor is right.
Bit8Compressor has the two faults that everybody's first one has: sums of bytes overflow unless each rank
leaves room for the others, which costs bits; and what rounding takes away is gone for good. The table shows
what that is worth.
"""
import time

import torch
from torch.nn.functional import cross_entropy

import common
import dtrun.torch as hvd
import net


class Counting(hvd.Compressor):
    """A compressor that knows how many bytes it has sent."""

    def __init__(self):
        self.bytes = 0

    def counted(self, tensor, context):
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor, context


class Bit32Compressor(Counting):
    def compress(self, tensor):
        return self.counted(tensor, None)


class Bit16Compressor(Counting):
    """Half the bytes: the sum is made in 16 bits, too."""

    def compress(self, tensor):
        return self.counted(tensor.half(), tensor.dtype)

    def decompress(self, tensor, ctx):
        return tensor.to(ctx)


class Bit8Compressor(Counting):
    """A quarter: integers of 8 bits. All ranks need the same scale, and the sum of all has to fit."""

    def compress(self, tensor):
        largest = hvd.allreduce(tensor.abs().max().reshape(1), op=hvd.Max)
        scale = largest.clamp(min=1e-30) / (127 // hvd.size())
        return self.counted((tensor / scale).round().to(torch.int8), scale)

    def decompress(self, tensor, ctx):
        return tensor.float() * ctx / hvd.size()


class Dtruns(Counting):
    """What the library does itself: 256 values have a scale of their own, and sums are made in 32 bits."""

    def __init__(self, compressor, bits):
        super().__init__()
        self.compressor, self.bits = compressor, bits


def train(chosen, compressor):
    """Seconds, bytes that were sent, and accuracy."""
    model = net.whole(chosen.model, seed=1)
    data = common.Data(chosen)
    optimizer = torch.optim.Adam(model.parameters(), lr=chosen.lr)
    parameters = list(model.named_parameters())
    op = hvd.Sum if isinstance(compressor, Bit8Compressor) else hvd.Average  # it divides by itself
    sent, begin = 0, time.monotonic()
    for pictures, labels in data.batches(hvd.rank(), hvd.size()):
        optimizer.zero_grad()
        cross_entropy(model(pictures), labels).backward()
        for name, p in parameters:
            if isinstance(compressor, Dtruns):
                p.grad = hvd.allreduce(p.grad, name=name, compression=compressor.compressor)
                sent += p.grad.numel() * compressor.bits // 8
            else:
                p.grad = hvd.allreduce(p.grad, name=name, compression=compressor, op=op)
        optimizer.step()
    return time.monotonic() - begin, sent + compressor.bytes, data.accuracy(model)


def main():
    chosen = common.options()
    hvd.init()
    rows = [("32 bits", Bit32Compressor()), ("Bit16Compressor", Bit16Compressor()),
            ("Bit8Compressor", Bit8Compressor()), ("dtrun fp16", Dtruns(hvd.Compression.fp16, 16)),
            ("dtrun int8", Dtruns(hvd.Compression.int8, 8)), ("dtrun fp8", Dtruns(hvd.Compression.fp8, 8))]
    if hvd.rank() == 0:
        print("| compressor | MB sent by a rank | s | accuracy |\n|---|---|---|---|")
    for name, compressor in rows:
        seconds, sent, accuracy = train(chosen, compressor)
        if hvd.rank() == 0:
            print(f"| {name} | {sent / 1e6:.2f} | {seconds:.1f} | {100 * accuracy:.1f} % |", flush=True)
    hvd.shutdown()


main()
