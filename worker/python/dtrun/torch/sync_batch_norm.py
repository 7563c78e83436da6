"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .basics import is_initialized, size
from .operations import Sum, allreduce_async_, synchronize


def _over_channels(values: torch.Tensor) -> torch.Tensor:
    """Sums over all dimensions but the second."""
    return values.sum(dim=[d for d in range(values.dim()) if d != 1])


def _wide(channels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return channels.view([1, -1] + [1] * (like.dim() - 2))


class _Normalize(torch.autograd.Function):
    """Values of 16 bits are normalized in 32, as torch does: their squares have no room in 16."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor],
                eps: float) -> Tuple[torch.Tensor, ...]:
        exact = values.detach().double()
        count = torch.tensor([float(values.numel() // values.shape[1])], dtype=torch.float64)
        sums = torch.cat([_over_channels(exact).cpu(), _over_channels(exact * exact).cpu(), count])
        synchronize(allreduce_async_(sums, op=Sum))
        channels, number = values.shape[1], sums[-1]
        mean = (sums[:channels] / number).to(values.device)
        variance = (sums[channels:2 * channels] / number).to(values.device) - mean * mean
        inverse = torch.rsqrt(variance.clamp(min=0) + eps)
        exact_type = torch.promote_types(values.dtype, torch.float32)
        mean, inverse = mean.to(exact_type), inverse.to(exact_type)
        normal = (values.to(exact_type) - _wide(mean, values)) * _wide(inverse, values)
        ctx.save_for_backward(normal, inverse, weight)
        ctx.number, ctx.type, ctx.bias_type = float(number), values.dtype, None if bias is None else bias.dtype
        out = normal if weight is None else normal * _wide(weight, values)
        out = out if bias is None else out + _wide(bias, values)
        statistics = (mean, variance.to(exact_type), number.clone())
        ctx.mark_non_differentiable(*statistics)
        return (out.to(values.dtype), *statistics)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *unused: Any) -> Tuple[Any, ...]:
        normal, inverse, weight = ctx.saved_tensors
        gradient = gradient.to(normal.dtype)
        own = torch.cat([_over_channels(gradient), _over_channels(gradient * normal)])
        both = own.detach().double().cpu()
        synchronize(allreduce_async_(both, op=Sum))
        channels = inverse.numel()
        means = (both / ctx.number).to(gradient.device, gradient.dtype)
        d_values = (gradient - _wide(means[:channels], gradient) - normal * _wide(means[channels:], gradient))
        d_values = d_values * _wide(inverse if weight is None else inverse * weight, gradient)
        d_weight = None if weight is None else own[channels:].to(weight.dtype)
        d_bias = None if ctx.bias_type is None else own[:channels].to(ctx.bias_type)
        return d_values.to(ctx.type), d_weight, d_bias, None


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm for (N, C) or (N, C, ...) with the mean and variance of all ranks' batches together.

    Its parameters are those of torch.nn.BatchNorm1d; so are its results if one rank had everything.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        use_batch = self.training or not self.track_running_stats
        if not use_batch or not is_initialized() or size() == 1:
            return super().forward(input)
        out, mean, variance, number = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._remember(mean, variance, float(number))
        return out

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor, number: float) -> None:
        self.num_batches_tracked += 1
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (number / max(number - 1, 1))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
