"""What each worker of `./dev bench elastic` writes down: one file for each process, which the benchmark reads.

A line is KIND TIME WORLD RANK SIZE STEP. KIND is S for the start of the process, W for a world that it has entered and in
which it goes on behind STEP, and C for a step that is done and committed. TIME is CLOCK_MONOTONIC, which is one for all
hosts here. WORLD is a number that all ranks of a world share, and no other world has.
"""
import os
import time


class Log:
    def __init__(self, directory):
        host, slot = os.uname().nodename, os.environ.get("LOCAL_RANK", os.environ.get("HOROVOD_LOCAL_RANK", "0"))
        name = f"{host}.{slot}.{os.getpid()}.{time.monotonic_ns()}"
        # One write() for each line, so that a process that is killed leaves whole ones.
        self.file = os.open(f"{directory}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.world, self.rank, self.size = 0, 0, 0
        self.line("S", 0)

    def line(self, kind, step):
        text = f"{kind} {time.monotonic():.6f} {self.world} {self.rank} {self.size} {step}\n"
        os.write(self.file, text.encode())

    def enter(self, world, rank, size, step):
        self.world, self.rank, self.size = world, rank, size
        self.line("W", step)

    def done(self, step):
        self.line("C", step)


def load(path):
    """The step of a checkpoint; 0 if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def save(path, step):
    new = f"{path}.{os.uname().nodename}.{os.getpid()}"
    with open(new, "w", encoding="ascii") as file:
        file.write(str(step))
    os.replace(new, path)
