"""From records of ddp_rank.py to the tables of `./dev bench ddp`, and what became of the targets."""
import math
import statistics

BASE, RIVAL = "torch f32", "torch fp16"
#: Times torch f32's steps, by way, where communication dominates.
SPEED_TARGETS = {"dtrun int8": 3.0}
ACCURACY_TARGET = 0.3  # points below torch f32's
#: Student's t for 95 %, by degrees of freedom; more have the last one.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.2)


def estimate(values):
    """Mean and half of its 95 % interval, which is not known of a single value."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, math.nan
    t = _T[min(len(values) - 2, len(_T) - 1)]
    return mean, t * statistics.stdev(values) / math.sqrt(len(values))


def _with_interval(values, digits=2):
    mean, half = estimate(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _grouped(records, *names):
    """Records by their values of `names`, in the order in which they first came."""
    groups = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


class Missed:
    """Targets that a row has missed, as text behind it."""

    def __init__(self):
        self.texts = []

    def unless(self, met, text):
        if not met:
            self.texts.append(text)

    def __str__(self):
        return "  missed: " + ", ".join(self.texts) if self.texts else ""


# ---- how long a step takes ----

def _step_ratios(rounds, other_rounds):
    """How many times faster, each round against the same round of the other way."""
    other = {record["round"]: statistics.median(record["ms"]) for record in other_rounds}
    return [other[record["round"]] / statistics.median(record["ms"]) for record in rounds
            if record["round"] in other]


def _step_row(name, rounds, by_way, hosts, dominated):
    def middle(value):
        return statistics.median(value(record) for record in rounds)

    step = middle(lambda record: statistics.median(record["ms"]))
    alone = [statistics.median(record["alone_ms"]) for record in rounds]
    exposed = statistics.median(statistics.median(record["ms"]) - ms for record, ms in zip(rounds, alone))
    missed, times = Missed(), ""
    if BASE in by_way:
        speed = statistics.median(_step_ratios(rounds, by_way[BASE]))
        times = f"{speed:.2f}x"
        if dominated and name in SPEED_TARGETS:
            missed.unless(speed >= SPEED_TARGETS[name], f"{SPEED_TARGETS[name]:g}x")
    if RIVAL in by_way and name.startswith("dtrun") and name != "dtrun f32":
        against = statistics.median(_step_ratios(rounds, by_way[RIVAL]))
        missed.unless(against >= 1, f"{against:.2f}x {RIVAL}")
    cpu_ms, sent = (middle(lambda record: record[value]) / hosts for value in ("cpu_ms", "bytes"))
    return f"  {name:11} {step:8.1f} {times:>7} {exposed:8.1f} {cpu_ms:8.1f} {sent * 1e-6:8.2f}{missed}"


def steps(records, hosts):
    """A table for each net."""
    lines = []
    for (net,), of_net in _grouped(records, "net").items():
        by_way = {way: rounds for (way,), rounds in _grouped(of_net, "way").items()}
        number = max(len(rounds) for rounds in by_way.values())
        lines += ["", f"a step of the net {net}, median of {number} x {len(of_net[0]['ms'])}",
                  f"  {'':11} {'ms':>8} {'speed':>7} {'exposed':>8} {'cpu ms':>8} {'MB/host':>8}"]
        lines += [_step_row(name, rounds, by_way, hosts, net == "gradients") for name, rounds in by_way.items()]
    return lines


# ---- how well, and how soon, a net learns ----

def _time_to(record, target):
    """Seconds until the first test that reached `target`; None if none did."""
    return next((seconds for _, seconds, reached in record["tests"] if reached >= target), None)


def accuracy(records, target):
    """One table: final accuracy, what it is more than torch f32's with the same seed, and the time to `target`."""
    by_way = {way: seeds for (way,), seeds in _grouped(records, "way").items()}
    base = {record["seed"]: record["tests"][-1][2] for record in by_way.get(BASE, ())}
    done, number = records[0]["tests"][-1][0], max(len(seeds) for seeds in by_way.values())
    lines = ["", f"reading digits, {done} steps, {number} seeds: mean and 95 % interval",
             f"  {'':11} {'accuracy, %':>14} {'points more':>14} {f's to {target:g} %':>14}"]
    for name, seeds in by_way.items():
        final = [record["tests"][-1][2] for record in seeds]
        more = [record["tests"][-1][2] - base[record["seed"]] for record in seeds if record["seed"] in base]
        reached = [seconds for seconds in (_time_to(record, target) for record in seeds) if seconds is not None]
        all_reached = len(reached) == len(seeds)
        time = _with_interval(reached, 1) if all_reached else f"{len(reached)} of {len(seeds)} got there"
        missed = Missed()
        if more and name.startswith("dtrun"):
            missed.unless(statistics.mean(more) >= -ACCURACY_TARGET, f"{ACCURACY_TARGET} points")
        points = _with_interval(more) if more else ""
        lines.append(f"  {name:11} {_with_interval(final):>14} {points:>14} {time:>14}{missed}")
    return lines


def report(records, machine, options):
    """All of it, 80 columns wide."""
    others = "" if machine["others"] is None else f"; other programs took {machine['others']:.0%}"
    lines = [f"{options.hosts} hosts x {options.slots}, {options.rate or 'no limit'}, torch {options.torch}",
             f"{machine['processor']}, {machine['cores']} cores, {machine['kernel']}{others}"]
    of_part = {part: found for (part,), found in _grouped(records, "part").items()}
    if "steps" in of_part:
        lines += steps(of_part["steps"], options.hosts)
    if "accuracy" in of_part:
        lines += accuracy(of_part["accuracy"], options.target)
    return "\n".join(lines)
