"""PyTorch as a client of a store that parx hosts.

usage: torch_client.py PORT. Prints OK when every answer was right.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist

PORT = int(sys.argv[1])
HOST = "127.0.0.1"


def connect(seconds=20, **options):
    return dist.TCPStore(HOST, PORT, is_master=False, timeout=datetime.timedelta(seconds=seconds), **options)


def expect(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def basics():
    store = connect()
    expect(store.get("from parx"), b"bytes \x00\xff")
    store.set("from torch", "hello parx")
    expect(store.add("shared counter", 5), 6)
    expect(store.compare_set("swap", "wrong", "new"), b"wrong")
    expect(store.compare_set("swap", "", "first"), b"first")
    expect(store.compare_set("swap", "other", "new"), b"first")
    expect(store.compare_set("swap", "first", "second"), b"second")
    before = store.num_keys()
    store.set("doomed", "x")
    expect(store.num_keys(), before + 1)
    expect(store.delete_key("doomed"), True)
    expect(store.delete_key("doomed"), False)
    store.wait(["from parx", "swap"])
    store.set("large", "x" * 3_000_000)
    expect(len(store.get("large")), 3_000_000)
    expect(dist.PrefixStore("outer", dist.PrefixStore("inner", store)).get("key"), b"nested")


def late_wait():
    """PyTorch 1.13 does not tell the server that it gave up. With a store of its own, the late answer of the
    wait is taken for the beginning of the get's, and everything after it is wrong."""
    store = connect(seconds=20)
    try:
        store.wait(["never until now"], datetime.timedelta(milliseconds=200))
        raise AssertionError("the wait did not time out")
    except RuntimeError as failure:
        assert "Timeout" in str(failure), failure
    expect(store.add("after late wait", 5), 5)
    connect().set("never until now", "late")
    expect(store.get("never until now"), b"late")


def gloo(rank):
    store = connect(world_size=2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tensor = torch.arange(1000, dtype=torch.float32) * (rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(1000, dtype=torch.float32) * 3)
    other = dist.new_group([0, 1])
    dist.barrier(group=other)
    dist.destroy_process_group()


def gloo_in_two_processes():
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                gloo(rank)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        expect(os.waitpid(child, 0)[1], 0)


basics()
late_wait()
gloo_in_two_processes()
print("OK", flush=True)
