"""The launchers that are compared: what each is called, whether it is here, and its commands."""
import hashlib
import os
import re
import shlex
import shutil
import subprocess

CURVE = "-o KexAlgorithms=curve25519-sha256"
PROBE_LIMIT_S = 30


def find(*names):
    """The first of the programs that is on the PATH, with links resolved; None if there is none."""
    return next((found for name in names if (found := shutil.which(name))), None)


def first_match(pattern, *command):
    """Of what a command prints on either stream; "?" if it does not print that."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_LIMIT_S,
                              stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1) if found else "?"


class Shape:
    """So many hosts with so many slots each."""

    def __init__(self, hosts, slots):
        self.hosts, self.slots, self.ranks = hosts, slots, hosts * slots
        self.name = f"{hosts}x{slots}"
        self.names = [f"s{number}" for number in range(1, hosts + 1)]
        self.list = ",".join(f"{name}:{slots}" for name in self.names)

    def ranks_of(self, host):
        """The ranks of the host with this index."""
        return range(host * self.slots, (host + 1) * self.slots)


class Launcher:
    """One row of the table.

    key      for --only
    label    for the table
    program  of the launcher; None: it is not installed
    version
    scratch  a directory that all hosts see, for scripts
    launch, output   which of the two benchmarks have this row
    daemon   whether the parent of ranks is a program of the launcher, of which the memory is shown
    rank_option      what the writer must be told, "{rank}" being the rank
    """
    key = label = ""
    launch = output = True
    daemon = False
    rank_option = ()

    def __init__(self, program, version):
        self.program, self.version, self.scratch = program, version, None

    def command(self, shape, words):
        """To run `words` on every slot of `shape`."""
        raise NotImplementedError

    def script(self, text):
        """An executable file that all hosts see."""
        path = f"{self.scratch}/{hashlib.sha256(text.encode()).hexdigest()[:16]}.sh"
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        return path


class Dtrun(Launcher):
    key, label, daemon = "dtrun", "dtrun", True
    options = []

    def command(self, shape, words):
        return [self.program, *self.options, "-np", str(shape.ranks), "-H", shape.list, *words]


class DtrunUntagged(Dtrun):
    key, label, daemon = "dtrun-none", "dtrun --tag none", False
    options = ["--tag", "none"]


def shell_of_host(shape, host, words):
    """Shell text that runs a host's ranks; {rank} in a word is the rank."""
    ranks = [shlex.join(word.replace("{rank}", str(rank)) for word in words)
             for rank in shape.ranks_of(host)]
    return " & ".join(ranks) + " & wait"


class SshLoop(Launcher):
    """A shell script with one ssh in the background for each host."""
    key, label = "ssh", "ssh loop, curve25519"
    rank_option = ("--rank", "{rank}")
    options = CURVE

    def command(self, shape, words):
        lines = [f"ssh {self.options} {name} {shlex.quote(shell_of_host(shape, host, words))} &\n"
                 for host, name in enumerate(shape.names)]
        return [self.script("#!/bin/sh\n" + "".join(lines) + "wait\n")]


class SshLoopDefault(SshLoop):
    key, label, output = "ssh-default", "ssh loop, default kex", False
    options = ""


class Pdsh(Launcher):
    key, label = "pdsh", "pdsh -R ssh"
    rank_option = ("--rank", "{rank}")

    def command(self, shape, words):
        ranks = [shlex.join(words).replace("'{rank}'", f"$((%n*{shape.slots}+{slot}))")
                 for slot in range(shape.slots)]
        return [self.program, "-R", "ssh", "-f", str(shape.hosts), "-w", ",".join(shape.names),
                " & ".join(ranks) + " & wait"]


class OpenMpi(Launcher):
    key, label, daemon = "mpirun", "Open MPI mpirun", True
    options = []

    def command(self, shape, words):
        return [self.program, "--allow-run-as-root", *self.options, "-np", str(shape.ranks),
                "--host", shape.list, *words]


class OpenMpiTagged(OpenMpi):
    key, label, daemon, launch = "mpirun-tag", "mpirun --tag-output", False, False
    options = ["--tag-output"]


class OpenMpiCurve(OpenMpi):
    key, label, daemon, output = "mpirun-curve", "mpirun, curve25519", False, False
    options = ["--mca", "plm_rsh_args", CURVE]


class Hydra(Launcher):
    key, label, daemon = "hydra", "MPICH Hydra", True
    options = []

    def command(self, shape, words):
        return [self.program, *self.options, "-launcher", "ssh", "-n", str(shape.ranks), "-hosts",
                shape.list, *words]


class HydraTagged(Hydra):
    key, label, daemon, launch = "hydra-tag", "Hydra -prepend-rank", False, False
    options = ["-prepend-rank"]


class HydraCurve(Hydra):
    key, label, daemon, output = "hydra-curve", "Hydra, curve25519", False, False

    def command(self, shape, words):
        wrapper = self.script(f'#!/bin/sh\nexec ssh {CURVE} "$@"\n')
        return [self.program, "-launcher-exec", wrapper, *super().command(shape, words)[1:]]


class Torchrun(Launcher):
    """One torchrun on each host, all at once, as its documentation has it."""
    key, label = "torchrun", "torchrun, c10d"

    def command(self, shape, words):
        node = [self.program, "--nnodes", str(shape.hosts), "--nproc-per-node", str(shape.slots),
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "s1:29400", "--rdzv-id", "bench",
                "--no-python", *words]
        lines = [f"ssh {CURVE} {name} {shlex.quote(shlex.join(node))} &\n" for name in shape.names]
        return [self.script("#!/bin/sh\n" + "".join(lines) + "wait\n")]


class Horovodrun(Launcher):
    key, label = "horovodrun", "horovodrun --gloo"

    def command(self, shape, words):
        return [self.program, "--gloo", "-np", str(shape.ranks), "-H", shape.list, *words]


def interpreter_of(script):
    with open(script, "rb") as file:
        line = file.readline()
    return line[2:].decode().split()[0] if line.startswith(b"#!") else "python3"


def all_launchers(binaries):
    """In the order of the table; those that are not installed too."""
    dtrun = f"{binaries}/dtrun"
    ssh, pdsh = find("ssh"), find("pdsh")
    openmpi = find("mpirun.openmpi", "mpirun")
    hydra = find("mpiexec.hydra", "mpirun.mpich")
    torchrun, horovodrun = find("torchrun"), find("horovodrun")
    if openmpi and first_match(r"(Open MPI|OpenRTE)", openmpi, "--version") == "?":
        openmpi = None
    versions = {
        dtrun: lambda: first_match(r"(\d[\w.]*)", dtrun, "--version"),
        ssh: lambda: first_match(r"OpenSSH_([\w.]+)", ssh, "-V"),
        pdsh: lambda: first_match(r"pdsh-([\w.]+)", pdsh, "-V"),
        openmpi: lambda: first_match(r"(\d[\w.]*)", openmpi, "--version"),
        hydra: lambda: first_match(r"Version:\s*(\S+)", hydra, "--version"),
        torchrun: lambda: first_match(r"(\d[\w.+]*)", interpreter_of(torchrun), "-c",
                                      "import torch; print(torch.__version__)"),
        horovodrun: lambda: first_match(r"(\d[\w.]*)", horovodrun, "--version"),
    }
    versions = {program: get() for program, get in versions.items() if program}
    rows = [(Dtrun, dtrun), (DtrunUntagged, dtrun), (SshLoop, ssh), (SshLoopDefault, ssh),
            (Pdsh, pdsh), (OpenMpi, openmpi), (OpenMpiTagged, openmpi), (OpenMpiCurve, openmpi),
            (Hydra, hydra), (HydraTagged, hydra), (HydraCurve, hydra), (Torchrun, torchrun),
            (Horovodrun, horovodrun)]
    return [row(program, versions.get(program)) for row, program in rows]
