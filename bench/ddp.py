#!/usr/bin/python3 -I
"""What compressed gradients gain torch's DistributedDataParallel on a slow network: torch's own ways and dtrun's.

Needs root: the hosts are network namespaces on this machine, whose interfaces are shaped, and the torch that
tests/frameworks/setup installs. Ways take turns. `steps`: how long a step takes, how much of that is exposed
communication, processor time and bytes that leave a host. `accuracy`: how well, and how soon, a net learns to read
digits.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import collectives  # noqa: E402
import launch  # noqa: E402
import table  # noqa: E402

BUILD = f"{ROOT}/build/release"
PYTHON = f"{ROOT}/build/frameworks/torch/bin/python"
PARTS = ("steps", "accuracy")
WAYS = ("torch f32", "torch fp16", "PowerSGD 4", "dtrun f32", "dtrun fp16", "dtrun int8", "dtrun e4m3")
MORE_WAYS = ("backend f32",)
NETS = ("gradients", "small", "resnet50")
BASE, RIVAL = "torch f32", "torch fp16"
#: Times torch f32's steps, by way, where communication dominates: with the net "gradients".
SPEED_TARGETS = {"dtrun int8": 3.0}
ACCURACY_TARGET = 0.3  # points below torch f32's
#: Student's t for 95 %, by degrees of freedom; more have the last one.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.2)


def say(text):
    print(f"ddp.py: {text}", file=sys.stderr, flush=True)


def choice(*names):
    """For argparse: words separated by commas, each one of `names`."""
    def parse(text):
        words = text.split(",")
        unknown = [word for word in words if word not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are {', '.join(names)}")
        return words
    return parse


def command(options):
    """Of the job in which all ways take turns."""
    environment = {"PYTHONPATH": f"{ROOT}/worker/python", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                   "LIBDTRUN_PATH": f"{BUILD}/lib/libdtrun.so.0",
                   "LIBDTRUN_COLLECTIVES_PATH": f"{BUILD}/lib/libdtrun_collectives.so.0"}
    hosts = ",".join(f"s{number}:{options.slots}" for number in range(1, options.hosts + 1))
    how = {name: getattr(options, name) for name in ("rounds", "steps", "seeds", "epochs")}
    return [f"{BUILD}/bin/dtrun", "--tag", "none", "--quiet", "-H", hosts,
            *(f"{name}={value}" for name, value in environment.items()), PYTHON, f"{HERE}/ddp_rank.py",
            ",".join(options.parts), ",".join(options.ways), "--nets", ",".join(options.nets),
            *(word for name, value in how.items() for word in (f"--{name}", str(value)))]


def run(cluster, options):
    """What the ranks have found, as far as they came."""
    records = []
    with subprocess.Popen([launch.CLUSTER, "exec", "head", *command(options)], env=cluster.environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as job:
        try:
            for line in job.stdout:
                if line.startswith("{"):
                    records.append(json.loads(line))
                    say_turn(records[-1])
        except KeyboardInterrupt:
            job.terminate()
    if job.returncode != 0:
        say(f"the job ended with {job.returncode}; the tables have what it had found by then")
    return records


def say_turn(record):
    turn = f"seed {record['seed']}" if "seed" in record else f"{record['net']}, round {record['round']}"
    say(f"{record['part']}, {turn}: {record['way']}")


# ---- from records of ddp_rank.py to text ----
def with_interval(values, digits=2):
    """Mean and half of its 95 % interval, which is not known of a single value."""
    text = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return text
    t = STUDENT_T[min(len(values) - 2, len(STUDENT_T) - 1)]
    return f"{text} ± {t * statistics.stdev(values) / math.sqrt(len(values)):.{digits}f}"


def grouped(records, *names):
    """Records by their values of `names`, in the order in which they first came."""
    groups = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def faster(rounds, than):
    """How many times, each round against the same round of the other way."""
    return table.paired_ratio(than, rounds, lambda record: statistics.median(record["ms"]))


def step_row(name, rounds, base, hosts):
    def middle(value):
        return statistics.median(value(record) for record in rounds)

    def exposed(record):
        return statistics.median(record["ms"]) - statistics.median(record["alone_ms"])

    speed = faster(rounds, base) if base else None
    return [name, f"{middle(lambda record: statistics.median(record['ms'])):.1f}", table.times(speed),
            f"{middle(exposed):.1f}", f"{middle(lambda record: record['cpu_ms']) / hosts:.1f}",
            f"{middle(lambda record: record['bytes']) / hosts * 1e-6:.2f}"]


def steps(records, hosts, targets):
    """A table for each net."""
    lines = []
    for (net,), of_net in grouped(records, "net").items():
        by_way = {way: rounds for (way,), rounds in grouped(of_net, "way").items()}
        number = max(len(rounds) for rounds in by_way.values())
        base, rival = by_way.get(BASE), by_way.get(RIVAL)
        lines += ["", f"a step of the net {net}, median of {number} x {len(of_net[0]['ms'])}",
                  *table.columns([["", "ms", "speed", "exposed", "cpu ms", "MB/host"],
                                  *(step_row(name, rounds, base, hosts) for name, rounds in by_way.items())])]
        for name, rounds in by_way.items():
            wanted = SPEED_TARGETS.get(name)
            if base and wanted and net == "gradients":
                targets.at_least(f"{net}: {name} at least {wanted:g} x {BASE}", faster(rounds, base), wanted, "{:.2f} x")
            if rival and name.startswith("dtrun") and name != "dtrun f32":
                targets.at_least(f"{net}: {name} not behind {RIVAL}", faster(rounds, rival), 1, "{:.2f} x")
    return lines


def time_to(record, target):
    """Seconds until the first test that reached `target`; None if none did."""
    return next((seconds for _, seconds, reached in record["tests"] if reached >= target), None)


def accuracy(records, target, targets):
    """One table: final accuracy, what it is more than torch f32's with the same seed, and the time to `target`."""
    by_way = {way: seeds for (way,), seeds in grouped(records, "way").items()}
    base = {record["seed"]: record["tests"][-1][2] for record in by_way.get(BASE, ())}
    done, number = records[0]["tests"][-1][0], max(len(seeds) for seeds in by_way.values())
    rows = [["", "accuracy, %", "points more", f"s to {target:g} %"]]
    for name, seeds in by_way.items():
        more = [record["tests"][-1][2] - base[record["seed"]] for record in seeds if record["seed"] in base]
        reached = [seconds for seconds in (time_to(record, target) for record in seeds) if seconds is not None]
        rows.append([name, with_interval([record["tests"][-1][2] for record in seeds]), with_interval(more) if more else "",
                     with_interval(reached, 1) if len(reached) == len(seeds) else f"{len(reached)} of {len(seeds)}"])
        if more and name.startswith("dtrun"):
            targets.at_least(f"accuracy: {name} at most {ACCURACY_TARGET} points below {BASE}", statistics.mean(more),
                             -ACCURACY_TARGET, "{:+.2f}")
    return ["", f"reading digits, {done} steps, {number} seeds: mean and 95 % interval", *table.columns(rows)]


def report(records, facts, options):
    lines = [f"{options.hosts} hosts x {options.slots}, {options.rate or 'no limit'}, torch {options.torch}",
             *table.wrapped(table.machine(facts))]
    of_part, targets = {part: found for (part,), found in grouped(records, "part").items()}, table.Targets()
    if "steps" in of_part:
        lines += steps(of_part["steps"], options.hosts, targets)
    if "accuracy" in of_part:
        lines += accuracy(of_part["accuracy"], options.target, targets)
    return "\n".join([*lines, "", *targets.lines()])


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench ddp", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--rate", default="1gbit",
                        help="of what a host sends, as tc has it; none: no limit (default: 1gbit)")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="(default: 4)")
    parser.add_argument("--slots", type=int, default=1, metavar="N", help="ranks on a host (default: 1)")
    parser.add_argument("--ways", type=choice(*WAYS, *MORE_WAYS), default=list(WAYS), metavar="NAME,..",
                        help=f"of {', '.join(WAYS)}; and {', '.join(MORE_WAYS)}, which has no hook")
    parser.add_argument("--nets", type=choice(*NETS), default=["gradients", "small"], metavar="NAME,..",
                        help="of steps: gradients (ResNet-50's, next to no computing), small (78 thousand "
                             "weights), resnet50 (which is computed); default: gradients,small")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of steps (default: 5)")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of a way in a round (default: 20)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="of accuracy (default: 5)")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="of accuracy (default: 3)")
    parser.add_argument("--target", type=float, default=98, metavar="P",
                        help="per cent, the time to which is told (default: 98)")
    parser.add_argument("--json", metavar="FILE", help="write every step and every test there")
    options = parser.parse_args()
    options.rate = None if options.rate == "none" else options.rate
    options.parts = [options.only] if options.only else list(PARTS)
    return options


def torch_version():
    done = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ddp.py: {PYTHON} has no torch: run tests/frameworks/setup torch")
    return done.stdout.strip()


def main():
    options = parse_arguments()
    options.torch = torch_version()
    cluster = launch.Cluster(options.hosts, [ROOT])
    try:
        machine = launch.Machine(cluster)
        if options.rate:
            collectives.shape(cluster, options.hosts, options.rate)
        records = run(cluster, options)
        facts = machine.facts()
    finally:
        cluster.down()
    print(report(records, facts, options))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": facts, "options": vars(options), "records": records}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
