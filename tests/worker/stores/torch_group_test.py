"""Four processes that make a process group over our server of torch's store, as under a launcher.

    torch_group_test.py TCP_STORE_HERE [--relayed]
"""
import datetime
import os
import subprocess
import sys

RANKS = 4


def rank_main():
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    ones = torch.full((1000,), float(rank + 1))
    dist.all_reduce(ones)
    assert ones.eq(sum(range(1, RANKS + 1))).all(), ones
    odd = dist.new_group([1, 3])
    if rank % 2:
        number = torch.tensor([rank])
        dist.all_reduce(number, group=odd)
        assert number.item() == 4, number
    objects = [None] * RANKS
    dist.all_gather_object(objects, {"rank": rank})
    assert [o["rank"] for o in objects] == list(range(RANKS)), objects
    dist.monitored_barrier()
    dist.barrier()
    dist.destroy_process_group()
    print("rank", rank, "of", dist.__name__, torch.__version__, "is done")


def main():
    server = subprocess.Popen([*sys.argv[1:], "--world-size", str(RANKS)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=str(RANKS),
               TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
               TORCHELASTIC_MAX_RESTARTS="0", TORCHELASTIC_RUN_ID="test", OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([sys.executable, __file__, "rank"],
                              env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)))
             for rank in range(RANKS)]
    codes = [rank.wait() for rank in ranks]
    server.stdin.write("waits\n")
    server.stdin.flush()
    waits = server.stdout.readline().strip()
    server.stdin.close()
    code = server.wait(timeout=60)
    if any(codes) or code != 0 or waits:
        sys.exit(f"ranks ended with {codes}, the server with {code}, {waits or 'nobody'} waits")


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank_main()
    else:
        main()
