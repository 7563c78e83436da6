"""A root of another CPU: all of its programs are of that CPU, and qemu runs them.

Which file runs programs of a foreign CPU is asked of the kernel's binfmt_misc, of which every user namespace may have one
of its own (Linux 6.7). Such a root has one; nothing is registered for the machine. Its packages are unpacked, and their
scripts not run, so that it is made in the time of the download.
"""
import os

import roots
from machine import NEW_IPC, NEW_NET, NEW_NS, NEW_UTS, call, mount, read, run, write

NEW_USER = 0x10000000
SUITE = "trixie"  # its qemu is one static file, and knows what current programs ask of the kernel
PACKAGES = ("base-files", "base-passwd", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "libc-bin", "openssh-server", "procps", "python3", "sed",
            "tar")
BINFMT = "/proc/sys/fs/binfmt_misc"
# The ELF header of a program or library of that CPU, and which bits of it count.
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def missing():
    """What this machine lacks, in words, or None."""
    if why := roots.missing():
        return why
    major, minor = map(int, os.uname().release.split(".")[:2])
    if (major, minor) < (6, 7) or not os.path.isdir(BINFMT):
        return "binfmt_misc in a user namespace needs Linux 6.7"
    return None


class Arm(roots.Root):
    """A root whose CPU is aarch64, by emulation. Arguments are those of Root; it has a network of its own."""
    namespaces = ("--user", *roots.Root.namespaces)

    def __init__(self, name="arm", **options):
        self.emulator = roots.make(SUITE, ["qemu-user"], unpacked="amd64") + "/usr/bin/qemu-aarch64"
        super().__init__(SUITE, PACKAGES, name, **options)
        run("nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", "link", "set", "lo", "up")

    @staticmethod
    def _made(suite, packages):
        return roots.make(suite, packages, unpacked="arm64")

    # ---- within
    def _move_in(self):
        emulator = os.open(self.emulator, os.O_RDONLY)
        call("unshare", NEW_NS)
        mount("none", "/", None, "rec,private")
        self._mount_tree()
        self._finish_packages()
        self._enter_users()
        call("unshare", NEW_NS | NEW_UTS | NEW_IPC | NEW_NET)
        call("sethostname", self.name.encode(), len(self.name))
        mount("sysfs", "/sys", "sysfs", "ro,nosuid,nodev,noexec")  # of this network
        mount("binfmt_misc", BINFMT, "binfmt_misc", "nosuid,nodev,noexec")
        # F: opened now, as it is not in the root. P: programs learn the name by which they were called.
        write(f"{BINFMT}/register", f":aarch64:M::{MAGIC}:{MASK}:/proc/self/fd/{emulator}:FP")
        os.close(emulator)

    @staticmethod
    def _enter_users():
        """A user namespace in which everybody is who he was. Only who stays outside may say so of it."""
        asked, ask = os.pipe()
        helper = os.fork()
        if helper == 0:
            os.close(ask)
            os.read(asked, 1)
            for table in ("uid_map", "gid_map"):
                write(f"/proc/1/{table}", f"0 0 {2 ** 32 - 1}\n")
            os._exit(0)
        call("unshare", NEW_USER)
        os.close(ask)
        os.close(asked)
        if os.waitpid(helper, 0)[1] != 0:
            raise roots.Failure("cannot say who is who in a user namespace")

    @staticmethod
    def _finish_packages():
        """What the scripts of these packages would have done, as far as it matters here."""
        users = read("/usr/share/base-passwd/passwd.master").replace(":*:", ":x:")
        write("/etc/passwd", f"{users}sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n")
        write("/etc/group", read("/usr/share/base-passwd/group.master").replace(":*:", ":x:"))
        write("/etc/shadow", "root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n", 0o600)
