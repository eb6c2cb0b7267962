# Tables of parx against its peers, from the JSON rows of compare.sh (files NAME.WORLD.ROUND.json).
#
# A cell is the median over rounds of a round's median batch in microseconds, [smallest..largest round], and
# the algorithm where a contender was measured with several: its fastest at that size. In place, unless one of
# the contenders has the operation out of place only: then all are compared out of place.
#
# A ratio is parx to the fastest peer of the same kind at that size, which is named; below 1 parx is faster.
# After it, [smallest..largest] ratio of the two in the same round: if that interval contains 1, the rounds disagree
# and neither is faster. Under each table: the geometric mean of its ratios, and every size at which parx lost.
#
#   -v contenders="NAME:KIND:ROLE ..."   KIND tcp or default, ROLE parx or peer
#   -v points=FILE                       receives "op <tab> ranks <tab> name <tab> bytes <tab> GB/s"

function text_of(line, key) {
  if (!match(line, "\"" key "\":\"[^\"]*\"")) return ""
  return substr(line, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function number_of(line, key) {
  if (!match(line, "\"" key "\":[-0-9.e+]+")) return 0
  return substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function object_of(line, key) {
  if (!match(line, "\"" key "\":\\{[^}]*\\}")) return ""
  return substr(line, RSTART, RLENGTH)
}

function keep(where, column,   key) {
  if (column == "") return
  key = table SUBSEP size SUBSEP name SUBSEP where SUBSEP algorithm
  time[key, round] = number_of(column, "median_us")
  measured[table, name, where] = 1
  if (!((name, table, algorithm) in known)) {
    known[name, table, algorithm] = 1
    algorithms[name, table] = algorithms[name, table] " " algorithm
  }
  if (number_of(column, "algbw") > 0) factor[table] = number_of(column, "busbw") / number_of(column, "algbw")
}

FNR == 1 {
  parts = split(FILENAME, path, "/")
  split(path[parts], part, ".")
  name = part[1]
  round = part[3]
  if (round > rounds) rounds = round
}
/^\{/ {
  table = text_of($0, "op") " " number_of($0, "ranks")
  size = number_of($0, "size")
  algorithm = text_of($0, "algorithm")
  if (!(table in sizes)) tables[++table_count] = table
  if (!((table, size) in seen)) { seen[table, size] = 1; sizes[table] = sizes[table] " " size }
  keep("out", object_of($0, "out_of_place"))
  keep("in", object_of($0, "in_place"))
}

# Fills middle, low and high from the rounds of one algorithm of one cell; false where there are none.
function collect(key,   i, j, n, x, sorted) {
  n = 0
  for (i = 1; i <= rounds; ++i) {
    if (!((key, i) in time)) continue
    x = time[key, i]
    for (j = n++; j > 0 && sorted[j] > x; --j) sorted[j + 1] = sorted[j]
    sorted[j + 1] = x
  }
  if (n == 0) return 0
  middle = n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
  low = sorted[1]
  high = sorted[n]
  return 1
}
# The fastest algorithm of one cell: sets best, best_key and what is printed; false where there is no row.
function fastest(table, size, name, where,   i, n, list, key) {
  best = -1
  n = split(algorithms[name, table], list, " ")
  for (i = 1; i <= n; ++i) {
    key = table SUBSEP size SUBSEP name SUBSEP where SUBSEP list[i]
    if (!collect(key) || (best >= 0 && middle >= best)) continue
    best = middle
    best_key = key
    cell = short(middle) " [" short(low) ".." short(high) "]" (n > 1 ? " " list[i] : "")
  }
  return best >= 0
}
function short(x) { return x < 100 ? sprintf("%.1f", x) : sprintf("%.0f", x) }
function size_text(b) {
  if (b >= 1048576 && b % 1048576 == 0) return b / 1048576 " MiB"
  if (b >= 1024 && b % 1024 == 0) return b / 1024 " KiB"
  return b " B"
}

function in_table(kind, i, table) {
  return kind_of[i] == kind && ((table, name_of[i], "in") in measured || (table, name_of[i], "out") in measured)
}
function placement_of(table, kind,   i) {
  for (i = 1; i <= n; ++i) {
    if (in_table(kind, i, table) && !((table, name_of[i], "in") in measured)) return "out"
  }
  return "in"
}

function print_ratio(variant, name, key, mine, peer, rival_key, rival,   i, ratio, least, most, one) {
  ratio = mine / rival
  least = most = 0
  for (i = 1; i <= rounds; ++i) {
    if (!((key, i) in time) || !((rival_key, i) in time)) continue
    one = time[key, i] / time[rival_key, i]
    if (least == 0 || one < least) least = one
    if (one > most) most = one
  }
  ratios[variant]++
  logs[variant] += log(ratio)
  if (ratio > 1) {
    one = sprintf("%s %.2f to %s", size_text(current_size), ratio, peer)
    if (least <= 1) one = "(" one ", rounds disagree)"
    losses[variant] = losses[variant] (losses[variant] == "" ? "" : ", ") one
  }
  return sprintf("  %-38s", sprintf("%.2f [%.2f..%.2f] %s", ratio, least, most, peer))
}

function print_table(table, kind,   i, j, k, where, words, list, count, line, rival, rival_name, rival_key, peers,
                     variants, variant, own, own_key) {
  variants = peers = 0
  for (i = 1; i <= n; ++i) {
    if (!in_table(kind, i, table)) continue
    if (role_of[i] == "parx") ++variants; else ++peers
  }
  if (variants + peers == 0) return
  where = placement_of(table, kind)
  split(table, words, " ")
  printf "\n%s, %d ranks, %s, %s: median us [rounds]; ratio parx/fastest peer [rounds]\n%-9s", words[1], words[2],
         kind == "tcp" ? "TCP only" : "as they come", where == "in" ? "in place" : "out of place", "size"
  for (i = 1; i <= n; ++i) if (in_table(kind, i, table)) printf "  %-36s", name_of[i]
  if (peers) for (i = 1; i <= n; ++i) {
    if (in_table(kind, i, table) && role_of[i] == "parx") printf "  %-38s", "ratio " name_of[i]
  }
  print ""
  count = split(sizes[table], list, " ")
  for (i = 1; i <= n; ++i) { ratios[i] = 0; logs[i] = 0; losses[i] = "" }
  for (j = 1; j <= count; ++j) {
    current_size = list[j]
    line = sprintf("%-9s", size_text(current_size))
    rival = -1
    for (i = 1; i <= n; ++i) {
      if (!in_table(kind, i, table)) continue
      if (!fastest(table, current_size, name_of[i], where)) { own[i] = -1; line = line sprintf("  %-36s", "-"); continue }
      own[i] = best
      own_key[i] = best_key
      line = line sprintf("  %-36s", cell)
      if (best > 0 && factor[table] > 0) {
        printf "%s\t%s\t%s\t%s\t%.6g\n", words[1], words[2], name_of[i], current_size,
               current_size / best * 1e-3 * factor[table] > points
      }
      if (role_of[i] != "peer" || (rival >= 0 && best >= rival)) continue
      rival = best
      rival_name = name_of[i]
      rival_key = best_key
    }
    for (i = 1; i <= n; ++i) {
      if (rival <= 0 || !in_table(kind, i, table) || role_of[i] != "parx" || own[i] <= 0) continue
      line = line print_ratio(i, name_of[i], own_key[i], own[i], rival_name, rival_key, rival)
    }
    sub(/ +$/, "", line)
    print line
  }
  for (i = 1; i <= n; ++i) {
    if (ratios[i] == 0) continue
    printf "%s: geometric mean of the ratios %.2f (%d sizes); losses: %s\n", name_of[i], exp(logs[i] / ratios[i]), ratios[i],
           losses[i] == "" ? "none" : losses[i]
  }
}

END {
  n = split(contenders, each, " ")
  for (i = 1; i <= n; ++i) {
    split(each[i], part, ":")
    name_of[i] = part[1]
    kind_of[i] = part[2]
    role_of[i] = part[3]
  }
  for (t = 1; t <= table_count; ++t) {
    print_table(tables[t], "tcp")
    print_table(tables[t], "default")
  }
}
