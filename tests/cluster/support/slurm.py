#!/usr/bin/python3 -IS
"""A real Slurm on the hosts of a cluster: slurmctld on head, slurmd on s1 to s4, munge on all.

  slurm.py up          start the daemons that do not run, cancel all jobs, wait until all is idle
  slurm.py stop HOST   end slurmctld or slurmd of a host; jobs go on
  slurm.py start HOST  start it again
  slurm.py logs        the ends of all daemons' logs

CLUSTER_STATE names the cluster's state directory. Commands on hosts need no environment: each host
has an /etc/slurm of its own. Exit status: 0, 2 after a failure, 77 where Slurm is not installed.
"""
import glob
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from machine import (NEW_CGROUP, NEW_IPC, NEW_NET, NEW_NS, NEW_PID, NEW_UTS, PATH,  # noqa: E402
                     Failure, Missing, call, mount, read, run, wait_until, write)

NODES = {"s1": (4, 4), "s2": (8, 4), "s3": (2, 0), "s4": (8, 2)}  # processors and GPUs
HOSTS = ("head", *NODES)
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sinfo", "scancel", "srun", "sbatch")
UP_SECONDS = 60

SLURM_CONF = """\
ClusterName=dtrun
SlurmctldHost=head
SlurmUser=root
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation={directory}/state
SlurmdSpoolDir=/run/slurmd
SlurmctldLogFile={directory}/log/slurmctld
SlurmdLogFile={directory}/log/slurmd.%n
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
LaunchParameters=use_interactive_step
MinJobAge=3600
# Tests cannot wait for what suits a machine room.
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1
SlurmdTimeout=10
MessageTimeout=5
KillWait=5
UnkillableStepTimeout=15
ReturnToService=2
JobRequeue=0
# More processors than there are.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
"""


class Slurm:
    """The Slurm of one cluster. Its files are below the cluster's scratch, where all hosts see
    them, and in the hosts' own /run."""

    def __init__(self, state):
        self.state = state
        self.directory = f"{state}/scratch/slurm"

    # ---- files
    def write_files(self):
        os.mkdir(self.directory)
        for name in ("etc", "log", "state"):
            os.mkdir(f"{self.directory}/{name}")
        self.make_gpus()
        with open(f"{self.directory}/munge.key", "wb",
                  opener=lambda path, flags: os.open(path, flags, 0o400)) as file:
            file.write(os.urandom(128))
        nodes = [f"NodeName={name} CPUs={cpus}" + (f" Gres=gpu:{gpus}" if gpus else "")
                 for name, (cpus, gpus) in NODES.items()]
        partition = f"PartitionName=test Nodes={','.join(NODES)} Default=YES MaxTime=60"
        gres = [f"NodeName={name} Name=gpu File={self.directory}/gpu[0-{gpus - 1}]"
                for name, (_, gpus) in NODES.items() if gpus]
        etc = {
            "slurm.conf": [SLURM_CONF.format(directory=self.directory), *nodes, partition],
            "gres.conf": gres,
            "cgroup.conf": ["CgroupPlugin=cgroup/v1"],  # or else slurmd wants to know which
        }
        for name, lines in etc.items():
            write(f"{self.directory}/etc/{name}", "\n".join(lines) + "\n")

    def make_gpus(self):
        """slurmd believes in GPUs that are character devices, each another one."""
        for number in range(max(gpus for _, gpus in NODES.values())):
            os.mknod(f"{self.directory}/gpu{number}", 0o600 | 0o020000, os.makedev(1, 3 + number))

    # ---- hosts
    def enter(self, name):
        """Moves this process, and its children's pids, into a host."""
        try:
            init = int(read(f"{self.state}/hosts/{name}/pid"))
        except OSError as error:
            raise Failure("there is no such host, or it is crashed") from error
        for cgroup in read(f"{self.state}/hosts/{name}/cgroups").splitlines():
            write(f"{cgroup}/cgroup.procs", "0")
        call("setns", os.pidfd_open(init),
             NEW_NS | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET)
        os.chdir("/")

    def on_hosts(self, names, work):
        """Does `work(name)` on all these hosts at once."""
        children = {}
        for name in names:
            children[name] = os.fork()
            if children[name] == 0:
                try:
                    self.enter(name)
                    work(name)
                    os._exit(0)
                except (Failure, OSError) as error:
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                finally:
                    os._exit(2)
        failed = [name for name, pid in children.items() if os.waitpid(pid, 0)[1] != 0]
        if failed:
            raise Failure(f"Slurm: trouble on {', '.join(failed)}")

    # ---- daemons, seen from inside a host
    def start_munge(self, name):
        if not os.path.samefile("/etc/slurm", f"{self.directory}/etc"):
            mount(f"{self.directory}/etc", "/etc/slurm", None, "bind")
        os.makedirs("/run/munge", exist_ok=True)
        start("munged", f"--key-file={self.directory}/munge.key", "--seed-file=/run/munge/seed",
              f"--log-file={self.directory}/log/munged.{name}")

    def start_slurm(self, name):
        os.makedirs("/run/slurmd", exist_ok=True)
        start(daemon_of(name))

    # ---- commands
    def do_up(self):
        try:
            self.up()
        except Failure:
            self.do_logs()
            raise

    def up(self):
        if not os.path.exists(f"{self.directory}/etc/slurm.conf"):
            self.write_files()
        self.on_hosts(HOSTS, self.start_munge)
        self.on_hosts(HOSTS, self.start_slurm)
        self.on_hosts(["head"], lambda _: make_idle())

    def do_start(self, name):
        self.on_hosts([name], self.start_munge)
        self.on_hosts([name], self.start_slurm)

    def do_stop(self, name):
        self.on_hosts([name], lambda _: stop(daemon_of(name)))

    def do_logs(self):
        for path in sorted(glob.glob(f"{self.directory}/log/*")):
            lines = read(path).splitlines()
            print(f"--- {os.path.basename(path)}", *lines[-15:], sep="\n")


def daemon_of(name):
    return "slurmctld" if name == "head" else "slurmd"


def pids_of(program):
    """Of the host that this process has entered; none that is ending."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if read(f"/proc/{pid}/comm").strip() == program and os.readlink(f"/proc/{pid}/exe"):
                found.append(int(pid))
        except OSError:
            continue  # it ended meanwhile
    return found


def start(program, *arguments):
    """Returns when it has gone to the background: a child of the host's init."""
    if not pids_of(program):
        run(program, *arguments)


def stop(program):
    run("pkill", "-x", program)  # which sees the host's pids; we live outside
    if not wait_until(lambda: not pids_of(program), 10):
        raise Failure(f"{program} does not end")


def ask(*command):
    return subprocess.run(command, text=True, capture_output=True, env={"PATH": PATH},
                          check=False).stdout


def make_idle():
    """Cancels all jobs and takes all nodes back, until nothing more is to do."""
    def idle():
        states = [line.split() for line in ask("sinfo", "-hN", "-o", "%N %T").splitlines()]
        if states and all(state == "idle" for _, state in states):
            return not ask("squeue", "-h")
        ask("scancel", "--partition=test")
        for name, state in states:
            if state.startswith(("down", "drain", "fail")):
                ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
        return False
    if not wait_until(idle, UP_SECONDS):
        raise Failure("not idle:\n" + ask("sinfo", "-N", "-l") + ask("squeue"))


def main(name="", *arguments):
    missing = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    if missing:
        raise Missing(f"Slurm is not installed: no {', '.join(missing)}")
    state = os.environ.get("CLUSTER_STATE")
    if not state:
        raise Failure("CLUSTER_STATE is not set")
    command = getattr(Slurm(state), f"do_{name}", None)
    if not command:
        raise Failure(f"what is '{name}'?\n\n{__doc__.strip()}")
    command(*arguments)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Failure, OSError, TypeError) as problem:
        print(f"slurm.py: {problem}", file=sys.stderr)
        sys.exit(77 if isinstance(problem, Missing) else 2)
