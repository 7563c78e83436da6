#!/usr/bin/python3 -I
"""What collectives cost next to the libraries below, compression on a slow link, fusion, and the codecs.

Needs root: the slow link is between network namespaces on this machine, whose interfaces are shaped.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import launch  # noqa: E402

BIN = f"{ROOT}/build/release/bin"
LIBRARIES = f"{ROOT}/build/release"
BYTES = 64 << 20
FORMATS = ("none", "fp16", "bf16", "int8", "fp8-e4m3", "fp8-e5m2")
#: How much faster than f32 an allreduce has to be on the slow link, by ranks and format.
TARGETS = {(2, "fp16"): 1.9, (2, "bf16"): 1.9, (2, "int8"): 3.4, (2, "fp8-e4m3"): 3.4, (2, "fp8-e5m2"): 3.4,
           (4, "fp16"): 1.9, (4, "bf16"): 1.9, (4, "int8"): 3.7, (4, "fp8-e4m3"): 3.7, (4, "fp8-e5m2"): 3.7}
FUSED_TARGET = 10
#: Ranks that wait take turns with the kernel, which carries their packets on the same processors.
YIELD = ["OMPI_MCA_mpi_yield_when_idle=1"]


def say(text=""):
    print(text, flush=True)


def verdict(ratio, target):
    return "" if ratio >= target else f"   missed: {target}x"


def run(command, **more):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False, **more)
    if done.returncode != 0:
        say(f"{' '.join(command)}: exit status {done.returncode}")
    return done.stdout


def shape(cluster, hosts, rate):
    """What each host sends leaves it at `rate`; None: as fast as it can."""
    for number in range(1, hosts + 1):
        words = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb",
                 "latency", "50ms"] if rate else ["tc", "qdisc", "del", "dev", "eth0", "root"]
        cluster.ask("exec", f"s{number}", *words)


def sweep(cluster, hosts, backend, iterations):
    """Medians in ms by format."""
    command = [f"{BIN}/dtrun", "--tag", "none", "--only-ranks", "0", "-H",
               ",".join(f"s{number}" for number in range(1, hosts + 1)), *YIELD, f"{BIN}/dtrun-bench-rank", "sweep",
               "--backend", backend, "--ops", "allreduce", "--sizes", str(BYTES), "--compress",
               ",".join(FORMATS), "--iters", str(iterations), "--warmup", "2"]
    out = cluster.ask("exec", "head", *command)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rows = [row for row in rows if row["type"] == "row"]
    if any(row["wrong"] for row in rows):
        say("some results are wrong")
    return {row["compression"]: row["t_p50_us"] / 1000 for row in rows}


def compression(options):
    cluster = launch.Cluster(4, [ROOT])
    try:
        for backend in options.backends:
            for hosts in (2, 4):
                shape(cluster, hosts, options.rate)
                times = [sweep(cluster, hosts, backend, options.iterations) for _ in range(options.rounds)]
                shape(cluster, hosts, None)
                say(f"\n{backend}, {hosts} hosts, {options.rate}, allreduce of {BYTES >> 20} MiB of f32 (sum), "
                    f"median of {options.rounds} x {options.iterations}")
                for name in FORMATS:
                    ms = statistics.median(run[name] for run in times)
                    ratio = statistics.median(run["none"] / run[name] for run in times)
                    target = TARGETS.get((hosts, name), 0)
                    say(f"  {name:10} {ms:8.1f} ms {ratio:6.2f}x{verdict(ratio, target)}")
    finally:
        cluster.down()


def report_fusion(where, backend, out):
    found = json.loads(out)
    ratio = found["one_by_one_ms"] / found["fused_ms"]
    say(f"{backend:5} {where}: one by one {found['one_by_one_ms']:.1f} ms, "
        f"fused {found['fused_ms']:.1f} ms, {ratio:.1f}x{verdict(ratio, FUSED_TARGET)}")


def fusion(options):
    more = {"PYTHONPATH": f"{ROOT}/worker/python", "PYTHONDONTWRITEBYTECODE": "1",
            "LIBDTRUN_PATH": f"{LIBRARIES}/worker/client/libdtrun.so.0",
            "LIBDTRUN_COLLECTIVES_PATH": f"{LIBRARIES}/lib/libdtrun_collectives.so.0",
            **dict(word.split("=") for word in YIELD)}
    dtrun = [f"{BIN}/dtrun", "--tag", "none", "--only-ranks", "0"]
    program = ["/usr/bin/python3", f"{HERE}/collectives_fused.py"]
    say("\n1,000 arrays of 4 KiB")
    for backend in options.backends:
        out = run([*dtrun, "-np", "2", *program, backend], env={**os.environ, **more})
        report_fusion("2 ranks on one host", backend, out)
    cluster = launch.Cluster(4, [ROOT])
    try:
        words = [f"{name}={value}" for name, value in more.items()]
        for backend in options.backends:
            out = cluster.ask("exec", "head", *dtrun, "-H", "s1,s2,s3,s4", *words, *program, backend)
            report_fusion("4 ranks on 4 hosts", backend, out)
    finally:
        cluster.down()


def main():
    parser = argparse.ArgumentParser(prog="./dev bench collectives", description=__doc__)
    parser.add_argument("--only", choices=("direct", "compression", "fusion", "codecs"), action="append",
                        help="this part alone; may be given again (default: all)")
    parser.add_argument("--rate", default="1gbit", help="of the slow link, as tc has it (default: 1gbit)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--iterations", type=int, default=7, metavar="N", help="in a round (default: 7)")
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["gloo", "mpi"])
    options = parser.parse_args()
    parts = options.only or ["codecs", "direct", "fusion", "compression"]
    if "codecs" in parts:
        say(run([f"{BIN}/codec_bench"]))
    if "direct" in parts:
        for ranks in ("2", "4"):
            say(run([f"{BIN}/gloo_direct", ranks]))
            for mpi in ("openmpi", "mpich"):
                program = f"{BIN}/mpi_direct_{mpi}"
                if os.path.exists(program) and (mpi, ranks) != ("mpich", "4"):  # it spins
                    say(run([f"{BIN}/dtrun", "--tag", "none", "-np", ranks, program]))
    if "fusion" in parts:
        fusion(options)
    if "compression" in parts:
        compression(options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
