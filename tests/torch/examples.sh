#!/bin/bash
# examples/torch, built as a user builds it, and a few steps of each program on two ranks:
#   examples.sh PARX_ROOT COMPILER
set -u
root=$(cd "$1" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
failures=0

failed() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  sed 's/^/    /' "$work/said"
}
# says WORDS PROGRAM ARGUMENT...
says() {
  local words=$1 program=$2; shift 2
  (cd "$work" && timeout 120 "$(find build -name parxrun -type f)" -n 2 "build/$program" "$@") \
    >"$work/said" 2>&1 || failed "$program: exit code $?"
  grep -qE -- "$words" "$work/said" || failed "$program: no line \"$words\""
}

# 500 and 100 images whose label is the row that is bright.
python3 - "$work" <<'E'
import gzip, struct, sys
for part, count in ("train", 500), ("t10k", 100):
    labels = [i * 7 % 10 for i in range(count)]
    pixels = b"".join(bytes((255 if row // 2 == label else 0) for row in range(28) for _ in range(28))
                      for label in labels)
    for kind, head, body in ("images-idx3", struct.pack(">4i", 2051, count, 28, 28), pixels), \
                            ("labels-idx1", struct.pack(">2i", 2049, count), bytes(labels)):
        with gzip.open(f"{sys.argv[1]}/{part}-{kind}-ubyte.gz", "wb", 1) as file:
            file.write(head + body)
E
cmake -S "$root/examples/torch" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$2" >"$work/said" 2>&1 || failed "configuring"
cmake --build "$work/build" -j2 --target fashion_mlp fashion_cnn characters parxrun \
  >"$work/said" 2>&1 || failed "building"
if [ $failures = 0 ]; then
  says '^\[rank 0\] epoch 20: loss 0\.[0-9]+, accuracy 1\.0000' fashion_mlp "$work" 20
  [ -s "$work/fashion.safetensors" ] || failed "fashion_mlp: there is no fashion.safetensors"
  says '^\[rank 0\] epoch 5: loss 0\.[0-9]+, accuracy 1\.0000' fashion_cnn "$work" 5
  says '^\[rank 0\] step 50: loss [23]\.' characters "$root/README.md" 50
fi
echo "$failures failures"
[ $failures = 0 ]
