"""What dtrun's client can do: dtrun -np 4 python3 ranks.py, or srun -n 4 python3 ranks.py"""

import socket

import dtrun


def main() -> None:
    with dtrun.Worker() as worker:
        # Every rank brings where it listens, and learns where the others do.
        listener = socket.create_server(("", 0))
        address = f"{worker.host_name}:{listener.getsockname()[1]}"
        addresses = worker.fence("addresses", address, timeout=60)
        print(f"rank {worker.rank} of {worker.world_size} ({worker.launcher}):",
              b" ".join(addresses).decode())

        for step in range(3):
            worker.barrier("step", timeout=60)
            worker.progress(step)

        if worker.world_size == 1:
            return  # nobody to share with
        if worker.rank == 0:
            worker.set("result", "42")
        print(f"rank {worker.rank}: the result is {worker.get('result', timeout=60).decode()}")


if __name__ == "__main__":
    main()
