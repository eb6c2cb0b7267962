"""A training job of real processes on this machine: a coordinator, a parxrun on each node, their
ranks and a census of these."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time


def wait_for(what, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.002)
    return None


def read(path):
    """The text of a file of /proc; empty where the process has gone."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def children_of(pid):
    """Those that train; a parxrun has a guard as well."""
    children = map(int, read(f"/proc/{pid}/task/{pid}/children").split())
    return [each for each in children if read(f"/proc/{each}/comm").strip() == "train_gpt"]


class Job:
    """Lines of all its processes are noted with the time at which they came."""

    def __init__(self, binaries, folder, port, nodes, ranks, restarts, program):
        self.folder, self.port, self.lines, self.parts, self.threads = folder, port, [], {}, []
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("PARX_", "SLURM_", "TORCHELASTIC_", "PET_"))}
        self.environment.update(OMP_NUM_THREADS="1")
        self.parxrun = [str(binaries / "parxrun"), "--nnodes", nodes, "--rdzv-endpoint",
                        f"127.0.0.1:{port}", "--rdzv-id", f"job{port}"]
        self.program = ["--rdzv-conf", "join_timeout=20", "-n", str(ranks),
                        str(binaries / "train_gpt"), "--eval-batch-size", "512", "--sample", "8",
                        "--logging-steps", "1", "--eval-strategy", "no", "--disable-progress",
                        "--save-strategy", "steps", "--resume", "--output-dir", str(folder),
                        *program]
        self._run("coordinator", [*self.parxrun, "--coordinator", "--max-restarts", str(restarts)])
        if not wait_for(self._listens, 10):
            raise RuntimeError("the coordinator does not listen")

    def start(self, node):
        self._run(node, [*self.parxrun, *self.program])

    def _run(self, node, command):
        run = subprocess.Popen(command, env={**self.environment, "PARX_HOST_ID": node},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        self.parts[node] = run
        self.threads.append(threading.Thread(target=self._read, args=(node, run)))
        self.threads[-1].start()

    def _read(self, node, run):
        for line in run.stdout:
            self.lines.append((time.monotonic(), f"{node}: {line.rstrip()}"))

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def nodes(self):
        return [node for node, run in self.parts.items()
                if node != "coordinator" and run.poll() is None]

    def ranks(self, node=None):
        return [pid for each in ([node] if node else self.nodes())
                for pid in children_of(self.parts[each].pid)]

    def kill_node(self, node):
        """Its parxrun; the kernel ends its ranks."""
        self.parts[node].kill()
        self.parts[node].wait()

    def times_of(self, *words):
        """When the lines came that have all of these words."""
        return [when for when, line in list(self.lines) if all(word in line for word in words)]

    def steps(self, since=0.0):
        return [when for when in self.times_of("'loss'") if when > since]

    def starts(self):
        """Of each generation but the first."""
        return self.times_of("coordinator: parxrun: generation ")

    def restarts(self):
        return len(self.times_of("coordinator: parxrun: ", "; restart "))

    def over(self):
        return self.parts["coordinator"].poll() is not None

    def stop(self):
        """Asks all to save their work and end; their exit codes."""
        self.parts["coordinator"].send_signal(signal.SIGTERM)
        return self.wait(30)

    def wait(self, seconds):
        """The exit codes by node, or None where one runs for longer, after which all are ended."""
        limit = time.monotonic() + seconds
        try:
            codes = {node: run.wait(max(0.1, limit - time.monotonic()))
                     for node, run in self.parts.items()}
        except subprocess.TimeoutExpired:
            self.end()
            return None
        for thread in self.threads:
            thread.join(5)
        return codes

    def end(self):
        for run in self.parts.values():
            run.kill()
        for run in self.parts.values():
            run.wait()
        for thread in self.threads:
            thread.join(5)

    def write_lines(self, path):
        path.write_text("\n".join(f"{when:.3f} {line}" for when, line in self.lines))


class Census:
    """Counts, every 10 ms, the generations of which a rank is alive: one that is neither a zombie
    nor on its way out of the kernel. Ranks are known by the job's folder in their
    command line, so those whose parxrun has died count as well."""

    PF_EXITING = 0x4

    def __init__(self, folder):
        self.folder, self.known, self.ranks = str(folder), set(), {}
        self.gaps, self.overlaps, self.over = [], [], False
        self.thread = threading.Thread(target=self._count)
        self.thread.start()

    def _count(self):
        try:  # it must not wait for what it counts
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -10)
        except PermissionError:
            pass
        last = time.monotonic()
        while not self.over:
            self._look()
            now = time.monotonic()
            self.gaps.append(now - last)
            last = now
            time.sleep(max(0.0, 0.01 - (time.monotonic() - now)))

    def _look(self):
        pids = {name for name in os.listdir("/proc") if name.isdigit()}
        self.known &= pids
        for pid in pids - self.known:
            name = read(f"/proc/{pid}/comm").strip()
            if name == "parxrun":  # it may become a rank
                continue
            words = read(f"/proc/{pid}/cmdline").split("\0")
            if name == "train_gpt" and len(words) == 1:  # in the middle of its exec
                continue
            self.known.add(pid)
            if name != "train_gpt" or self.folder not in words:
                continue
            found = re.search("\0PARX_GENERATION=([0-9]+)", read(f"/proc/{pid}/environ"))
            if found:
                self.ranks[pid] = int(found.group(1))
        alive = {}
        for pid, generation in list(self.ranks.items()):
            fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if not fields or fields[0] in "ZX" or int(fields[6]) & self.PF_EXITING:
                del self.ranks[pid]
            else:
                alive.setdefault(generation, []).append(pid)
        if len(alive) > 1:
            self.overlaps.append((time.monotonic(), alive))

    def close(self):
        self.over = True
        self.thread.join()
