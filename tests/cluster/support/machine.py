"""What the harness asks of the kernel and of files."""
import ctypes
import os
import signal
import subprocess
import sys
import time

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEW_PID, NEW_NET = 0x20000000, 0x40000000
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
MOUNT_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "remount": 32, "bind": 4096,
               "rec": 16384, "private": 1 << 18}


class Failure(Exception):
    """Something to tell the person who typed the command."""


class Missing(Failure):
    """This machine lacks what every cluster needs."""


libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    if getattr(libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}{arguments}: {os.strerror(error)}")


def mount(source, target, kind=None, options=""):
    """As mount(8): `options` are separated by commas."""
    words = options.split(",")
    flags = sum(MOUNT_FLAGS.get(word, 0) for word in words)
    data = ",".join(word for word in words if word not in MOUNT_FLAGS)
    call("mount", source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags),
         data.encode())


def can_unshare():
    try:
        call("unshare", NEW_NS | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET)
        return True
    except OSError:
        return False


def die_with_parent():
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(child, *keep):
    """Runs `child` in a new process that dies with its parent and has no descriptors but 0, 1, 2
    and `keep`; the pid."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        die_with_parent()
        close_all_but(0, 1, 2, *keep)
        child()
    except BaseException as error:  # pylint: disable=broad-except
        print(f"child: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text, mode=0o644, owner=0):
    with open(path, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, mode)) as file:
        file.write(text)
    if owner:
        os.chown(path, owner, owner)


def run(*command, text=""):
    """Runs a command to its end. Failure: its status is not 0; the message has what it printed."""
    done = subprocess.run(command, input=text, text=True, capture_output=True,
                          env={"PATH": PATH}, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def try_kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def close_all_but(*keep):
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # the one of the listing itself
