"""check_store.py DTRUN: `dtrun store` inside a rank tells nothing to a socket that somebody else has opened."""
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../support")
from skip import skip  # noqa: E402

DTRUN = sys.argv[1]
NOBODY = 65534

if os.geteuid() != 0:
    skip("only root can be somebody else")
name = f"dtrun-test-{os.getpid()}"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
os.seteuid(NOBODY)
listener.bind(f"\0{name}")
listener.listen()
os.seteuid(0)
done = subprocess.run([DTRUN, "store", "set", "password", "sesame"], capture_output=True, text=True,
                      env={**os.environ, "DTRUN_SOCKET": f"@{name}"}, timeout=60)
assert done.returncode == 202 and f"belongs to user {NOBODY}" in done.stderr, done
connection, _ = listener.accept()
assert connection.recv(100) == b""
