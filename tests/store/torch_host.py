"""PyTorch as the host of a store that parx joins.

usage: torch_host.py PORT. Waits until parx has joined as the second worker, trades a few values with it,
prints READY and serves until its standard input ends.
"""
import datetime
import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), world_size=2, is_master=True,
                      timeout=datetime.timedelta(seconds=40), wait_for_workers=True)
store.set("from torch", "hello parx")
assert store.get("from parx") == b"hello torch"
assert store.add("joint", 2) == 42
print("READY", flush=True)
sys.stdin.read()
