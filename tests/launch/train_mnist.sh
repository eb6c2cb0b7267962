#!/bin/bash
# What the command line of train_mnist promises:   train_mnist.sh PATH_TO_TRAIN_MNIST
set -u
program=$1
failures=0

# refuses MESSAGE ARGUMENT...: exit code 2, with the message on standard error.
refuses() {
  local message=$1 said code=0; shift
  said=$(timeout 20 "$program" "$@" 2>&1 >/dev/null) || code=$?
  [ "$code" = 2 ] && [[ $said == *"$message"* ]] && return
  failures=$((failures + 1))
  printf 'FAILED: train_mnist %s\n    code %s, not 2 with: %s\n    %s\n' "$*" "$code" "$message" "$said"
}

refuses '--batch-size "-3": give a whole number from 1' --batch-size -3
refuses '--batch-size "0": give a whole number from 1' --batch-size 0
refuses '--epochs "x": give a whole number from 1' --epochs x
refuses '--epochs "0": give a whole number from 1' --epochs 0
refuses '--seed "1.5": give a whole number from 0' --seed 1.5
refuses '--lr "fast": give a number from 0' --lr fast
refuses '--model "rnn": give mlp or cnn' --model rnn
refuses '"mnist more" belongs to no flag' mnist more
refuses 'there is no flag --bogus. --help lists the flags' --bogus
refuses 'there is no flag --epoch: did you mean --epochs?' --epoch 3
refuses 'there is no flag -epochs: did you mean --epochs?' -epochs=3
refuses 'there is no flag --batchsize: did you mean --batch-size?' --batchsize 32
[ "$failures" = 0 ] && echo "all wrong command lines are explained"
