"""check_mistakes.py DTRUN: what somebody wrote wrongly is 200 wherever it shows, and is named as it was written."""
import ctypes
import errno
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile

DTRUN = os.path.abspath(sys.argv[1])
LIMIT_S = 60


def dtrun(*words, **options):
    return subprocess.run([DTRUN, *words], capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=LIMIT_S,
                          check=False, **options)


def check_mistakes(place):
    script = f"{place}/script"
    with open(script, "w", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
        file.write("#!/no/such/shell\n")
    shutil.copy("/bin/true", f"{place}/hello")
    os.mkdir(f"{place}/example")
    secret = f"{place}/secret"
    with open(secret, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("0123456789abcdef0123456789abcdef\n")
    hosts, inventory, wide = f"{place}/hosts.txt", f"{place}/inventory", f"{place}/wide"
    for name, text in ((hosts, b"s1:1\n"), (inventory, b"[workers]\ns1\n"), (wide, "s1 slots=2\n".encode("utf-16"))):
        with open(name, "wb") as file:
            file.write(text)
    for words, code, text in (
        (["--output-dir", "/etc/passwd", "true"], 200, "/etc/passwd: Not a directory"),
        (["--output-dir", "/proc/x", "true"], 200, "/proc/x: No such file or directory"),
        (["--network-interfaces", "eth9", "true"], 200,
         "no network interface eth9 (--network-interfaces); it has "),
        (["--network-interfaces", "eth9", "-H", "192.0.2.1", "true"], 200, "no network interface eth9"),
        (["--ssh-command", "nosuchssh", "-H", "192.0.2.1", "true"], 200, "--ssh-command: nosuchssh: "),
        (["--ssh-command", "./kube.sh", "-p", "2222", "-H", "192.0.2.1", "true"], 200, "port 2222 (-p)"),
        (["--hostfile", "/nope", "true"], 200, "dtrun: --hostfile: /nope: No such file or directory\n"),
        (["-H", "s1:0", "true"], 200, "HOST:1"),
        (["-H", "localhost:1,127.0.0.1:1", "true"], 200, "localhost and 127.0.0.1 are one machine"),
        (["doctor", "s1"], 200, "dtrun doctor -H s1"),
        (["--web=99999", "true"], 200, "dtrun: --web: '99999' is no port: 0 to 65535"),
        (["join", "nosuch.invalid", "--job", "t", "--secret-file", secret, "--connect-timeout", "1", "--", "true"], 201,
         "nosuch.invalid: unknown host name"),
        (["serve", "--listen", "foo"], 200, "dtrun: --listen: 'foo' is not a numeric address"),
        (["bench", "--html", "/nope/x"], 200, "--html"),
        # What somebody types who comes from elsewhere, or copies it from a page; each answer says what to write.
        (["-np", "4", "-H", "s1,s2", "hostname"], 200, "a name alone is one slot: write s1:2,s2:2"),
        (["-H", hosts, "true"], 200, f"a file here has this name: write --hostfile {hosts}"),
        (["-np", "2", "-H", "hosts.txt", "true"], 200, "a file here has this name: write --hostfile hosts.txt"),
        (["-H", "nosuch.invalid:1", "true"], 201, "  nosuch.invalid: unknown host name; `ssh NAME` has to know it\n"),
        (["--hosts", "s1", "s2", "-np", "2", "true"], 200, "-H takes one word without blanks; write -H s1,s2"),
        (["-H", "true"], 200, "no program to run behind -H true"),
        (["--hostfile", "true"], 200, "no program to run behind --hostfile true"),
        ([""], 200, "the program's name is empty"),
        (["-np", "2", "\u201ctrue\u201d"], 200, "begins with a quote that a web page or a word processor has made"),
        (["-np", "1", "echo", "\u2013hvd"], 0, "begins with a long dash"),
        (["-np", "2", "cd", "/tmp"], 200, "cd is a word of the shell: write --wdir DIR"),
        ([" "], 200, "is a blank: delete those behind the '\\' at the end of a line"),
        (["true\r"], 200, "ends with a carriage return: a script with lines of Windows?"),
        (["echo", "train.py\r"], 0, "'train.py', which the program gets, ends with a carriage return"),
        (["true", ":", "echo", "b.py\r"], 0, "'b.py', which the program gets, ends with a carriage return"),
        (["source", "venv/bin/activate"], 200, "write bash -c 'source ...; exec PROGRAM'"),
        (["module", "load", "cuda"], 200, "write bash -lc 'module ...; exec PROGRAM'"),
        (["ulimit", "-n", "64"], 200, "write sh -c 'ulimit ...; exec PROGRAM'"),
        (["-H", "localhost:2@22", "true"], 200, "ssh's port as -p 22"),
        (["-H", "http://s1:4", "true"], 200, "'http://s1:4' is an address of the web; write s1:4"),
        (["-H", "s1:1:2", "true"], 200, "write host:slots, and an IPv6 address in brackets"),
        (["--hostfile", inventory, "true"], 200, "'[workers]' is a group of an Ansible inventory"),
        (["--hostfile", wide, "true"], 200, "this is UTF-16; convert it: iconv"),
        (["-H", "rechner-\u00e4", "true"], 200, "only ASCII can stand in a host name"),
        (["--metrics", "22x", "true"], 200, "'22x' is neither a port nor a numeric address"),
        (["jobs", "nosuch"], 200, "are seen by `dtrun jobs` without a host, and by `dtrun top JOB`"),
        (["status"], 200, "are seen by `dtrun jobs` without a host"),
        (["status", "127.0.0.1:1", "--secret-file", secret], 201, "is `dtrun serve` running there?"),
        (["bench", "train.py"], 200, "stands behind --: dtrun bench -- train.py"),
        (["serve", "--state", "/proc/x", "--listen", "127.0.0.1:0", "--secret-file", secret], 200, "--state: /proc/x: "),
        (["deepspeed", "--include", "s1:0", "x.py"], 200,
         "that is this machine alone, as neither -H nor a hostfile names others"),
        (["--user", "bob", "true"], 200, "write user@host:4 in -H or a hostfile"),
        (["--key", "x", "true"], 200, "write -i FILE"),
        (["--port", "22", "true"], 200, "ssh's port is -p N"),
        (["--password", "x", "true"], 200, "log-ins are by keys"),
        (["-q", "true"], 200, "--quiet"),
        (["--image", "x", "true"], 200, "--wrap 'apptainer exec IMAGE'"),
        (["--container", "x", "true"], 200, "--wrap 'apptainer exec IMAGE'"),
        (["--copy", "x", "true"], 200, "programs are not copied"),
        (["--python", "x", "true"], 200, "write python3, or the path of another one, before the script"),
        (["-j", "2", "true"], 200, "the number of ranks is -np N"),
        (["--processes", "2", "true"], 200, "the number of ranks is -np N"),
        (["--mpi", "foo"], 127, "'foo' is taken for the program: --mpi alone is right, and its words are [auto|"),
        (["--nnodes", "2", "train.py", "--lr", "a b"], 200,
         "--nnodes is torchrun's: write dtrun torchrun --nnodes 2 train.py --lr 'a b'; or -H and -np"),
        (["-np", "4", "-x", "HF_TOKEN=abc", "--nnodes", "2", "train.py"], 200,
         "write dtrun torchrun -x HF_TOKEN=... --nnodes 2 train.py (it has no -np); or -H and -np"),
        (["-x", "HF_TOKEN=abc"], 200, "no program to run behind -x HF_TOKEN=...; usage"),
        (["--num-gpus", "2", "train.py"], 200, "--num-gpus is deepspeed's: write dtrun deepspeed --num-gpus 2 train.py"),
        (["kill", "123"], 200, "kill: a job is ended by dtrun end JOB"),
        (["ps", "--version"], 0, "ps is run as a program, which is on PATH; dtrun jobs is what it is elsewhere"),
        (["list"], 127, "dtrun jobs is that here"),
        (["setup"], 127, "dtrun demo is that here"),
        (["benhc"], 127, "did you mean dtrun bench?"),
        (["hello"], 127, "hello: not found on PATH; there is one in the working directory: write ./hello (on"),
        (["example"], 127, "example: neither a command of dtrun nor a program on PATH; dtrun demo is that here"),
        (["--gpu", "1", "x"], 200, "devices are the batch system's to give"),
        (["--nproc", "2", "x"], 200, "the number of ranks is -np N"),
        (["--restart", "3", "x"], 200, "write --max-restarts N"),
        (["bench", "-np", "2"], 200, "write --slots 2"),
        (["bench", "--no-train"], 200, "it trains only with --train; leave it out"),
        (["help", "rnu"], 200, "did you mean run?"),
        (["contracts", "torhc"], 200, "did you mean torch?"),
        (["-np", "2", "-n", "3", "x"], 200, "-np 2 and -n 3 are one option of dtrun; give it once"),
        (["-N", "4", "--ntasks-per-node=1", "x"], 200, "srun's -N, a number of nodes, is what -H"),
        (["bench", "--backends", "glo", "-p", "2"], 200, "dtrun: --backends: 'glo'"),
        # As a shell has it.
        (["nosuchprogram"], 127, "dtrun: nosuchprogram: not found on PATH (on localhost)\n"),
        ([script], 127, f"dtrun: {script}: its interpreter /no/such/shell is not there (on localhost)\n"),
        (["/etc/passwd"], 126, "dtrun: /etc/passwd: not executable"),
    ):
        done = dtrun(*words, cwd=place)
        assert done.returncode == code and text in done.stderr and "abc" not in done.stderr, (words, done)
    assert "PATH=" in dtrun("--verbose", "nosuchprogram").stderr
    # As every note, where only errors are wanted; and where it is said that a program is meant.
    for words, options in ((["ps"], "--quiet"), (["run", "ps"], "")):
        done = dtrun(*words, env={**os.environ, "DTRUN_OPTIONS": options})
        assert done.returncode == 0 and not done.stderr, done


def in_removed_directory(*words):
    gone = tempfile.mkdtemp()

    def enter():
        os.chdir(gone)
        os.rmdir(gone)

    return dtrun(*words, preexec_fn=enter)


def check_removed_directory():
    done = in_removed_directory("pwd")
    assert done.returncode == 0, done
    assert done.stderr == ("dtrun: the directory in which dtrun was started has been removed: ranks on localhost run "
                           f"in {done.stdout}"), done
    done = in_removed_directory("--wdir", "x", "true")
    assert done.returncode == 200 and "--wdir: x is relative" in done.stderr, done


def refuse(call, error):
    """In a child before exec: a seccomp filter that has a system call fail, as an old kernel or a container does."""
    def code(operation, true, false, value):
        return struct.pack("=HBBI", operation, true, false, value)

    program = (code(0x20, 0, 0, 0) + code(0x15, 0, 1, call) + code(0x06, 0, 0, 0x00050000 | error) +
               code(0x06, 0, 0, 0x7FFF0000))  # load the number; if it is the call: fail; else allow
    memory = ctypes.create_string_buffer(program)
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter_) == 0, os.strerror(ctypes.get_errno())


def check_system_calls():
    getrandom, clone3 = {"x86_64": 318, "aarch64": 278}[platform.machine()], 435
    for call, error, text in (
        (getrandom, errno.ENOSYS, f"dtrun: Linux 3.17 or newer is needed, which has getrandom: this is Linux {platform.release()}\n"),
        (getrandom, errno.EPERM, "dtrun: the system call getrandom is refused here (Operation not permitted)"),
        (clone3, errno.EPERM, "dtrun: the system call clone3 is refused here"),
    ):
        done = dtrun("-np", "1", "true", preexec_fn=lambda call=call, error=error: refuse(call, error))
        assert done.returncode == 210 and done.stderr.startswith(text), done
    agent = subprocess.run([os.path.dirname(DTRUN) + "/dtrun-agent"], capture_output=True, stdin=subprocess.DEVNULL,
                           text=True, timeout=LIMIT_S, check=False,
                           preexec_fn=lambda: refuse(getrandom, errno.ENOSYS))
    assert agent.returncode == 1 and agent.stdout.startswith("dtrun-agent-failed Linux 3.17 or newer is needed"), agent


def check_cache_of_this_machine():
    """The agent of the machine where dtrun is typed has the user's cache where those of hosts have it."""
    done = dtrun("-np", "1", "sh", "-c", r"tr '\0' '\n' </proc/$PPID/environ", env={**os.environ, "XDG_CACHE_HOME": "/a/cache"})
    assert "XDG_CACHE_HOME=/a/cache" in done.stdout, done


def main():
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CONFIG_HOME"] = place  # without a secret or defaults of whoever runs this
        check_mistakes(place)
        del os.environ["XDG_CONFIG_HOME"]
    check_removed_directory()
    check_system_calls()
    check_cache_of_this_machine()


main()
