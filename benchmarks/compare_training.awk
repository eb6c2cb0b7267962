# Tables of compare_training.sh from its JSON lines.
function field(name,   found) {
  if (!match($0, "\"" name "\": [^,}]*")) return ""
  found = substr($0, RSTART, RLENGTH)
  sub(/^[^:]*: /, "", found)
  gsub(/"/, "", found)
  return found
}
function sorted(list, into,   count, i, j, kept) {
  count = split(list, into, " ")
  for (i = 2; i <= count; i++) {
    kept = into[i] + 0
    for (j = i - 1; j >= 1 && into[j] + 0 > kept; j--) into[j + 1] = into[j]
    into[j + 1] = kept
  }
  return count
}
function median(list,   values, count) {
  count = sorted(list, values)
  return count == 0 ? 0 : count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}
function spread(list,   values, count) {
  count = sorted(list, values)
  return count == 0 ? "-" : sprintf("%.0f..%.0f", values[1], values[count])
}
function shown(value) { return value > 0 ? sprintf("%.0f", value) : "-" }
function ratio(a, b) { return a > 0 && b > 0 ? sprintf("%.2f", a / b) : "-" }
{
  key = field("model") " " field("world")
  if (!(key in known)) { known[key]; order[++keys] = key }
  who = field("contender")
  rate[key, who] = rate[key, who] " " field("samples_per_s")
  peak[key, who] = peak[key, who] " " field("peak_mib")
}
END {
  line = "%-5s %5s %9s %15s %9s %11s %7s %9s %10s %7s\n"
  printf line, "model", "ranks", "parx", "(rounds)", "PyTorch", "bucket view", "ratio", "parx MiB", "torch MiB", "ratio"
  for (i = 1; i <= keys; i++) {
    key = order[i]
    split(key, part, " ")
    ours = median(rate[key, "parx"]); plain = median(rate[key, "torch"]); view = median(rate[key, "torch-view"])
    best = view > plain ? view : plain
    memory = median(peak[key, "torch"]); mine = median(peak[key, "parx"])
    printf line, part[1], part[2], shown(ours), spread(rate[key, "parx"]), shown(plain), shown(view), ratio(ours, best), shown(mine), shown(memory), ratio(mine, memory)
  }
  for (i = 1; i <= keys; i++) {
    key = order[i]
    split(key, part, " ")
    if (part[2] == 1) {
      bare = median(rate[key, "bare"]); ours = median(rate[key, "parx"])
      if (bare > 0 && ours > 0) printf "%s: the ddp wrapper costs %.1f %% in a world of one\n", part[1], 100 * (bare / ours - 1)
    } else {
      one = median(rate[part[1] " 1", "pinned"])
      if (one > 0) printf "%s: %d ranks reach %.2f of %d times one rank on one core\n", part[1], part[2], median(rate[key, "parx"]) / (part[2] * one), part[2]
    }
  }
}
