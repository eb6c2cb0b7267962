#!/bin/bash
# What train_trees promises: one model at any number of ranks, after a resume and a lost rank, and a
# sentence for each mistake:   train_trees.sh BIN_DIR
# Real data come from PARX_TEST_DATA; without it that part is skipped, and said.
set -u
bin=$(cd "$1" && pwd) || exit 1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1
failures=0

failed() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/    /' said
}
says() { grep -qF -- "$1" said || failed "no line \"$1\""; }
# ends CODE RANKS ARGUMENT...: what the program says goes to the file `said`.
ends() {
  local expected=$1 ranks=$2 code=0; shift 2
  timeout 60 "$bin/parxrun" -n "$ranks" "$bin/train_trees" "$@" >said 2>&1 || code=$?
  [ "$code" = "$expected" ] || failed "train_trees $*: exit code $code, not $expected"
}
same() { cmp -s "$1" "$2" || failed "$1 and $2 differ"; }

# A number, a text and a column with gaps; the label follows from them, but for some rows.
awk 'BEGIN {
  print "size,job,age,bought"
  for (i = 0; i < 1500; ++i) {
    a = (i * 7919) % 1009; b = (i * 104729) % 7; c = (i * 31) % 97
    y = (a > 500) != (b < 3) || c > 80
    printf "%.3f,%s,%s,%s\n", a / 17, substr("abcdefg", b + 1, 1) "-smith", c % 5 == 0 ? "" : c,
      (i % 23 == 0 ? !y : y) ? "yes" : "no"
  }
}' >train.csv
table=(--data train.csv --label bought --classes no,yes --categorical job --eval-metric auc,logloss
       --objective binary:logistic --max-depth 4 --subsample 0.8 --colsample-bynode 0.7)

ends 0 1 "${table[@]}" --num-round 12 --test-data train.csv --save one.json --importance gain
says '3 columns; rank 0 has 1500 rows to train on'
says 'saved to one.json'
says 'size'
awk '/^test/ { sub(/.*auc:/, ""); exit !($1 > 0.9) }' said || failed 'the model has learned little'
ends 0 3 "${table[@]}" --num-round 12 --save three.json --predictions three.txt --test-data train.csv
same one.json three.json
[ "$(wc -l <three.txt)" = 1500 ] || failed 'not a prediction a row'
gzip -k train.csv
mkdir parts && head -n 701 train.csv >parts/a.csv && { head -n 1 train.csv; tail -n +702 train.csv; } >parts/b.csv
ends 0 2 "${table[@]}" --num-round 12 --save zipped.json --data train.csv.gz
ends 0 3 "${table[@]}" --num-round 12 --save dealt.json --data parts
same one.json zipped.json
same one.json dealt.json
OMP_NUM_THREADS=2 ends 0 2 "${table[@]}" --num-round 5 --save threads.json --save-period 2
OMP_NUM_THREADS=1 ends 0 2 "${table[@]}" --num-round 12 --save threads.json --resume --eval-data train.csv
says '[5]'
same one.json threads.json
ends 0 2 "${table[@]}" --num-round 40 --eval-data train.csv --early-stopping-rounds 2 --eta 1 --verbose-eval 0
says 'rounds in'
ends 0 2 "${table[@]}" --num-round 2 --tree-learner voting --top-k 1 --explain --save voting.json
says 'votes       15 nodes x 1 x 4 B x 2 x 1 = 120 B'
says 'voting sends no less than data: 4 x top_k = 4, and 3 columns'

# A rank that is killed: the other goes on, and ends in the same bytes.
ends 0 1 "${table[@]}" --num-round 300 --verbose-eval 0 --save long.json
timeout 60 "$bin/parxrun" -n 2 --on-loss continue "$bin/train_trees" "${table[@]}" --num-round 300 \
  --eval-data train.csv --save killed.json --on-loss shrink >said 2>&1 &
launcher=$!
until grep -q '\[20\]' said || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
for rank in $(pgrep -x train_trees); do  # those of this run
  [ "$(readlink "/proc/$rank/cwd")" = "$work" ] && victim=$rank
done
kill -9 "$victim" || failed 'there was no rank to kill'
wait $launcher || failed "the run whose rank was killed ended with $?"
says 'going on with 1 ranks'
same long.json killed.json

ends 2 1
says '--data: give the file to train on'
ends 2 1 --data train.csv --objective reg:gamma
says '--objective "reg:gamma": give reg:squarederror or'
ends 2 1 --data train.csv --max-depth 99
says 'max_depth = 99'
ends 2 1 --data train.csv --max_dept 3
says 'there is no flag --max-dept: did you mean --max-depth?'
ends 2 1 --data train.csv --eval-metric aucpr
says '"aucpr" is none of the metrics'
ends 2 2 --data train.csv --label price --save bad.json
says '"train.csv" has no column "price"'
ends 1 2 --data train.csv --label bought --classes no,yes --save bad.json
says '"train.csv", line 2, column 2 (job): "a-smith" is not a finite number'
ends 1 2 --data train.csv --label size --ignore job,bought --objective binary:logistic --save bad.json
says '"train.csv", row 2: the label is'
ends 1 2 --data nowhere.csv --save bad.json
says 'cannot open "nowhere.csv"'
echo 'size,job,age' >empty.csv
ends 1 3 --data empty.csv --save bad.json
says '"empty.csv" has no rows'
[ ! -e bad.json ] || failed 'a run that failed left a model'

real=${PARX_TEST_DATA:-/nowhere}/higgs_7k
if [ -d "$real" ]; then
  higgs=(--data "$real/binary.train.gz" --test-data "$real/binary.test.gz" --objective binary:logistic
         --eta 0.1 --num-round 20 --eval-metric auc)
  ends 0 1 "${higgs[@]}" --save one.json
  ends 0 3 "${higgs[@]}" --save three.json
  same one.json three.json
  awk '/^test/ { sub(/.*auc:/, ""); exit !($1 > 0.79) }' said || failed 'HIGGS: auc'
else
  echo 'SKIPPED: HIGGS; set PARX_TEST_DATA to a folder that holds higgs_7k/'
fi
for python in "${PARX_TEST_PYTHON:-python3}" /usr/bin/python3 ''; do
  [ -z "$python" ] || "$python" -c 'import xgboost' 2>/dev/null || continue
  break
done
if [ -n "$python" ]; then
  "$python" "$here/xgboost_models.py" "$bin" >said 2>&1 || failed 'models through XGBoost'
  tail -n 1 said
else
  echo 'SKIPPED: models through XGBoost; apt-get install python3-xgboost'
fi
[ "$failures" = 0 ] && echo 'train_trees keeps what it promises'
