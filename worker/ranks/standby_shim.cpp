#include "worker/ranks/standby_shim.h"

namespace dtrun::ranks {

// Python has bytes in os.environb; replacing all of them calls putenv(), so C code sees the same. site.py
// takes an ImportError that names sitecustomize for "there is none", and forgets the module.
const std::string_view kStandbyShim = R"py(import os
import sys

NAME = "sitecustomize"


def hide_from(path):
    here = os.path.dirname(path)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    rest = [entry for entry in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if entry != here]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)


def set_by_python():
    """What the interpreter has put into its own environment at its start: LC_CTYPE, in the C locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            given = set(file.read().split(b"\0"))
    except OSError:
        return {}
    return {name: value for name, value in os.environb.items() if name + b"=" + value not in given}


def read(fd, size):
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            os._exit(1)
        data += piece
    return data


def read_words(fd, start=b""):
    size = int.from_bytes(start + read(fd, 4 - len(start)), "little")
    return read(fd, size).split(b"\0")[:-1]


def first_byte(fd):
    """The first byte of the last message, and the descriptor that may come with it."""
    had_it = "_socket" in sys.modules
    import _socket
    agent = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
    try:
        size = _socket.CMSG_SPACE(4)
        start, extra, _, _ = agent.recvmsg(1, size)
    finally:
        agent.detach()
    if not start:
        os._exit(1)
    inherited = -1
    for level, kind, data in extra:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            inherited = int.from_bytes(data[:4], sys.byteorder)
            os.set_inheritable(inherited, True)
    if not had_it:
        del sys.modules["_socket"]
    return start, inherited


def wait_in(fd, added):
    os.set_inheritable(fd, False)
    modules = [name.decode() for name in read_words(fd)]
    for module in modules:
        try:
            __import__(module)
        except BaseException as error:
            text = "cannot import %s: %s: %s" % (module, type(error).__name__, error)
            os.write(fd, b"E" + text.encode("utf-8", "replace")[:1000])
            os._exit(1)
    os.write(fd, b"P")
    start, inherited = first_byte(fd)
    words = read_words(fd, start)
    os.close(fd)
    os.environ.clear()
    for word in words:
        name, _, value = word.partition(b"=")
        if name == b"PMI_FD" and inherited >= 0:
            value = str(inherited).encode()
        os.environb[name] = value
    for name, value in added.items():
        os.environb.setdefault(name, value)


def load_next():
    for finder in sys.meta_path:
        spec = finder.find_spec(NAME, None) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.loader is not None:
            import _frozen_importlib
            module = _frozen_importlib.module_from_spec(spec)
            sys.modules[NAME] = module
            spec.loader.exec_module(module)
            return
    raise ImportError("there is no other", name=NAME)


fd = os.environ.pop("DTRUN_STANDBY_FD", None)
added = set_by_python()
hide_from(__file__)
if fd is not None:
    try:
        wait_in(int(fd), added)
    except BaseException:  # else Python would go on to the program, in a process that is no rank
        os._exit(1)
load_next()
)py";

}  // namespace dtrun::ranks
