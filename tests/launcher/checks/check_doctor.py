"""check_doctor.py DTRUN: a doctor and a report of this machine, by dtrun as it is built."""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../support")
from waiting import wait_for  # noqa: E402

DTRUN = os.path.abspath(sys.argv[1])


def dtrun(*words, **env):
    return subprocess.run([DTRUN, *words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, **env})


def stub(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


def processes_of(name):
    return subprocess.run(["pgrep", "-f", name], capture_output=True, text=True, check=False).stdout.split()


def this_machine_is_examined():
    done = dtrun("doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["findings"] else 0), done
    [host] = found["hosts"]
    assert host["examined"] and host["name"] == "localhost", host
    assert host["facts"]["python"].count(".") == 2, host
    assert abs(host["clock_ahead_s"]) < 10, host
    assert dtrun("doctor").stdout.splitlines()[-1].startswith("1 of 1 host examined in "), done


def gpus_and_who_uses_them():
    with tempfile.TemporaryDirectory() as folder:
        stub(folder, "nvidia-smi", """case "$*" in
*query-gpu=index,uuid*) printf '0, GPU-a, NVIDIA H100, 9, 40960, 81559\\n1, GPU-b, NVIDIA H100, 0, 0, 81559\\n';;
*query-compute*) printf 'GPU-a, 1234567\\n';;
*ecc*) printf '0, 0\\n1, 3\\n';;
esac
""")
        done = dtrun("doctor", PATH=folder + ":" + os.environ["PATH"])
    assert done.returncode == 1, done
    assert "localhost: others compute there: GPU 0 (40960 MiB, 1 process)" in done.stdout, done
    assert "memory errors that could not be corrected: GPU 1 (3)" in done.stdout, done
    assert "2 x NVIDIA H100" in done.stdout, done


def may_have_gpus():
    vendors = [pathlib.Path(path).read_text() for path in glob.glob("/sys/bus/pci/devices/*/vendor")]
    return "0x10de\n" in vendors or os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/dxg")


def a_machine_without_gpus_may_have_nvidia_smi():
    with tempfile.TemporaryDirectory() as folder:
        stub(folder, "nvidia-smi", "echo 'NVIDIA-SMI has failed' >&2; exit 9\n")
        done = dtrun("doctor", "--json", PATH=folder + ":" + os.environ["PATH"])
    found = json.loads(done.stdout)
    assert found["hosts"][0]["facts"]["gpus"] == "", done
    assert not any(finding["topic"] == "gpus" for finding in found["findings"]), done


def a_program_that_hangs_holds_nobody_up():
    with tempfile.TemporaryDirectory() as folder:
        stub(folder, "python3", "exec sleep 4711.5\n")
        done = dtrun("doctor", "--json", PATH=folder + ":/usr/bin:/bin")
    host = json.loads(done.stdout)["hosts"][0]
    assert host["facts"]["kernel"] and host["facts"]["python"] == "(does not answer)", done
    # The kernel ends it after kill() has returned.
    wait_for(lambda: not processes_of("sleep 4711.5"), "a program was left behind")


def what_hosts_say_is_shown_harmlessly():
    with tempfile.TemporaryDirectory() as folder:
        stub(folder, "python3", r"""printf '3.1\033[31m\377\n/x\n'""" + "\n")
        stub(folder, "csv.py", "")
        env = {"PATH": folder + ":" + os.environ["PATH"]}
        shown, as_json = dtrun("doctor", **env), dtrun("doctor", "--json", **env)
    assert "\033" not in shown.stdout and r"\x1b[31m\xff" in shown.stdout, shown
    json.loads(as_json.stdout)


def modules_of_this_directory_are_not_run():
    with tempfile.TemporaryDirectory() as folder:
        mark = os.path.join(folder, "ran")
        for module in ("csv", "email", "zipfile", "json"):
            with open(os.path.join(folder, module + ".py"), "w", encoding="utf-8") as file:
                file.write(f"open({mark!r}, 'w').close()\n")
        done = subprocess.run([DTRUN, "doctor", "--json"], cwd=folder, capture_output=True, text=True, check=False)
        assert json.loads(done.stdout)["hosts"][0]["facts"]["python"].startswith("3."), done
        assert not os.path.exists(mark)


def mistakes_are_answered():
    for words, said in ((["doctor", "s1"], "'s1' is no option"), (["info", "x"], "'x' is no option"),
                        (["doctor", "-np", "4"], "-np")):
        done = dtrun(*words)
        assert done.returncode == 200 and said in done.stderr, done
    done = dtrun("doctor", "-H", "localhost", "--network-interfaces", "nope0")
    assert done.returncode == 1 and "it has no network interface nope0" in done.stdout, done
    done = dtrun("doctor", "-H", "no-such-host.invalid")
    assert done.returncode == 1 and done.stdout.startswith("no-such-host.invalid: "), done


def a_report_has_no_secrets():
    done = dtrun("info", DTRUN_SECRET="hunter2", NCCL_DEBUG="INFO", DTRUN_API_TOKEN="hunter3",
                 AWS_ACCESS_KEY_ID="hunter4", PASSWORD="hunter5", DTRUN_OPTIONS="-x A=hunter6")
    assert done.returncode == 0 and "hunter" not in done.stdout, done
    assert "NCCL_DEBUG=INFO" in done.stdout and "python_path" in done.stdout, done
    assert done.stdout.startswith("dtrun "), done
    said = " ".join(done.stdout.split())  # which may be broken between any two words
    for library in ("libssh ", "OpenSSL ", "SQLite ", "Boost ", "fmt ", "spdlog ", "yaml-cpp ", "hwloc ", "glibc ", "PMIx"):
        assert library in said, (library, done)


def a_report_has_no_name():
    with tempfile.TemporaryDirectory(prefix="ann-") as home:
        done = dtrun("info", HOME=home, NCCL_TOPO_FILE=f"{home}/topology.xml")
        assert "variable      NCCL_TOPO_FILE=~/topology.xml\n" in done.stdout and home not in done.stdout, done


def a_report_without_an_agent_says_so():
    with tempfile.TemporaryDirectory() as alone:
        copy = shutil.copy(DTRUN, alone)
        done = subprocess.run([copy, "info"], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "examination   the agent that belongs to this dtrun is missing" in done.stdout, done
        assert "no dtrun-bench-rank at " in done.stdout, done


this_machine_is_examined()
gpus_and_who_uses_them()
if not may_have_gpus():
    a_machine_without_gpus_may_have_nvidia_smi()
a_program_that_hangs_holds_nobody_up()
what_hosts_say_is_shown_harmlessly()
modules_of_this_directory_are_not_run()
mistakes_are_answered()
a_report_has_no_secrets()
a_report_has_no_name()
a_report_without_an_agent_says_so()
print("well")
