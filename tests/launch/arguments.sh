#!/bin/bash
# Wrong arguments, and none where some are needed, end every program with 2, a sentence on standard
# error and nothing on standard output; --help names the program's page:   arguments.sh BIN_DIR
set -u
bin=$1
tried=0 failures=0

# refuses PROGRAM WORDS ARGUMENT...: WORDS are a part of what it says.
refuses() {
  local program=$1 words=$2 said code=0 printed; shift 2
  [ -x "$bin/$program" ] || return 0
  tried=$((tried + 1))
  printed=$(mktemp)
  said=$(timeout 20 "$bin/$program" "$@" 2>&1 >"$printed" </dev/null) || code=$?
  if [ $code != 2 ] || [[ $said != *"$words"* ]] || [ -s "$printed" ]; then
    failures=$((failures + 1))
    printf 'FAILED: %s %s: code %s, not 2 with: %s\n    %s\n' "$program" "$*" $code "$words" "$said"
    sed 's/^/    printed: /' "$printed"
  fi
  rm -f "$printed"
}

# --help names a page of the guide. Built are programs as they are needed: not all of them.
explained=0
for program in parxrun parx_doctor parx_checkpoint parx_slurm parx_report parx_plan parx_pipeline \
  picture_tour pipeline_tour slow_links train_mnist train_cnn train_gpt train_tinybert \
  train_summarizer train_trees; do
  [ -x "$bin/$program" ] || continue
  page=$(timeout 20 "$bin/$program" --help </dev/null | sed -n 's/^Guide: //p')
  [ -n "$page" ] && [ -f "../$page" ] && explained=$((explained + 1)) && continue
  failures=$((failures + 1))
  echo "FAILED: $program --help names no page of the guide: \"$page\""
done
for program in parxrun parx_checkpoint parx_slurm; do
  refuses $program ''
done
refuses parx_report 'give the output_dir of at least one training run'
refuses parx_report '"/nowhere" is not the output_dir of a training run' /nowhere
for program in parxrun parx_doctor parx_checkpoint parx_slurm parx_report parx_plan parx_pipeline \
  picture_tour pipeline_tour slow_links train_mnist train_cnn train_gpt train_trees parx-bench; do
  refuses $program bogus --bogus
done
refuses parx_pipeline '--stages "x": give a whole number from 1' --stages x
refuses parx_pipeline '--columns "0": give a whole number from 20' --columns 0
refuses parx_pipeline 'there is no pipeline schedule "zb2"' --schedule zb2
refuses parx_pipeline '--costs "g=1": give f, b, i, w or hop' --costs g=1
refuses parx_plan '--ranks "0": give a whole number from 1' --ranks 0
refuses parx_plan 'link "fast"' --link fast
[ $failures = 0 ] && echo "$tried wrong command lines are refused, $explained programs explained"
[ $failures = 0 ]
