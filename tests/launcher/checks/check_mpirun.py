"""check_mpirun.py DTRUN: `dtrun --mpi mpirun` with a stand-in, and with each mpirun of this machine."""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
# Exit statuses of Hydra's mpiexec, also without dtrun, when the proxy to which it writes has ended before: 15 of 150 jobs
# of a program that ends at once, on a busy machine. Their output is lost.
HYDRA_TOO_LATE = (-signal.SIGPIPE, 255)
STAND_IN = """#!/bin/sh
if [ "$*" = --version ]; then echo 'mpirun (Open MPI) 4.1.4'; exit; fi
echo "$HOME $A $B_ $PMIX_RANK."
while [ "$1" != --hostfile ]; do shift; done
cat "$2" "$2"
exit 9
"""


def environment(**more):
    outer = ("SLURM", "PMI", "OMPI_", "PRTE_", "HYDRA", "DTRUN_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return kept | more


def run(*words, stdin=b"", before=None, **variables):
    """Returns (exit code, output, errors)."""
    done = subprocess.run(
        [DTRUN, "--mpi", "mpirun", *words],
        input=stdin,
        capture_output=True,
        env=environment(**variables),
        timeout=60,
        preexec_fn=before,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))


def stand_in():
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/mpirun"
        with open(path, "w") as file:
            file.write(STAND_IN)
        os.chmod(path, 0o755)
        variables = {"PATH": f"{directory}:/usr/bin:/bin", "HOME": directory, "PMIX_RANK": "7"}
        found = run("-H", "al@s1:2,s2:1", "A=x y", "prog", B_="b", **variables)
        hosts = "al@s1 slots=2\ns2 slots=1\n"
        assert found == (9, f"{directory} x y b .\n{hosts}{hosts}", ""), found
        few = run("-H", "al@s1:2,s2:1", "prog", "/dev/fd/64", before=few_descriptors, **variables)
        assert few[0] == 9 and few[1].endswith(f"\n{hosts}{hosts}") and not few[2], few
        assert os.listdir(directory) == ["mpirun"]
        code, plan, _ = run("-H", "al@s1:2,s2:1", "--plan", "prog", **variables)
        assert code == 0 and f"directory:  {os.getcwd()}\n" in plan, plan
        assert "hostfile:   al@s1 slots=2\n            s2 slots=1\n" in plan, plan


def real(name):
    def with_it(*words, **more):
        for _ in range(20):
            done = run(*words, DTRUN_MPIRUN=name, **more)
            if name != "mpirun.mpich" or done[0] not in HYDRA_TOO_LATE:
                break
        return done

    script = 'text=; for word; do text="$text<$word>"; done; printf "%s %s\\n" "$text" "$A"'
    found = with_it("-np", "2", "--tag", "none", "A=x;y z,", "sh", "-c", script, "sh", "a b", ":", "", "q'\"$x")
    assert found[:2] == (0, "<a b><:><><q'\"$x> x;y z,\n" * 2), (name, found)
    found = with_it("-np", "2", "--tag", "none", "-H", "localhost:2", "--wdir", "/usr", "pwd")
    assert found[:2] == (0, "/usr\n/usr\n"), (name, found)
    first = "test ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} != 0 || head -n1"  # Hydra tells no rank of the end
    found = with_it("-np", "2", "sh", "-c", first, stdin=b"in\n")
    assert found[0] == 0 and found[1].count("in") == 1 and "0]" in found[1], (name, found)
    found = with_it("-np", "2", "--stdin", "none", "cat", stdin=b"in\n")
    assert found[:2] == (0, ""), (name, found)
    found = with_it("-np", "2", "sh", "-c", "exit 7")
    assert found[0] == 7, (name, found)
    interrupted(name)


def interrupted(name):
    """SIGINT to dtrun is SIGINT to mpirun, and no rank outlives it."""
    command = [DTRUN, "--mpi", "mpirun", "-np", "2", "--tag", "none", "sh", "-c", "echo $$; exec sleep 300"]
    job = subprocess.Popen(
        command,
        env=environment(DTRUN_MPIRUN=name),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    ranks = [int(job.stdout.readline()) for _ in range(2)]
    job.send_signal(signal.SIGINT)
    job.wait(timeout=60)  # Open MPI 4 then exits 0
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{rank}") for rank in ranks):
        assert time.monotonic() < deadline, f"{name}: ranks {ranks} are left"
        time.sleep(0.05)


stand_in()
there = [name for name in ("mpirun.openmpi", "mpirun.mpich") if shutil.which(name)]
for name in there:
    real(name)
if len(there) < 2:
    skip(f"of mpirun.openmpi and mpirun.mpich there is {there or 'neither'}")
