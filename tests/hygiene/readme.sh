#!/bin/bash
# Every whole program in a README, or in the pages of a folder, compiles, runs without complaint and
# says something:
#   readme.sh README.md|FOLDER all|short PARXRUN LIBRARIES COMPILER [FLAG...]
# short: of a folder only the pages that a newcomer reads first.
# LIBRARIES is the folder of parx's libraries. A whole program is a block of ```cpp with a main in
# it. One that begins with "// name.cpp" runs by each line "parxrun -n N ./name ARGUMENTS" that stands
# in a block, of any of the pages; others run on two ranks. The files that they read are made up here.
# The repository's own README has at most 130 lines, that of the examples 120, a page of a folder 150,
# all of 100 columns.
set -eu
text=$1 form=$2 parxrun=$3 libraries=$4; shift 4
limit() {  # LINES FILE...
  awk -v most="$1" '
    { length_of[FILENAME] = FNR; characters = $0; gsub(/[\200-\277]/, "", characters) }
    length(characters) > 100 { print FILENAME ":" FNR ": more than 100 columns"; wrong = 1 }
    END {
      for (name in length_of) if (length_of[name] > most) {
        print name " has " length_of[name] " lines, more than " most; wrong = 1
      }
      exit wrong
    }' "${@:2}"
}
if [ -d "$text" ]; then
  pages=("$text"/*.md)
  LC_ALL=C limit 150 "${pages[@]}"
  LC_ALL=C limit 120 "$text/../README.md"
else
  pages=("$text")
  LC_ALL=C limit 130 "$text"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v work="$work" -v form="$form" '
  FNR == 1 { skip = form == "short" && FILENAME !~ /(README|start|train|your_own)[.]md$/ }
  skip { next }
  /^```/ && !inside { inside = 1; is_program = /^```cpp/; text = ""; next }
  /^```/ {
    if (is_program && text ~ /int main/) {
      name = sprintf("program_%02d", ++count)
      if (match(text, /^\/\/ [a-z_0-9]+\.cpp/)) name = substr(text, 4, RLENGTH - 7)
      file = work "/" name ".cpp"; printf "%s", text > file; close(file)
    }
    inside = 0; next
  }
  inside && /^parxrun -n [0-9]+ \.\/[a-z_0-9]+/ { sub(/ *#.*/, ""); print > (work "/commands") }
  inside { text = text $0 "\n" }' "${pages[@]}"

data_sets() {
  echo sepal_length,sepal_width,petal_length,petal_width,species >flowers.csv
  for ((i = 0; i < 120; ++i)); do
    echo "$((i % 3 + 4)).$((i % 10)),3.$((i % 7)),$((i % 3 * 2 + 1)).$((i % 5)),0.$((i % 3 * 8 + 1)),$((i % 3))"
  done >flowers.csv.rows
  cat flowers.csv.rows >>flowers.csv
}

programs=$(find "$work" -name '*.cpp' | sort)
[ -n "$programs" ] || { echo "$text: no whole program"; exit 1; }
for name in $(sed -nE 's|^parxrun -n [0-9]+ \./([a-z_0-9]+).*|\1|p' "$work/commands" 2>/dev/null); do
  [ -e "$work/$name.cpp" ] || { echo "$text: a line runs ./$name, and no program begins with // $name.cpp"; exit 1; }
done
start=$SECONDS
for program in $programs; do  # compiling is most of the time: one on each core
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  "$@" -std=c++20 -DPARX_SEPARATE_COMPILATION -DPARX_COMPILED_MODELS -o "${program%.cpp}" "$program" \
    "-L$libraries" -lparx_models -lparx -lparx_ddp -lparx_comm -lfmt -lz -pthread \
    >"${program%.cpp}.log" 2>&1 &
done
wait
echo "compiled in $((SECONDS - start)) s"
for program in $programs; do
  start=$SECONDS binary=${program%.cpp}
  cat "$binary.log"
  [ -x "$binary" ] || { echo "does not compile:"; cat "$program"; exit 1; }
  mkdir "$binary.runs"
  cd "$binary.runs"
  data_sets
  ln -s "$binary" .
  name=${binary##*/}
  commands=$(grep -E "^parxrun -n [0-9]+ \./$name( |\$)" "$work/commands" 2>/dev/null | sort -u || true)
  while read -r _ _ ranks _ arguments; do
    # shellcheck disable=SC2086  # several words
    if ! OMP_NUM_THREADS=1 timeout 120 "$parxrun" -n "$ranks" "./$name" $arguments >said 2>&1 </dev/null ||
      grep -qE 'warning:|error:|\bnan\b' said; then
      echo "does not run as it should on $ranks ranks: $arguments"; cat "$program" said; exit 1
    fi
    [ -s said ] || { echo "says nothing:"; cat "$program"; exit 1; }  # a newcomer looks for something
    echo "$name on $ranks ranks${arguments:+, $arguments}: $(tail -n 1 said)"
    rm -rf out
  done <<<"${commands:-parxrun -n 2 ./$name}"
  echo "$name: ran in $((SECONDS - start)) s"
done
echo "$(echo "$programs" | wc -l) programs of $text compile and run"
