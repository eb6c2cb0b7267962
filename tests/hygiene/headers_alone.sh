#!/bin/bash
# Headers compile when they are the only one included, and chapters tell an older C++ what they need:
#   headers_alone.sh chapters|all INCLUDE_DIR COMPILER [FLAG...]
# chapters: those of parx::comm, as programs of the library read them. all: every header, header-only.
set -u
which=$1 include=$2; shift 2
cd "$include" || exit 1
depth=99 form=
[ "$which" = all ] || { depth=2; form=-DPARX_SEPARATE_COMPILATION; }  # parx/comm.hpp, but not parx/comm/work.hpp
export form
# Those over UCX need its headers, which not every machine has.
has_ucx=$(echo '#include <ucp/api/ucp.h>' | "$@" -E -x c++ - >/dev/null 2>&1 && echo yes)
[ -n "$has_ucx" ] || echo "NOT TRIED: headers over UCX alone, because libucx-dev is not installed"
headers() {
  find . -maxdepth $depth -name '*.hpp' -printf '%P\n' | sort |
    if [ "$which" = all ]; then cat; else grep -E '^parx/(core|types|trace|store|transport|comm|launch|mesh)[.]'; fi |
    if [ -n "$has_ucx" ]; then cat; else grep -v '^parx/transport/ucx'; fi
}
failed=$(headers |
  xargs -P "$(nproc)" -I{} sh -c '
    [ {} != parx/src.hpp ] || form=-DPARX_SEPARATE_COMPILATION
    "$@" $form -std=c++20 -O0 -I. -fsyntax-only -x c++ -include {} /dev/null >&2 || echo {}' sh "$@")
count=$(headers | wc -l)
[ -z "$failed" ] || { printf 'does not compile alone: %s\n' $failed; exit 1; }
echo "$count headers compile alone"

# With an older C++ a chapter says what it needs before anything else goes wrong.
wrong=$(printf '%s\n' parx.hpp parx/*.hpp |
  xargs -P "$(nproc)" -I{} sh -c '
    first=$("$@" -std=c++17 -Wfatal-errors -I. -fsyntax-only -x c++ -include {} /dev/null 2>&1 | grep -m1 error:)
    case $first in *"parx needs C++20"*) ;; *) echo "{} with -std=c++17: $first" ;; esac' sh "$@")
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
