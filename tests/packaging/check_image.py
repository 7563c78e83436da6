#!/usr/bin/python3
"""check_image.py DIST: the image, loaded by podman in a clean Debian: a job within a container, as whoever it is, and
two containers that join a daemon in a third."""
import os
import re
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import containers  # noqa: E402
import roots  # noqa: E402
from skip import skip  # noqa: E402

MEGABYTES_MAX = 25


def main(dist):
    if why := roots.missing():
        skip(why)
    name = next(name for name in os.listdir(dist) if re.fullmatch(rf"dtrun-.*-image-{os.uname().machine}\.tar", name))
    megabytes = os.path.getsize(f"{dist}/{name}") / 1e6
    assert megabytes <= MEGABYTES_MAX, f"{name} has {megabytes:.1f} MB"
    version = re.search(r"\d+\.\d+\.\d+", name)[0]
    image = f"localhost/dtrun:{version}"
    with roots.Root("bookworm", (*roots.HOST_PACKAGES, *containers.PACKAGES), binds={"/dist": dist}) as root:
        containers.prepare(root)
        root.run("podman", "load", "--input", f"/dist/{name}")
        told = root.run("podman", "run", "--rm", image, "--version")
        assert told.startswith(f"dtrun {version} "), told
        check_users(root, image)
        check_daemon(root, image)


def check_users(root, image):
    """Its own user, root, and one without a name; the last with nothing that can be written."""
    for user in ([], ["--user=0"], ["--user=1000660000:0", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all"]):
        told = root.run("podman", "run", "--rm", *user, image, "-np", "2", "sh", "-c", 'echo "rank $DTRUN_RANK"')
        assert {"0", "1"} == set(re.findall(r"rank (\d)$", told, re.MULTILINE)), (user, told)


def check_daemon(root, image):
    root.shell("mkdir /run/dtrun; openssl rand -hex 32 >/run/dtrun/secret; chown 65532 /run/dtrun/secret; "
               "chmod 600 /run/dtrun/secret")
    run = ["podman", "run", "--rm", "--volume=/run/dtrun:/secret:ro", "--env=DTRUN_SECRET_FILE=/secret/secret"]
    with root.start(*run, "--name=daemon", image, "serve", "--listen", "127.0.0.1:29400", stderr=-1) as daemon:
        told = [daemon.stderr.readline()]
        while told[-1] and "serving on port" not in told[-1]:
            told.append(daemon.stderr.readline())
        assert told[-1], told
        words = ["join", "127.0.0.1:29400", "--job", "pair", "-np", "2", "--", "sh", "-c",
                 'echo "rank $DTRUN_RANK of $DTRUN_SIZE"']
        members = [root.start(*run, image, *words, stdout=-1, stderr=-2) for _ in range(2)]
        told = [member.communicate(timeout=120)[0] for member in members]
        assert [member.returncode for member in members] == [0, 0], told
        assert {"0", "1"} == set(re.findall(r"rank (\d) of 2$", "".join(told), re.MULTILINE)), told
        root.run("podman", "stop", "daemon")


if __name__ == "__main__":
    main(*sys.argv[1:])
