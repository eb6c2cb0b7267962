#!/bin/bash
# What one chapter shows to others and to users:   surface.sh INCLUDE_DIR
#
# 1. A header whose names are public may have a `namespace detail` for its own chapter. Another
#    chapter that includes the header uses none of these names: what two chapters need is public in
#    the lower one, with a name and a comment, or has a header of its own.
# 2. A public function takes no bool: f(true) says nothing at the call. An enum, a field of the
#    options, or two functions do. `bools` lists, as "header function", those that stay, such as
#    predicates over bits and setters of what is a bool.
# 3. No line of a README or of a page of the guide is wider than 100 columns.
# Entries of the list that are no longer needed are refused, too.
set -u
cd "$1" || exit 1
bools='
parx/comm/collectives/all_reduce.hpp on_any_rank
parx/comm/schedule/staged.hpp staged_all_reduce
parx/core/check.hpp require
parx/core/job_key.hpp job_key
parx/optim/over_ranks.hpp on_any_rank_of
parx/train/run_plan.hpp is_due
parx/transport/shm.hpp ready
parx/transport/striped.hpp before_sleep
parx/transport/striped.hpp ready
parx/transport/tcp.hpp before_sleep
parx/transport/ucx/link.hpp before_sleep
parx/transport/tcp.hpp ready
parx/types/half.hpp mask_of
'
found=$(
  find parx -name '*.hpp' -print0 | sort -z | LC_ALL=C xargs -0 awk '
    function chapter(path) { sub(/^parx\//, "", path); sub(/[\/.].*/, "", path); return path }
    function ends_with(text, end) { return substr(text, length(text) - length(end) + 1) == end }
    FNR == 1 { mode = ""; depth = 0; outer = 0; is_open = 1; statement = "" }
    { line = $0; gsub(/"([^"\\]|\\.)*"/, "\"\"", line) }
    /^#include <parx\// { split(line, part, /[<>]/); includes[FILENAME] = includes[FILENAME] " " part[2]; next }
    { sub(/\/\/.*/, "", line) }
    /^#/ { next }
    # Names that a public header declares in its `namespace detail`.
    mode == "" && line ~ /^namespace detail \{/ { mode = "nested"; depth = 1; next }
    mode == "" && line ~ /^namespace parx::inline PARX_ABI(::[a-z_]+)*::detail(::[a-z_]+)* \{/ { mode = "whole"; depth = 1 }
    {
      if (mode == "nested") {
        if (depth == 1 && line ~ /^[a-zA-Z\[]/ && FILENAME !~ /\/detail\//) {
          name = line
          sub(/^template <.*> */, "", name); sub(/^requires .*/, "", name)
          if (match(name, /^(struct|class|enum class|concept|using|union) +[a-z_0-9]+/)) {
            name = substr(name, 1, RLENGTH); sub(/.* /, "", name)
          } else if (match(name, /[a-z_0-9]+ *[(=;{]/)) {
            name = substr(name, RSTART, RLENGTH); sub(/ *[(=;{]$/, "", name)
          } else name = ""
          if (name ~ /_/ || (length(name) > 6 && name != "decltype")) {
            declared[FILENAME] = declared[FILENAME] " " name; own[chapter(FILENAME), name]
          }
        }
      }
      used = line
      while (match(used, /[A-Za-z_][A-Za-z_0-9]*/)) {
        word = substr(used, RSTART, RLENGTH); used = substr(used, RSTART + RLENGTH)
        words[FILENAME, word]
      }
      # Public functions: outside of detail, and not in a private part of a class.
      if (line ~ /^ *(private|protected):/) is_open = 0
      if (line ~ /^ *public:/ || line ~ /^(class|struct|template|namespace|inline|\[\[|\})/) is_open = 1
      if (line ~ /^ *class [a-z_]+/) is_open = 0
      if (mode == "" && FILENAME !~ /\/(detail|gemm)\// && is_open) {
        statement = statement " " line
        if (line ~ /[;{}]$/ || line ~ /^ *$/ || line ~ /:$/) {
          if (statement ~ /[(,] *(const )?bool( [a-z_]+)?( = (true|false))?[,)]/ &&
              statement !~ /\]\(|^ *(if|while|for|return|require)|operator\(\)|= \[/) {
            name = statement
            sub(/[(,] *(const )?bool( [a-z_]+)?( = (true|false))?[,)].*/, "", name)
            sub(/\(.*/, "", name); sub(/.*[ :~*&]/, "", name)
            if (name ~ /^[a-z_0-9]+$/) print "bool " FILENAME " " name
          }
          statement = ""
        }
      } else statement = ""
      if (mode != "") {
        opened = gsub(/\{/, "{", line); closed = gsub(/\}/, "}", line)
        depth += opened - closed
        if (mode == "whole" && FNR && line ~ /^namespace parx::inline/) depth -= opened
        if (depth <= 0) mode = ""
      }
    }
    END {
      for (path in includes) {
        here = chapter(path)
        all = includes[path]
        declares = path; sub(/\/detail\//, "/", declares); sub(/_impl\.hpp$/, ".hpp", declares)
        if (declares != path) all = all includes[declares]
        count = split(all, list, " ")
        for (i = 1; i <= count; i++) {
          if (chapter(list[i]) == here || !(list[i] in declared)) continue
          names = split(declared[list[i]], name_list, " ")
          for (k = 1; k <= names; k++) {
            if ((path, name_list[k]) in words && !((here, name_list[k]) in own)) print "foreign " here " " list[i] " " name_list[k]
          }
        }
      }
    }' | LC_ALL=C sort -u
)
wrong=$(
  sed -n 's/^foreign \([^ ]*\) \([^ ]*\) \(.*\)/\2: \3 is private to its chapter, and \1 uses it/p' \
    <<<"$found"
  diff <(sed -n 's/^bool //p' <<<"$found") <(sed '/^$/d' <<<"$bools" | LC_ALL=C sort) |
    sed -n -e 's/^< \([^ ]*\) \(.*\)/\1: \2() takes a bool; take an enum or options/p' \
      -e 's/^> \(.*\)/"\1" of the list of bools is no longer needed/p'
  cd .. && [ -f README.md ] || exit 0
  find . -name '*.md' -not -path './build*' -print0 | LC_ALL=C xargs -0 awk '
    { characters = $0; gsub(/[\200-\277]/, "", characters) }
    length(characters) > 100 { print FILENAME ":" FNR ": " length(characters) " columns; keep to 100" }'
)
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
echo "chapters keep what is private, and public functions take no new bool"
