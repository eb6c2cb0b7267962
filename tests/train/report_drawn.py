#!/usr/bin/env python3
"""report_drawn.py PARX_REPORT FOLDER: writes the log of a run, has parx_report make its page, and
measures bars and points where a browser has drawn them, by the marks of the axes beside them."""
import json
import math
import re
import subprocess
import sys
from pathlib import Path

report, folder = sys.argv[1], Path(sys.argv[2])
ROUNDING = 0.8  # pixels: the page has tenths, a text's middle is not quite its number's
RANKS = 3

# A log whose lines take different times; the first warms up and counts in no share of time.
rates = [10.0, 300.0, 100.0, 150.0, 200.0]
wait = [[50.0, 60.0, 70.0], [10.0, 12.5, 31.0], [40.0, 1.5, 20.0], [5.0, 7.0, 11.0], [2.0, 0, 9.0]]
data = [[40.0, 40.0, 30.0], [8.0, 4.0, 2.0], [4.0, 6.0, 1.0], [20.0, 3.0, 5.0], [1.0, 2.0, 3.0]]
losses = [2.302585, 1.7, 1.1234, 0.9, 0.7071]
run = folder / "run"
run.mkdir()
with open(run / "train.jsonl", "w") as train, open(run / "ranks.jsonl", "w") as ranks:
    for i, rate in enumerate(rates):
        line = {"step": 10 * (i + 1), "seconds": i + 1.0, "epoch": 0.5, "loss": losses[i],
                "samples_per_second": rate, "step_ms": 1000 / rate}
        train.write(json.dumps(line) + "\n")
        of_ranks = {"step": 10 * (i + 1), "seconds": i + 1.0, "communication_wait_percent": wait[i],
                    "communication_percent": [80.0] * RANKS, "data_wait_percent": data[i],
                    "compute_percent": [100 - w - d for w, d in zip(wait[i], data[i])],
                    "cpu_percent": [90.0] * RANKS, "resident_mib": [100.0 + i] * RANKS,
                    "samples_per_second": [rate / RANKS] * RANKS}
        ranks.write(json.dumps(of_ranks) + "\n")


def share(lines, rank):
    """Over the time of the lines but the first; each has as many samples."""
    times = [1 / rate for rate in rates[1:]]
    return sum(t * line[rank] for t, line in zip(times, lines[1:])) / sum(times)


page = folder / "report.html"
subprocess.run([report, str(run), "-o", str(page)], check=True, stdout=subprocess.DEVNULL)

PROBE = """<pre id="drawn"></pre><script>
const box = each => { const b = each.getBoundingClientRect();
  return {x: b.x, y: b.y, right: b.right, bottom: b.bottom,
          text: each.querySelector("title")?.textContent ?? each.textContent}; };
const drawn = {charts: {}, cells: [...document.querySelectorAll("th,td")].map(e => e.textContent),
               text: document.body.innerText};
for (const svg of document.querySelectorAll("svg")) {
  const of = kind => [...svg.querySelectorAll(kind)].map(box);
  drawn.charts[svg.getAttribute("aria-label")] =
    {frame: box(svg), rects: of("rect"), circles: of("circle"), lines: of("line"), texts: of("text")};
}
document.getElementById("drawn").textContent = JSON.stringify(drawn);
</script>"""
page.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
           "--no-first-run", "--disable-background-networking", "--disable-component-update",
           "--disable-sync", f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
dom = subprocess.run(browser, check=True, capture_output=True, text=True, timeout=60).stdout
found = re.search(r'<pre id="drawn">(.*?)</pre>', dom, re.S).group(1)
for code, letter in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
    found = found.replace(code, letter)
drawn = json.loads(found)

failures = []


def near(what, measured, expected, tolerance):
    if not math.isclose(measured, expected, abs_tol=tolerance):
        failures.append(f"{what}: {measured:.3f} is drawn or said, {expected:.3f} is in the log")


middle = lambda box: (box["x"] + box["right"]) / 2
charts = drawn["charts"]

# Where the time went: the widths of the bars by the marks 0 and 100 below them.
time = charts["Where the time went, run"]
mark = {t["text"]: middle(t) for t in time["texts"]}
percent = (mark["100"] - mark["0"]) / 100
bars = {r["text"].rsplit(" ", 2)[0]: r for r in time["rects"] if ": " in r["text"]}
by_bar = {}
for rank in range(RANKS):
    for name, lines in (("waiting for communication", wait), ("waiting for data", data)):
        bar = bars[f"rank {rank}: {name}"]
        by_bar[name] = by_bar.get(name, 0) + (bar["right"] - bar["x"]) / percent / RANKS
        near(f"bar of rank {rank}, {name}", (bar["right"] - bar["x"]) / percent,
             share(lines, rank), ROUNDING / percent)
        near(f"pointer's text of rank {rank}, {name}", float(bar["text"].rsplit(" ", 2)[1]),
             share(lines, rank), 0.051)

# The table and the sentences say what the bars show.
cells, columns = drawn["cells"], 11
row = dict(zip(cells[:columns], cells[columns:2 * columns]))
near("the table's waiting for data", float(row["waits for data"].split()[0]),
     by_bar["waiting for data"], 0.051 + ROUNDING / percent)
said = float(re.search(r"([0-9.]+) % of the time went into waiting for comm", drawn["text"])[1])
near("the sentence on waiting", said, by_bar["waiting for communication"],
     0.051 + ROUNDING / percent)
near("the table's rate", float(row["samples/s"]), 4 / sum(1 / r for r in rates[1:]), 0.051)
near("the table's last loss", float(row["last loss"]), losses[-1], 5.1e-5)

# Points by the lines of the grid, whose numbers stand to their left.
for title, values in (("Loss", losses), ("Throughput", rates)):
    chart = charts[title]
    marks = []
    for line in chart["lines"]:
        height = (line["y"] + line["bottom"]) / 2
        beside = min((t for t in chart["texts"] if t["right"] <= line["x"] and
                      re.fullmatch(r"-?[0-9.e+-]+", t["text"])),
                     key=lambda t: abs((t["y"] + t["bottom"]) / 2 - height))
        marks.append((height, float(beside["text"])))
    (low_y, low), (high_y, high) = max(marks), min(marks)
    if len(chart["circles"]) != len(values):
        failures.append(f"{title}: {len(chart['circles'])} points of {len(values)}")
    for dot, value in zip(chart["circles"], values):
        height = (dot["y"] + dot["bottom"]) / 2
        near(f"a point of {title}", low + (low_y - height) / (low_y - high_y) * (high - low), value,
             ROUNDING / (low_y - high_y) * (high - low))

for title, chart in charts.items():  # no text leaves its chart
    for text in chart["texts"]:
        frame = chart["frame"]
        if not (frame["x"] <= text["x"] and text["right"] <= frame["right"] and
                frame["y"] <= text["y"] and text["bottom"] <= frame["bottom"]):
            failures.append(f'"{text["text"]}" leaves the chart "{title}"')

print("\n".join("FAILED: " + each for each in failures) or
      f"{len(charts)} charts are drawn as the log says")
sys.exit(bool(failures))
