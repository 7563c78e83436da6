"""check_idle.py DTRUN: what a job costs whose ranks do nothing."""
import os
import subprocess
import sys
import time

DTRUN = sys.argv[1]
LIMIT_S = 60
TIME_S = 3
TRIES = 10  # a process also waits for its own pages, if memory is short: no timer, so it will be less
# Wake-ups a second. All hosts are this machine, so the head beats each ten seconds, and is woken once more by the answer; the agent
# looks each 1.25 s whether its ranks wait. The rest is room for a machine that is busy.
WAKE_UPS_MAX = {"dtrun": 0.7, "dtrun-guard": 0.5, "dtrun-agent": 1.7}


def own_processes(pid):
    """dtrun's processes by their names: `pid` and those below it that have one of them."""
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        name = file.read().strip()
    if name not in WAKE_UPS_MAX:
        return {}
    found = {name: pid}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
            for child in file.read().split():
                found.update(own_processes(child))
    return found


def waits(pid):
    """How often threads of it have begun to wait."""
    count = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
            count += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return count


def rates_of(processes):
    """Wake-ups a second by names."""
    began = time.monotonic()
    before = {name: waits(pid) for name, pid in processes.items()}
    time.sleep(TIME_S)
    passed = time.monotonic() - began
    return {name: (waits(pid) - before[name]) / passed for name, pid in processes.items()}


def are_few(rates):
    return all(rate <= WAKE_UPS_MAX[name] for name, rate in rates.items())


def check_idle_job():
    """A job whose ranks sleep costs heartbeats, and nothing else."""
    job = subprocess.Popen([DTRUN, "-np", "4", "--oversubscribe", "sh", "-c", "echo runs; exec sleep 1000"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(4):
            assert "runs" in job.stdout.readline()
        time.sleep(1)  # what a start leaves to do: news of the ranks, and answers to them
        processes = own_processes(job.pid)
        assert set(processes) == set(WAKE_UPS_MAX), processes
        for _ in range(TRIES):
            rates = rates_of(processes)
            if are_few(rates):
                break
        assert are_few(rates), rates
        print(", ".join(f"{name}: {rate:.1f} wake-ups/s" for name, rate in rates.items()))
    finally:
        job.terminate()
        job.communicate(timeout=LIMIT_S)


check_idle_job()
