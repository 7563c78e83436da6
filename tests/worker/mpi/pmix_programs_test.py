"""Real programs as ranks of hosts that are all this machine: pmix_programs_test.py HERE CLIENT [OPENMPI]

HERE is pmix_here, CLIENT a program that speaks PMIx itself, OPENMPI the directory of tests/mpi's
programs for Open MPI. Missing ones: skipped.
"""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from skip import skip  # noqa: E402

HERE, CLIENT = sys.argv[1:3]
OPENMPI = sys.argv[3] if len(sys.argv) > 3 else ""
failed = []


def run(name, hosts, program, code=0, has=(), lacks=(), options=(), at_least=0.0, **env):
    """`has` and `lacks`: patterns of lines of the output."""
    begin = time.monotonic()
    done = subprocess.run(
        [HERE, *options, *(str(size) for size in hosts), "--", *program],
        env={**os.environ, "TEST_HOSTS": str(len(hosts)), **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, text=True, check=False)
    took = time.monotonic() - begin
    wrong = [f"exit status {done.returncode}, not {code}"] if done.returncode != code else []
    wrong += [f"no {text!r}" for text in has if not re.search(text, done.stdout, re.M)]
    wrong += [f"{text!r}" for text in lacks if re.search(text, done.stdout, re.M)]
    if took < at_least:
        wrong.append(f"only {took:.1f} s")
    print(f"{'FAILED' if wrong else 'ok'} {name} ({took:.2f} s)", flush=True)
    if wrong:
        failed.append(name)
        print("; ".join(wrong) + "\n" + done.stdout, flush=True)


def client(test, hosts, *arguments, **more):
    run(f"client {test} on {hosts}", hosts, [CLIENT, test, *arguments], **more)


def finish():
    if failed:
        sys.exit("failed: " + ", ".join(failed))


def pmix_clients():
    client("values", [2, 1, 2], has=["^ok values", "2 fences, 0 mails, 3 servers"])
    client("values", [3], has=["0 fences, 0 mails, 1 servers"])
    client("modex", [2, 1], has=["2 fences, [1-9]"], lacks=[" 0 mails"])
    client("job", [1, 2, 1])
    client("subset", [2, 1, 2], has=["2 fences, 4 mails"])
    client("connect", [2, 1, 2], has=["2 fences, 4 mails"])
    client("types", [1, 1])
    client("publish", [1, 1])
    client("again", [2], has=["(?s)0 initialized.*0 finalized.*0 initialized.*0 finalized"])
    # Prepared, libpmix of versions 4 and up offers shared memory.
    client("values", [2, 1], options=["--prepare"], lacks=["ERROR"])
    client("values", [2, 2], options=["--times", "3"], has=["6 fences, 0 mails, 6 servers"])
    # These do not end with a fence, so some begin their next program before others end the last.
    for options in ([], ["--prepare"]):
        run("several programs, one after the other", [2, 1],
            ["sh", "-c", f"{CLIENT} values && {CLIENT} again && exec {CLIENT} values"],
            options=options, lacks=["ERROR"])
    run("a program that is not the rank's own process", [2],
        ["sh", "-c", f"{CLIENT} values & wait $!"], has=["^ok values"])
    # Else it would take the place of the rank that has started it, which still uses PMIx.
    client("starts", [2], f"{CLIENT} again",
           has=["^command: 99", "a second program of rank [01] asks for MPI", "^ok starts"], lacks=["^ok again"])
    client("starts", [1], f"env -u PMIX_NAMESPACE {CLIENT} again", lacks=["second program"])
    # The head ends the job before the others see the fence fail, unless that takes it 3 s.
    client("leaves", [1, 2], code=3, options=["--keep"], at_least=3.0,
           has=["^1: fence: .*LOST.CONN", "^2: fence: .*LOST.CONN", "1 ended 3"])


def open_mpi():
    def program(name, *arguments):
        return [os.path.join(OPENMPI, name), *arguments]

    run("hello", [2, 1, 1], program("hello"),
        has=["^rank 3 of 4 on .*, 0 of 1 there", "3 fences, 0 mails, 3 servers"])
    run("hello, prepared", [2, 2], program("hello"), options=["--prepare"], lacks=["ERROR"])
    # What modules of a site set for other servers, and what mpirun runs with.
    run("hello with another launcher's settings", [2, 1], program("hello"), lacks=["ERROR"],
        PMIX_MCA_psec="none", PMIX_MCA_ptl_tcp_if_include="eth9",
        PMIX_MCA_ptl_base_if_include="eth9")
    run("hello with direct modex", [2, 2], program("hello"), has=["3 fences, 8 mails"],
        OMPI_MCA_pmix_base_collect_data="0")
    # Debian's Open MPI has no one-sided communication between hosts, unless told so.
    run("works", [2, 2], program("works"), has=["^ok one-sided"], OMPI_MCA_osc="sm,pt2pt")
    run("names", [1, 1], program("names"),
        has=["^publish: worked", "^lookup: worked", "^unpublish: worked",
             "^lookup again: MPI_ERR_NAME"])
    run("spawn", [1], program("spawn"), has=["^spawn: MPI_ERR_SPAWN", "was refused MPI_Comm_spawn"])
    unset = "env -u PMI_FD -u PMIX_NAMESPACE -u OMPI_MCA_schizo"
    hello = os.path.join(OPENMPI, "hello")
    run("a program that a rank starts", [2], program("starts", hello), has=["^command: 1", unset, "^ok after"])
    run("one that is to be alone", [2], program("starts", f"{unset} {hello}"),
        has=["^rank 0 of 1", "^command: 0", "^ok after"])
    run("abort", [2, 1], program("goes_wrong", "abort", "2"), code=7, has=["2 aborted 7"])
    run("killed", [2, 1], program("goes_wrong", "killed", "0"), code=137)
    run("exits", [2, 1], program("goes_wrong", "exits", "1"), code=137, has=["1 ended 0"])
    run("dies in MPI_Init", [2, 1], program("goes_wrong", "dies", "0"), code=137,
        has=["0 ended 137"], lacks=["0 initialized"])
    run("absent", [2, 1], program("goes_wrong", "absent", "0"), code=124,
        options=["--seconds", "2"],
        has=["1 waits for the other ranks in MPI_Init", "2 waits for", "0 ended 0"])
    run("not MPI", [2], ["true"], has=["0 fences, 0 mails, 0 servers"])


if not OPENMPI and not os.path.exists(CLIENT):
    skip("no pmix.h and libpmix to build a client with")
if OPENMPI and not os.path.exists(os.path.join(OPENMPI, "hello")):
    skip("no mpicc.openmpi")
open_mpi() if OPENMPI else pmix_clients()
finish()
