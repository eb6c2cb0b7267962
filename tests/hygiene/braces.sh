#!/bin/bash
# What the user has given is read before an initializer begins, not inside it, in programs and in
# the C++ of Markdown pages:   braces.sh FILE_OR_FOLDER...
#
#   settings s{.batch = number(given, "batch", 1, 99)};     // refused
#   const auto batch = number(given, "batch", 1, 99);
#   settings s{.batch = batch};
#
# When an initializer of an aggregate throws, g++ 12 destroys the members before it that are
# aggregates themselves twice: a wrong number of the user ends with "double free" in place of the
# sentence that names the flag. A call that may refuse what it is given takes it as `given`, or by
# the name of a flag, or is one of std::stoi's family. given["x"].as<...>(), text("x") and
# list(given, "x") refuse nothing.
set -u
found=$(find "$@" \( -name '*.hpp' -o -name '*.cpp' -o -name '*.md' \) -print0 | sort -z | LC_ALL=C xargs -0 awk '
  FNR == 1 { depth = inside = 0; in_code = FILENAME !~ /\.md$/ }
  FILENAME ~ /\.md$/ && /^ *```/ { in_code = /```cpp/; depth = inside = 0; next }
  in_code {
    line = $0
    quoted = 0
    gsub(/\\./, "__", line)
    gsub(/\047.\047/, "_", line)
    sub(/\/\/.*/, "", line)
    for (i = 1; i <= length(line); ++i) {
      c = substr(line, i, 1)
      if (c == "\"") { quoted = !quoted }
      if (quoted) continue
      if (c == "{") {
        ++depth
        opened = 1
      } else if (c == "}") {
        if (inside == depth) inside = 0
        --depth
        opened = 0
      } else if (opened && c !~ /[ \t]/) {
        # The first designator of an initializer.
        if (c == "." && inside == 0) inside = depth
        opened = 0
      }
      if (c == "(" && inside > 0) {
        call = substr(line, 1, i - 1)
        rest = substr(line, i + 1)
        sub(/<[^<>()]*>$/, "", call)
        if (!match(call, /[a-zA-Z_0-9:]+$/)) continue
        name = substr(call, RSTART)
        if (substr(call, RSTART - 1, 1) == ".") continue
        if (rest ~ /^(given[^a-zA-Z_0-9]|"[a-z][a-z-]*"[,)])/ && name !~ /(^|::)(text|list)$/)
          printf "%s:%d: %s(%s\n", FILENAME, FNR, name, rest
        else if (name ~ /(^|::)sto(i|l|ll|ul|ull|f|d|ld)$/)
          printf "%s:%d: %s(%s\n", FILENAME, FNR, name, rest
      }
    }
  }')
if [ -n "$found" ]; then
  echo "$found"
  echo "read these before the braces: when they throw inside, g++ 12 destroys members twice"
  exit 1
fi
echo "no initializer of $* reads what the user has given"
