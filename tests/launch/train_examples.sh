#!/bin/bash
# What the training programs promise, tried on their built-in data with two ranks:
#   train_examples.sh BIN_DIR [NAME...]
# BIN_DIR holds parxrun and the programs; without names, all of them are tried.
set -u
bin=$(cd "$1" && pwd) || exit 1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
failures=0

failed() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/    /' "$work/said"
}
figures() { grep -oE "'(loss|grad_norm)': [0-9.]+" "$work/said" | grep -oE '[0-9.]+$'; }
says() { grep -qE -- "$1" "$work/said" || failed "$name: no line \"$1\""; }
# ends CODE RANKS ARGUMENT...: what the program says goes to the file `said`.
ends() {
  local expected=$1 ranks=$2 code=0; shift 2
  timeout 60 "$bin/parxrun" -n "$ranks" "$bin/$name" "$@" >"$work/said" 2>&1 || code=$?
  [ "$code" = "$expected" ] || failed "$name $*: exit code $code, not $expected"
}

# trains NAME LAST_WORDS MODEL ARGUMENT...: eight steps, then twelve by --resume; the last words are
# a pattern, MODEL is what must be in --output-dir in the end.
trains() {
  name=$1
  local words=$2 model=$3 out=$work/$1; shift 3
  local common=(--logging-steps 4 --save-strategy steps --save-steps 4 --output-dir "$out"
                --eval-strategy no --save-total-limit 2 --disable-progress "$@")
  ends 0 2 --max-steps 8 "${common[@]}" --explain --report "$out.html"
  says '2 ranks on 1 host$'
  says 'Total optimization steps = 8'
  says "'loss': [0-9.]+.*'learning_rate': "
  says "$words"
  for file in "$model" checkpoint-4 checkpoint-8 train.jsonl train.csv; do
    [ -e "$out/$file" ] || failed "$name: there is no $file"
  done
  grep -q '</svg>' "$out.html" || failed "$name: the report has no drawings"

  ends 2 2 --max-steps 12 "${common[@]}"
  says 'holds the checkpoint of step 8 of an earlier run: --resume goes on from it, --overwrite-output-dir deletes it'
  ends 0 1 --max-steps 12 "${common[@]}" --resume
  says 'Continuing training from global step = 8'
  says 'Total optimization steps = 12'
  [ -e "$out/checkpoint-12" ] && [ ! -e "$out/checkpoint-4" ] || failed "$name: not the last two checkpoints"

  ends 0 1 --max-steps 12 "${common[@]}" --resume
  says 'Nothing is left to train: the run is at step 12 of 12; more --max-steps or --epochs would go on'

  ends 2 1 --metric-for-best-model bleu
  says '--metric-for-best-model "bleu": give loss'
  ends 2 1 --num_train_epochs 2
  says 'there is no flag --num-train-epochs: did you mean --epochs\?'
  ends 2 1 --learning_rate fast
  says '--learning-rate "fast": give a number'
  ends 2 1 --resume
  says '--output-dir, which is not given'
  ends 1 2 --output-dir /dev/null/x
  says 'cannot create the folder "/dev/null/x"'
}

# refuses_bad_numbers NAME: each flag whose default is a number, given as x.
refuses_bad_numbers() {
  name=$1
  local flags flag
  flags=$("$bin/$name" --help | grep -oE -- '--[a-z0-9-]+ arg.*|\(default: [0-9.e+-]+\)' |
    awk '/^--/ { flag = $1 } /default: [0-9]/ { print flag }')
  [ "$(echo "$flags" | wc -w)" -gt 10 ] || failed "$name: --help shows few flags with numbers: $flags"
  for flag in $flags; do
    ends 2 1 "$flag" x
    says "$flag \"x\": give a (whole )?number from"
  done
}

# stops_and_goes_on NAME MODEL ARGUMENT...: two ranks whose launcher is told to end in the middle, and
# the rest by --resume, end in the file that a run makes which is left alone.
stops_and_goes_on() {
  name=$1
  local model=$2 out=$work/$1 code=0; shift 2
  local common=(--max-steps 60 --logging-steps 1 --eval-strategy no --save-strategy steps --save-steps 1000
                --disable-progress "$@")
  ends 0 2 "${common[@]}" --output-dir "$out-whole"
  "$bin/parxrun" -n 2 "$bin/$name" "${common[@]}" --output-dir "$out-stopped" >"$work/said" 2>&1 &
  for _ in $(seq 300); do [ "$(cat "$out-stopped/train.jsonl" 2>/dev/null | wc -l)" -lt 3 ] || break; sleep 0.05; done
  kill -TERM $!; wait $! || code=$?
  [ $code = 75 ] || failed "$name: exit code $code after SIGTERM, not 75"
  says 'stopped by SIGTERM at step [0-9]+; checkpoint in .*; resume with --resume'
  ends 0 2 "${common[@]}" --output-dir "$out-stopped" --resume
  says 'Continuing training from global step'
  cmp "$out-whole/$model" "$out-stopped/$model" >>"$work/said" 2>&1 || failed "$name: it ends in other bits"
}

# goes_on NAME ARGUMENT...: one of three ranks is killed in the middle; the others train to the end.
goes_on() {
  name=$1
  local out=$work/$1-goes-on code=0 victim; shift
  "$bin/parxrun" -n 3 --on-loss continue "$bin/$name" --on-loss shrink --logging-steps 1 --output-dir "$out" \
    --save-strategy no --disable-progress "$@" >"$work/said" 2>&1 &
  for _ in $(seq 300); do [ "$(cat "$out/train.jsonl" 2>/dev/null | wc -l)" -lt 3 ] || break; sleep 0.05; done
  victim=$(awk "{ print \$NF }" "/proc/$!/task/$!/children")
  [ -n "$victim" ] && kill -KILL "$victim"
  wait $! || code=$?
  [ $code = 0 ] || failed "$name: exit code $code after a rank was killed"
  says 'the job goes on with 2 ranks of 3'
  says 'training goes on after step [0-9]+ with 2 of 3 ranks'
}

# in_stages NAME ARGUMENT...: two stages log what one rank does, without dropout.
in_stages() {
  name=$1; shift
  ends 0 1 --max-steps 3 --logging-steps 1 --eval-strategy no --disable-progress "$@"
  figures >"$work/kept"
  ends 0 2 --max-steps 3 --logging-steps 1 --eval-strategy no --disable-progress --parallel pp=2 "$@"
  figures | paste - "$work/kept" | awk '{ if (($1 - $2) ^ 2 > (2e-4 * $2) ^ 2) exit 1 } END { exit NR != 6 }' ||
    failed "$name: --parallel pp=2 has other losses and norms than one rank"
}

# has_one_model NAME MODEL "RANKS LAYOUT"... -- ARGUMENT...: four virtual replicas end in the file of the first layout.
has_one_model() {
  name=$1
  local model=$2 ways=() way first out=$work/$1-replicas; shift 2
  while [ "$1" != -- ]; do ways+=("$1"); shift; done; shift
  first=${ways[0]}
  rm -rf "$out"-*
  for way in "${ways[@]}"; do
    ends 0 ${way% *} --max-steps 4 --logging-steps 4 --eval-strategy no --disable-progress --parallel "${way#* },replicas=4" \
      --output-dir "$out-$way" "$@"
    cmp "$out-$first/$model" "$out-$way/$model" >>"$work/said" 2>&1 || failed "$name: ranks and layout $way end in other bits than $first"
  done
}
of_data=('1 ddp' '2 ddp' '3 ddp' '2 zero=1' '3 zero=2' '3 fsdp')

tries() { [ $# = 1 ] || [[ " ${*:2} " == *" $1 "* ]]; }
for each in train_tinybert train_cnn train_gpt train_summarizer; do
  tries $each "$@" && refuses_bad_numbers $each
done
tries train_tinybert "$@" && trains train_tinybert 'test accuracy: [0-9.]+ % of 1000 texts' model/model.safetensors
tries train_summarizer "$@" && trains train_summarizer 'test ROUGE-L: [0-9.]+ of 500 summaries' model/model.safetensors --d-model 32 --beams 1 --max-target-length 8
tries train_tinybert "$@" && in_stages train_tinybert --dropout 0 --token-dropout 0
tries train_tinybert "$@" && has_one_model train_tinybert model/model.safetensors "${of_data[@]}" '2 pp=2' '6 pp=2' '4 pp=2,zero=2' --
if tries train_summarizer "$@"; then
  has_one_model train_summarizer model/model.safetensors '1 ddp' '2 fsdp' '3 ddp' -- --d-model 32 --beams 1 --max-target-length 8
  in_stages train_summarizer --dropout 0 --d-model 32 --beams 1 --max-target-length 8
  echo '[MORE]' >>"$work/train_summarizer/model/vocab.txt"
  ends 2 1 --eval-only "$work/train_summarizer/model"
  says 'vocab.txt has [0-9]+ tokens, but its config.json says [0-9]+'
fi
tries train_cnn "$@" && trains train_cnn 'test accuracy: [0-9.]+ % of 10000 images' model.safetensors --channels 2
tries train_cnn "$@" && stops_and_goes_on train_cnn model.safetensors --channels 2
if tries train_cnn "$@"; then
  has_one_model train_cnn model.safetensors "${of_data[@]}" -- --channels 2 --shift 2
  ends 0 3 --max-steps 1 --channels 2 --disable-progress --eval-strategy no --explain --parallel ddp,replicas=8
  says '5 sums along the tree of 8 replicas: 1.67 reduce_scatters a rank'
  says 'at most [0-9.]+ KiB of sums of replicas'
  ends 2 1 --channels 2 --max-steps 1 --gradient-checkpointing
  says 'Wrap its layers in nn::checkpointed'
fi
if tries train_gpt "$@"; then
  small=(--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --eval-batch-size 512 --sample 8)
  trains train_gpt 'validation loss: [0-9.]+ nats a character' model/model.safetensors "${small[@]}"
  has_one_model train_gpt model/model.safetensors "${of_data[@]}" -- "${small[@]}" --dropout 0.1
  has_one_model train_gpt model/model.safetensors '2 pp=2' '4 pp=2,zero=2' '6 pp=2' -- "${small[@]}" --dropout 0.1
  has_one_model train_gpt model/model.safetensors '1 ddp' '4 pp=2,zero=2' '6 pp=2' -- "${small[@]}" --arch llama
  has_one_model train_gpt model/model.safetensors '2 tp=2' '4 tp=2' '6 tp=2,fsdp' -- "${small[@]}" --dropout 0.1
  goes_on train_gpt "${small[@]}" --max-steps 200 --eval-strategy no
  for words in '--arch llama' '--tokenizer bpe --vocab-size 300'; do
    ends 0 1 --max-steps 2 "${small[@]}" --disable-progress $words
    says 'validation loss: [0-9.]+ nats a character'
  done
  steps=(--max-steps 3 "${small[@]}" --disable-progress --eval-strategy no)
  ends 0 1 "${steps[@]}"
  kept=$(grep -o 'validation loss.*' "$work/said")
  ends 0 1 "${steps[@]}" --gradient-checkpointing
  [ "$(grep -o 'validation loss.*' "$work/said")" = "$kept" ] || failed "$name: recomputed activations are others than \"$kept\""
  for way in tp=2 tp=2,sp; do
    ends 0 2 "${steps[@]}" --parallel "$way"
    [ "$(grep -o 'validation loss.*' "$work/said")" = "$kept" ] || failed "$name: --parallel $way ends elsewhere than \"$kept\""
  done
  ends 0 1 --epochs 0.0001 "${small[@]}" --disable-progress --eval-strategy no
  says 'Total optimization steps = [0-9]+$'
  for way in ddp zero=1 zero=2 fsdp hybrid; do
    ends 0 2 "${steps[@]}" --save-strategy steps --save-steps 3 --parallel "$way" --output-dir "$work/$way"
    cmp "$work/ddp/model/model.safetensors" "$work/$way/model/model.safetensors" >>"$work/said" 2>&1 ||
      failed "$name: --parallel $way ends in other bits than ddp"
  done
  ends 0 3 --max-steps 5 "${small[@]}" --disable-progress --parallel zero=2 --output-dir "$work/fsdp" --resume
  says 'Continuing training from global step'
  ends 0 2 "${steps[@]}" --logging-steps 1 --parallel dp=2
  figures >"$work/kept"
  for way in pp=2,dp=2,schedule=zb1p,microbatches=4 pp=2,dp=2,tp=2 pp=2,dp=2,zero=1 pp=2,dp=2,hybrid; do
    ranks=4; [[ $way == *tp=2 ]] && ranks=8
    ends 0 $ranks "${steps[@]}" --logging-steps 1 --parallel "$way" --output-dir "$work/$way"
    figures | paste - "$work/kept" | awk '{ if (($1 - $2) ^ 2 > (2e-4 * $2) ^ 2) exit 1 } END { exit NR != 6 }' ||
      failed "$name: --parallel $way has other losses and norms than two ranks"
    [ -s "$work/$way/model/model.safetensors" ] || failed "$name: --parallel $way leaves no model"
  done
  ends 2 2 "${steps[@]}" --parallel sp
  says 'sp cuts between layers that tp= has cut'
  ends 0 2 "${steps[@]}" --logging-steps 1 --arch llama --parallel dp=2
  figures >"$work/kept"
  for way in dp=2,zero=1 dp=2,fsdp; do
    ends 0 4 "${steps[@]}" --logging-steps 1 --arch llama --parallel "pp=2,$way"
    figures | paste - "$work/kept" | awk '{ if (($1 - $2) ^ 2 > (2e-4 * $2) ^ 2) exit 1 } END { exit NR != 6 }' ||
      failed "$name: --parallel pp=2,$way has other losses and norms than two ranks"
  done
  ends 2 4 "${steps[@]}" --parallel pp=4
  says '3 blocks make at most 3 stages'
  for way in dp=2,tp=2 dp=2,tp=2,fsdp; do
    ends 0 4 "${steps[@]}" --save-strategy steps --save-steps 3 --parallel "$way" --output-dir "$work/$way"
    cmp "$work/dp=2,tp=2/model/model.safetensors" "$work/$way/model/model.safetensors" >>"$work/said" 2>&1 ||
      failed "$name: --parallel $way ends in other bits than dp=2,tp=2"
  done
  go_on=("${small[@]}" --disable-progress --eval-strategy no --output-dir "$work/dp=2,tp=2,fsdp" --resume)
  ends 0 2 --max-steps 5 "${go_on[@]}" --parallel ddp
  says 'Continuing training from global step = 3'
  ends 0 2 --max-steps 7 "${go_on[@]}" --parallel tp=2 --batch-size 32
  says 'Continuing training from global step = 5'
  ends 2 2 --parallel dp=2,tp=2
  says 'it has 4 ranks, and the job has 2'
  ends 2 3 "${steps[@]}" --parallel tp=3
  says '"transformer.h.0.attn.*" cannot be cut over 3 ranks: it has 2 to deal out, so 2 ranks at most'
  timeout 60 "$bin/parxrun" -n 2 sh -c '[ "$PARX_RANK" = 0 ] && way=tp=2 || way=ddp; exec "$@" --parallel "$way"' sh \
    "$bin/$name" >"$work/said" 2>&1
  says 'rank 1 was given the layout "ddp", rank 0 "tp=2"'
  ends 2 1 --parallel fsdp,of=2
  says 'layout "fsdp,of=2": there is no "of". Give auto, or ddp, zero=1 to 3'
  ends 2 1 --parallel fsdp=2
  says '"fsdp" takes no value: dp= gives a number'
  printf 'too short\n' >"$work/short.txt"
  ends 2 1 --data "$work/short.txt"
  says 'shorter than one sample'
  ends 2 1 --n-embd 130
  says 'n_embd 130 is not a multiple of n_head 4'
  ends 1 1 --prompt '#'
  says "'#', was not in the text"
fi

[ "$failures" = 0 ] && echo "the training programs do what they promise"
