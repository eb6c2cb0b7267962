"""Jobs of one call on a busy host, over shared memory, TCP and both:

    departures.py --runs 2000 --bin DIR [--seed S] [--busy 3] [--least RANKS] [--only RUN]

DIR holds departing and parxrun. Each run has 2 to 300 ranks, most of them few (or --least and more);
--busy processes compute beside them. Every run must end with 0. The exit code is 0 when all did.
"""
import argparse
import os
import random
import subprocess
import sys
import time

NETWORKS = {
    "shared memory": ({}, 1),
    "TCP": ({"PARX_TRANSPORT": "tcp"}, 1),
    "TCP, two connections": ({"PARX_TRANSPORT": "tcp", "PARX_STREAMS": "2"}, 1),
    "TLS": ({"PARX_TRANSPORT": "tcp", "PARX_TLS": "1"}, 1),
    "two hosts": ({}, 2),
    "three hosts": ({}, 3),
}
SIZES = [(70, 2, 9), (22, 10, 40), (6, 41, 128), (2, 129, 300)]  # percent, from, to


def draw(seed, least):
    chance = random.Random(seed)
    # Another half of the runs go over the three main networks.
    networks = list(NETWORKS) + ["shared memory", "TCP", "two hosts"] * 2
    sizes = [each for each in SIZES if each[2] >= least]
    percent, first, last = chance.choices(sizes, [each[0] for each in sizes])[0]
    return chance.choice(networks), chance.randint(max(first, least), last)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=30)
    options.add_argument("--bin", required=True)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--busy", type=int, default=3)
    options.add_argument("--least", type=int, default=2, help="ranks, at most 300")
    options.add_argument("--minutes", type=float, default=1e9, help="start none after so many")
    options.add_argument("--only", type=int, help="one run of these again")
    given = options.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    failures = 0
    done = {}
    since = time.monotonic()
    try:
        for run in [given.only] if given.only is not None else range(given.runs):
            if time.monotonic() - since > 60 * given.minutes:
                break
            seed = given.seed * 1_000_003 + run
            network, ranks = draw(seed, given.least)
            extra, hosts = NETWORKS[network]
            command = [f"{given.bin}/parxrun", "-n", str(ranks), f"{given.bin}/departing",
                       str(seed), str(hosts)]
            environment = {**os.environ, **extra, "PARX_RECORDER": "off", "PARX_THREADS": "1"}
            try:
                ended = subprocess.run(command, env=environment, capture_output=True, text=True,
                                       timeout=300)
                code, text = ended.returncode, ended.stderr
            except subprocess.TimeoutExpired as late:
                code, text = "no end within 300 s", str(late.stderr)
            done[network] = done.get(network, 0) + 1
            if code != 0:
                failures += 1
                print(f"run {run}: {ranks} ranks over {network}: {code}\n{text[-3000:]}", flush=True)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    ways = ", ".join(f"{count} over {name}" for name, count in sorted(done.items()))
    print(f"{sum(done.values())} runs ({ways}), {failures} failed, "
          f"{time.monotonic() - since:.0f} s, load {os.getloadavg()[0]:.1f}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
