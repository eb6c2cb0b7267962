"""Random kill -9 beside training over two nodes, in every layout: parxrun starts all ranks again,
and they end in the bits of a run that nothing happened to.

    restarts.py --bin BIN_DIR [--trials 20] [--seed S] [--second 0.25] [--nodes 0.3]
                [--layouts ddp,fsdp,tp=2,pp=2]

A trial kills one rank at a random time and, with the probability --second, something else while the
job recovers from that: at a random moment until the first step after it. That is a rank, of the
generation that ends or of the next one, or with the probability --nodes a parxrun with its ranks,
which is then started again. A trial holds if every process that was not killed returns 0 within a
minute, there were no more restarts than kills, the model is that of the undisturbed run bit by bit,
and no look of the census (job.py) has seen ranks of two generations. Printed at the end: the time
from the last kill to the first step of the next generation, and the census. BIN_DIR has parxrun and
train_gpt.

    restarts.py --bin BIN_DIR --changes 25     see membership.py
    restarts.py --bin BIN_DIR --stops 20
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time

import membership
from job import Census, Job, wait_for

NODES = ("a", "b")
LIMIT = 60.0


def start(options, layout, folder, port):
    job = Job(options.bin, folder, port, str(len(NODES)), 2, 5,
              ["--n-layer", "4", "--n-head", "4", "--n-embd", "32", "--block-size", "32",
               "--max-steps", str(options.steps), "--save-steps", "10", "--save-total-limit", "2",
               "--parallel", layout])
    for node in NODES:
        job.start(node)
    return job


def model_of(folder):
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def kill_second(job, options, chance, first, killed):
    """A second kill during the recovery. When, and of what; None where the job was over first."""
    fraction, node_dies = chance.random(), chance.random() < options.nodes
    after, number = first + fraction * options.recovery, chance.random()
    wait_for(lambda: job.over() or time.monotonic() >= after, 10)
    # It is late where a step came before.
    if any(when > first for when in job.starts()) and job.steps(job.starts()[-1]):
        return None
    if node_dies:
        node = NODES[int(number * len(NODES))]
        if job.over() or job.parts[node].poll() is not None:
            return None
        when = time.monotonic()
        job.kill_node(node)
        wait_for(lambda: time.monotonic() > when + 0.2, 1)
        if not job.over():
            job.start(node)
        return when, "node"
    # Between two generations there is none: then it is one of the next.
    alive = wait_for(lambda: job.over() or [pid for pid in job.ranks() if pid != killed], 10)
    if not alive or alive is True:
        return None
    when = time.monotonic()
    try:
        os.kill(alive[int(number * len(alive))], signal.SIGKILL)
    except ProcessLookupError:
        return None
    return when, "rank"


def trial(options, layout, reference, duration, folder, port, chance):
    """Why it does not hold, or None; and the kills, the restarts, the seconds to the next step."""
    census = Census(folder)
    job = start(options, layout, folder, port)
    figures = {"kills": [], "restarts": 0, "seconds": None}
    try:
        if not wait_for(job.steps, LIMIT):
            return "it did not start", figures
        time.sleep(chance.uniform(0, duration))
        victims = job.ranks()
        wants_second = chance.random() < options.second
        if victims:
            killed = chance.choice(victims)
            os.kill(killed, signal.SIGKILL)
            last = time.monotonic()
            figures["kills"].append("rank")
            second = kill_second(job, options, chance, last, killed) if wants_second else None
            if second:
                last = second[0]
                figures["kills"].append(second[1])
        codes = job.wait(LIMIT)
        if codes is None:
            return "it hung", figures
        if any(codes.values()):
            return f"exit codes {codes}", figures
        # A rank whose work was done when it was killed costs nothing.
        figures["restarts"] = job.restarts()
        if figures["restarts"] > len(figures["kills"]):
            return f"{figures['restarts']} restarts after {figures['kills']} killed", figures
        if model_of(folder) != reference:
            return "the model has other bits", figures
        starts = job.starts()
        later = job.steps(starts[-1]) if starts else []
        if later and figures["restarts"] == len(figures["kills"]):
            figures["seconds"] = later[0] - last
        return None, figures
    finally:
        job.end()
        census.close()
        figures["census"] = census
        if options.keep:
            job.write_lines(folder.with_suffix(".lines"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layouts", default="ddp,fsdp,tp=2,pp=2")
    parser.add_argument("--second", type=float, default=0.25)
    parser.add_argument("--nodes", type=float, default=0.3)
    parser.add_argument("--recovery", type=float, default=1.5,
                        help="the seconds within which the second kill comes")
    parser.add_argument("--changes", type=int, help="membership.py")
    parser.add_argument("--stops", type=int, help="membership.py")
    parser.add_argument("--seconds", type=float, default=1e9, help="begins no trial after these")
    parser.add_argument("--keep", help="the folder for what each trial has written and printed")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    if not (options.bin / "train_gpt").exists():
        print("SKIPPED: there is no train_gpt, so no restarts were tried")
        return 77
    work = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="parx_restarts_"))
    options.port = 11000 + random.Random().randrange(3000)
    try:
        if options.changes:
            return membership.changes(options, work)
        if options.stops:
            return membership.stops(options, work)
        return restarts(options, work)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


def restarts(options, work):
    chance = random.Random(options.seed)
    layouts = options.layouts.split(",")
    port, begin = options.port, time.monotonic()
    failures, tried, kills, restarted, times = [], 0, {"rank": 0, "node": 0, "two": 0}, 0, {}
    gaps, overlaps, references = [], 0, {}
    for layout in layouts:
        folder = work / f"reference.{layout}"
        job = start(options, layout, folder, port := port + 1)
        codes = job.wait(LIMIT)
        if codes is None or any(codes.values()):
            print(f"{layout}: the undisturbed run ended with {codes}")
            print("\n".join(line for _, line in job.lines))
            return 1
        steps = job.steps()
        references[layout] = model_of(folder), steps[-1] - steps[0]
        print(f"{layout}: {steps[-1] - steps[0]:.2f} s for {len(steps)} steps", flush=True)
    for number in range(options.trials):
        if time.monotonic() - begin > options.seconds:
            break
        tried += 1
        layout = layouts[number % len(layouts)]
        folder = work / f"trial{number}"
        failure, figures = trial(options, layout, *references[layout], folder,
                                 port := port + 1, chance)
        census = figures["census"]
        gaps += census.gaps
        overlaps += len(census.overlaps)
        if census.overlaps and not failure:
            failure = f"ranks of two generations at once: {census.overlaps[0][1]}"
        if failure:
            failures.append(number)
            print(f"trial {number}, {layout}, killed {figures['kills']}: {failure}", flush=True)
        restarted += figures["restarts"]
        for each in figures["kills"]:
            kills[each] += 1
        kills["two"] += len(figures["kills"]) == 2
        if figures["seconds"] is not None:
            times.setdefault(f"{layout}, the last kill a {figures['kills'][-1]}'s",
                             []).append(figures["seconds"])
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{tried - len(failures)} of {tried} trials hold: {kills['rank']} ranks and "
          f"{kills['node']} nodes killed, {kills['two']} trials with two kills, "
          f"{restarted} restarts")
    gaps = sorted(gaps) or [0.0]
    print(f"census: {len(gaps)} looks, {gaps[len(gaps) // 2] * 1e3:.0f} ms apart (of 100, 99 at "
          f"most {gaps[len(gaps) * 99 // 100] * 1e3:.0f} ms, all {gaps[-1] * 1e3:.0f} ms), "
          f"{overlaps} that saw ranks of two generations")
    for name, taken in sorted(times.items()):
        print(f"{name}: first step {statistics.median(taken):.2f} s after it "
              f"({min(taken):.2f} to {max(taken):.2f}, {len(taken)} of them)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
