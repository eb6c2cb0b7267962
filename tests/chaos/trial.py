"""One trial: a job of real processes, one fault, and what became of it.

Runs as process 1 of PID, network, mount and IPC namespaces of its own (see chaos.py), so whatever
process, file of /dev/shm or socket is there after the job is the job's. A trial is a function of the
seed and its number, up to the moments at which the kernel runs processes. Times are those of the
monotonic clock, which the ranks write down as well.
"""

import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import time

import hosts
import sockets

TIMEOUT = 3.0  # of an operation: PARX_TIMEOUT
RENDEZVOUS_TIMEOUT = 5.0
SILENCE = 24.0  # of a peer after which a connection ends, whatever PARX_TIMEOUT is
MARGIN = 20.0  # beyond a deadline, on a machine that has other things to do; then it is a hang
LONG = 1_000_000_000  # calls: until the fault ends the job

# What can happen. "by" says who does it; "spares" that the job should not mind. "mismatch" faults are
# calls that differ from those of the other ranks.
FAULTS = {
    "none": {"by": "nobody", "spares": True},
    "kill": {"by": "driver"},
    "kill at start": {"by": "driver"},
    "stop": {"by": "driver"},
    "pause": {"by": "driver", "spares": True},
    "exit": {"by": "rank"},
    "leave": {"by": "rank"},
    "throw": {"by": "rank"},
    "skip": {"by": "rank", "mismatch": True},
    "no message": {"by": "rank"},
    "root": {"by": "rank", "mismatch": True},
    "size": {"by": "rank", "mismatch": True},
    "type": {"by": "rank", "mismatch": True},
    "op": {"by": "rank", "mismatch": True},
    "files": {"by": "rank"},
    "memory": {"by": "rank"},
    "garbage": {"by": "driver", "spares": True},
    "cut": {"by": "driver"},
    "full shm": {"by": "driver", "spares": True},
    "partition": {"by": "driver"},
}


def plan(seed, number):
    rng = random.Random(f"{seed}/{number}")
    fault = list(FAULTS)[number % len(FAULTS)]
    world = rng.randint(2, 6)
    made = {
        "seed": seed, "trial": number, "fault": fault, "world": world,
        "network": rng.choice(["shm", "tcp", "hybrid"]),
        "launcher": rng.choice(["env", "env", "parxrun", "parxrun --on-loss continue"]),
        "victim": rng.randrange(world),
        "at": int(2 ** rng.uniform(0, 8)) - 1,
        "amount": rng.randint(0, 24 if fault == "files" else 48),
        "delay": rng.uniform(0, 0.4),
    }
    if fault in ("files", "memory") and rng.random() < 0.3:
        made["at"] = -1
    if fault == "partition":
        made.update(network="tcp", launcher="env", victim=1)  # of odd ranks, on the second host
    by_driver = FAULTS[fault]["by"] == "driver"
    made["calls"] = LONG if by_driver else made["at"] + 150
    if FAULTS[fault].get("spares") or fault == "cut":  # of a link that nobody needs nobody hears
        made["calls"] = 600
    return made, rng


class Job:
    def __init__(self, made, worker, parxrun, folder):
        self.made, self.folder = made, folder
        self.started = time.monotonic()
        self.statuses = {}  # of our children
        self.fault_time = None
        self.pids = [None] * made["world"]
        self.pidfds = {}  # rank -> pidfd
        self.ended = {}  # rank -> when
        os.makedirs(f"{folder}/tmp")
        os.makedirs(f"{folder}/out")
        arguments = [worker, *map(str, (made["seed"] * 100_003 + made["trial"], made["calls"],
                                        made["fault"], made["victim"], made["at"],
                                        made["amount"], folder))]
        common = {name: value for name, value in os.environ.items() if not name.startswith("PARX_")}
        common.update(PARX_TIMEOUT=str(TIMEOUT), PARX_RENDEZVOUS_TIMEOUT=str(RENDEZVOUS_TIMEOUT),
                      PARX_TRANSPORT="tcp" if made["network"] == "tcp" else "auto",
                      PARX_RECORDER=f"{folder}/flight", TMPDIR=f"{folder}/tmp")
        self.launchers = []
        self.second_host = hosts.SecondHost() if made["fault"] == "partition" else None
        if made["launcher"] == "env":
            for rank in range(made["world"]):
                own = dict(common, PARX_RANK=str(rank), PARX_WORLD_SIZE=str(made["world"]),
                           PARX_LOCAL_RANK=str(rank), PARX_LOCAL_WORLD_SIZE=str(made["world"]),
                           PARX_MASTER_ADDR="127.0.0.1", PARX_MASTER_PORT="29400",
                           PARX_SECRET=f"chaos {made['trial']}")
                if made["network"] == "hybrid":
                    own["PARX_HOST_ID"] = "even" if rank % 2 == 0 else "odd"
                inside = []
                if self.second_host:
                    own.update(PARX_MASTER_ADDR=hosts.ADDRESS, PARX_TIMEOUT="100",
                               PARX_LOCAL_WORLD_SIZE="1", PARX_LOCAL_RANK="0")
                    inside = self.second_host.inside if rank % 2 else []
                self._start([*inside, *arguments], own, f"{folder}/out/rank_{rank}")
        else:
            if made["network"] == "hybrid":
                arguments = ["sh", "-c", 'export PARX_HOST_ID=$((RANK % 2)); exec "$@"', "sh",
                             *arguments]
            launcher = made["launcher"].split()
            self._start([parxrun, "-n", str(made["world"]), *launcher[1:], "--grace", "5",
                         "--log-dir", f"{folder}/out", "--", *arguments], common,
                        f"{folder}/out/parxrun")

    def _start(self, arguments, environment, log):
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            self.launchers.append(subprocess.Popen(arguments, env=environment, stdout=out, stderr=err,
                                                   stdin=subprocess.DEVNULL))

    def diary(self, rank):
        """event -> (value, time)"""
        try:
            lines = open(f"{self.folder}/rank.{rank}").read().splitlines()
        except OSError:
            return {}
        entries = (line.split() for line in lines)
        return {entry[0]: (int(entry[1]), float(entry[2])) for entry in entries if len(entry) == 3}

    def look(self):
        """Learns of new processes, of ended ones and of the fault."""
        for rank in range(self.made["world"]):
            notes = self.diary(rank)
            if rank == self.made["victim"] and "fault" in notes:  # one of its own
                self.fault_time = notes["fault"][1]
            if self.pids[rank] is None and "pid" in notes:
                self.pids[rank] = notes["pid"][0]
                try:
                    self.pidfds[rank] = os.pidfd_open(self.pids[rank])
                except ProcessLookupError:
                    self.ended[rank] = time.monotonic()
            if rank in self.pidfds and rank not in self.ended:
                if select.select([self.pidfds[rank]], [], [], 0)[0]:
                    self.ended[rank] = time.monotonic()
        self.reap()

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.statuses[pid] = os.waitstatus_to_exitcode(status)

    def wait_until(self, condition, seconds):
        """Whether `condition` has come true within that time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.004)
            self.look()
        return True

    def launchers_ended(self):
        return all(each.pid in self.statuses for each in self.launchers)

    def all_joined(self):
        return all("joined" in self.diary(rank) for rank in range(self.made["world"]))

    def everybody_ended(self, but=()):
        return all(rank in self.ended or rank in but or
                   (self.pids[rank] is None and self.launchers_ended())
                   for rank in range(self.made["world"])) and (bool(but) or self.launchers_ended())

    def text(self, name):
        try:
            return open(f"{self.folder}/out/{name}.err", errors="replace").read()
        except OSError:
            return ""


def fill_shared_memory():
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/dev/shm"], check=True)
    filled = os.open("/dev/shm/filled", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filled, b"x" * 4096)
    except OSError:
        os.close(filled)


def commit(job, made, rng):
    """The driver's faults. Returns the ranks to blame, and what has to stay open."""
    fault, victim = made["fault"], made["victim"]
    blamed, kept = {victim}, []
    if fault == "kill at start":
        job.wait_until(lambda: job.pids[victim] is not None, 10)
        time.sleep(made["delay"] * 0.3)
    else:
        job.wait_until(lambda: job.all_joined() or job.everybody_ended(), 30)
        time.sleep(made["delay"])
    job.look()
    if victim in job.ended or job.pids[victim] is None:
        return blamed, kept
    try:
        if fault.startswith("kill"):
            os.kill(job.pids[victim], signal.SIGKILL)
        elif fault in ("stop", "pause"):
            os.kill(job.pids[victim], signal.SIGSTOP)
        elif fault == "partition":
            job.second_host.separate()
            blamed = {"the other host"}
        elif fault == "garbage":
            kept = sockets.throw_garbage(rng)
        elif fault == "cut":
            links = sockets.connections(job.pids)
            if not links:
                made["not_tried"] = "no connection"
                return blamed, kept
            rank, peer, descriptor = rng.choice(links)
            sockets.cut(job.pids[rank], descriptor)
            blamed = {rank, peer}
            made["cut"] = sorted(blamed)
    except ProcessLookupError:
        return blamed, kept  # it was done with its calls
    except OSError as refused:
        made["not_tried"] = str(refused)
        return blamed, kept
    job.fault_time = time.monotonic()
    if fault == "pause":
        time.sleep(rng.uniform(0.05, TIMEOUT / 3))
        os.kill(job.pids[victim], signal.SIGCONT)
    return blamed, kept


def named_ranks(text, rank, pids):
    """Ranks of the job, other than `rank` itself, that the last error of its output names: those
    that it accuses, or, where it accuses nobody, the one that told it."""
    errors = [line for line in text.splitlines() if re.search(r"\berror\b", line)]
    last = errors[-1] if errors else text
    accused = re.sub(r"\(rank \d+ of \d+(, rank \d+ of the job)?,", "", last)
    return _ranks_in(accused, rank, pids) or _ranks_in(last, rank, pids)


def _ranks_in(last, rank, pids):
    found = set()
    for group in re.findall(r"\branks? (\d+(?:(?:, | and |-)\d+)*)", last):
        for part in re.split(r", | and ", group):
            ends = [int(end) for end in part.split("-")]
            found |= set(range(ends[0], ends[-1] + 1))
    # Inside a smaller group ranks have that group's numbers; what follows them tells the process.
    found |= {each for each, pid in enumerate(pids) if re.search(rf"\bpid {pid}\b", last)}
    return found - {rank}


def leftovers(made, folder):
    """What a job must not leave behind; it may take a second for the kernel to let go."""
    for _ in range(50):
        found = [f"process {pid}" for pid in os.listdir("/proc") if pid.isdigit() and pid != "1"]
        found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name != "filled"]
        found += [f"port {port}" for port in sockets.listening_ports()]
        found += [f"socket {name!r}" for name in sockets.unix_names()]
        found += [f"{folder}/tmp/{name}" for name in os.listdir(f"{folder}/tmp")]
        if not found:
            break
        time.sleep(0.02)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
    return found


def stacks(pids):
    """Where the hanging processes are, as far as gdb is there to ask."""
    if shutil.which("gdb") is None:
        return ""
    return "".join(subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"],
                                  capture_output=True, text=True).stdout for pid in pids)


def run(seed, number, worker, parxrun, folder):
    made, rng = plan(seed, number)
    fault, victim, world = FAULTS[made["fault"]], made["victim"], made["world"]
    if made["fault"] == "full shm":
        fill_shared_memory()
    job = Job(made, worker, parxrun, folder)
    blamed, kept = {victim}, []
    if fault["by"] == "driver":
        blamed, kept = commit(job, made, rng)

    but = {victim} if made["fault"] == "stop" else set()
    slow = TIMEOUT
    if made["fault"] == "partition":
        slow = SILENCE
    elif made["fault"] == "kill at start" or made["at"] < 0:
        slow += RENDEZVOUS_TIMEOUT
    ended = job.wait_until(lambda: job.everybody_ended(but) or job.fault_time is not None, 60)
    if job.fault_time is not None:
        ended = job.wait_until(lambda: job.everybody_ended(but),
                               job.fault_time + slow + MARGIN - time.monotonic())
    elif ended:
        made.setdefault("not_tried", "" if fault["by"] == "nobody" else "the job was over")
    if made["fault"] == "stop" and ended:  # it must find out by itself
        time.sleep(0.3)  # parxrun looks which ranks stand still
        try:
            os.kill(job.pids[victim], signal.SIGCONT)
        except ProcessLookupError:
            pass
        ended = job.wait_until(job.everybody_ended, TIMEOUT + MARGIN)

    result = dict(made, hang=[rank for rank in range(world) if rank not in job.ended and
                              job.pids[rank] is not None])
    if not ended:
        result["hang"] = result["hang"] or ["parxrun"]
        with open(f"{folder}/stacks", "w") as file:
            file.write(stacks([job.pids[rank] for rank in result["hang"] if rank != "parxrun"]))
        for pid in os.listdir("/proc"):
            if pid.isdigit() and pid != "1":
                os.kill(int(pid), signal.SIGKILL)
        job.wait_until(job.launchers_ended, 5)
    for each in kept:
        each.close()
    if job.second_host:
        job.second_host.close()

    texts = [job.text(f"rank_{rank}") for rank in range(world)]
    report = job.text("parxrun")
    result["wrong"] = [rank for rank in range(world) if "wrong output" in texts[rank] or
                       "its input was changed" in texts[rank]]
    fatal = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}
    result["crashed"] = [rank for rank in range(world)
                         if job.statuses.get(job.pids[rank]) in fatal or
                         re.search(r"terminate called|pure virtual|\*\*\* ", texts[rank])]
    if re.search(r"signal (4|6|7|8|11)\b", report):
        result["crashed"] = result["crashed"] or ["parxrun"]
    result["left"] = leftovers(made, folder)
    result["went_on"] = all(job.diary(rank).get("end", (1, 0))[0] == 0 for rank in range(world)
                            if made["fault"] not in ("exit",) or rank != victim)

    result["survivors"] = result["named"] = result["misled"] = 0
    result["unnamed"] = []
    told = made["launcher"] == "parxrun"  # which ends the others before they know
    if not result["went_on"] and not fault.get("spares") and not told:
        for rank in range(world):
            others = blamed - {rank}
            if job.second_host:
                others = {each for each in range(world) if each % 2 != rank % 2}
            if not others or (rank in blamed and len(blamed) == 1):
                continue
            if job.diary(rank).get("end", (1, 0))[0] == 0:
                continue  # was done before
            result["survivors"] += 1
            names = named_ranks(texts[rank], rank, job.pids)
            if others & names:
                result["named"] += 1
            else:
                result["unnamed"].append(rank)
                result["misled"] += bool(names)
    if report and not result["went_on"] and told:
        headline = re.search(r"parxrun: (.*)", report)
        result["headline"] = bool(headline and blamed & _ranks_in(headline.group(1), -1, []))
    ends = [when - job.fault_time for rank, when in job.ended.items()
            if rank != victim] if job.fault_time and not result["went_on"] else []
    result["first"], result["last"] = (min(ends), max(ends)) if ends else (None, None)
    print(json.dumps(result))
