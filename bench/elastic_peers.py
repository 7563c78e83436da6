"""The launchers of `./dev bench elastic`, and how each starts the same programs on the same hosts."""
import os
import subprocess

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
DTRUN = f"{ROOT}/build/release/bin/dtrun"
HOROVOD = f"{ROOT}/build/frameworks/horovod/bin"
TORCH = f"{ROOT}/build/frameworks/torch/bin"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
# The first delay of dtrun is the first number, horovodrun's at most the second.
COOLDOWN = ("2", "3")
TUNED = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=2"


class Launcher:
    """How a launcher starts a job whose hosts are lines of a file that may change."""

    host = "head"  # where it runs
    removes = True  # a host that is no longer listed leaves the job

    def __init__(self, key, program):
        self.key = key
        self.program = f"{HERE}/{program}"

    def hosts_file(self, job):
        return f"{job.directory}/hosts"

    def script(self, job):
        """A discovery script that prints the hosts of the job."""
        path = f"{job.directory}/discover.sh"
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\ncat {self.hosts_file(job)}\n")
            os.chmod(path, 0o755)
        return path

    def list_hosts(self, job, names):
        path = self.hosts_file(job)
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write("".join(f"{name}:{job.slots}\n" for name in names))
        os.replace(f"{path}.new", path)

    def host_is_back(self, job, host):
        """After it was lost, and can be used again."""

    def add_host(self, job, host):
        self.list_hosts(job, [*job.listed, host])


class Dtrun(Launcher):
    def __init__(self, key, python, program, *flags):
        super().__init__(key, program)
        self.python, self.flags = python, flags

    def start(self, job):
        ranks = len(job.listed) * job.slots
        where = ["--host-discovery-script", self.script(job)] if job.discovers else [
            "-H", ",".join(f"{name}:{job.slots}" for name in job.listed)]
        job.launch("head", [DTRUN, "-np", str(ranks), "--min-np", "1",
                            "--blacklist-cooldown-range", *COOLDOWN, *self.flags, *where,
                            *self.python, self.program, job.directory, *job.arguments])


class Horovodrun(Launcher):
    def start(self, job):
        ranks = len(job.listed) * job.slots
        job.launch("head", [f"{HOROVOD}/python", f"{HOROVOD}/horovodrun", "--gloo", "-np", str(ranks),
                            "--min-np", "1", "--blacklist-cooldown-range", *COOLDOWN, "--network-interface", "eth0",
                            "--host-discovery-script", self.script(job), f"{HOROVOD}/python", self.program,
                            job.directory, *job.arguments],
                   {"PATH": f"{HOROVOD}:/usr/bin:/bin:/usr/sbin:/sbin"})


class Torchrun(Launcher):
    """One agent on each host, which somebody has to start; the rendezvous is in that of the first one."""

    host = "s1"
    removes = False

    def __init__(self, key, program, *flags):
        super().__init__(key, program)
        self.flags = flags

    def start(self, job):
        for name in job.listed:
            self.host_is_back(job, name)

    def add_host(self, job, host):
        self.host_is_back(job, host)

    def host_is_back(self, job, host):
        job.launch(host, [f"{TORCH}/python", "-m", "torch.distributed.run", "--nnodes", f"1:{len(job.hosts.names)}",
                          "--nproc_per_node", str(job.slots), "--max_restarts", "100", "--rdzv_backend", "c10d",
                          "--rdzv_endpoint", "s1:29400", "--rdzv_id", "bench", *self.flags, self.program,
                          job.directory, *job.arguments])


def can_discover():
    """Whether this dtrun takes --host-discovery-script."""
    shown = subprocess.run([DTRUN, "--help"], capture_output=True, text=True, check=False).stdout
    return any(line.strip().startswith("--host-discovery-script ") for line in shown.splitlines())


def all_launchers():
    horovod, torch = [f"{HOROVOD}/python"], [f"{TORCH}/python"]
    return {launcher.key: launcher for launcher in (
        Dtrun("dtrun H", horovod, "elastic_horovod.py"),
        Dtrun("dtrun H 1s", horovod, "elastic_horovod.py", "--heartbeat-timeout", "1"),
        Horovodrun("horovodrun", "elastic_horovod.py"),
        Dtrun("dtrun T", torch, "elastic_torch.py"),
        Torchrun("torchrun", "elastic_torch.py"),
        Torchrun("torchrun tuned", "elastic_torch.py", "--rdzv_conf", TUNED, "--monitor_interval", "0.1"),
    )}
