#!/usr/bin/env python3
"""PyTorch's side of benchmarks/compare_training.sh: the models of train.cpp, the same arithmetic,
synthetic data, one JSON line with the same fields.

    python3 torch_train.py --model bert --world 2 [--bucket-view] [--dropout 0.1] [--seconds 4]

One process a rank, started by this script, of OMP_NUM_THREADS threads (1); above one rank
DistributedDataParallel over Gloo.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["bert", "mlp", "cnn", "gpt"], default="bert")
parser.add_argument("--world", type=int, default=1)
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--seconds", type=float, default=4.0)
parser.add_argument("--warm-up", type=int, default=8)
parser.add_argument("--zero", action="store_true", help="ZeroRedundancyOptimizer")
parser.add_argument("--bucket-view", action="store_true", help="gradient_as_bucket_view=True")
options = parser.parse_args()

threads = os.environ.get("OMP_NUM_THREADS", "1")
if "RANK" not in os.environ:
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *sys.argv[1:]],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(options.world),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
                 "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads})
        for rank in range(options.world)
    ]
    sys.exit(max(abs(rank.wait()) for rank in ranks))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(int(threads))
torch.manual_seed(0)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def heads_of(x, heads):
    rows, length, width = x.shape
    return x.view(rows, length, heads, width // heads).transpose(1, 2)


def attend(q, k, v, mask, drop):
    weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask).softmax(-1)
    return (drop(weights) @ v).transpose(1, 2).flatten(2)


class BertLayer(nn.Module):
    """Post-norm, as Hugging Face's BertLayer."""

    def __init__(self, width, heads, inner, dropout):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm, self.output_norm = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, mask):
        q, k, v = (heads_of(part(x), self.heads) for part in (self.query, self.key, self.value))
        x = self.attention_norm(x + self.drop(self.out(attend(q, k, v, mask, self.drop))))
        return self.output_norm(x + self.drop(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """The labs' TinyBERT: hidden 64, 2 layers, 2 heads, intermediate 256, 4 labels."""

    def __init__(self, dropout, width=64):
        super().__init__()
        self.words = nn.Embedding(30522, width, padding_idx=0)
        self.positions, self.types = nn.Embedding(256, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, 2, 256, dropout) for _ in range(2))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 4)
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, 0, 0.02)

    def forward(self, ids, attention_mask):
        place = torch.arange(ids.shape[1])
        x = self.words(ids) + self.positions(place) + self.types(torch.zeros_like(ids))
        x = self.drop(self.norm(x))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.drop(torch.tanh(self.pooler(x[:, 0]))))


class GptBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        q, k, v = (heads_of(p, self.heads) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.drop(self.out(attend(q, k, v, mask, self.drop)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Gpt(nn.Module):
    """GPT-2's block with d = 128, 4 layers, 4 heads, 256 symbols, a head of its own."""

    def __init__(self, length, dropout, width=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, 4, dropout) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        # Not a buffer: DDP would broadcast it before every forward pass.
        self.mask = torch.full((length, length), float("-inf")).triu(1)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


random = torch.Generator().manual_seed(1000 + rank)
default_batch = {"bert": 16, "mlp": 128, "cnn": 64, "gpt": 8}
batch = options.batch or default_batch[options.model]


def labels(limit, *shape):
    return torch.randint(0, limit, shape, generator=random)


def images(*shape):
    return torch.randn(batch, *shape, generator=random)


if options.model == "bert":
    model = Bert(options.dropout)
    ones = torch.ones(batch, options.seq, dtype=torch.long)
    data = [(1 + labels(30521, batch, options.seq), labels(4, batch)) for _ in range(8)]
    loss_of = lambda net, ids, y: F.cross_entropy(net(ids, ones), y)
elif options.model == "mlp":
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 10))
    data = [(images(784), labels(10, batch)) for _ in range(8)]
    loss_of = lambda net, x, y: F.cross_entropy(net(x), y)
elif options.model == "cnn":
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(64 * 7 * 7, 10))
    data = [(images(1, 28, 28), labels(10, batch)) for _ in range(8)]
    loss_of = lambda net, x, y: F.cross_entropy(net(x), y)
else:
    model = Gpt(options.seq, options.dropout)
    data = [(labels(256, batch, options.seq + 1),) for _ in range(8)]
    loss_of = lambda net, ids: F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

net = model
if world > 1:
    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=options.bucket_view)
if options.model in ("bert", "gpt"):
    kind, settings = torch.optim.AdamW, {"lr": 5e-4, "weight_decay": 0.01}
else:
    kind, settings = torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}
if options.zero:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=kind, **settings)
else:
    optimizer = kind(net.parameters(), **settings)


def step(number):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(net, *data[number % len(data)])
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    optimizer.step()
    end = time.perf_counter()
    return end - start, forward - start, backward - forward, end - backward, loss.item()


first_loss = step(0)[-1]
begin = time.perf_counter()
for number in range(1, options.warm_up):
    step(number)
pace = torch.tensor([(time.perf_counter() - begin) / (options.warm_up - 1)])
if world > 1:
    dist.all_reduce(pace, op=dist.ReduceOp.MAX)
steps = max(10, int(options.seconds / pace.item()))
if world > 1:
    dist.barrier()
begin = time.perf_counter()
taken = [step(options.warm_up + number) for number in range(steps)]
if world > 1:
    dist.barrier()
wall = time.perf_counter() - begin

peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024])
if world > 1:
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
if rank == 0:
    middle = lambda column: round(1e3 * sorted(one[column] for one in taken)[steps // 2], 3)
    name = f"torch-{torch.__version__}" + ("-zero" if options.zero else "") + (
        "-bucket-view" if options.bucket_view else "")
    print(json.dumps({
        "framework": name, "model": options.model, "world": world, "batch": batch,
        "dropout": options.dropout, "samples_per_s": round(batch * world * steps / wall, 1),
        "step_ms": middle(0), "forward_ms": middle(1), "backward_ms": middle(2),
        "optimizer_ms": middle(3), "steps": steps, "peak_mib": round(peak.item(), 1),
        "first_loss": round(first_loss, 4), "last_loss": round(taken[-1][-1], 4)}), flush=True)
if world > 1:
    dist.destroy_process_group()
