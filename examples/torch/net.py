"""A residual net for pictures of 28 x 28, in two sizes, that can be cut into two halves.

Norms are over groups of channels, not over the batch: so all experiments, however they split the batch,
train the same function.
"""
import torch
from torch import nn


def _conv(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
                         nn.GroupNorm(8, outputs))


class Residual(nn.Module):
    """x + f(x), where f is two convolutions, or three with a narrow one in the middle."""

    def __init__(self, inputs, outputs, stride, bottleneck):
        super().__init__()
        if bottleneck:
            narrow = outputs // 4
            self.f = nn.Sequential(_conv(inputs, narrow, 1), nn.ReLU(),
                                   _conv(narrow, narrow, 3, stride), nn.ReLU(),
                                   _conv(narrow, outputs, 1))
        else:
            self.f = nn.Sequential(_conv(inputs, outputs, 3, stride), nn.ReLU(),
                                   _conv(outputs, outputs, 3))
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x):
        return torch.relu(self.skip(x) + self.f(x))


def _layers(widths, depths, stem, bottleneck):
    layers = [nn.Sequential(_conv(1, widths[0], 3, stem), nn.ReLU())]
    inputs = widths[0]
    for number, (width, depth) in enumerate(zip(widths, depths)):
        outputs = width * 4 if bottleneck else width
        for block in range(depth):
            stride = 2 if block == 0 and number > 0 else 1
            layers.append(Residual(inputs, outputs, stride, bottleneck))
            inputs = outputs
    layers.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)))
    return layers


def whole(size, seed=1):
    """"small" has 78 thousand weights, "resnet50" the blocks of ResNet-50 and 23 million."""
    torch.manual_seed(seed)
    if size == "resnet50":
        return nn.Sequential(*_layers([64, 128, 256, 512], [3, 4, 6, 3], 1, bottleneck=True))
    return nn.Sequential(*_layers([16, 32, 64], [1, 1, 1], 2, bottleneck=False))


def halves(size, seed=1):
    """The same net in two parts of about equal work: most of it is where the pictures are large."""
    layers = list(whole(size, seed))
    cut = {"small": 2, "resnet50": 8}[size]
    return nn.Sequential(*layers[:cut]), nn.Sequential(*layers[cut:])
