#!/bin/bash
# A project that uses parx builds and runs:
#   consumer.sh find_package|add_subdirectory PARX_ROOT COMPILER
set -eu
how=$1 root=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Boost is for parxrun and the tests: whoever uses parx does without.
configure() { cmake -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
case $how in
  find_package)
    configure -S "$root" -B "$work/parx" -DPARX_BUILD_EXAMPLES=OFF -DPARX_BUILD_TESTS=OFF -DPARX_BUILD_BENCHMARKS=OFF
    cmake --install "$work/parx" --prefix "$work/prefix" >/dev/null
    rm -rf "$work/parx"
    # The installed package must not lead back to the sources.
    if grep -rlF "$root" "$work/prefix"; then echo "the installed files name $root"; exit 1; fi
    (cd "$root/include" && find . -name '*.hpp') | sort >"$work/sources"
    (cd "$work/prefix/include" && find . -name '*.hpp') | sort | diff "$work/sources" -
    configure -S "$here/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" ;;
  add_subdirectory)
    configure -S "$here/consumer" -B "$work/build" -DPARX_SOURCE_DIR="$root" ;;
esac
cmake --build "$work/build"
"$work/build/consumer" | tee "$work/said"
[ "$(cat "$work/said")" = "rank 0 of 1: 1.5" ]
