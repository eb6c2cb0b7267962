#!/bin/bash
# Every whole program in a README compiles, runs on two ranks without complaint and says something:
#   readme.sh README.md PARXRUN LIBRARIES COMPILER [FLAG...]
# LIBRARIES is the folder of parx's compiled form. A whole program is a block of ```cpp with a main in
# it. The files that they read are made up here. The repository's own README has at most 180 lines of 100
# columns.
set -eu
readme=$1 parxrun=$2 libraries=$3; shift 3
case $readme in
  */examples/*) ;;
  *) awk -v name="$readme" 'length($0) > 100 { print name ":" NR ": more than 100 columns"; wrong = 1 }
      END { if (NR > 180) { print name " has " NR " lines, more than 180"; wrong = 1 } exit wrong }' "$readme" ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v work="$work/program" '
  /^```cpp/ { inside = 1; text = ""; next }
  /^```/ { if (inside && text ~ /int main/) { name = sprintf("%s_%02d.cpp", work, ++count); print text > name; close(name) } inside = 0; next }
  inside { text = text $0 "\n" }' "$readme"

data_sets() {
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' rain stocks match robot . >vocab.txt
  for ((i = 0; i < 8; ++i)); do
    printf '"%s","%s","%s"\n' 1 Rain 'Rain.' 2 Match 'A match.' 3 Stocks 'Stocks.' 4 Robot 'A robot.'
  done >train.csv
  echo sepal_length,sepal_width,petal_length,petal_width,species >flowers.csv
  for ((i = 0; i < 120; ++i)); do
    echo "$((i % 3 + 4)).$((i % 10)),3.$((i % 7)),$((i % 3 * 2 + 1)).$((i % 5)),0.$((i % 3 * 8 + 1)),$((i % 3))"
  done >flowers.csv.rows
  cat flowers.csv.rows >>flowers.csv
}

programs=$(find "$work" -name '*.cpp' | sort)
[ -n "$programs" ] || { echo "$readme: no whole program"; exit 1; }
for program in $programs; do
  start=$SECONDS
  "$@" -std=c++20 -DPARX_SEPARATE_COMPILATION -o "${program%.cpp}" "$program" "-L$libraries" \
    -lparx_compiled -lparx_comm_compiled -lfmt -lz -pthread || { echo "does not compile:"; cat "$program"; exit 1; }
  compiled=$((SECONDS - start))
  mkdir "${program%.cpp}.runs"
  cd "${program%.cpp}.runs"
  data_sets
  if ! OMP_NUM_THREADS=1 timeout 120 "$parxrun" -n 2 "${program%.cpp}" >said 2>&1 || grep -qE 'warning:|error:|nan' said; then
    echo "does not run as it should:"; cat "$program" said; exit 1
  fi
  [ -s said ] || { echo "says nothing:"; cat "$program"; exit 1; }  # a newcomer looks for something
  echo "${program##*/}: compiled in $compiled s, ran in $((SECONDS - start - compiled)) s: $(tail -n 1 said)"
done
echo "$(echo "$programs" | wc -l) programs of $readme compile and run"
