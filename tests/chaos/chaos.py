#!/usr/bin/env python3
"""Random faults in jobs of real processes, and a table of what became of them.

  chaos.py --bin DIR [--trials 40] [--seed 1] [--jobs 2] [--keep DIR]
  chaos.py --bin DIR --seed 1 --trial 17     one trial again, alone, with all it knows

DIR holds chaos_worker and parxrun. Each trial runs in namespaces of its own. The exit code is 0 when
nothing hung, no result was wrong, nothing crashed, nothing was left behind and the bars below hold,
1 else, 77 when namespaces are not permitted here.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import trial

ISOLATE = ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--mount-proc",
           "--kill-child", "--propagation", "private"]
if os.getuid() != 0:
    ISOLATE += ["--user", "--map-root-user"]
PREPARE = 'mount -t tmpfs tmpfs /dev/shm && ip link set lo up && exec "$@"'
BAD = ("hang", "wrong", "crashed", "left", "broken")


# Seconds from a fault until the last survivor has ended: the median of many trials, and the most.
DEATH, MISMATCH = (0.2, 1.0), (0.1, 0.5)
STOP = (trial.TIMEOUT + 0.6, trial.TIMEOUT + 1.0)
BARS = {"kill": DEATH, "exit": DEATH, "leave": DEATH, "throw": DEATH, "stop": STOP,
        "skip": MISMATCH, "root": MISMATCH, "size": MISMATCH, "type": MISMATCH, "op": MISMATCH,
        "partition": (trial.SILENCE + 2, trial.SILENCE + 6)}  # keepalive may need a probe more
SHARE_NAMED = 0.99  # of survivors whose error names the rank at fault
SHARE_OF_HEADLINES = 0.9


def isolated(*command):
    return [*ISOLATE, "sh", "-c", PREPARE, "sh", *command]


def run_trial(options, number, folder):
    """The trial's result; its folder stays where something went wrong."""
    own = f"{folder}/{options.seed}-{number}"
    shutil.rmtree(own, ignore_errors=True)
    os.makedirs(own)
    command = isolated(sys.executable, os.path.abspath(__file__), "--bin", options.bin, "--seed",
                       str(options.seed), "--trial", str(number), "--inside", own)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        result = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        result = dict(trial.plan(options.seed, number)[0], broken=[done.stderr[-2000:]])
    except subprocess.TimeoutExpired:
        result = dict(trial.plan(options.seed, number)[0], broken=["the driver itself hung"])
    result["folder"] = own
    return result


def seconds(values):
    return f"{statistics.median(values):6.2f} {max(values):6.2f}" if values else f"{'-':>6} {'-':>6}"


def print_table(results):
    print(f"{'fault':<14}{'trials':>6}{'none':>5}{'went on':>8}{'hangs':>6}{'wrong':>6}{'crash':>6}"
          f"{'left':>5}{'named':>12}{'misled':>7}{'headline':>9}   first: s, max   last: s, max")
    groups = [(fault, [each for each in results if each["fault"] == fault])
              for fault in trial.FAULTS]
    for fault, group in [*groups, ("all", results)]:
        if not group:
            continue
        tried = [each for each in group if "broken" not in each and not each.get("not_tried")]
        counts = [sum(bool(each.get(bad)) for each in group) for bad in BAD]
        survivors, named, misled = (sum(each[key] for each in tried)
                                    for key in ("survivors", "named", "misled"))
        headlines = [each["headline"] for each in tried if "headline" in each]
        share = f"{named}/{survivors}" + (f" {100 * named // survivors}%" if survivors else "")
        print(f"{fault:<14}{len(group):>6}{len(group) - len(tried):>5}"
              f"{sum(each['went_on'] for each in tried):>8}{counts[0]:>6}{counts[1]:>6}"
              f"{counts[2]:>6}{counts[3]:>5}{share:>12}{misled:>7}"
              f"{sum(headlines):>6}/{len(headlines):<3}"
              f"  {seconds([each['first'] for each in tried if each['first'] is not None])}"
              f"  {seconds([each['last'] for each in tried if each['last'] is not None])}")
    print("none: no fault came about (the job was over, nothing to cut). named: survivors whose error "
          "names the rank at fault;\nmisled: those that name others only. first, last: from the fault "
          "to the end of the first and last survivor, median and maximum.")


def missed_bars(results):
    """What fell short, as sentences. In a short run, beside other work, times count thrice."""
    missed = []
    for fault, (median, most) in BARS.items():
        ends = [each["last"] for each in results if each["fault"] == fault and each.get("last")]
        slack = 1 if len(ends) >= 20 else 3
        if ends and (statistics.median(ends) > slack * median or max(ends) > slack * most):
            missed.append(f"{fault}: survivors ended after {statistics.median(ends):.2f} s (median), "
                          f"{max(ends):.2f} s (most); bars {slack * median:.2f} and {slack * most:.2f}")
    tried = [each for each in results if "broken" not in each]
    survivors, named = (sum(each[key] for each in tried) for key in ("survivors", "named"))
    if named < SHARE_NAMED * survivors - 1:
        missed.append(f"{named} of {survivors} survivors name the rank at fault")
    headlines = [each["headline"] for each in tried if "headline" in each]
    if sum(headlines) < SHARE_OF_HEADLINES * len(headlines) - 1:
        missed.append(f"{sum(headlines)} of {len(headlines)} of parxrun's headlines name it")
    return missed


def describe(result):
    what = ", ".join(f"{bad}: {result[bad]}" for bad in BAD if result.get(bad))
    return (f"seed {result['seed']} trial {result['trial']}: {result['fault']}, {result['network']}, "
            f"{result['world']} ranks by {result['launcher']}, victim {result['victim']}: {what}; "
            f"see {result['folder']}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bin", required=True)
    arguments.add_argument("--trials", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--trial", type=int)
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--keep", help="where the folders of trials go, all of which then stay")
    arguments.add_argument("--results", help="a file for one line of JSON a trial")
    arguments.add_argument("--inside", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    options.bin = os.path.abspath(options.bin)
    if options.inside:
        trial.run(options.seed, options.trial, f"{options.bin}/chaos_worker",
                  f"{options.bin}/parxrun", options.inside)
        return 0

    refused = subprocess.run(isolated("true"), capture_output=True, text=True)
    if refused.returncode != 0:
        print(f"SKIPPED: no faults were tried, which needs namespaces: {refused.stderr.strip()}")
        return 77
    folder = options.keep or tempfile.mkdtemp(prefix="parx-chaos.")
    if options.trial is not None:
        result = run_trial(options, options.trial, folder)
        print(json.dumps(result, indent=1))
        for path, _, names in sorted(os.walk(f"{result['folder']}/out")):
            for name in sorted(names):
                text = open(f"{path}/{name}", errors="replace").read()
                if text:
                    print(f"--- {name}\n{text}", end="")
        return int(any(result.get(bad) for bad in BAD))

    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda number: run_trial(options, number, folder),
                               range(options.trials)):
            results.append(result)
            if options.results:
                with open(options.results, "a") as file:
                    file.write(json.dumps(result) + "\n")
            if any(result.get(bad) for bad in BAD):
                print("FAILED:", describe(result), flush=True)
            elif not options.keep:
                shutil.rmtree(result["folder"], ignore_errors=True)
    print_table(results)
    missed = missed_bars(results)
    for each in missed:
        print("FAILED:", each)
    if not options.keep and not os.listdir(folder):
        os.rmdir(folder)
    return int(bool(missed) or any(result.get(bad) for result in results for bad in BAD))


if __name__ == "__main__":
    sys.exit(main())
