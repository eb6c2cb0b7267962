#!/bin/bash
# The walks of examples/slurm/ in a private Slurm: each command of their right columns, with a few steps in
# place of epochs:   walks.sh BIN_DIR
# Real data come from PARX_TEST_DATA; what needs data or a program that is not there is skipped, and said.
# Exit code 77: there is no Slurm to try it with.
. "$(dirname "${BASH_SOURCE[0]}")/claims.sh" "$1"
export PATH=$bin:$PATH DATA=$work/data XSUM=$work/pairs.jsonl
pages=$here/../../examples/slurm
real=${PARX_TEST_DATA:-/nowhere}
if [ -d "$real/ag_news" ] && [ -d "$real/bert" ]; then
  mkdir -p data/ag_news && ln -s "$real/bert" data/bert
  # A part of the texts, because CI's machines are small.
  zcat "$real"/ag_news/train*.csv.gz | head -n 2000 >data/ag_news/train.csv
  zcat "$real"/ag_news/test*.csv.gz | head -n 200 >data/ag_news/test.csv
else
  echo "SKIPPED: AG News; set PARX_TEST_DATA to a folder that holds ag_news/ and bert/"
fi
if [ -d "$real/xsum_1000" ]; then
  zcat "$real"/xsum_1000/test.jsonl.gz | head -n 40 >"$XSUM"
else
  echo "SKIPPED: XSum; set PARX_TEST_DATA to a folder that holds xsum_1000/"
fi

# commands PAGE FILE: writes the blocks of the right column as FILE.1, FILE.2, ...
commands() {
  awk -v file="$2" '
    /<\/td><td>/ { right = 1 } /<\/td><\/tr>/ { right = 0 }
    right && /^```/ { inside = !inside; if (inside) out = file "." ++count; next }
    right && inside { print > out }' "$pages/$1"
  sed -i -E 's/--epochs [0-9]+/--max-steps 8 --logging-steps 2 --eval-strategy no --disable-progress/
             s/sbatch --parsable/sbatch --wait --parsable/
             s/train_summarizer/train_summarizer --d-model 32 --beams 1 --max-target-length 8/' "$2".*
}
# What a block needs that is not there.
lacks() {
  grep -q '\$DATA' "$1" && [ ! -e "$DATA" ] && { echo "AG News"; return; }
  grep -q '\$XSUM' "$1" && [ ! -e "$XSUM" ] && { echo "XSum"; return; }
  local name
  for name in train_tinybert train_summarizer; do
    grep -q "$name" "$1" && [ ! -x "$bin/$name" ] && { echo "$name"; return; }
  done
  # `logs $job` and the like need the block before.
  [ ! -e skipped ] || { grep -qE '\$job|one_node' "$1" && echo "what comes before it"; }
}
for page in torchrun_lab ddp_lab xsum_lab; do
  rm -f skipped job
  claim "$page.md has at most 150 lines of 100 columns" \
    awk 'length($0) > 100 { exit 1 } END { if (NR > 150) exit 1 }' "$pages/$page.md"
  commands "$page.md" "$work/$page"
  claim "$page.md has commands" test -e "$page.1"
  for block in "$page".*; do
    missing=$(lacks "$block")
    if [ -n "$missing" ]; then
      echo "SKIPPED: $block without $missing: $(head -n 1 "$block")"
      touch skipped
      continue
    fi
    shown=no
    runs_well() { job=$(cat job 2>/dev/null) bash -ec '. "./$0"; echo "${job:-}" >job' "$block" >out 2>&1; }
    claim "$block: $(head -n 1 "$block")" runs_well
    cp out "$block.out"
  done
done
said() { cp "$1" "$work/out" 2>/dev/null; shown=no; }
if [ -e data ] && [ -x "$bin/train_tinybert" ]; then
  said torchrun_lab.1.out
  claim "prepare makes the vocabulary's check and the tokens" test "$(grep -cE '^tokens of .*: made$' out)" = 2
  said ddp_lab.1.out
  claim "a second time it has nothing to do" says 'is prepared: there was nothing to do$'
  said torchrun_lab.4.out
  claim "the first lab is a world of two" says '^2 ranks on 1 host|\] 2 ranks on 1 host'
  said ddp_lab.3.out
  claim "the second lab is a world of six" says '6 ranks on (3 hosts|1 host)'
  claim "whose ranks find the tokens" ends_with 1 says 'did not have what this run needs'
  claim "and rank 0 writes the model" test -s ddp_out/model/model.safetensors
  claim "its job as well" test -s job_out/model/model.safetensors
  # Damage: one byte of one cache.
  cache=$(ls -S tokens/*.tokens | head -n 1)
  printf '\x7f' | dd of="$cache" bs=1 seek=4000 conv=notrunc status=none
  prepares() { shown=no; parx_slurm prepare -- train_tinybert --data data/ag_news --cache "$@" --vocab data/bert/vocab.txt >out 2>&1; }
  claim "a damaged cache is prepared again" prepares tokens
  claim "and named" says '^tokens of .*: was damaged; made again$'
  echo '"1","a","new text"' >>data/ag_news/train.csv
  claim "so is one of texts that have changed" prepares tokens
  claim "which counts as a new one" test "$(grep -cE '^tokens of .*: made$' out)$(grep -c 'was there, and is whole' out)" = 12
  tells() { shown=no; parxrun -n 2 train_tinybert --data data/ag_news --cache "$1" --max-steps 1 --eval-strategy no --disable-progress >out 2>&1; }
  claim "ranks without a cache train all the same" tells new_cache
  claim "and say how it is prepared" says 'Where all nodes see the folder, make it before: .*train_tinybert .* --prepare$'
  claim "a folder that cannot be written is no success" ends_with 1 prepares /proc/nowhere
fi
[ $failures = 0 ]
