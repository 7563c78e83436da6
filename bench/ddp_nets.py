"""The nets that `./dev bench ddp` trains."""
import os
import sys
from typing import Any, Callable, Tuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, f"{HERE}/../examples/torch"]
import digits  # noqa: E402
import net as examples_net  # noqa: E402
from hvd_step import resnet50  # noqa: E402

Loss = Callable[[nn.Module], torch.Tensor]


class _Weight(torch.autograd.Function):
    """A layer that computes nothing: the gradient of its weight is noise that was drawn before."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        ctx.noise = noise
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, None]:
        return gradient, ctx.noise * gradient, None


class Gradients(nn.Module):
    """The 161 parameters of ResNet-50, whose gradients are written to memory one after the other, last ones first.

    Nothing else is computed, so that a step is little more than what becomes of the gradients.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        shapes = [torch.Size(shape) for shape in resnet50()]
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes])
        # All layers have the same noise, which so stays in the processor's cache.
        noise = torch.randn(max(shape.numel() for shape in shapes), generator=torch.Generator().manual_seed(rank))
        self.noise = [noise[:shape.numel()].view(shape) for shape in shapes]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight, noise in zip(self.weights, self.noise):
            x = _Weight.apply(x, weight, noise)
        return x


def _gradients(rank: int) -> Tuple[nn.Module, Loss]:
    one = torch.ones((), requires_grad=True)
    return Gradients(rank), lambda model: model(one)


def _resnet50(rank: int) -> Tuple[nn.Module, Loss]:
    """One picture is as much work as ResNet-50 can be given while its gradients are as large as they are."""
    pictures, labels = digits.drawn(1, rank)
    return examples_net.whole("resnet50"), lambda model: cross_entropy(model(pictures), labels)


def _small(rank: int) -> Tuple[nn.Module, Loss]:
    pictures, labels = digits.drawn(16, rank)
    return examples_net.whole("small"), lambda model: cross_entropy(model(pictures), labels)


#: By name, what makes a net and the function that computes its loss, for a rank.
STEP_NETS = {"gradients": _gradients, "resnet50": _resnet50, "small": _small}


def reader(seed: int, width: int = 1024) -> nn.Module:
    """A net that reads digits, nearly all of whose 1.6 million weights are in one layer, which costs little.

    So a step is mostly communication, as with large nets on fast processors, and yet it learns within a minute.
    """
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU(), nn.Flatten(),
                         nn.Linear(32 * 7 * 7, width), nn.ReLU(), nn.Linear(width, 10))
