"""Times of parx beside Gloo's, in the same processes, in turns: operations, and steps of training.

A step is that of a user's program: zero_grad, forward, backward below DistributedDataParallel,
optimizer. "alone" is the same step without DistributedDataParallel.
"""

import itertools
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

SIZES = {4: 500, 1 << 10: 500, 64 << 10: 200, 1 << 20: 50, 16 << 20: 7, 64 << 20: 3}
STEPS = 40


class Classifier(nn.Module):
    """A small BERT: 16 rows of 128 of 30522 words, into 4 classes."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 64), nn.Embedding(128, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.layers(self.words(x) + self.places.weight).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


def sgd(parameters, group):
    return torch.optim.SGD(parameters, lr=0.01)


def zero(parameters, group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, process_group=group, lr=1e-3)


def images():
    return torch.randn(128, 784), torch.randint(10, (128,))


def texts():
    return torch.randint(30522, (16, 128)), torch.randint(4, (16,))


def in_turns(each, count):
    """The keys of `each`, count rounds of them, every round one further."""
    keys = list(each)
    for turn in range(count):
        yield from keys[turn % len(keys):] + keys[:turn % len(keys)]


def times_of_operations(groups):
    size = dist.get_world_size()
    operations = {
        "all_reduce": lambda x, out, group: dist.all_reduce(x, group=group),
        "broadcast": lambda x, out, group: dist.broadcast(x, 0, group=group),
        "all_gather": lambda x, out, group: dist.all_gather(out, x, group=group),
    }
    times = {}
    for (name, operation), (nbytes, calls) in itertools.product(operations.items(), SIZES.items()):
        if name != "all_reduce" and nbytes not in (1 << 10, 1 << 20):
            continue
        x = torch.zeros(nbytes // 4)
        out = [torch.zeros_like(x) for _ in range(size)]
        medians = {each: [] for each in groups}
        for each in in_turns(groups, 6):
            operation(x, out, groups[each])
            took = []
            for _ in range(calls):
                begin = time.perf_counter()
                operation(x, out, groups[each])
                took.append(time.perf_counter() - begin)
            medians[each].append(statistics.median(took))
            dist.barrier()
        times[f"{name} {nbytes}"] = {each: statistics.median(medians[each]) for each in groups}
    return times


def time_of_step(model, optimizer, x, y):
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    return time.perf_counter() - begin


def times_of_steps(groups):
    times = {}
    for name, make_model, make_data, make_optimizer in (
            ("DDP step MLP", mlp, images, sgd), ("DDP step transformer", Classifier, texts, sgd),
            ("ZeRO-1 step transformer", Classifier, texts, zero)):
        trained = {}
        for each, group in groups.items():
            torch.manual_seed(1)
            model = nn.parallel.DistributedDataParallel(make_model(), process_group=group)
            trained[each] = model, make_optimizer(model.parameters(), group)
        if make_optimizer is sgd:
            alone = make_model()
            trained["alone"] = alone, make_optimizer(alone.parameters(), None)
        torch.manual_seed(50 + dist.get_rank())
        took = {each: [] for each in trained}
        for each in in_turns(trained, STEPS):
            x, y = make_data()
            dist.barrier()
            took[each].append(time_of_step(*trained[each], x, y))
        times[name] = {each: statistics.median(of[5:]) for each, of in took.items()}
    return times


def run_bench(backend):
    """Of a rank: the median seconds of operations and of steps, by their name and the backend's."""
    dist.init_process_group(backend, timeout=timedelta(seconds=300))
    torch.set_num_threads(1)
    groups = {backend: dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    times = times_of_operations(groups), times_of_steps(groups)
    dist.destroy_process_group()
    return times


def print_bench(operations, steps, backend):
    ratios = {}
    print(f"{'us, medians':28}{'gloo':>10}{backend:>10}  ratio")
    for name, of in operations.items():
        ratio = of[backend] / of["gloo"]
        ratios.setdefault(name.split()[0], []).append(ratio)
        print(f"{name + ' B':28}{of['gloo'] * 1e6:10.1f}{of[backend] * 1e6:10.1f}  {ratio:.2f}")
    for name, each in ratios.items():
        print(f"{name}, geometric mean: {statistics.geometric_mean(each):.2f}")
    print(f"\n{'ms, medians':28}{'gloo':>10}{backend:>10}  ratio{'alone':>10}")
    for name, of in steps.items():
        alone = f"{of['alone'] * 1e3:10.1f}" if "alone" in of else ""
        print(f"{name:28}{of['gloo'] * 1e3:10.1f}{of[backend] * 1e3:10.1f}  "
              f"{of[backend] / of['gloo']:.2f} {alone}")
