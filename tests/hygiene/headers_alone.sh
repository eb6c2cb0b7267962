#!/bin/bash
# Headers include what they need, and chapters tell an older C++ what they need:
#   headers_alone.sh short|all INCLUDE_DIR COMPILER [FLAG...]
# short: all headers compile together, each behind what it includes and otherwise in the order opposite to
#        that of their names, in which programs include them. As programs of the library read them.
# all:   every header is the only one included, header-only.
set -u
form=$1 include=$2; shift 2
compiler=("$@" -I.)
cd "$include" || exit 1
# What is over other libraries needs their headers, which not every machine has.
left_out=none
for library in ucp/api/ucp.h hdf5.h torch/torch.h; do
  echo "#include <$library>" | "${compiler[@]}" -E -x c++ - >/dev/null 2>&1 && continue
  echo "NOT TRIED: headers over $library alone, which is not installed"
  case $library in
    ucp*) left_out="$left_out|parx/transport/ucx.*" ;;
    torch*) left_out="$left_out|parx/torch.*" ;;
    *) left_out="$left_out|parx/data/formats/hdf5.hpp" ;;
  esac
done
headers() { find . -name '*.hpp' -printf '%P\n' | LC_ALL=C sort | grep -vxE "$left_out"; }

# Without those that list or instantiate parts of the library, which its own files include alone.
in_opposite_order() {
  headers | grep -vE '(^|/)(src|detail/models_impl)[.]hpp$' | LC_ALL=C sort -r | xargs awk '
    function visit(name,   list, n, i) {
      if (name in seen) return
      seen[name]
      n = split(includes[name], list, " ")
      for (i = 1; i <= n; ++i) visit(list[n + 1 - i])
      if (name in given) print "#include <" name ">"
    }
    FNR == 1 { files[++count] = FILENAME; given[FILENAME]; definitions = 0 }
    /^#ifndef PARX_SEPARATE_COMPILATION/ { definitions = FNR + 1; next }  # of x.hpp: they include it
    /^#include <parx/ && FNR != definitions { split($0, part, /[<>]/); includes[FILENAME] = includes[FILENAME] " " part[2] }
    END { for (i = 1; i <= count; ++i) visit(files[i]) }'
}

# alone FLAG...: whether each of the headers that are read compiles when it is the only one.
alone() {
  local list wrong
  list=$(cat)
  wrong=$(xargs -P "$(nproc)" -I{} sh -c '
    "$@" -std=c++20 -O0 -fsyntax-only -x c++ -include {} /dev/null >&2 || echo {}' sh "${compiler[@]}" "$@" <<<"$list")
  [ -z "$wrong" ] || { printf 'does not compile alone: %s\n' $wrong; exit 1; }
  echo "$(wc -l <<<"$list") headers compile alone"
}
separate=-DPARX_SEPARATE_COMPILATION
if [ "$form" = all ]; then
  headers | grep -vx parx/src.hpp | alone
  echo parx/src.hpp | alone $separate
else
  in_opposite_order | "${compiler[@]}" $separate -std=c++20 -O0 -fsyntax-only -x c++ - ||
    { echo "a header needs what it does not include: in the order of names it compiles"; exit 1; }
  echo "$(in_opposite_order | wc -l) headers compile in the order opposite to their names'"
fi

# With an older C++ a chapter says what it needs before anything else goes wrong: version.hpp does, which it
# includes, or what it includes first does, before anything else.
said=$("${compiler[@]}" -std=c++17 -fsyntax-only -x c++ -include parx/core/version.hpp /dev/null 2>&1 | grep -m1 error:)
case $said in *"parx needs C++20"*) ;; *) echo "with -std=c++17 version.hpp says: $said"; exit 1 ;; esac
begins_with_version() {  # begins_with_version HEADER
  local first
  first=$(grep -m1 -vE '^(//.*|#pragma once|[[:space:]]*)$' "$1" | sed -nE 's/^#include <([^>]+)>.*/\1/p')
  [ "$first" = parx/core/version.hpp ] || { [[ $first == parx/* ]] && begins_with_version "$first"; }
}
for header in parx.hpp parx/*.hpp; do
  begins_with_version "$header" || { echo "$header does not begin with version.hpp"; exit 1; }
done
