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
#: Hosts and ranks on each.
SHAPES = ((2, 1), (4, 1), (2, 4), (4, 4))
#: How much faster than a ring of f32 over all ranks an allreduce has to be on the slow link, by shape and format.
TARGETS = {(2, 1, "fp16"): 1.9, (2, 1, "int8"): 3.4, (4, 1, "fp16"): 1.9, (4, 1, "int8"): 3.7,
           (4, 4, "fp16"): 2.2, (4, 4, "int8"): 4.5}
FUSED_TARGET = 0.9
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


def sweep(cluster, shape_of, backend, iterations, sizes, formats, *more):
    """Medians in ms by format and bytes."""
    hosts, slots = shape_of
    command = [f"{BIN}/dtrun", "--tag", "none", "--only-ranks", "0", "-H",
               ",".join(f"s{number}:{slots}" for number in range(1, hosts + 1)), *YIELD,
               *(["DTRUN_SHARED_MEMORY=no"] if "ring" in more else []), f"{BIN}/dtrun-bench-rank", "sweep",
               "--backend", backend, "--ops", "allreduce", "--sizes", sizes, "--compress", ",".join(formats),
               "--iters", str(iterations), "--warmup", "2", *(["--compress-auto", "1"] if "auto" in more else [])]
    out = cluster.ask("exec", "head", *command)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rows = [row for row in rows if row["type"] == "row"]
    if any(row["wrong"] for row in rows):
        say("some results are wrong")
    return {(row["compression"], row["bytes"]): row["t_p50_us"] / 1000 for row in rows}


def processor_ms(cluster, shape_of, backend, iterations, name):
    """Milliseconds of processors that all ranks take for one allreduce, without their start; None: it is not known."""
    spent = []
    for number in (iterations, 2 * iterations):
        before = cluster.cpu_seconds()
        if before is None:
            return None
        sweep(cluster, shape_of, backend, number, str(BYTES), ["none" if name == "ring" else name],
              *(["ring"] if name == "ring" else []))
        spent.append(cluster.cpu_seconds() - before)
    return (spent[1] - spent[0]) / iterations * 1000


def compression(options):
    """A large allreduce by format, next to the ring of f32 that knows nothing of hosts."""
    cluster = launch.Cluster(4, [ROOT])
    try:
        for backend in options.backends:
            for shape_of in SHAPES:
                hosts, slots = shape_of
                shape(cluster, hosts, options.rate)
                times = []
                for _ in range(options.rounds):
                    run_of = sweep(cluster, shape_of, backend, options.iterations, str(BYTES), FORMATS)
                    if backend == "dtrun":
                        ring = sweep(cluster, shape_of, backend, options.iterations, str(BYTES), ["none"], "ring")
                        run_of["ring", BYTES] = ring["none", BYTES]
                    times.append({name: ms for (name, _), ms in run_of.items()})
                cpu = {name: processor_ms(cluster, shape_of, backend, options.iterations, name) if options.cpu else None
                       for name in times[0]}
                shape(cluster, hosts, None)
                say(f"\n{backend}, {hosts} hosts x {slots}, {options.rate}, allreduce of {BYTES >> 20} MiB of f32 (sum), "
                    f"median of {options.rounds} x {options.iterations}")
                base = "ring" if "ring" in times[0] else "none"
                for name in times[0]:
                    ms = statistics.median(run_of[name] for run_of in times)
                    ratio = statistics.median(run_of[base] / run_of[name] for run_of in times)
                    target = TARGETS.get((hosts, slots, name), 0) if backend == "dtrun" else 0
                    spent = "" if cpu[name] is None else f"   {cpu[name]:7.1f} ms of processors"
                    say(f"  {name:10} {ms:8.1f} ms {ratio:6.2f}x{spent}{verdict(ratio, target)}")
    finally:
        cluster.down()


def automatic(options):
    """Whether what the library does by itself is ever slower than f32."""
    cluster = launch.Cluster(4, [ROOT])
    sizes = ",".join(str(1 << power) for power in range(10, 26, 3))
    try:
        for rate in (options.rate, None):
            for shape_of in ((1, 2), (1, 4), *SHAPES):
                if rate:
                    shape(cluster, shape_of[0], rate)
                # Of these the first eight are a trial.
                rows = [sweep(cluster, shape_of, "dtrun", max(options.iterations, 31), sizes, ("none", "fp16", "int8"), "auto")
                        for _ in range(options.rounds)]
                if rate:
                    shape(cluster, shape_of[0], None)
                say(f"\nauto, {shape_of[0]} hosts x {shape_of[1]}, {rate or 'unlimited'}: time of f32 / time of the format")
                for number in sorted({number for _, number in rows[0]}):
                    ratios = {name: statistics.median(row["none", number] / row[name, number] for row in rows)
                              for name in ("fp16", "int8")}
                    say(f"  {number:10} B  " + "  ".join(f"{name} {ratio:5.2f}" for name, ratio in ratios.items()))
    finally:
        cluster.down()


def report_fusion(where, backend, out):
    found = json.loads(out)
    ratio = found["whole_ms"] / found["fused_ms"]
    say(f"{backend:5} {where}: one by one {found['one_by_one_ms']:.2f} ms, fused {found['fused_ms']:.2f} ms, one array of "
        f"that size {found['whole_ms']:.2f} ms: {ratio:.2f} of its speed{verdict(ratio, FUSED_TARGET)}")


def fusion(options):
    more = {"PYTHONPATH": f"{ROOT}/worker/python", "PYTHONDONTWRITEBYTECODE": "1",
            "LIBDTRUN_PATH": f"{LIBRARIES}/lib/libdtrun.so.0",
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
    parser.add_argument("--only", choices=("direct", "compression", "auto", "fusion", "codecs"), action="append",
                        help="this part alone; may be given again (default: all)")
    parser.add_argument("--rate", default="1gbit", help="of the slow link, as tc has it (default: 1gbit)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--iterations", type=int, default=7, metavar="N", help="in a round (default: 7)")
    parser.add_argument("--cpu", action="store_true",
                        help="with compression, also the processor time of all ranks, by three times the runs")
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["dtrun", "gloo", "mpi"])
    options = parser.parse_args()
    parts = options.only or ["codecs", "direct", "fusion", "compression", "auto"]
    if "codecs" in parts:
        say(run([f"{BIN}/codec_bench"]))
    if "direct" in parts:
        for ranks in ("2", "4"):
            say(run([f"{BIN}/gloo_direct", ranks]))
            for mpi in ("openmpi", "mpich"):
                program = f"{BIN}/mpi_direct_{mpi}"
                if os.path.exists(program) and (mpi, ranks) != ("mpich", "4"):  # it spins
                    for how in ([], ["own"]):
                        say(run([f"{BIN}/dtrun", "--tag", "none", "-np", ranks, program, *how]))
    if "fusion" in parts:
        fusion(options)
    if "compression" in parts:
        compression(options)
    if "auto" in parts:
        automatic(options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
