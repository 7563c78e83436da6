"""check_standby.py DTRUN: processes that are kept ready for ranks, with the Python of this machine.

What is compared is one rank that was started as usual, in generation 1, and one that was a process that was kept
ready, in generation 2. All jobs run at the same time, as each of them waits for seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

DTRUN = os.path.abspath(sys.argv[1])
PYTHON = "/usr/bin/python3"
SECONDS = 60

# Says what the program finds, and waits for a file before it is killed in generation 1.
PROGRAM = """
import os, sys
found = {"argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": list(sys.path), "cwd": os.getcwd(),
         "modules": sorted(sys.modules), "caches": sorted(sys.path_importer_cache), "flags": list(sys.flags),
         "environ": [[name, value] for name, value in os.environ.items()]}
import fcntl, json, signal, subprocess, time
found["signals"] = [str(signal.getsignal(n)) for n in range(1, 32)]
found["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
found["pid"] = os.getpid()
env = subprocess.run(["env", "-0"], stdout=subprocess.PIPE).stdout
found["of_libc"] = [word.split("=", 1) for word in os.fsdecode(env).split("\\0")[:-1]]
found["descriptors"], found["listens"] = [], 0
for name in os.listdir("/proc/self/fd"):
    try:
        fcntl.fcntl(int(name), fcntl.F_GETFD)
        if "dtrun-stacks" in os.readlink("/proc/self/fd/" + name):  # whatever its number is
            found["listens"] += 1
        else:
            found["descriptors"].append(int(name))
    except OSError:
        pass
pmi = int(os.environ["PMI_FD"])
os.write(pmi, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
found["pmi"] = os.read(pmi, 100).decode()
os.write(pmi, b"cmd=finalize\\n")
os.read(pmi, 100)
generation, rank = os.environ["DTRUN_GENERATION"], os.environ["RANK"]
name = "%s/%s.%s" % (sys.argv[1], generation, rank)
with open(name + ".part", "w") as out:
    json.dump(found, out)
os.rename(name + ".part", name)
print("generation", generation, flush=True)
if generation == "1":
    while not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.05)
    if rank == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
"""
# Other values for each start: numbers of the generation, ports, descriptors, files, directories.
CHANGES = ("DTRUN_GENERATION", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "PMI_FD", "PMIX_",
           "OMPI_MCA_btl_", "OMPI_MCA_osc_", "HOROVOD_GLOO_RENDEZVOUS_PORT")


class Job:
    """A job of two ranks on this machine, whose rank 0 is killed once `ready` processes are kept ready."""

    def __init__(self, folder, name, command, flags=(), ready=2, variables=()):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.ready = ready
        self.parked = set()  # all that have ever been seen waiting
        words = [DTRUN, "--transport", "local", "--min-np", "1", "-np", "2", "-H", "localhost:2", "--tag",
                 "none", *flags, *command, self.folder]
        env = {"PATH": "/usr/bin:/bin", "HOME": self.folder, **dict(variables)}
        with open(self.folder + ".err", "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                            text=True, env=env, cwd=self.folder)

    def errors(self):
        with open(self.folder + ".err", encoding="utf-8") as errors:
            return errors.read()

    def is_ready(self):
        said = self.errors()
        if "no processes are kept ready" in said:
            return os.path.exists(self.folder + "/1.0") and os.path.exists(self.folder + "/1.1")
        waiting = self.waiting()
        self.parked |= waiting
        return len(waiting) >= self.ready

    def wait_ready(self):
        deadline = time.monotonic() + SECONDS
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.errors()
            time.sleep(0.05)

    def go_on(self):
        with open(self.folder + "/go", "w", encoding="utf-8"):
            pass

    def finish(self):
        self.output, _ = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0, self.errors()
        assert self.output.count("generation 1") == self.output.count("generation 2") == 2, self.output

    def found(self, generation, rank):
        with open(f"{self.folder}/{generation}.{rank}", encoding="utf-8") as text:
            return json.load(text)

    def waiting(self):
        """Processes of this job that wait in a Unix socket, as the kernel says, with the variable that names it."""
        pids = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as text:
                    variables = text.read().split(b"\0")
                with open(f"/proc/{pid}/wchan", encoding="utf-8") as text:
                    is_waiting = text.read().startswith("unix_stream")
            except OSError:
                continue
            is_kept = any(word.startswith(b"DTRUN_STANDBY_FD=") for word in variables)
            if is_waiting and is_kept and f"HOME={self.folder}".encode() in variables:
                pids.add(int(pid))
        return pids


def unchanged(variables):
    return [[name, "" if name.startswith(CHANGES) else value] for name, value in variables]


def check_same(job):
    """Whether a program sees no difference between both ways to start."""
    for rank in (0, 1):
        usual, kept = job.found(1, rank), job.found(2, rank)
        assert kept["pid"] in job.parked, (kept["pid"], job.errors())
        for key in ("argv", "orig_argv", "path", "cwd", "caches", "flags", "signals", "nice", "pmi"):
            assert usual[key] == kept[key], (key, usual[key], kept[key])
        assert unchanged(usual["environ"]) == unchanged(kept["environ"]), (usual["environ"], kept["environ"])
        assert dict(kept["environ"])["DTRUN_GENERATION"] == "2"
        assert kept["of_libc"] == kept["environ"]
        pmi = int(dict(kept["environ"])["PMI_FD"])
        assert set(kept["descriptors"]) - {pmi} == set(usual["descriptors"]) - {int(dict(usual["environ"])["PMI_FD"])}
        assert usual["listens"] == kept["listens"] == 1, (usual["listens"], kept["listens"])
        assert usual["pmi"].startswith("cmd=response_to_init"), usual["pmi"]
    modules = set(job.found(2, 0)["modules"])
    return modules - set(job.found(1, 0)["modules"]), set(job.found(1, 0)["modules"]) - modules


def check_started_as_usual(job, why):
    said = [line for line in job.errors().splitlines() if "no processes are kept ready" in line]
    assert len(said) == 1 and why in said[0], job.errors()
    for rank in (0, 1):
        usual, kept = job.found(1, rank), job.found(2, rank)
        assert unchanged(usual["environ"]) == unchanged(kept["environ"])
        assert kept["pid"] not in job.parked


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, 0o755)
    return path


def check(jobs):
    for job in jobs.values():
        job.wait_ready()
    # One that dies is replaced.
    killed = min(jobs["script"].waiting())
    os.kill(killed, 9)
    while killed in jobs["script"].waiting():
        time.sleep(0.05)
    jobs["script"].wait_ready()
    for job in jobs.values():
        job.go_on()
    for job in jobs.values():
        job.finish()

    added, gone = check_same(jobs["preloads"])
    assert (added, gone) == ({"heavy"}, set()), (added, gone)
    assert jobs["preloads"].output.count("heavy is read") == 2, jobs["preloads"].output
    assert check_same(jobs["script"]) == (set(), set())
    assert killed not in (jobs["script"].found(2, rank)["pid"] for rank in (0, 1))
    pids = {jobs["one"].found(2, rank)["pid"] for rank in (0, 1)}
    assert len(pids & jobs["one"].parked) == 1, jobs["one"].errors()
    check_started_as_usual(jobs["isolated"], "with -I Python does not import")
    check_started_as_usual(jobs["shell"], "sh is no Python program")
    check_started_as_usual(jobs["missing"], "cannot import no_such_module: ModuleNotFoundError")
    check_started_as_usual(jobs["ends"], "3 of them have ended before they were used; the last one ended with exit code 7")
    for job in jobs.values():
        for pid in job.parked:
            assert not os.path.exists(f"/proc/{pid}"), job.errors()


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = write(folder, "program.py", PROGRAM)
        script = write(folder, "script", f"#!{PYTHON}\n{PROGRAM}")
        modules = os.path.join(folder, "modules")
        own = os.path.join(folder, "own")
        os.mkdir(modules)
        os.mkdir(own)
        write(modules, "heavy.py", "import os\nassert 'RANK' not in os.environ\nprint('heavy is read', flush=True)\n")
        write(modules, "ends.py", "import os\nos._exit(7)\n")
        write(own, "sitecustomize.py", "import sys\nsys.own = __file__\n")
        path = {"PYTHONPATH": f"{own}:{modules}"}
        preload = ["--standby", "--preload", "heavy"]
        jobs = {
            "preloads": Job(folder, "preloads", [PYTHON, program], preload, variables=path),
            "script": Job(folder, "in-script", [script], ["--standby"]),
            "one": Job(folder, "one", [PYTHON, program], ["--standby=1"], ready=1),
            "isolated": Job(folder, "isolated", [PYTHON, "-uI", program], ["--standby"]),
            "shell": Job(folder, "shell", ["sh", "-c", f"exec {PYTHON} {program} $0"], ["--standby"]),
            "missing": Job(folder, "missing", [PYTHON, program], ["--standby", "--preload", "no_such_module"]),
            "ends": Job(folder, "ends", [PYTHON, program], ["--standby", "--preload", "ends"], variables=path),
        }
        try:
            check(jobs)
        finally:
            for job in jobs.values():
                job.process.kill()  # whose agent then ends all the rest


main()
