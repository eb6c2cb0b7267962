#!/bin/bash
# The guide's reference is what the headers say, and every public name has a docstring:
#   reference.sh SOURCE_DIR
# The pages are written by: python3 tests/hygiene/reference.py . --write
set -eu
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "NOT TRIED: the reference, because there is no python3"; exit 77; }
# The rule itself: a page that was changed, one too many, and names without docstrings are refused.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/examples/guide"
cp -r "$1/include" "$work"
cp -r "$1/examples/guide/headers.md" "$1/examples/guide/reference" "$work/examples/guide"
sed -i 's/variance/variation/' "$work/examples/guide/reference/losses.md"
touch "$work/examples/guide/reference/old.md"
cat >"$work/include/parx/nn/undescribed.hpp" <<'END'
#pragma once
namespace parx::inline PARX_ABI::nn {

struct nameless {};

/// Is described.
int named(int x = 1);
int named(float x);

template <typename T>
  requires(sizeof(T) > 1)
T sum_of(const T& x) {
  return x;
}

enum class choice { one, other };

namespace detail {
int hidden();
}

}  // namespace parx::nn
END
echo '#include <parx/nn/undescribed.hpp>' >>"$work/include/parx/nn.hpp"
said=$(python3 "$folder/reference.py" "$work") && { echo "reference.py refuses nothing"; exit 1; }
refused=$(sed -nE 's/.*undescribed.hpp:[0-9]+: [a-z]+ ([a-z_]+) has no docstring$/\1/p; s/.*reference\/((old|losses)\.md): not.*/\1/p' \
  <<<"$said" | tr '\n' ' ')
[ "$refused" = "nameless sum_of choice losses.md old.md " ] ||
  { echo "reference.py refuses of its example \"$refused\""; echo "$said"; exit 1; }

python3 "$folder/reference.py" "$1"
