"""check_mistakes.py DTRUN: what somebody wrote wrongly is 200 wherever it shows, and is named as it was written."""
import ctypes
import errno
import os
import platform
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
    secret = f"{place}/secret"
    with open(secret, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("0123456789abcdef0123456789abcdef\n")
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
        (["join", "nosuch.invalid", "--job", "t", "--secret-file", secret, "--", "true"], 201, "nosuch.invalid: "),
        (["serve", "--listen", "foo"], 200, "dtrun: --listen: 'foo' is not a numeric address"),
        (["bench", "--html", "/nope/x"], 200, "--html"),
        (["bench", "--backends", "glo", "-p", "2"], 200, "dtrun: --backends: 'glo'"),
        # As a shell has it.
        (["nosuchprogram"], 127, "dtrun: nosuchprogram: not found on PATH (on localhost)\n"),
        ([script], 127, f"dtrun: {script}: its interpreter /no/such/shell is not there (on localhost)\n"),
        (["/etc/passwd"], 126, "dtrun: /etc/passwd: not executable"),
    ):
        done = dtrun(*words)
        assert done.returncode == code and text in done.stderr, (words, done)
    assert "PATH=" in dtrun("--verbose", "nosuchprogram").stderr


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
        check_mistakes(place)
    check_removed_directory()
    check_system_calls()
    check_cache_of_this_machine()


main()
