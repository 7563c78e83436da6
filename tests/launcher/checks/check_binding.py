"""check_binding.py DTRUN: processors of ranks on this machine, as the kernel has them once the program runs."""
import json
import os
import re
import shutil
import subprocess
import sys

DTRUN = os.path.abspath(sys.argv[1])
CPUS = sorted(os.sched_getaffinity(0))
MASK = 'import os; print(os.environ["RANK"], *sorted(os.sched_getaffinity(0)), "threads", os.environ.get("OMP_NUM_THREADS"))'
SHOW = ["/usr/bin/python3", "-c", MASK]


def dtrun(*words, before=(), **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMP_"))}
    return subprocess.run([*before, DTRUN, *words], capture_output=True, text=True, timeout=60, check=False,
                          env=dict(env, **more))


def masks(*words, **more):
    """What each rank may use, by the kernel."""
    done = dtrun("--tag", "none", *words, *SHOW, **more)
    assert done.returncode == 0, done
    found = {}
    for line in done.stdout.splitlines():
        rank, *cpus = line.split(" threads ")[0].split()
        found[int(rank)] = [int(cpu) for cpu in cpus]
    return found


def cpus_of(text):
    cpus = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def check_nothing_is_bound():
    assert masks("-np", "2") == {0: CPUS, 1: CPUS}


def check_cores_of_one_rank():
    """What --plan says, what --report-bindings says, and what the kernel and taskset(1) say is one thing."""
    plan = dtrun("-np", "1", "--bind-to", "core", "--plan=json", "true")
    assert plan.returncode == 0, plan
    planned = json.loads(plan.stdout)
    assert planned["binding"] == "--bind-to core", planned
    assert masks("-np", "1", "--bind-to", "core") == {0: cpus_of(planned["ranks"][0]["cpus"])}
    said = dtrun("-np", "1", "--tag", "none", "--bind-to", "core", "--report-bindings", "sh", "-c", "taskset -cp $$")
    report = re.search(r"^dtrun: rank 0 on localhost: cpus? (\S+) \(socket 0 core \d+\), NUMA node", said.stderr, re.M)
    assert report and said.stdout.endswith(f"affinity list: {report.group(1)}\n"), said


def check_each_has_its_own():
    if len(CPUS) < 2:
        return
    each = masks("-np", "2", "--bind-to", "share")
    assert each[0] and each[1] and not set(each[0]) & set(each[1]), each
    assert masks("-np", "2", "--binding-args", "--bind-to core --map-by slot") == masks("-np", "2", "--bind-to", "core")


def check_too_few():
    """Nothing runs where cores are too few, and it is said before."""
    done = dtrun("-np", str(len(CPUS) + 1), "--bind-to", "core", "echo", "started")
    assert done.returncode == 200 and done.stdout == "", done
    assert re.search(r"ranks need a core each, but there are \d+; start fewer ranks here, or say --oversubscribe", done.stderr), done
    shared = masks("-np", str(len(CPUS) + 1), "--oversubscribe", "--bind-to", "core")
    assert len(shared) == len(CPUS) + 1 and all(shared.values()), shared
    gpu = dtrun("-np", "1", "--bind-to", "gpu", "true", CUDA_VISIBLE_DEVICES="")
    if not os.path.exists("/dev/nvidia0"):
        assert gpu.returncode == 200 and "there is no GPU to bind to" in gpu.stderr, gpu


def check_mask_is_kept():
    """What somebody has taken from dtrun its ranks do not get back, bound or not."""
    last = CPUS[-1]
    for words in ((), ("--bind-to", "core"), ("--bind-to", "auto"), ("--bind-to", "socket")):
        only = masks("-np", "1", *words, before=["taskset", "-c", str(last)])
        assert only == {0: [last]}, (words, only)
    if len(CPUS) > 1:
        other = dtrun("-np", "1", "--cpu-list", str(CPUS[0]), "true", before=["taskset", "-c", str(last)])
        assert other.returncode == 200 and "may not be used here" in other.stderr, other
        assert masks("-np", "1", "--cpu-list", str(last)) == {0: [last]}


def check_threads():
    """OMP_NUM_THREADS is a part of the host, and the user's where he has set it."""
    def threads(*words, **more):
        done = dtrun("--tag", "none", *words, *SHOW, **more)
        assert done.returncode == 0, done
        return {line.split(" threads ")[1] for line in done.stdout.splitlines()}

    assert threads("-np", "1") == {"None"}
    assert threads("-np", "2") == {str(max(len(CPUS) // 2, 1))}
    assert threads("-np", "2", OMP_NUM_THREADS="7") == {"7"}
    assert threads("-np", "2", "-x", "OMP_NUM_THREADS=5") == {"5"}
    assert threads("-np", "1", "--cpus-per-rank", "1") == {"1"}
    plan = dtrun("-np", "2", "--plan", "true")
    assert f"threads:    OMP_NUM_THREADS={max(len(CPUS) // 2, 1)} ({len(CPUS)} processors / 2 ranks)\n" in plan.stdout, plan.stdout


def check_front_ends():
    """torchrun's and deepspeed's words for it, on a machine without GPUs."""
    script = "/dev/stdin"
    for words in (("torchrun", "--nproc-per-node", "1", "--numa-binding", "exclusive"),
                  ("deepspeed", "--num_gpus", "1", "--bind_cores_to_rank", "--bind_core_list", str(CPUS[-1]), "--hosts", "localhost:1")):  # fmt: skip
        done = dtrun(*words, "--plan", script)
        assert done.returncode == 0 and "binding:    --bind-to share" in done.stdout, (words, done)


def check_open_mpi():
    """Open MPI's own mpirun and dtrun with the same words: the same processors."""
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None or len(CPUS) < 2:
        return
    for words in (["--bind-to", "core"], ["--bind-to", "socket"], ["--map-by", "core", "--bind-to", "core"]):
        theirs = subprocess.run(
            [mpirun, "--allow-run-as-root", "-np", "2", *words, "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(taskset -cp $$)"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        lines = [line.split() for line in theirs.stdout.splitlines()]
        expected = {int(line[0]): cpus_of(line[-1]) for line in lines}
        assert masks("-np", "2", *words) == expected, (words, expected)


def main():
    for check in (
        check_nothing_is_bound, check_cores_of_one_rank, check_each_has_its_own, check_too_few, check_mask_is_kept,
        check_threads, check_front_ends, check_open_mpi,
    ):  # fmt: skip
        check()


main()
