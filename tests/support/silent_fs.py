"""A file system that does not answer any more when it is told so, as a network's does whose server has gone.

    fs = SilentFs(folder)   # mounts it: /dev/fuse, spoken to directly. Only root can
    ...                     # one folder of files, folders in which nothing is, and no more
    fs.be_silent()          # from now on whoever writes there waits
    fs.close()              # and is let go
"""
import ctypes
import errno
import os
import select
import stat
import struct
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
(LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, INIT, OPENDIR, READDIR,
 RELEASEDIR, ACCESS, CREATE, INTERRUPT, BATCH_FORGET) = (1, 2, 3, 4, 9, 10, 14, 15, 16, 17, 18, 20, 26, 27, 28, 29, 34,
                                                         35, 36, 42)
NO_REPLY = {FORGET, BATCH_FORGET, INTERRUPT}
SIZE_GIVEN, MODE_GIVEN = 8, 1  # in SETATTR


class Node:
    def __init__(self, mode):
        self.mode, self.bytes, self.names = mode, bytearray(), {}


class SilentFs:
    def __init__(self, folder):
        self.folder = folder
        self.nodes = {1: Node(stat.S_IFDIR | 0o755)}
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if LIBC.mount(b"silent", folder.encode(), b"fuse.silent", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        self.wake, self.told = os.pipe()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        with open(folder + "/.first", "w"):
            pass  # from now on the kernel knows that nothing has to be asked when a file is closed

    def be_silent(self):
        os.write(self.told, b"x")
        self.thread.join()

    def close(self):
        if self.thread.is_alive():
            self.be_silent()
        os.close(self.device)  # whoever waits gets an error
        LIBC.umount2(self.folder.encode(), MNT_DETACH)

    def serve(self):
        while True:
            ready, _, _ = select.select([self.device, self.wake], [], [])
            if self.wake in ready:
                return
            request = os.read(self.device, (1 << 20) + 4096)
            _, opcode, unique, node, *_ = struct.unpack_from("<IIQQIIIHH", request)
            if opcode in NO_REPLY:
                continue
            error, reply = 0, b""
            try:
                reply = self.answer(opcode, node, request[40:])
            except OSError as failed:
                error = failed.errno
            os.write(self.device, struct.pack("<IiQ", 16 + len(reply), -error, unique) + reply)

    def attributes(self, number):
        node = self.nodes.get(number)
        return struct.pack("<6Q10I", number, len(node.bytes), (len(node.bytes) + 511) // 512, 0, 0, 0, 0, 0, 0, node.mode, 1,
                           0, 0, 0, 4096, 0)

    def entry(self, number):
        return struct.pack("<4QII", number, 0, 3600, 3600, 0, 0) + self.attributes(number)

    def make(self, parent, name, mode):
        number = len(self.nodes) + 1
        self.nodes[number] = Node(mode)
        self.nodes[parent].names[name] = number
        return self.entry(number)

    def answer(self, opcode, number, data):
        node = self.nodes.get(number)
        opened = struct.pack("<QII", number, 0, 0)
        if opcode == INIT:
            return struct.pack("<4IHHIIHH8I", 7, 31, 0, 0, 8, 8, 1 << 17, 1, 32, 0, *[0] * 8)
        if opcode == LOOKUP:
            name = data.rstrip(b"\0")
            if name not in node.names:
                raise OSError(errno.ENOENT, "lookup")
            return self.entry(node.names[name])
        if opcode == SETATTR:
            valid, _, _, size = struct.unpack_from("<IIQQ", data)
            if valid & SIZE_GIVEN:
                node.bytes[size:] = bytes(max(0, size - len(node.bytes)))
            if valid & MODE_GIVEN:
                node.mode = stat.S_IFMT(node.mode) | struct.unpack_from("<I", data, 68)[0] & 0o7777
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + self.attributes(number)
        if opcode == MKDIR:
            return self.make(number, data[8:].rstrip(b"\0"), stat.S_IFDIR | struct.unpack_from("<I", data)[0])
        if opcode == CREATE:
            made = self.make(number, data[16:].rstrip(b"\0"), struct.unpack_from("<II", data)[1])
            return made + struct.pack("<QII", len(self.nodes), 0, 0)
        if opcode == UNLINK:
            node.names.pop(data.rstrip(b"\0"))
            return b""
        if opcode in (OPEN, OPENDIR):
            return opened
        if opcode == READ:
            _, at, size = struct.unpack_from("<QQI", data)
            return bytes(node.bytes[at:at + size])
        if opcode == WRITE:
            _, at, size = struct.unpack_from("<QQI", data)
            node.bytes[len(node.bytes):] = bytes(max(0, at - len(node.bytes)))
            node.bytes[at:at + size] = data[40:40 + size]
            return struct.pack("<II", size, 0)
        if opcode == STATFS:
            return struct.pack("<5Q4I6I", 1 << 20, 1 << 20, 1 << 20, 1000, 1000, 4096, 255, 4096, 0, *[0] * 6)
        if opcode in (READDIR, RELEASE, RELEASEDIR, FSYNC, ACCESS):
            return b""
        raise OSError(errno.ENOSYS, "not known here")
