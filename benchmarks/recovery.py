"""How long training stands still after a loss and at a join: parxrun beside torchrun.

    recovery.py --bin BIN_DIR [--rounds 3] [--python /usr/bin/python3]

Two nodes of one rank each, set apart on this machine, save a checkpoint every 10 steps. A worker
is killed; a node is killed, with its parxrun or torchrun; a node joins. Printed is the time from
that to the first step after it, the median of the rounds and their spread. parx trains a small GPT
(train_gpt), PyTorch one linear layer under DDP, so its steps and checkpoints are cheaper; the rest
of its time is torchrun's, and the import of torch. BIN_DIR has parxrun and train_gpt.

    recovery.py --bin BIN_DIR --overhead [--rounds 9]

What parxrun costs where nothing happens: the processor time of each of three nodes' parxrun (the
first has the coordinator) within 60 s beside ranks that sleep, as a share of one core; and the median
time of a step of train_gpt on two nodes of one rank, with parxrun and without it, in turns.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

TORCHRUN = """
from torch.distributed.elastic.multiprocessing.api import Std
Std.from_str = classmethod(lambda cls, v: cls(int(v)))  # torch 1.13 under Python 3.11
from torch.distributed.run import main
main()
"""
TORCH_PROGRAM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
path, step = sys.argv[1], 0
if os.path.exists(path):
    state = torch.load(path)
    model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
while True:
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        if step % 10 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
        print("step", step, "of", dist.get_world_size(), "ranks in", os.getpid(), flush=True)
"""


class Node:
    """An agent, and its lines with the time at which they came."""

    def __init__(self, command, environment):
        self.lines = []
        self.run = subprocess.Popen(command, env={**os.environ, **environment}, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.run.stdout:
            self.lines.append((time.monotonic(), line))

    def workers(self):
        """The processes of the training program, below the agent."""
        found, below = [], [self.run.pid]
        while below:
            pid = below.pop()
            try:
                children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue
            below += map(int, children)
            trains = any(word.endswith(("train_gpt", "program.py")) for word in words[:3])
            if pid != self.run.pid and trains:
                found.append(pid)
        return found

    def kill(self):
        """The agent and all below it, as if the host were off."""
        for pid in [self.run.pid, *self.workers()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.run.wait()


class Parx:
    name = "parxrun"
    step = staticmethod(lambda line: "'loss'" in line)

    def __init__(self, options, folder, port):
        self.options, self.folder, self.port = options, folder, port

    def node(self, number):
        program = [str(self.options.bin / "train_gpt"), "--n-layer", "1", "--n-head", "2",
                   "--n-embd", "16", "--block-size", "16", "--eval-batch-size", "512",
                   "--max-steps", "1000000", "--logging-steps", "1", "--eval-strategy", "no",
                   "--disable-progress", "--save-strategy", "steps", "--save-steps", "10",
                   "--save-total-limit", "2", "--resume", "--output-dir", str(self.folder / "out")]
        return Node([str(self.options.bin / "parxrun"), "--nnodes", "1:2", "--rdzv-endpoint",
                     f"127.0.0.1:{self.port}", "--rdzv-id", "job", "--max-restarts", "9",
                     "--rdzv-conf", f"is_host={int(number == 0)}", *program],
                    {"PARX_HOST_ID": f"node{number}", "OMP_NUM_THREADS": "1"})


class Torch:
    name = "torchrun"
    step = staticmethod(lambda line: line.startswith("step "))

    def __init__(self, options, folder, port):
        self.options, self.folder, self.port = options, folder, port
        (folder / "torchrun.py").write_text(TORCHRUN)
        (folder / "program.py").write_text(TORCH_PROGRAM)

    def node(self, number):
        return Node([self.options.python, str(self.folder / "torchrun.py"), "--nnodes", "1:2",
                     "--nproc_per_node", "1", "--rdzv_id", "job", "--rdzv_backend", "c10d",
                     "--rdzv_endpoint", f"127.0.0.1:{self.port}",
                     "--rdzv_conf", f"is_host={int(number == 0)}", "--max_restarts", "9",
                     "--monitor_interval", "0.1", str(self.folder / "program.py"),
                     str(self.folder / "state.pt")], {"OMP_NUM_THREADS": "1"})


def wait_until(what, seconds=120.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.005)
    raise RuntimeError("nothing happened in time")


def steps_after(system, nodes, when):
    return sorted(at for node in nodes for at, line in list(node.lines)
                  if at > when and system.step(line))


def measure(system, event):
    nodes = [system.node(0)]
    try:
        if event != "a node joins":
            time.sleep(0.2)
            nodes.append(system.node(1))
            wait_until(lambda: len(nodes[1].workers()) > 0)
        wait_until(lambda: len(steps_after(system, nodes, 0)) > 30)
        known = {pid for node in nodes for pid in node.workers()}
        start = time.monotonic()
        if event == "a worker is killed":
            os.kill(nodes[1].workers()[0], signal.SIGKILL)
        elif event == "a node is killed":
            nodes[1].kill()
        else:
            nodes.append(system.node(1))
        # Steps of processes that are all new.
        living = nodes[:1] if event == "a node is killed" else nodes
        fresh = wait_until(lambda: all(each.workers() for each in living) and
                           not known & {pid for each in living for pid in each.workers()} and
                           time.monotonic())
        return wait_until(lambda: steps_after(system, nodes, fresh))[0] - start
    finally:
        for node in nodes:
            node.kill()


def core_seconds(pid):
    """The time that all threads of a process have run."""
    return sum(int(path.read_text().split()[0]) / 1e9
               for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))


def median_step(options, folder, port, launched):
    """In ms, of a training of two ranks that only this differs in: parxrun, or the environment."""
    program = [str(options.bin / "train_gpt"), "--n-layer", "4", "--n-head", "4", "--n-embd", "32",
               "--block-size", "32", "--batch-size", "8", "--max-steps", "300", "--logging-steps",
               "20", "--eval-strategy", "no", "--save-strategy", "no", "--sample", "8",
               "--eval-batch-size", "512", "--disable-progress", "--output-dir", str(folder)]
    nodes = []
    for rank in range(2):
        env = {"PARX_HOST_ID": f"node{rank}", "OMP_NUM_THREADS": "1"}
        if launched:
            command = [str(options.bin / "parxrun"), "--nnodes", "2", "--rdzv-endpoint",
                       f"127.0.0.1:{port}", "--rdzv-id", "job", "--node-rank", str(rank), *program]
        else:
            command = program
            env.update(PARX_RANK=str(rank), PARX_WORLD_SIZE="2", PARX_LOCAL_RANK="0",
                       PARX_LOCAL_WORLD_SIZE="1", PARX_MASTER_ADDR="127.0.0.1",
                       PARX_MASTER_PORT=str(port))
        nodes.append(Node(command, env))
    for node in nodes:
        node.run.wait(120)
        node.reader.join()
    lines = map(json.loads, (folder / "train.jsonl").read_text().splitlines())
    return statistics.median([line["step_ms"] for line in lines if "step_ms" in line][2:])


def overhead(options, port):
    nodes = [Node([str(options.bin / "parxrun"), "--nnodes", "3", "--rdzv-endpoint",
                   f"127.0.0.1:{port}", "--rdzv-id", "job", "-n", "2", "--rdzv-conf",
                   f"is_host={int(number == 0)}", "sleep", "1000"],
                  {"PARX_HOST_ID": f"node{number}"}) for number in range(3)]
    try:
        time.sleep(3)
        before = [core_seconds(node.run.pid) for node in nodes]
        time.sleep(60)
        shares = [(core_seconds(node.run.pid) - start) / 60 for node, start in zip(nodes, before)]
    finally:
        for node in nodes:
            node.kill()
    print("share of a core:", *(f"{share:.4%}" for share in shares), flush=True)
    taken = {True: [], False: []}
    for number in range(options.rounds):
        for launched in (True, False) if number % 2 else (False, True):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="parx_overhead_"))
            taken[launched].append(median_step(options, folder, port := port + 1, launched))
            shutil.rmtree(folder)
    for launched, name in (True, "with parxrun"), (False, "without it"):
        each = taken[launched]
        print(f"a step {name}: {statistics.median(each):.3f} ms ({min(each):.3f} to "
              f"{max(each):.3f}, {len(each)} runs)")
    ratios = [a / b - 1 for a, b in zip(taken[True], taken[False])]
    print(f"difference within a round: {statistics.median(ratios):+.2%} "
          f"({min(ratios):+.2%} to {max(ratios):+.2%})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--overhead", action="store_true")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    port = 12000 + int(time.time()) % 2000
    if options.overhead:
        return overhead(options, port)
    systems = [Parx]
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL)
    if has_torch.returncode == 0:
        systems.append(Torch)
    for event in "a worker is killed", "a node is killed", "a node joins":
        taken = {system.name: [] for system in systems}
        for _ in range(options.rounds):
            for system in systems:  # in turns
                folder = pathlib.Path(tempfile.mkdtemp(prefix="parx_recovery_"))
                taken[system.name].append(measure(system(options, folder, port := port + 1), event))
                shutil.rmtree(folder)
        print(event, *(f"{name} {statistics.median(each):.2f} s "
                       f"({min(each):.2f} to {max(each):.2f})" for name, each in taken.items()),
              sep="; ", flush=True)


if __name__ == "__main__":
    main()
