#!/bin/bash
# From a fresh machine to a trained model:   bash examples/quickstart.sh
#
# Installs what is missing (as root or with sudo; otherwise prints the command and stops), builds parxrun
# and train_mnist in build/release/bin, and trains an image classifier on 4 ranks of this machine: on
# Fashion-MNIST (60 000 pictures of clothes, MIT licence, Debian's package dataset-fashion-mnist), or on
# generated digits where that package cannot be had.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. cmake/packages.sh
need_packages $build_packages
images=/usr/share/datasets/fashion-mnist
want_packages "training on Fashion-MNIST" dataset-fashion-mnist || true

echo "building parxrun and train_mnist in build/release (a minute or two the first time)"
mkdir -p build/release
log=build/release/build.log
if ! { configure release &&
       cmake --build --preset release --target parxrun train_mnist --parallel "$(build_jobs)"; } >"$log" 2>&1; then
  tail -n 40 "$log"
  echo "The build failed; all it said is in $log" >&2
  exit 1
fi

if [ -e "$images/train-images-idx3-ubyte.gz" ]; then
  echo "training on Fashion-MNIST: $images"
  data=(--data "$images") bar=88
else
  echo "Fashion-MNIST is not there: training on generated digits instead"
  data=() bar=95
fi
model=$PWD/build/release/quickstart.safetensors
said=$(mktemp)
trap 'rm -f "$said"' EXIT
command=(build/release/bin/parxrun -n 4 build/release/bin/train_mnist --model cnn "${data[@]}" --epochs 3 --save "$model")
echo "+ ${command[*]}"
# The progress line goes to standard error, so it stays alive.
"${command[@]}" | tee "$said"
code=${PIPESTATUS[0]}
[ "$code" = 0 ] || exit "$code"

accuracy=$(sed -nE 's/.*held-out accuracy: ([0-9.]+) %.*/\1/p' "$said" | tail -n 1)
echo
echo "4 ranks trained a classifier that is right on ${accuracy:-?} % of images it has never seen (at least $bar % are expected)."
echo "The model is in $model"
awk -v got="${accuracy:-0}" -v bar=$bar 'BEGIN { exit got + 0 < bar }' || { echo "That is below what is expected." >&2; exit 1; }
