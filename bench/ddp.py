#!/usr/bin/python3 -I
"""What compressed gradients gain torch's DistributedDataParallel on a slow network: torch's own ways and dtrun's.

Needs root: the hosts are network namespaces on this machine, whose interfaces are shaped, and the torch that
tests/frameworks/setup installs. Ways take turns. `steps`: how long a step takes, how much of that is exposed
communication, processor time and bytes that leave a host. `accuracy`: how well, and how soon, a net learns to read
digits.
"""
import argparse
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import collectives  # noqa: E402
import ddp_table  # noqa: E402
import launch  # noqa: E402

BUILD = f"{ROOT}/build/release"
PYTHON = f"{ROOT}/build/frameworks/torch/bin/python"
PARTS = ("steps", "accuracy")
WAYS = ("torch f32", "torch fp16", "PowerSGD 4", "dtrun f32", "dtrun fp16", "dtrun int8", "dtrun e4m3")
MORE_WAYS = ("backend f32",)
NETS = ("gradients", "small", "resnet50")


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
    print(ddp_table.report(records, facts, options))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": facts, "options": vars(options), "records": records}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
