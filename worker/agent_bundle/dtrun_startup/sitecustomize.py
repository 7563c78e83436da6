"""Lets `dtrun stacks` see where a rank is: Python imports this when an interpreter of a job starts.

At SIGURG, which does nothing to who does not know it, Python's faulthandler writes where all threads are into a file
without a name, which this process alone has open. The agent sends the signal and reads the file
(worker/ranks/python_dump.h). Whatever is not as expected here leaves the interpreter as it is. Python 2 reads it, too.

Then the sitecustomize that would be imported without this one is imported in its place.
"""

import os
import sys


def _listen():
    import _signal
    import faulthandler

    if _signal.getsignal(_signal.SIGURG) != _signal.SIG_DFL:
        return  # somebody has a use for it
    try:
        file = os.memfd_create("dtrun-stacks")
    except (AttributeError, OSError):  # a Python that was built for older systems, or one that must not
        name = "/dev/shm/dtrun-stacks-%d" % os.getpid()
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(name)
    faulthandler.register(_signal.SIGURG, file=file, all_threads=True, chain=False)


def _keep_compiled():
    """Compiling this takes longer than all that it does. Where Python is not to keep what it compiles, as in many
    containers, it keeps this all the same, if it lies in a folder that an agent has made for its user.
    """
    folder = os.path.dirname(__file__)
    if not sys.dont_write_bytecode or "/package-" not in folder or os.path.exists(__spec__.cached):
        return
    if os.access(folder, os.W_OK):
        sys.dont_write_bytecode = False
        try:
            __spec__.loader.get_code(__name__)
        finally:
            sys.dont_write_bytecode = True


def _give_way():
    """A job within a job has this folder twice."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("/dtrun_startup")]
    ours = sys.modules.pop("sitecustomize")  # Python 2 would clear it while it runs
    import sitecustomize

    return ours, sitecustomize


if os.environ.get("DTRUN_STACKS") != "0":
    try:
        _listen()
    except Exception:
        pass
try:
    _keep_compiled()
except Exception:
    pass
_give_way()
