#!/usr/bin/python3
"""check_install.py FORM SUITE DIST [TOOLS]: dtrun, installed from one of the forms in DIST into a clean Debian as its
users install it, runs jobs there and on a second host, and goes without a trace.

FORM is one of the functions below; TOOLS the folder of programs from Python's index (packaging/tools).
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, f"{HERE}/../support"]
import roots  # noqa: E402
from pair import HOME, USER, Pair  # noqa: E402
from skip import skip  # noqa: E402

CPU = os.uname().machine
WHEEL = f"dtrun-*-py3-none-*{CPU}.whl"
DEB_CPU = {"x86_64": "amd64", "aarch64": "arm64"}[CPU]
# What a system remembers of packages that it has had.
MEMORY = ("/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd", "/var/cache", "/var/log", "/etc/ld.so.cache", "/home", "/root")


def is_kept(path):
    """Agents that hosts have got, and what a user's jobs were, outlive what is installed."""
    return "/.cache/dtrun/" in path or "/.local/state/dtrun/" in path


def nothing_is_left(before, after):
    left = sorted(after - before)
    assert not left, f"left behind: {left[:20]}"
    gone = sorted(before - after)
    assert not gone, f"taken along: {gone[:20]}"


def system_files(root):
    return {path for path in root.files() if not path.startswith(MEMORY)}


def absence_of_torch_is_told(pair, python):
    told = pair.first.run(python, "-c", "import dtrun.torch", user=USER, code=1).splitlines()[-1]
    assert "torch" in told and "pip install torch" in told, told


# ---------------------------------------------------------------------------------------------- forms
def wheel(pair):
    """pip in a virtual environment."""
    file = pair.file(WHEEL)
    pair.start_clock()
    pair.first.run("python3", "-m", "venv", "venv", user=USER)
    before = pair.first.files(HOME, but="d")
    pair.first.run("venv/bin/pip", "install", "--no-index", file, user=USER)
    installed = pair.first.files(HOME, but="d") - before
    pair.check_job("wheel, pip", f"{HOME}/venv/bin/dtrun", {"PATH": f"{HOME}/venv/bin:{roots.PATH}"}, where=installed)
    absence_of_torch_is_told(pair, "venv/bin/python")
    pair.first.run("venv/bin/pip", "uninstall", "-y", "dtrun", user=USER)
    # pip leaves empty folders, as it does of every wheel.
    nothing_is_left(before, {path for path in pair.first.files(HOME, but="d") if not is_kept(path)})


def uv(pair):
    """uv, as a tool and in an environment."""
    file = pair.file(WHEEL)
    before = pair.first.files(HOME, but="d")
    pair.start_clock()
    pair.first.run("/tools/uv", "tool", "install", "--offline", "--no-cache", file, user=USER)
    installed = pair.first.files(HOME, but="d") - before
    pair.check_job("wheel, uv tool", f"{HOME}/.local/bin/dtrun", where=installed)
    pair.first.run("/tools/uv", "tool", "uninstall", "dtrun", user=USER)
    left = {path for path in pair.first.files(HOME, but="d") - before if "dtrun" in path and not is_kept(path)}
    assert not left, left
    pair.first.run("/tools/uv", "venv", "--offline", "--no-cache", "venv", user=USER)
    before = pair.first.files(f"{HOME}/venv", but="d")
    environment = {"VIRTUAL_ENV": f"{HOME}/venv", "PATH": f"{HOME}/venv/bin:{roots.PATH}"}
    pair.first.run("/tools/uv", "pip", "install", "--offline", "--no-cache", file, user=USER, environment=environment)
    pair.check_job("wheel, uv pip", f"{HOME}/venv/bin/dtrun", environment)
    absence_of_torch_is_told(pair, "venv/bin/python")
    pair.first.run("/tools/uv", "pip", "uninstall", "dtrun", user=USER, environment=environment)
    # uv leaves a lock of its own, and what Python has compiled since.
    nothing_is_left(before, {path for path in pair.first.files(f"{HOME}/venv", but="d")
                             if not path.endswith(("/venv/.lock", ".pyc"))})


def deb(pair):
    """apt on the first host; then on both, where the administrator's agent is taken instead of a copy."""
    file = pair.file(f"dtrun_*_{DEB_CPU}.deb")
    before = system_files(pair.first)
    pair.start_clock()
    pair.first.run("apt-get", "install", "-y", file)
    listed = pair.first.run("dpkg", "-L", "dtrun").splitlines()
    own = [path for path in sorted(system_files(pair.first) - before) if path.startswith("/usr")]
    pair.check_job("deb", "/usr/bin/dtrun", where=own)
    for wanted in ("/usr/share/man/man1/dtrun.1.gz", "/usr/share/bash-completion/completions/dtrun",
                   "/usr/share/doc/dtrun/copyright", "/usr/lib/systemd/system/dtrun-serve.service"):
        assert wanted in listed, f"{wanted} is not in the package"
        pair.first.run("test", "-s", wanted)
    pair.second.run("rm", "-rf", f"{HOME}/.cache/dtrun")
    pair.second.run("apt-get", "install", "-y", file)
    pair.check_job("deb on both", "/usr/bin/dtrun", carried=False)
    pair.first.run("dpkg", "-P", "dtrun")
    nothing_is_left(before, system_files(pair.first))


def tar(pair):
    """Unpacked by a user in their home, and moved to another place."""
    file = pair.file(f"dtrun-*-linux-{CPU}.tar.gz")
    pair.start_clock()
    pair.first.shell(f"mkdir opt && tar -xzf {file} -C opt --strip-components=1", user=USER)
    pair.check_job("tar", f"{HOME}/opt/bin/dtrun", where=[f"{HOME}/opt"])
    pair.first.run("mv", "opt", "another place", user=USER)
    pair.check_job("tar, moved", f"{HOME}/another place/bin/dtrun")


def unpack_files(pair, root, pattern):
    """Puts another distribution's package's files over a Debian, as its own system is not to be had here."""
    pair.file(pattern)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bsdtar", "-xf", pair.path, "-C", folder], check=True)
        archive = subprocess.run(["tar", "-C", folder, "-cf", "-", "usr"], stdout=subprocess.PIPE, check=True).stdout
    enter, environment = root.command(["tar", "-C", "/", "--keep-directory-symlink", "--no-same-owner", "-xf", "-"])
    subprocess.run(enter, env=environment, input=archive, check=True)


def rpm(pair):
    """The files of the .rpm."""
    unpack_files(pair, pair.first, f"dtrun-*.{CPU}.rpm")
    pair.check_job("rpm, its files", "/usr/bin/dtrun")


def arch(pair):
    """The files of Arch's package."""
    unpack_files(pair, pair.first, f"dtrun-*-{CPU}.pkg.tar.zst")
    pair.check_job("Arch, its files", "/usr/bin/dtrun")


def apk(pair):
    """The files of the .apk, which is for hosts: there its agent is taken instead of a copy."""
    unpack_files(pair, pair.second, f"dtrun-agent_*_{CPU}.apk")
    pair.first.shell(f"mkdir opt && tar -xzf {pair.file(f'dtrun-*-linux-{CPU}.tar.gz')} -C opt --strip-components=1",
                     user=USER)
    pair.check_job("apk on the second host, its files", f"{HOME}/opt/bin/dtrun", carried=False)


FORMS = {form.__name__: form for form in (wheel, uv, deb, tar, rpm, arch, apk)}


def main(form, suite, dist, tools=None):
    if form not in FORMS:
        sys.exit(f"{form}: forms are {', '.join(FORMS)}")
    if why := roots.missing():
        skip(why)
    with Pair(suite, dist, tools) as pair:
        FORMS[form](pair)


if __name__ == "__main__":
    main(*sys.argv[1:])
