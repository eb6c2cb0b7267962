"""Whether parx serves torch.distributed here: every operation on local ranks, against results
computed without communication.

    python -m parx_torch.check [-n RANKS] [--backend gloo] [--bench]

Prints a table, and exits with 1 where something differs. --bench times parx beside Gloo instead.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from .bench import print_bench, run_bench

CHECKS = []  # (name, function of a Ranks), in the order of the table


def check(name):
    def add(function):
        CHECKS.append((name, function))
        return function

    return add


class Ranks:
    """What a check knows: this rank, their number, and the data of all."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.next, self.previous = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.floats = self.data((3 * self.size, 4), torch.float32)
        self.mine = self.floats[self.rank]

    def data(self, shape, dtype):
        """The tensor of each rank."""
        result = []
        for rank in range(self.size):
            generator = torch.Generator().manual_seed(1000 + rank)
            values = torch.rand(shape, generator=generator, dtype=torch.float64) * 8 + 1
            result.append(values > 5 if dtype == torch.bool else values.to(dtype))
        return result

    def sum(self):
        return torch.stack(self.floats).sum(0)

    def part(self, whole, rank):
        return whole.chunk(self.size)[rank]


def close(got, wanted):
    coarse = got.dtype in (torch.half, torch.bfloat16)
    return torch.allclose(got.double(), wanted.double(), rtol=1e-2 if coarse else 1e-6)


def add_checks_of(dtype):
    name = str(dtype).split(".")[-1]
    reductions = {"SUM": lambda x: x.sum(0), "MAX": lambda x: x.amax(0), "MIN": lambda x: x.amin(0)}
    if dtype == torch.bool:
        reductions = {"SUM": lambda x: x.amax(0), "PRODUCT": lambda x: x.amin(0)}
    for op, reduce in reductions.items():

        @check(f"all_reduce {op} {name}")
        def _(ranks, op=op, reduce=reduce):
            data = ranks.data((5, 7), dtype)
            got = data[ranks.rank].clone()
            dist.all_reduce(got, op=getattr(dist.ReduceOp, op))
            exact = torch.int64 if not dtype.is_floating_point else torch.float64
            return close(got, reduce(torch.stack([x.to(exact) for x in data])).to(dtype))

    @check(f"broadcast {name}")
    def _(ranks):
        data = ranks.data((5, 7), dtype)
        got = data[ranks.rank].clone()
        dist.broadcast(got, ranks.size - 1)
        return torch.equal(got, data[-1])

    @check(f"all_gather {name}")
    def _(ranks):
        data = ranks.data((5, 7), dtype)
        got = [torch.empty_like(x) for x in data]
        dist.all_gather(got, data[ranks.rank])
        return all(map(torch.equal, got, data))


for each in (torch.float32, torch.float64, torch.half, torch.bfloat16, torch.int64, torch.int32,
             torch.uint8, torch.bool):
    add_checks_of(each)


@check("all_reduce AVG")
def _(ranks):
    got = torch.full((4,), float(ranks.rank))
    dist.all_reduce(got, op=dist.ReduceOp.AVG)
    return close(got, torch.full((4,), (ranks.size - 1) / 2))


@check("all_reduce of complex numbers")
def _(ranks):
    got = torch.complex(ranks.mine, -ranks.mine)
    dist.all_reduce(got)
    return close(got.real, ranks.sum()) and close(got.imag, -ranks.sum())


@check("all_reduce of a strided tensor")
def _(ranks):
    whole = torch.full((4, 6), float(ranks.rank))
    got = whole[:, ::2]
    dist.all_reduce(got)
    total = ranks.size * (ranks.size - 1) / 2
    return bool((got == total).all() and (whole[:, 1::2] == ranks.rank).all())


@check("all_reduce of a sparse tensor")
def _(ranks):
    indices = torch.tensor([[ranks.rank, ranks.rank + 1]])
    got = torch.sparse_coo_tensor(indices, torch.ones(2), (ranks.size + 1,))
    dist.all_reduce(got)
    wanted = torch.full((ranks.size + 1,), 2.0)
    wanted[0] = wanted[-1] = 1
    return torch.equal(got.to_dense(), wanted)


@check("all_reduce_coalesced")
def _(ranks):
    got = [torch.ones(3) * ranks.rank, torch.ones(5, 2) * ranks.rank]
    dist.all_reduce_coalesced(got)
    return all(bool((x == ranks.size * (ranks.size - 1) / 2).all()) for x in got)


@check("all_gather of unequal sizes")
def _(ranks):
    wanted = [torch.full((rank + 1,), float(rank)) for rank in range(ranks.size)]
    got = [torch.empty_like(x) for x in wanted]
    dist.all_gather(got, wanted[ranks.rank])
    return all(map(torch.equal, got, wanted))


@check("all_gather into parts of one tensor")
def _(ranks):
    whole = torch.empty(ranks.size, 3 * ranks.size, 4)
    dist.all_gather(list(whole), ranks.mine)
    return torch.equal(whole, torch.stack(ranks.floats))


@check("all_gather_coalesced")
def _(ranks):
    if not hasattr(dist, "all_gather_coalesced"):
        return True  # removed from 2.x
    mine = [torch.full((2,), float(ranks.rank)), torch.full((3,), float(ranks.rank))]
    got = [[torch.empty_like(x) for x in mine] for _ in range(ranks.size)]
    dist.all_gather_coalesced(got, mine)
    return all(bool((x == rank).all()) for rank in range(ranks.size) for x in got[rank])


@check("all_gather_into_tensor")
def _(ranks):
    got = torch.empty(ranks.size * 3 * ranks.size, 4)
    dist.all_gather_into_tensor(got, ranks.mine)
    return torch.equal(got, torch.cat(ranks.floats))


@check("reduce_scatter_tensor")
def _(ranks):
    got = torch.empty(3, 4)
    dist.reduce_scatter_tensor(got, ranks.mine)
    return close(got, ranks.part(ranks.sum(), ranks.rank))


@check("reduce_scatter")
def _(ranks):
    got = torch.empty(3, 4)
    dist.reduce_scatter(got, list(ranks.mine.chunk(ranks.size)))
    return close(got, ranks.part(ranks.sum(), ranks.rank))


@check("reduce")
def _(ranks):
    got = ranks.mine.clone()
    dist.reduce(got, 0)
    return ranks.rank != 0 or close(got, ranks.sum())


@check("gather")
def _(ranks):
    got = [torch.empty_like(ranks.mine) for _ in range(ranks.size)] if ranks.rank == 0 else None
    dist.gather(ranks.mine, got, 0)
    return got is None or all(map(torch.equal, got, ranks.floats))


@check("scatter")
def _(ranks):
    got = torch.empty(3, 4)
    dist.scatter(got, list(ranks.mine.chunk(ranks.size)) if ranks.rank == 0 else None, 0)
    return torch.equal(got, ranks.part(ranks.floats[0], ranks.rank))


@check("all_to_all_single")
def _(ranks):
    got = torch.empty(3 * ranks.size, 4)
    dist.all_to_all_single(got, ranks.mine)
    return torch.equal(got, torch.cat([ranks.part(x, ranks.rank) for x in ranks.floats]))


@check("all_to_all_single of unequal sizes")
def _(ranks):
    splits = [[(i + j) % 3 + 1 for j in range(ranks.size)] for i in range(ranks.size)]
    sent = [torch.arange(float(sum(each))) + 100 * i for i, each in enumerate(splits)]
    mine = [each[ranks.rank] for each in splits]
    got = torch.empty(sum(mine))
    dist.all_to_all_single(got, sent[ranks.rank], mine, splits[ranks.rank])
    return torch.equal(got, torch.cat([x.split(s)[ranks.rank] for x, s in zip(sent, splits)]))


@check("all_to_all")
def _(ranks):
    got = [torch.empty(3, 4) for _ in range(ranks.size)]
    dist.all_to_all(got, list(ranks.mine.chunk(ranks.size)))
    return all(torch.equal(got[i], ranks.part(x, ranks.rank)) for i, x in enumerate(ranks.floats))


@check("isend and irecv in a ring")
def _(ranks):
    got = torch.empty_like(ranks.mine)
    works = [dist.irecv(got, ranks.previous, tag=3), dist.isend(ranks.mine, ranks.next, tag=3)]
    for work in works:
        work.wait()
    return torch.equal(got, ranks.floats[ranks.previous])


@check("recv from any rank")
def _(ranks):
    if ranks.rank != 0:
        dist.send(torch.ones(4) * ranks.rank, 0, tag=5)
        return True
    got = torch.empty(4)
    senders = sorted(dist.recv(got, tag=5) for _ in range(ranks.size - 1))
    return senders == list(range(1, ranks.size))


@check("batch_isend_irecv, handles of sends dropped")
def _(ranks):
    got = torch.empty_like(ranks.mine)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, ranks.mine, ranks.next),
                                    dist.P2POp(dist.irecv, got, ranks.previous)])
    del works[0]
    works[-1].wait()
    return torch.equal(got, ranks.floats[ranks.previous])


@check("irecv into a strided tensor, by is_completed")
def _(ranks):
    whole = torch.zeros(4, 6)
    work = dist.irecv(whole[:, ::2], ranks.previous, tag=7)
    dist.send(torch.full((4, 3), float(ranks.rank + 1)), ranks.next, tag=7)
    until = time.monotonic() + 20
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    wanted = torch.zeros(4, 6)
    wanted[:, ::2] = ranks.previous + 1
    return torch.equal(whole, wanted)


@check("barrier")
def _(ranks):
    dist.barrier()
    return True


@check("20 asynchronous all_reduce at once")
def _(ranks):
    data = [torch.full((100,), float(ranks.rank + i)) for i in range(20)]
    for work in [dist.all_reduce(x, async_op=True) for x in data]:
        work.wait()
    return all(float(x[7]) == sum(r + i for r in range(ranks.size)) for i, x in enumerate(data))


@check("is_completed without wait")
def _(ranks):
    got = torch.ones(10)
    work = dist.all_reduce(got, async_op=True)
    until = time.monotonic() + 20
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    return work.is_completed() and float(got[0]) == ranks.size


@check("a future and then()")
def _(ranks):
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    return float(future.then(lambda done: done.value()[0] * 2).wait()[0]) == 2 * ranks.size


@check("a future's callback that issues the next collective")
def _(ranks):
    def again(done):
        second = done.value()[0].clone()
        dist.all_reduce(second)
        return second

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again)
    return float(future.wait()[0]) == ranks.size**2


@check("objects")
def _(ranks):
    objects = [None] * ranks.size
    dist.all_gather_object(objects, {"rank": ranks.rank})
    text = ["x" * 1000 if ranks.rank == 0 else None]
    dist.broadcast_object_list(text, 0)
    return objects == [{"rank": rank} for rank in range(ranks.size)] and text[0] == "x" * 1000


@check("new_group, of some ranks")
def _(ranks):
    groups = [dist.new_group(list(range(i + 1))) for i in range(ranks.size)]
    right = True
    for i, group in enumerate(groups):
        if ranks.rank <= i:
            got = torch.ones(2)
            dist.all_reduce(got, group=group)
            right &= float(got[0]) == i + 1
    return right


@check("empty tensors")
def _(ranks):
    got = [torch.empty(0) for _ in range(ranks.size)]
    dist.all_gather(got, torch.empty(0))
    dist.all_reduce(torch.empty(0))
    dist.broadcast(torch.empty(0), 0)
    return True


def losses(ranks, group, **options):
    torch.manual_seed(ranks.rank)
    layers = [nn.Linear(32, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 8)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), process_group=group,
                                                **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(50 + ranks.rank)
    result = []
    for _ in range(20):
        x = torch.randn(16, 32, generator=generator)
        y = torch.randint(8, (16,), generator=generator)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):

    @check("DDP's losses equal Gloo's" + "".join(f", {name}" for name in options))
    def _(ranks, options=options):
        gloo = losses(ranks, dist.new_group(backend="gloo"), **options)
        own = losses(ranks, None, **options)
        if ranks.size == 2:
            return own == gloo
        return max(abs(a - b) for a, b in zip(own, gloo)) < 1e-5


@check("ZeroRedundancyOptimizer")
def _(ranks):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def train(make):
        torch.manual_seed(3)
        layers = nn.Sequential(nn.Linear(32, 8), nn.Linear(8, 8))
        model = nn.parallel.DistributedDataParallel(layers)
        optimizer = make(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(ranks.mine.repeat(1, 8)).pow(2).mean().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    whole = train(lambda p: torch.optim.Adam(p, lr=1e-2))
    cut = train(lambda p: ZeroRedundancyOptimizer(p, torch.optim.Adam, lr=1e-2))
    return all(map(torch.equal, whole, cut))


def run_checks(backend):
    """Of a rank. The names of the checks that have failed, with the reason."""
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    ranks, failed = Ranks(), {}
    for name, function in CHECKS:
        try:
            if not function(ranks):
                failed[name] = "wrong result"
        except Exception as failure:  # of any kind: the table shows it
            failed[name] = f"{type(failure).__name__}: {failure}".splitlines()[0]
    dist.barrier()
    dist.destroy_process_group()
    return failed


def run_failures(backend):
    """Of a rank: jobs that end well, two in which calls differ, and one in which a rank is killed.
    What a rank is told, and after which time. Each meets by a file of its own."""
    told = {}
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    last = size - 1
    for case in ("again", "and again", "other sizes", "other operations", "killed"):
        place = f"file://{os.environ['PARX_CHECK_FOLDER']}/{case.replace(' ', '_')}"
        dist.init_process_group(backend, init_method=place, rank=rank, world_size=size,
                                timeout=timedelta(seconds=20))
        dist.all_reduce(torch.ones(1))
        begin = time.monotonic()
        try:
            if "again" in case:
                dist.barrier()
                dist.destroy_process_group()
                continue
            if case == "killed" and rank == last:
                print(json.dumps(told), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if case == "other operations" and rank == last:
                dist.broadcast(torch.ones(4), 0)
            else:
                dist.all_reduce(torch.ones(4 if rank == last and case == "other sizes" else 3))
                told[case] = ["no error", 0.0]
        except Exception as failure:
            told[case] = [str(failure), time.monotonic() - begin]
        dist.destroy_process_group()
    return told


WORK_OF_RANK = {"checks": run_checks, "failures": run_failures, "bench": run_bench}


def on_ranks(count, work, backend):
    """The results of all ranks, None of those that ended before they had one."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", WORLD_SIZE=str(count),
                           MASTER_PORT=str(probe.getsockname()[1]), LOCAL_WORLD_SIZE=str(count),
                           PARX_CHECK_FOLDER=folder, PARX_RECORDER="off")
        probe.close()
        environment.setdefault("USE_LIBUV", "0")  # which Debian's PyTorch 2 does not have
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        command = [sys.executable, "-m", "parx_torch.check", "--backend", backend, "--rank", work]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                             env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)))
            for rank in range(count)
        ]
        outputs = [process.communicate()[0] for process in processes]
    return [json.loads(lines[-1]) if (lines := output.strip().splitlines()) else None
            for output in outputs]


def print_checks(count, backend):
    results = on_ranks(count, "checks", backend)
    if None in results:
        print(f"rank {results.index(None)} ended early")
        return 1
    wrong = 0
    for name, _ in CHECKS:
        reasons = [f"\n        rank {rank}: {result[name]}"
                   for rank, result in enumerate(results) if name in result]
        wrong += bool(reasons)
        print(f"{'FAILED' if reasons else 'right':6}  {name}{''.join(reasons)}")
    print(f"{backend}, torch {torch.__version__}, {count} ranks: {len(CHECKS) - wrong} of "
          f"{len(CHECKS)} checks are right\n")
    return wrong


def line_of(call):
    """As messages name it."""
    lines = Path(__file__).read_text().splitlines()
    return f"check.py:{1 + next(i for i, line in enumerate(lines) if 'dist.' + call in line)}"


def print_failures(count, backend):
    wrong = 0
    results = on_ranks(count, "failures", backend)
    # Both calls by name and line, on every rank; of the killed rank its number, within a second.
    wanted = {"other sizes": ["of 3 float32", "of 4 float32", line_of("all_reduce(torch.ones(4 if")],
              "other operations": ["all_reduce of 3 float32", "broadcast of 4 float32",
                                   line_of("broadcast(torch.ones(4), 0)"),
                                   line_of("all_reduce(torch.ones(4 if")],
              "killed": [f"rank {count - 1}", line_of("all_reduce(torch.ones(4 if")]}
    for case, words in wanted.items():
        for rank, result in enumerate(results):
            if rank == count - 1 and case == "killed":
                continue
            text, seconds = (result or {}).get(case, ["its process ended early", 0.0])
            right = all(word in text for word in words) and seconds < 1
            wrong += not right
            verdict = "right" if right else "FAILED"
            print(f"{verdict:6}  {case}, rank {rank}, {seconds:.2f} s: {text}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2, metavar="RANKS")
    parser.add_argument("--backend", default="parx")
    parser.add_argument("--bench", action="store_true", help="times beside Gloo's instead")
    parser.add_argument("--rank", choices=WORK_OF_RANK, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        import warnings

        warnings.simplefilter("ignore")
        print(json.dumps(WORK_OF_RANK[arguments.rank](arguments.backend)), flush=True)
        return 0
    if arguments.bench:
        print_bench(*on_ranks(arguments.n, "bench", arguments.backend)[0], arguments.backend)
        return 0
    wrong = print_checks(arguments.n, arguments.backend)
    if arguments.n > 1:
        wrong += print_failures(arguments.n, arguments.backend)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
