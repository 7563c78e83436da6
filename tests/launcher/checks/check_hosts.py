"""check_hosts.py DTRUN DATA: `dtrun hosts` from standard input, files and the environment of a batch job."""
import json
import os
import socket
import subprocess
import sys
import tempfile

DTRUN, DATA = sys.argv[1:3]


def run(*words, stdin=None, job=None, variables=()):
    """Runs `dtrun hosts` inside a captured Slurm job, or outside any, or with more variables.

    Returns (exit code, output, errors).
    """
    schedulers = ("SLURM", "FLUX", "PBS", "LSB", "PE_", "OAR", "COBALT")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(schedulers)}
    if job:
        with open(f"{DATA}/{job}.env") as captured:
            environment.update(line.rstrip("\n").split("=", 1) for line in captured)
    environment.update(variables)
    source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    done = subprocess.run([DTRUN, "hosts", *words], capture_output=True, text=True, env=environment, timeout=60, **source)
    return done.returncode, done.stdout, done.stderr


def expect(expected, *words, **where):
    found = run(*words, **where)
    assert found == (0, expected, ""), found


def expect_error(code, text, *words, **where):
    found = run(*words, **where)
    assert found[0] == code and found[1] == "" and text in found[2], found


def sources():
    job = "sbatch_N4_n10"
    allocation = "n1 slots=4\nn2 slots=4\nn3 slots=1\nn4 slots=1\n"
    expect(allocation, job=job)  # standard input is /dev/null, as in a batch script
    expect(allocation, job=job, stdin="")
    expect(allocation, job=job, stdin=" \n")
    expect("n2 slots=2\nn1 slots=1\n", job=job, stdin="n2\nn1\nn2\n")  # what is piped wins
    expect("x slots=1\n", "-H", "x", job=job, stdin="n2\n")
    expect("x1 slots=1\nx2 slots=1\n", "--nodelist", "x[1-2]", stdin="n2\n")
    expect("n[1-4]\n", "--format", "nodelist", job=job)
    expect_error(200, "standard input is empty, and no batch system", stdin="")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("hosts:\n  - {host: a, slots: 2, user: u, port: 22, address: 10.0.0.1}\n")
        file.flush()
        expect("[dtrun]\na ansible_host=10.0.0.1 ansible_user=u ansible_port=22\n", "--hostfile", file.name,
               "--format", "ansible")
    expect_error(200, "/no/file: ", "--hostfile", "/no/file")


def mistakes():
    expect_error(200, "stdin:2:3: 'four' is not a setting", stdin="a\nb four\n")
    expect_error(200, "--nodelist:1:3: range 3-1 runs backwards", "--nodelist", "n[3-1]")
    expect_error(200, "format deepspeed: no place for user", "-H", "u@a")


def options():
    expect("n1 slots=8\nn10 slots=8\n", "-H", "n10.a:2,n1.b", "--short", "--sort", "--slots", "8")
    expect("b slots=2\n", "-H", "a:2,b:2", "--exclude", "a")
    code, text, _ = run("-H", "a:4,b:2", "--include", "a:1,3", "--format", "json")
    assert code == 0 and json.loads(text) == {"hosts": [{"host": "a", "slots": 2, "slot_ids": [1, 3]}]}, text
    expect_error(200, "deepspeed --include a:1,3", "-H", "a:4,b:2", "--include", "a:1,3")
    expect("127.0.0.1 slots=2\n", "-H", "localhost,127.0.0.1", "--resolve")  # one machine by two names
    code, text, _ = run("-H", socket.gethostname(), "--slots", "auto", "--format", "json")
    assert code == 0 and json.loads(text)["hosts"][0]["slots"] >= 1, text
    expect("nowhere slots=1\n", "-H", "nowhere", "--slots", "auto")  # nothing is known of other machines


def flux():
    """Flux tells a job no hosts; it is asked for them."""
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "flux")
        with open(program, "w") as file:
            file.write("#!/bin/sh\n[ \"$*\" = 'hostlist local' ] && echo 'c[1-2],d'\n")
        os.chmod(program, 0o755)
        where = {"FLUX_URI": "local:///run/flux/local", "PATH": f"{directory}:{os.environ['PATH']}"}
        expect("c1 slots=1\nc2 slots=1\nd slots=1\n", variables=where)
        with open(program, "w") as file:
            file.write("#!/bin/sh\nexit 1\n")
        expect_error(200, "flux failed", variables=where)
        os.remove(program)
        expect_error(200, "flux: not found in PATH", variables={**where, "PATH": directory})


def reaching():
    # A user makes dtrun log in, even on this machine.
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port, closed_port = str(server.getsockname()[1]), str(closed.getsockname()[1])
        expect("u@127.0.0.1 slots=1\n", "-H", "u@127.0.0.1", "--check", "-p", port, "--format", "openmpi")
        expect_error(201, f"127.0.0.1: port {closed_port} refuses connections", "-H", "u@127.0.0.1", "--check", "-p",
                     closed_port)
        code, text, errors = run("-H", "u@127.0.0.1,a.invalid,b.invalid", "--check", "-p", closed_port)
        assert code == 201 and text == "" and "3 of 3 hosts cannot be reached" in errors, errors
        for name in ("127.0.0.1: ", "a.invalid and b.invalid: "):
            assert name in errors, errors
    # A queue that is full leaves connections without an answer.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, socket.create_connection(deaf.getsockname()):
        port = str(deaf.getsockname()[1])
        expect_error(201, f"127.0.0.1: no answer on port {port} (down, or a firewall drops it) within 0.5 s", "-H", "u@127.0.0.1",
                     "--check", "-p", port, "--connect-timeout", "0.5")
    expect("localhost\n", "-H", "localhost", "--check", "-p", "1", "--format", "plain")  # needs no ssh
    expect_error(201, "a.invalid: ", "-H", "a.invalid", "--resolve")


def output():
    with open("/dev/full", "w") as full:
        done = subprocess.run([DTRUN, "hosts", "-H", "a"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 210 and "standard output: " in done.stderr, done.stderr


for part in (sources, mistakes, options, flux, reaching, output):
    part()
