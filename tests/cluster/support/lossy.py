"""lossy.py DEVICE SECONDS: of what arrives at a network device, loses half at random for a while.

An XDP program of four instructions, since not every kernel has netem.
"""
import ctypes
import os
import socket
import struct
import sys
import time

BPF_PROG_LOAD = 5
BPF_PROG_TYPE_XDP = 6
RTM_SETLINK = 19
NLM_F_REQUEST, NLM_F_ACK = 1, 4
IFLA_XDP, IFLA_XDP_FD, IFLA_XDP_FLAGS = 43, 1, 3
XDP_FLAGS_SKB_MODE = 2
NLA_F_NESTED = 0x8000
NR_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]


def instruction(code, register, offset, immediate):
    return struct.pack("<BBhi", code, register, offset, immediate)


def load():
    program = (instruction(0x85, 0, 0, 7)      # r0 = bpf_get_prandom_u32()
               + instruction(0x57, 0, 0, 1)    # r0 &= 1
               + instruction(0x07, 0, 0, 1)    # r0 += 1: XDP_DROP or XDP_PASS
               + instruction(0x95, 0, 0, 0))   # return r0
    code = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack("<IIQQIIQII", BPF_PROG_TYPE_XDP, len(program) // 8,
                             ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(NR_BPF, BPF_PROG_LOAD, buffer, len(attributes))
    if fd < 0:
        sys.exit(f"lossy: bpf: {os.strerror(ctypes.get_errno())}")
    return fd


def attach(device, fd):
    """fd -1: nothing is attached any more."""
    inner = (struct.pack("<HHi", 8, IFLA_XDP_FD, fd)
             + struct.pack("<HHI", 8, IFLA_XDP_FLAGS, XDP_FLAGS_SKB_MODE))
    nested = struct.pack("<HH", 4 + len(inner), IFLA_XDP | NLA_F_NESTED) + inner
    link = struct.pack("<BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex(device), 0, 0)
    body = link + nested
    header = struct.pack("<IHHII", 16 + len(body), RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(header + body)
        error = struct.unpack_from("<i", netlink.recv(4096), 16)[0]
    if error:
        sys.exit(f"lossy: {device}: {os.strerror(-error)}")


attach(sys.argv[1], load())
try:
    print("losing", flush=True)
    time.sleep(float(sys.argv[2]))
finally:
    attach(sys.argv[1], -1)
