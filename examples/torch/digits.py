"""Pictures of digits and their labels: drawn here, or MNIST's own files."""
import gzip
import math
import pathlib
import struct

import torch

SIDE = 28
# Each digit as lines through points, x to the right and y down, in a square from -1 to 1.
_ARC = [(math.sin(angle * math.pi / 6), -math.cos(angle * math.pi / 6)) for angle in range(13)]
_OVAL = [(0.55 * x, 0.9 * y) for x, y in _ARC]
_UPPER = [(0.45 * x, 0.42 * y - 0.45) for x, y in _ARC]
_LOWER = [(0.5 * x, 0.45 * y + 0.42) for x, y in _ARC]
_STROKES = [
    [_OVAL],
    [[(-0.3, -0.5), (0.1, -0.9), (0.1, 0.9)]],
    [[(-0.5, -0.5), (-0.3, -0.85), (0.2, -0.9), (0.5, -0.5), (-0.5, 0.9), (0.55, 0.9)]],
    [[(-0.45, -0.8), *_UPPER[1:6], (0.0, -0.03)], [(0.0, -0.03), *_LOWER[1:9]]],
    [[(0.25, 0.9), (0.25, -0.9), (-0.55, 0.3), (0.6, 0.3)]],
    [[(0.5, -0.9), (-0.4, -0.9), (-0.45, -0.1), (0.1, -0.15), (0.5, 0.3), (0.2, 0.85), (-0.5, 0.8)]],
    [[(0.35, -0.9), (-0.3, -0.2), (-0.5, 0.42)], _LOWER],
    [[(-0.5, -0.9), (0.55, -0.9), (-0.1, 0.9)]],
    [_UPPER, _LOWER],
    [_UPPER, [(0.45, -0.45), (0.35, 0.2), (0.0, 0.9)]],
]


def _segments(digit):
    """Both ends of each line of the digit: two tensors of (lines, 2)."""
    pairs = [(line[i], line[i + 1]) for line in _STROKES[digit] for i in range(len(line) - 1)]
    return (torch.tensor([pair[end] for pair in pairs]) for end in (0, 1))


def _draw(digit, count, random):
    """`count` pictures, each turned, stretched, moved, of its own thickness, and noisy."""
    def between(low, high):
        return low + (high - low) * torch.rand(count, 1, generator=random)

    turn, slant = between(-0.25, 0.25), between(-0.25, 0.25)
    wide, high = between(0.55, 0.85), between(0.6, 0.85)
    shift = torch.cat([between(-0.15, 0.15), between(-0.15, 0.15)], dim=1)[:, None]

    def placed(points):
        x, y = points[:, 0] * wide + points[:, 1] * slant, points[:, 1] * high
        turned = torch.stack([x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos()], 2)
        return turned + shift

    start, end = (placed(points) for points in _segments(digit))
    line = torch.linspace(-1, 1, SIDE)
    pixels = torch.stack([line.repeat(SIDE), line.repeat_interleave(SIDE)])  # (2, pixels)
    # How far each pixel is from each line: |p - s - t a| for the t in 0..1 where that is least.
    along = end - start
    square = (along ** 2).sum(2, keepdim=True)
    ahead = along @ pixels - (along * start).sum(2, keepdim=True)  # (pictures, lines, pixels)
    t = (ahead / square).clamp(0, 1)
    from_start = (pixels ** 2).sum(0) - 2 * (start @ pixels) + (start ** 2).sum(2, keepdim=True)
    distance = (from_start - t * (2 * ahead - t * square)).amin(dim=1).clamp(min=0).sqrt()
    ink = ((between(0.08, 0.16) - distance) / 0.06).clamp(0, 1)
    noise = 0.25 * torch.randn(count, SIDE * SIDE, generator=random)
    return (ink + noise).clamp(0, 1)


def drawn(count, seed):
    """(count, 1, 28, 28) pictures from 0 to 1 and their labels; the same for the same seed."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    pictures = torch.empty(count, SIDE * SIDE)
    for digit in range(10):
        places = (labels == digit).nonzero()[:, 0]
        for part in places.split(64):
            pictures[part] = _draw(digit, len(part), random)
    return pictures.view(-1, 1, SIDE, SIDE), labels


def _idx(folder, name):
    """A file of MNIST's format, http://yann.lecun.com/exdb/mnist, packed or not, by the names of there or torchvision's."""
    spelled = [folder / inside / each for inside in ("", "MNIST/raw", "raw")
               for each in (name, name.replace("-idx", ".idx"))]
    for path in spelled + [path.with_name(path.name + ".gz") for path in spelled]:
        if path.exists():
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
                content = file.read()
            return _tensor(path, content)
    raise SystemExit(f"{folder}: no {name} or {name}.gz")


def _tensor(path, content):
    zero, kind, dimensions = struct.unpack(">HBB", content[:4].ljust(4, b"?"))
    head = 4 + 4 * dimensions
    if zero != 0 or kind != 8 or len(content) < head:
        raise SystemExit(f"{path}: not an idx file of bytes")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != math.prod(shape):
        raise SystemExit(f"{path}: it has {len(content) - head} bytes behind its head, not {math.prod(shape)}: is it whole?")
    return torch.frombuffer(bytearray(content[head:]), dtype=torch.uint8).view(shape)


def from_folder(folder, train, count=None):
    """MNIST, Fashion-MNIST or the like, at most `count` pictures."""
    folder, prefix = pathlib.Path(folder), "train" if train else "t10k"
    pictures, labels = (_idx(folder, f"{prefix}-{what}-ubyte") for what in ("images-idx3", "labels-idx1"))
    if tuple(pictures.shape) != (len(labels), SIDE, SIDE):
        raise SystemExit(f"{folder}: {prefix} has images of shape {tuple(pictures.shape)} and {len(labels)} labels")
    return pictures[:count, None].float() / 255, labels[:count].long()
