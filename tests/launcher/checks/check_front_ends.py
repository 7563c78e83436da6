"""check_front_ends.py DTRUN PYTHON: dtrun knows every flag of the real torchrun and of the real deepspeed, and what it
shows and writes is what torchrun shows and writes.

PYTHON is an interpreter that has torch, and maybe deepspeed. Without it the exit code is 77: skipped; under CI=true that
is a failure. Every flag is given to `dtrun torchrun --plan`: it has to be taken, or refused with a reason.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

DTRUN, PYTHON = map(os.path.abspath, sys.argv[1:3])

LIST_TORCHRUN = """
import json
from torch.distributed.run import get_args_parser as parser
print(json.dumps([[a.option_strings, a.nargs == 0, [str(c) for c in a.choices or []], a.dest]
                  for a in parser()._actions]))
"""
# The runner makes its parser inside a function, and its package wants accelerators: neither is needed for the flags.
LIST_DEEPSPEED = """
import argparse, importlib, importlib.util, json, sys, types
from unittest import mock
found = importlib.util.find_spec("deepspeed")
if found is None:
    print("null")
    sys.exit()
package = types.ModuleType("deepspeed")
package.__path__ = list(found.submodule_search_locations)
sys.modules["deepspeed"] = package
for name in ("utils", "accelerator", "autotuning"):
    sys.modules["deepspeed." + name] = mock.MagicMock()
runner = importlib.import_module("deepspeed.launcher.runner")
with mock.patch.object(argparse.ArgumentParser, "parse_args", lambda self, args=None: self):
    parser = runner.parse_args([])
print(json.dumps([[a.option_strings, a.nargs == 0, [str(c) for c in a.choices or []], a.dest]
                  for a in parser._actions]))
"""
# A value that means something to each flag whose type does not say it.
VALUES = {
    "rdzv_endpoint": "localhost:29400", "rdzv_conf": "timeout=60", "redirects": "0:1,1:3", "tee": "3",
    "event_log_handler": "null", "logs_specs": "default", "signals_to_handle": "SIGTERM,SIGUSR1",
    "nnodes": "1:1", "local_ranks_filter": "0,1", "log_dir": "/nowhere/logs", "launcher": "pdsh",
    "enable_each_rank_log": "/nowhere/logs", "include": "localhost:0", "exclude": "localhost:1",
    "hostfile": "HOSTFILE", "num_nodes": "1", "num_gpus": "1", "node_rank": "0",
}
VARIABLES = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PET_", "CUDA_"))}


def flags_of(text):
    done = subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def plan(front_end, words, hostfile, variables=()):
    command = [DTRUN, front_end, "--plan", *words, "script.py"]
    if front_end == "deepspeed" and not {"-H", "--hostfile"} & set(words):
        command[3:3] = ["--hostfile", hostfile]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**VARIABLES, **dict(variables)})
    return done.returncode, done.stderr


def check(front_end, flags, hostfile):
    """How many spellings were taken, and which flags were refused."""
    taken, refused = 0, set()
    for names, is_switch, choices, dest in flags:
        for name in names:
            if name in ("-h", "--help"):
                continue
            value = choices[0] if choices else VALUES.get(dest, "1").replace("HOSTFILE", hostfile)
            words = [name] if is_switch else [name, value]
            code, errors = plan(front_end, words, hostfile)
            if " is refused: " in errors:
                assert code == 200, errors
                refused.add(dest)
                continue
            assert code == 0, f"dtrun {front_end} {' '.join(words)}: {errors}"
            taken += 1
    return taken, refused


# Both run it with `python -u`, where print() writes a line in pieces, and torchrun's ranks share its own
# streams: only one write a line keeps the lines of two ranks apart there.
SCRIPT = """
import os, sys
os.write(1, f"out {os.environ['LOCAL_RANK']} {os.environ['ROLE_NAME']} {sys.argv[1:]}\\n".encode())
os.write(2, f"err {os.environ['LOCAL_RANK']}\\n".encode())
"""


def run_output(command, folder):
    """Lines of standard output, lines of the ranks on standard error, and files by local rank and name."""
    os.mkdir(folder)
    done = subprocess.run([*command, "--log-dir", f"{folder}/logs", "script.py", "--x=${local_rank}"],
                          capture_output=True, text=True, timeout=120, cwd=os.path.dirname(folder), env=VARIABLES)
    assert done.returncode == 0, done.stderr
    files = {}
    for path, _, names in os.walk(f"{folder}/logs"):
        for name in names:
            with open(f"{path}/{name}") as file:
                text = file.read()
            attempt, rank = path.split("/")[-2:]
            if text and name in ("stdout.log", "stderr.log"):
                files[f"{attempt}/{rank}/{name}"] = text
    errors = sorted(line for line in done.stderr.splitlines() if "err " in line)
    return sorted(done.stdout.splitlines()), errors, files


def compare_output(folder):
    """The same words and the same script under both."""
    with open(f"{folder}/script.py", "w") as script:
        script.write(SCRIPT)
    for number, words in enumerate((
            "-t 0:1,1:2 -r 2:3 --role trainer", "--tee 3 --local-ranks-filter 1,2", "-r 1 --local_ranks_filter=0")):
        words = ["--nproc-per-node", "3", *words.split()]
        # Otherwise it listens on port 29500, which others may have.
        theirs = run_output([PYTHON, "-m", "torch.distributed.run", "--standalone", *words], f"{folder}/torchrun{number}")
        ours = run_output([DTRUN, "torchrun", *words], f"{folder}/dtrun{number}")
        assert ours == theirs, f"{words}:\n{ours}\n{theirs}"
        assert ours[2], "no files"


def check_hosts(folder):
    """--nnodes and --nproc-per-node count, over named hosts and over those of a batch job."""
    def ranks(words, variables=()):
        done = subprocess.run([DTRUN, "torchrun", "--plan=json", *words.split(), "t.py"], capture_output=True, text=True,
                              timeout=60, env={**VARIABLES, **dict(variables)})
        assert done.returncode == 0, done.stderr
        return [rank["host"] for rank in json.loads(done.stdout)["ranks"]]
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_TASKS_PER_NODE": "1(x3)",
           "SLURM_NTASKS": "3", "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
           "PATH": f"{folder}/bin:{os.environ['PATH']}"}.items()
    os.mkdir(f"{folder}/bin")
    os.symlink("/bin/true", f"{folder}/bin/srun")
    assert ranks("--nnodes 2 --nproc-per-node 2 -H s1,s2,s3") == ["s1", "s1", "s2", "s2"]
    assert ranks("--nnodes 2 -H s1:2,s2:1,s3:1") == ["s1", "s1", "s2"]
    assert ranks("", job) == ["n1", "n2", "n3"]
    assert ranks("--nnodes 2 --nproc-per-node 2", job) == ["n1", "n1", "n2", "n2"]
    assert ranks("--nproc-per-node auto", job) == ["n1"] * 4 + ["n2"] * 4 + ["n3"] * 2
    assert ranks("--standalone --nproc-per-node 2", job) == ["localhost"] * 2


def check_names(folder):
    """A link that is called like another launcher is that launcher, and --save_pid leaves nothing behind."""
    for name, words in ("torchrun", ["--nproc-per-node", "2"]), ("deepspeed", ["--num_gpus", "2"]):
        os.symlink(os.path.abspath(DTRUN), f"{folder}/{name}")
        done = subprocess.run([f"{folder}/{name}", "--plan", *words, "t.py"], capture_output=True, text=True, timeout=60,
                              env=VARIABLES)
        assert done.returncode == 0 and "2 ranks on 1 host" in done.stdout, done
    done = subprocess.run([DTRUN, "deepspeed", "--save_pid", "--hosts", "localhost:1", "--no_python", "--no_local_rank",
                           "sh", "-c", "ls /tmp/*.deepspeed"], capture_output=True, text=True, timeout=60, env=VARIABLES)
    assert done.returncode == 0 and ".deepspeed" in done.stdout, done
    mine = [path for path in done.stdout.split() if os.path.exists(path)]
    assert len(mine) < len(done.stdout.split()), f"{mine} is still there"


def check_warnings():
    """What is told, and what is not, once it is known where ranks run."""
    def told(words):
        done = subprocess.run([DTRUN, *words.split(), "t.py"], capture_output=True, text=True, timeout=60, env=VARIABLES)
        return done.returncode, done.stderr
    overruled = "--store agent has no effect: rank 0 serves torch's store where MASTER_PORT is given"
    assert overruled in told("deepspeed --plan --hosts localhost:2 --store agent --master_port 29501")[1]
    assert overruled in told("--plan -np 2 --store agent -x MASTER_PORT=29501")[1]
    assert told("--plan -np 2 -x MASTER_PORT=29501") == (0, "")
    assert told("--plan -np 2 --store rank0 -x MASTER_PORT=29501") == (0, "")
    assert told("--plan -np 2 --store proxy") == (0, "")
    nothing = "--local-ranks-filter: no rank has such a local rank, so none is shown"
    assert nothing in told("torchrun --plan --nproc-per-node 2 --local-ranks-filter 7")[1]
    assert told("torchrun --plan --nproc-per-node 2 --local-ranks-filter 1,7") == (0, "")
    code, text = told("torchrun --plan --nnodes 2 --master-addr h --local-addr a")
    assert code == 0 and "--local-addr has no effect" in text, text
    # On every node the same: each is one node, and none is content with itself.
    assert told("torchrun --plan --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 192.0.2.1:29400") == (0, "")
    code, text = told("torchrun --plan --nnodes 1:2 --rdzv-backend etcd --rdzv-endpoint 192.0.2.1:2379")
    assert code == 200 and "--nnodes 1:2 (and --rdzv-endpoint 192.0.2.1:2379), but no hosts" in text, text
    code, text = told("torchrun --plan --local-addr a")
    assert code == 0 and "--local-addr has no effect" in text, text
    lost = "MASTER_ADDR=localhost: ranks on s2 will not find rank 0 there, which is on s1"
    assert lost in told("torchrun --plan -H s1,s2 --master-addr localhost --master-port 29501")[1]
    assert told("torchrun --plan --nproc-per-node 2 --master-addr localhost --master-port 29501") == (0, "")
    assert told("torchrun --plan -H s1,s2 --master-addr s1 --master-port 29501") == (0, "")


def check_master():
    """A program that meets at the address it was told to has rank 0 serve there."""
    done = subprocess.run(
        [DTRUN, "torchrun", "--nproc-per-node", "2", "--master-addr", "localhost", "--master-port", "29501", "--no-python",
         "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE"],
        capture_output=True, text=True, timeout=60, env=VARIABLES)
    assert done.stdout.splitlines() == ["localhost 29501 False"] * 2, done


def check_error_file(folder):
    """What @record leaves in the first rank that fails is there for @record around torchrun, too."""
    mine = f"{folder}/error.json"
    rank = """[ $RANK = 1 ] || exec sleep 60
        printf '{"message": {"message": "ValueError: boom"}}' > $TORCHELASTIC_ERROR_FILE; exit 3"""
    command = [DTRUN, "torchrun", "--nproc-per-node", "2", "--no-python", "sh", "-c", rank]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**VARIABLES, "TORCHELASTIC_ERROR_FILE": mine})
    assert done.returncode == 3, done
    with open(mine) as file:
        assert json.load(file) == {"message": {"message": "ValueError: boom", "errorCode": 3}}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**VARIABLES, "TORCHELASTIC_ERROR_FILE": f"{folder}/no/error.json"})
    assert done.returncode == 3 and f"TORCHELASTIC_ERROR_FILE={folder}/no/error.json: No such file" in done.stderr, done


def check_devices():
    """Ranks have the devices of the slots that were chosen, not those that are merely inherited."""
    def devices(words):
        done = subprocess.run(
            [DTRUN, "deepspeed", *words.split(), "--tag", "none", "--no_python", "--no_local_rank",
             "printenv", "CUDA_VISIBLE_DEVICES"],
            capture_output=True, text=True, timeout=60, env={**VARIABLES, "CUDA_VISIBLE_DEVICES": "2,3"})
        assert done.returncode == 0, done.stderr
        return done.stdout.split()
    assert devices("") == ["2,3"] * 2
    assert devices("--num_gpus 2") == ["0,1"] * 2
    assert devices("--hosts localhost:4 -i localhost:1") == ["1"]
    assert devices("--num_gpus 1 -x CUDA_VISIBLE_DEVICES") == ["2,3"]


def main():
    check_warnings()
    check_master()
    check_devices()
    with tempfile.TemporaryDirectory() as folder:
        check_names(folder)
        check_hosts(folder)
        check_error_file(folder)
    if not os.access(PYTHON, os.X_OK):
        skip(f"{PYTHON} is not there")
    hostfile = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"dtrun-front-ends-{os.getpid()}")
    with open(hostfile, "w") as file:
        file.write("localhost slots=2\n")
    try:
        flags = flags_of(LIST_TORCHRUN)
        assert len(flags) > 25, flags
        taken, refused = check("torchrun", flags, hostfile)
        print(f"torchrun: {taken} spellings taken, refused: {sorted(refused)}")
        assert refused == {"virtual_local_rank", "duplicate_stdout_filters",
                           "duplicate_stderr_filters"} & {flag[3] for flag in flags}, refused
        for names, is_switch, choices, dest in flags:
            if dest in refused or dest in ("help", "logs_specs") or not names:
                continue
            value = "1" if is_switch else choices[0] if choices else VALUES.get(dest, "1")
            code, errors = plan("torchrun", [], hostfile, [("PET_" + dest.upper(), value)])
            assert code == 0, f"PET_{dest.upper()}={value}: {errors}"
            if not is_switch and dest not in ("rdzv_id", "rdzv_backend", "role", "log_dir", "master_addr", "local_addr"):
                code, errors = plan("torchrun", [], hostfile, [("PET_" + dest.upper(), "a b")])
                assert code == 200 and f"PET_{dest.upper()}: " in errors, f"PET_{dest.upper()} is not read: {errors}"

        with tempfile.TemporaryDirectory() as folder:
            compare_output(folder)

        flags = flags_of(LIST_DEEPSPEED)
        if flags is None:
            skip(f"{PYTHON} has no deepspeed; torchrun is fine")
        assert len(flags) > 20, flags
        taken, refused = check("deepspeed", flags, hostfile)
        print(f"deepspeed: {taken} spellings taken, refused: {sorted(refused)}")
        assert refused <= {"no_ssh", "launcher_args", "comment", "account", "bind_cores_to_rank", "bind_core_list", "autotuning",
                           "elastic_training", "min_elastic_nodes", "max_elastic_nodes"}, refused
    finally:
        os.remove(hostfile)


main()
