"""attack.py ADDRESS PORT CONNECTIONS [--recorded FILE] [--seconds S]: plays a hostile network at a rendezvous server.

Connections of eight kinds, as many of each: those that say nothing, say it slowly, say too much, or at random;
replay what an honest client has once said (FILE: its bytes, as record() has written them); stop in the middle of a
handshake; come and go as fast as they can; and close after each number of bytes. What the server leaves open stays
open until the end. Prints how many of each kind there were.

attack.py --record LISTENING_PORT ADDRESS PORT FILE: forwards one connection, and writes down what its client says.
"""
import argparse
import asyncio
import os
import random
import resource
import struct

HELLO = struct.pack(">4sHH16s32s", b"dtrn", 3, 0, bytes(16), bytes(32))
PROOF_BYTES = 32
OVERSIZED = struct.pack(">I", 0xFFFFFFFF) + bytes(60_000)
AT_ONCE = 200  # connections that are being opened


class Attack:
    def __init__(self, options):
        self.address = (options.address, options.port)
        self.end = asyncio.get_running_loop().time() + options.seconds
        self.opening = asyncio.Semaphore(AT_ONCE)
        self.random = random.Random(options.seed)
        self.recorded = b""
        if options.recorded:
            with open(options.recorded, "rb") as file:
                self.recorded = file.read()
        self.done = {}

    def left(self):
        return max(0.0, self.end - asyncio.get_running_loop().time())

    async def stay(self, reader):
        """Reads until the server closes, or all is over."""
        while await asyncio.wait_for(reader.read(65536), self.left()):
            pass

    # ---- the kinds ----

    async def silent(self, number, reader, writer):
        await self.stay(reader)

    async def slow(self, number, reader, writer):
        for byte in HELLO:
            if writer.transport.is_closing():
                return
            writer.write(bytes([byte]))
            await asyncio.sleep(0.5)

    async def oversized(self, number, reader, writer):
        writer.write(HELLO + OVERSIZED)
        await self.stay(reader)

    async def at_random(self, number, reader, writer):
        writer.write(self.random.randbytes(self.random.randrange(1, 4096)))
        await self.stay(reader)

    async def replayed(self, number, reader, writer):
        writer.write(self.recorded or HELLO)
        await self.stay(reader)

    async def half(self, number, reader, writer):
        writer.write(HELLO[:24] + os.urandom(32))
        answer = await asyncio.wait_for(reader.readexactly(40), self.left())
        assert answer.startswith(b"dtrn"), "a stranger gets a nonce, and no proof to try secrets on"
        if number % 2:
            writer.write(os.urandom(PROOF_BYTES))
            answer = await asyncio.wait_for(reader.read(), self.left())
            assert answer in (b"", bytes(32)), "the server hides that it does not know us"
        await self.stay(reader)

    async def flood(self, number, reader, writer):
        writer.transport.abort()

    async def closed(self, number, reader, writer):
        said = HELLO + bytes(PROOF_BYTES)
        writer.write(said[:number % (len(said) + 1)])

    KINDS = (silent, slow, oversized, at_random, replayed, half, flood, closed)

    async def play(self, kind, number):
        writer = None
        try:
            async with self.opening:
                reader, writer = await asyncio.wait_for(asyncio.open_connection(*self.address), self.left())
            self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            await kind(self, number, reader, writer)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass  # the server has cut us off, as it should, or all is over
        finally:
            if writer is not None:
                writer.close()

    async def run(self, connections):
        each = connections // len(self.KINDS)
        order = [(kind, number) for number in range(each) for kind in self.KINDS]
        await asyncio.gather(*(self.play(kind, number) for kind, number in order))
        print(" ".join(f"{name} {count}" for name, count in self.done.items()))


async def attack(options):
    await Attack(options).run(options.connections)


async def record(port, address, file):
    done = asyncio.Event()

    async def forward(reader, writer):
        server_reader, server_writer = await asyncio.open_connection(*address)

        async def carry(source, sink, said=None):
            while data := await source.read(65536):
                if said is not None:
                    said.write(data)
                sink.write(data)
            sink.close()

        with open(file, "wb") as said:
            await asyncio.gather(carry(reader, server_writer, said), carry(server_reader, writer))
        done.set()

    async with await asyncio.start_server(forward, port=port):
        print("listens", flush=True)
        await done.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=int, metavar="LISTENING_PORT")
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("connections", help="how many; the file for --record")
    parser.add_argument("--recorded", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    if options.record:
        return asyncio.run(record(options.record, (options.address, options.port), options.connections))
    options.connections = int(options.connections)
    options.seed = int(os.environ.get("DTRUN_SEED") or random.randrange(1 << 32))
    print(f"DTRUN_SEED={options.seed}", flush=True)
    most = options.connections + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    asyncio.run(attack(options))


main()
