"""Random kill -9 of ranks that train over two nodes, in every layout: parxrun starts all again, and
they end in the bits of a run that nothing happened to.

    restarts.py --bin BIN_DIR [--trials 20] [--seed S] [--second 0.25]
                [--layouts ddp,fsdp,tp=2,pp=2]

A trial kills one rank at a random time, and with the probability --second another one of the next
generation while that starts. It holds if all parxrun return 0 within a minute, no kill has cost
more than one restart, and the model is that of the undisturbed run bit by bit. Printed at the end:
the time from the last kill to the first step of the next generation. BIN_DIR has parxrun and
train_gpt.
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

NODES = ("a", "b")
RANKS_A_NODE = 2
LIMIT = 60.0


class Job:
    """parxrun on each node, whose lines are noted with the time at which they came."""

    def __init__(self, options, layout, folder, port):
        self.lines = []
        self.parts = []
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("PARX_", "SLURM_", "TORCHELASTIC_", "PET_"))}
        clean.update(OMP_NUM_THREADS="1")
        program = [str(options.bin / "train_gpt"), "--n-layer", "4", "--n-head", "4", "--n-embd",
                   "32", "--block-size", "32", "--eval-batch-size", "512", "--sample", "8",
                   "--max-steps", str(options.steps), "--logging-steps", "1", "--eval-strategy",
                   "no", "--disable-progress", "--save-strategy", "steps", "--save-steps", "10",
                   "--resume", "--save-total-limit", "2", "--parallel", layout,
                   "--output-dir", str(folder)]
        for node in NODES:
            run = subprocess.Popen(
                [str(options.bin / "parxrun"), "--nnodes", str(len(NODES)), "--rdzv-endpoint",
                 f"127.0.0.1:{port}", "--rdzv-id", f"trial{port}", "--max-restarts", "5", "-n",
                 str(RANKS_A_NODE), *program],
                env={**clean, "PARX_HOST_ID": node}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            reader = threading.Thread(target=self._read, args=(run,))
            reader.start()
            self.parts.append((run, reader))

    def _read(self, run):
        for line in run.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def ranks(self):
        """The processes of the ranks: children of a parxrun that are no guard."""
        found = []
        for run, _ in self.parts:
            try:
                children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text()
            except OSError:
                continue
            for pid in map(int, children.split()):
                try:
                    name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                except OSError:
                    continue
                if name == "train_gpt":
                    found.append(pid)
        return found

    def times_of(self, *words):
        """When the lines came that have all of these words."""
        return [when for when, line in list(self.lines) if all(word in line for word in words)]

    def steps(self):
        return self.times_of("'loss'")

    def restarts(self):
        return len(self.times_of("; restart ", " of 5"))

    def wait(self):
        limit = time.monotonic() + LIMIT
        codes = []
        for run, reader in self.parts:
            try:
                codes.append(run.wait(max(0.1, limit - time.monotonic())))
            except subprocess.TimeoutExpired:
                self.end()
                return None
        for _, reader in self.parts:
            reader.join(5)
        return codes

    def end(self):
        for run, _ in self.parts:
            run.kill()
        for run, reader in self.parts:
            run.wait()
            reader.join(5)


def model_of(folder):
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def wait_for(what, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.002)
    return False


def kill_one(pids, chance):
    os.kill(chance.choice(pids), signal.SIGKILL)
    return time.monotonic()


def trial(options, layout, reference, duration, folder, port, chance):
    """Why it does not hold, or None; and the kills, the restarts, the seconds to the next step."""
    job = Job(options, layout, folder, port)
    kills, killed = 0, None
    try:
        if not wait_for(job.steps, LIMIT):
            return "it did not start", None
        time.sleep(chance.uniform(0, duration))
        victims = job.ranks()
        if victims:
            killed, kills = kill_one(victims, chance), 1
            if chance.random() < options.second:
                fresh = lambda: [pid for pid in job.ranks() if pid not in victims]
                if wait_for(lambda: fresh() or job.parts[0][0].poll() is not None, 10):
                    time.sleep(chance.uniform(0, 0.6))
                    if fresh():
                        killed, kills = kill_one(fresh(), chance), 2
        codes = job.wait()
        if codes is None:
            return "it hung", None
        if any(codes):
            return f"exit codes {codes}", None
        # A rank whose work was done when it was killed costs nothing.
        restarts = job.restarts()
        if restarts > kills:
            return f"{restarts} restarts after {kills} kills", None
        if model_of(folder) != reference:
            return "the model has other bits", None
        starts = job.times_of("parxrun: generation ")
        later = [when for when in job.steps() if starts and when > starts[-1]]
        seconds = later[0] - killed if later and restarts == kills else None
        return None, (kills, restarts, seconds)
    finally:
        job.end()
        if options.keep:
            lines = "\n".join(f"{when:.3f} {line}" for when, line in job.lines)
            folder.with_suffix(".lines").write_text(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layouts", default="ddp,fsdp,tp=2,pp=2")
    parser.add_argument("--second", type=float, default=0.25)
    parser.add_argument("--keep", action="store_true", help="what each trial has printed")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    if not (options.bin / "train_gpt").exists():
        print("SKIPPED: there is no train_gpt, so no restarts were tried")
        return 77
    chance = random.Random(options.seed)
    layouts = options.layouts.split(",")
    work = pathlib.Path(tempfile.mkdtemp(prefix="parx_restarts_"))
    port = 11000 + random.Random().randrange(3000)
    failures, kills, restarts, times = [], 0, 0, {}
    try:
        references = {}
        for layout in layouts:
            folder = work / f"reference.{layout}"
            job = Job(options, layout, folder, port := port + 1)
            codes = job.wait()
            if codes is None or any(codes):
                print(f"{layout}: the undisturbed run ended with {codes}")
                print("\n".join(line for _, line in job.lines))
                return 1
            steps = job.steps()
            references[layout] = model_of(folder), steps[-1] - steps[0]
            print(f"{layout}: {steps[-1] - steps[0]:.2f} s for {len(steps)} steps", flush=True)
        for number in range(options.trials):
            layout = layouts[number % len(layouts)]
            folder = work / f"trial{number}"
            failure, figures = trial(options, layout, *references[layout], folder,
                                     port := port + 1, chance)
            if failure:
                failures.append(number)
                print(f"trial {number}, {layout}: {failure}", flush=True)
                continue
            kills, restarts = kills + figures[0], restarts + figures[1]
            if figures[2] is not None:
                times.setdefault(layout, []).append(figures[2])
            shutil.rmtree(folder)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{options.trials - len(failures)} of {options.trials} trials hold: "
          f"{kills} kills, {restarts} restarts")
    for layout, taken in times.items():
        print(f"{layout}: first step {statistics.median(taken):.2f} s after the kill "
              f"({min(taken):.2f} to {max(taken):.2f}, {len(taken)} of them)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
