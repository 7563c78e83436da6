"""What runs commands on the head of the cluster: one process there, told what to do over a pipe.

Reads one JSON request a line on its standard input, answers each with one line. It is on the head
already, so the time that getting there takes is in nobody's figure.
"""
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

ERROR_TAIL_BYTES = 400


def wait_for(process, deadline):
    """What it has used; None: it has not ended within the deadline. Popen.wait() polls, which is too coarse for a clock."""
    pidfd = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
    finally:
        os.close(pidfd)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if process.returncode is None:
        process.wait()


def tail(file):
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - ERROR_TAIL_BYTES))
    return file.read().decode(errors="replace").strip()


def run(request):
    """Runs request["command"] at most request["limit_s"] seconds; with request["reader"] that
    program reads its standard output, and what it prints is in the answer."""
    started = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    environment = {**os.environ, **request.get("environment", {})}
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as found:
        reader, to_reader = None, None
        output = subprocess.DEVNULL
        if request.get("reader"):
            from_command, to_reader = os.pipe()
            reader = subprocess.Popen(request["reader"], **{**started, "stdin": from_command},
                                      stdout=found)
            os.close(from_command)
            output = to_reader
        begin = time.monotonic()
        process = subprocess.Popen(request["command"], **started, env=environment, stdout=output,
                                   stderr=errors)
        if to_reader is not None:
            os.close(to_reader)
        deadline = begin + request["limit_s"]
        usage = wait_for(process, deadline)
        wall = time.monotonic() - begin
        in_time = usage is not None and (reader is None or wait_for(reader, deadline) is not None)
        kill_group(process)
        answer = {"wall": wall, "begin": begin, "in_time": in_time, "status": process.returncode}
        if usage is not None:
            answer |= {"own_cpu": usage.ru_utime + usage.ru_stime, "own_kb": usage.ru_maxrss}
        if reader is not None:
            kill_group(reader)
            found.seek(0)
            answer["read"] = json.loads(found.read() or "null")
        answer["errors"] = tail(errors)
        return answer


def start(request):
    """Starts a command that is ended with the whole head."""
    process = subprocess.Popen(request["command"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    return {"pid": process.pid}


def main():
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"run": run, "start": start}[request["what"]](request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
