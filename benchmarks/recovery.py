"""How long training stands still after a loss and at a join: parxrun beside torchrun.

    recovery.py --bin BIN_DIR [--rounds 3] [--python /usr/bin/python3]

Two nodes of one rank each, set apart on this machine, save a checkpoint every 10 steps. A worker
is killed; a node is killed, with its parxrun or torchrun; a node joins. Printed is the time from
that to the first step after it, the median of the rounds and their spread. parx trains a small GPT
(train_gpt), PyTorch one linear layer under DDP, so its steps and checkpoints are cheaper; the rest
of its time is torchrun's, and the import of torch. BIN_DIR has parxrun and train_gpt.
"""

import argparse
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    systems = [Parx]
    has_torch = subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL)
    if has_torch.returncode == 0:
        systems.append(Torch)
    port = 12000 + int(time.time()) % 2000
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
