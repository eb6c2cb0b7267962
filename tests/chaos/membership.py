"""Nodes that come, go and stand still, beside one training job; see restarts.py.

changes: one run of 1 to 4 nodes at random, whose parxrun are killed and started, so many times. Of
8 virtual replicas, so each loss that is logged must be that of an undisturbed run on two nodes,
within 1e-6. The descriptors, threads and memory of the coordinator and of the one parxrun that
stays are read where the same number of nodes is there, and must not grow.

stops: the parxrun of one of two nodes gets SIGSTOP for 10 s, in every second trial its rank as
well, which goes on before it. Its rank must end, the other node must go on, no checkpoint may be
committed twice or out of order, and the parxrun must come back. The ranks log little: one that
has filled the pipe to a stopped parxrun stands still as well, and ends once that goes on.
"""

import json
import os
import pathlib
import random
import signal
import statistics
import threading
import time

from job import Census, Job, children_of, read, wait_for

FIRST = "n0"  # its parxrun is never killed
NODES = (FIRST, "n1", "n2", "n3")
SMALL = ["--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "16"]


def records(folder):
    """(step, loss) of each line of the log."""
    lines = (json.loads(line) for line in read(folder / "train.jsonl").split("\n")[:-1])
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def last_step(folder):
    return max((step for step, _ in records(folder)), default=0)


def resources(pid):
    status = read(f"/proc/{pid}/status")
    number = lambda word: int(status.split(f"{word}:")[1].split()[0])
    return len(os.listdir(f"/proc/{pid}/fd")), number("Threads"), number("VmRSS")


def change(job, chance):
    """A node comes or goes; None where the next generation does not take steps in time. Else which,
    and the seconds until its first step."""
    present = job.nodes()
    absent = [node for node in NODES if node not in present]
    mortal = [node for node in present if node != FIRST]
    before, when = len(job.starts()), time.monotonic()
    if mortal and (not absent or chance.random() < 0.5):
        job.kill_node(chance.choice(mortal))
        what = "lost"
    else:
        job.start(chance.choice(absent))
        what = "joined"
    taken = wait_for(lambda: len(job.starts()) > before and job.steps(job.starts()[-1]), 30)
    if not taken or not wait_for(lambda: len(job.steps(taken[0])) > 20, 30):
        return None
    return what, taken[0] - when


def changes(options, work):
    chance = random.Random(options.seed)
    program = [*SMALL, "--batch-size", "2", "--dropout", "0.1", "--parallel", "ddp,replicas=8",
               "--max-steps", "100000", "--save-steps", "20", "--save-total-limit", "2"]
    folder, reference = work / "changes", work / "undisturbed"
    job = Job(options.bin, folder, options.port, "1:4", 1, 1000, program)
    census = Census(folder)
    seconds, used, failures = {"lost": [], "joined": []}, {}, []
    try:
        job.start(FIRST)
        if not wait_for(lambda: len(job.steps()) > 20, 30):
            print("it did not start")
            return 1
        for number in range(options.changes):
            done = change(job, chance)
            if done is None:
                failures.append(f"change {number}: no step within 30 s")
                break
            seconds[done[0]].append(done[1])
            for who in "coordinator", FIRST:
                used.setdefault((who, len(job.nodes())), []).append(
                    resources(job.parts[who].pid))
        codes = job.stop()
        if codes is None or any(code not in (75, -signal.SIGKILL) for code in codes.values()):
            failures.append(f"exit codes {codes}")
    finally:
        job.end()
        census.close()
        if options.keep:
            job.write_lines(folder.with_suffix(".lines"))
    end = last_step(folder)
    job = Job(options.bin, reference, options.port + 1, "2", 1, 0, program)
    try:
        for node in NODES[:2]:
            job.start(node)
        wait_for(lambda: time.sleep(0.2) or last_step(reference) > end, 300)
        job.stop()
    finally:
        job.end()
    expected, got = dict(records(reference)), records(folder)
    apart = [abs(loss - expected[step]) if step in expected else 1.0 for step, loss in got]
    if max(apart) > 1e-6:
        failures.append(f"losses are up to {max(apart):.2g} apart")
    if [step for step, _ in got] != list(range(1, end + 1)):
        failures.append("the log has not each step once")
    if census.overlaps:
        failures.append(f"ranks of two generations at once: {census.overlaps[0][1]}")
    if job.restarts():
        failures.append("the undisturbed run was restarted")
    print(f"{sum(map(len, seconds.values()))} changes, {len(seconds['lost'])} of them losses: "
          f"{end} steps, losses at most {max(apart):.2g} apart; "
          f"{len(census.gaps)} looks, {len(census.overlaps)} that saw ranks of two generations")
    for what, taken in seconds.items():
        if taken:
            print(f"a node {what}: first step after {statistics.median(taken):.2f} s "
                  f"({min(taken):.2f} to {max(taken):.2f})")
    for (who, nodes), values in sorted(used.items()):
        files, threads, memory = zip(*values)
        print(f"{who} beside {nodes} nodes, {len(values)} times: descriptors {files[0]} to "
              f"{files[-1]}, threads {threads[0]} to {threads[-1]}, {memory[0]} to {memory[-1]} kB")
        if files[-1] > files[0] or threads[-1] > threads[0] or memory[-1] > memory[0] + 1024:
            failures.append(f"{who} grows")
    for each in failures:
        print("FAILED:", each)
    return 1 if failures else 0


class Commits:
    """Every checkpoint folder in the order in which they came: a folder's second commit is new."""

    def __init__(self, folder):
        self.folder, self.seen, self.steps, self.over = folder, set(), [], False
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        while not self.over:
            found = []
            for path in self.folder.glob("checkpoint-*"):
                try:
                    found.append((int(path.name.split("-")[1]), path.stat().st_ino))
                except (OSError, ValueError):
                    pass
            for each in sorted(set(found) - self.seen):
                self.seen.add(each)
                self.steps.append(each[0])
            time.sleep(0.005)

    def close(self):
        self.over = True
        self.thread.join()
        return all(a < b for a, b in zip(self.steps, self.steps[1:]))


def stop_trial(options, folder, port, number, chance):
    """Why it does not hold, or None; and the seconds until its rank had ended, until the other went
    on, and until it was back."""
    job = Job(options.bin, folder, port, "1:2", 1, 9,
              [*SMALL, "--max-steps", "100000", "--save-steps", "5", "--save-total-limit", "0",
               "--logging-steps", "20"])
    commits = Commits(folder)
    try:
        nodes = ["a", "b"]
        for node in nodes:
            job.start(node)
        if not wait_for(lambda: len(commits.steps) > 2 and len(job.ranks()) == 2, 30):
            return "it did not start", None
        time.sleep(chance.uniform(0, 0.5))
        node = chance.choice(nodes)
        agent, ranks = job.parts[node].pid, children_of(job.parts[node].pid)
        before, when = len(job.starts()), time.monotonic()
        os.kill(agent, signal.SIGSTOP)
        if number % 2:
            os.kill(ranks[0], signal.SIGSTOP)
        # A zombie, since the parxrun that would reap it stands still.
        has_ended = lambda: read(f"/proc/{ranks[0]}/stat").rpartition(")")[2][1:2] in ("Z", "")
        ended = None
        if number % 2 == 0:
            if not wait_for(has_ended, 9):
                return "its rank lives on", None
            ended = time.monotonic() - when
        others = wait_for(lambda: len(job.starts()) > before and job.steps(job.starts()[-1]), 9)
        if not others:
            return "the other node does not go on", None
        time.sleep(max(0.0, when + 10 - time.monotonic()))
        if number % 2:
            woken = time.monotonic()
            os.kill(ranks[0], signal.SIGCONT)
            if not wait_for(has_ended, 9):
                return "its rank lives on", None
            ended = time.monotonic() - woken
        back, starts = time.monotonic(), len(job.starts())
        os.kill(agent, signal.SIGCONT)
        steps = wait_for(lambda: len(job.starts()) > starts and job.steps(job.starts()[-1]), 15)
        if not steps or not children_of(agent):
            return "it does not come back", None
        codes = job.stop()
        if codes is None or any(code != 75 for code in codes.values()):
            return f"exit codes {codes}", None
        return None, (ended, others[0] - when, steps[0] - back)
    finally:
        for run in job.parts.values():
            if run.poll() is None:
                run.send_signal(signal.SIGCONT)
        job.end()
        if not commits.close():
            print(f"trial {number}: FAILED: commits of the steps {commits.steps}")
            options.out_of_order += 1
        if options.keep:
            job.write_lines(folder.with_suffix(".lines"))


def stops(options, work):
    chance = random.Random(options.seed)
    options.out_of_order, failed, taken = 0, 0, {"alone": [], "with its rank": []}
    begin, tried = time.monotonic(), 0
    for number in range(options.stops):
        if time.monotonic() - begin > options.seconds:
            break
        tried += 1
        failure, seconds = stop_trial(options, work / f"stop{number}", options.port + number,
                                      number, chance)
        if failure:
            failed += 1
            print(f"trial {number}: FAILED: {failure}", flush=True)
        else:
            taken["with its rank" if number % 2 else "alone"].append(seconds)
    print(f"{tried - failed} of {tried} trials hold; in {options.out_of_order} a checkpoint came "
          "twice or out of order")
    for what, values in taken.items():
        if values:
            said = [f"{statistics.median(each):.2f} s ({min(each):.2f} to {max(each):.2f})"
                    for each in zip(*values)]
            print(f"a parxrun that was stopped {what}: its rank ended after {said[0]}, the other "
                  f"node's next step came after {said[1]}, its own after {said[2]} from SIGCONT")
    return 1 if failed or options.out_of_order else 0
