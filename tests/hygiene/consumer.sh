#!/bin/bash
# A project that uses parx builds and runs:
#   consumer.sh add_subdirectory PARX_ROOT COMPILER
#   consumer.sh installed PARX_ROOT COMPILER OTHER BUILD
#                                                     parx as BUILD installs it, found by CMake and, by
#                                                     the OTHER compiler, by pkg-config: headers and
#                                                     libraries
#   consumer.sh comm_only PARX_ROOT COMPILER          configured, built and used where there is no
#                                                     zlib or Boost
set -eu
how=$1 root=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }
# Boost is for parxrun and the tests, Eigen for the tests: whoever uses parx does without. A debug build
# without the symbols, which nobody reads.
configuration=(-DCMAKE_DISABLE_FIND_PACKAGE_{Boost,Eigen3}=ON -DCMAKE_CXX_COMPILER="$compiler"
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0)
configure() { quietly cmake "${configuration[@]}" "$@"; }
says_the_sum() {
  "$1" | tee "$work/said"
  [ "$(cat "$work/said")" = "rank 0 of 1: 1.5" ] || { echo "$1 does not say what it should"; exit 1; }
}
# use COMPONENT,... [OPTION...]: the consumer, a program for each component.
use() {
  local components=${1//,/;}
  shift
  configure -S "$here/consumer" -B "$work/build" "-DCOMPONENTS=$components" "$@"
  quietly nice -n 5 cmake --build "$work/build" --parallel 2
  for component in ${components//;/ }; do says_the_sum "$work/build/consumer_$component"; done
}
# tells_of_instructions WHAT OPTION...: what configuring the consumer says of vector instructions:
#   nothing
#   slow      that its products are slow, which they are with baseline instructions
#   refused   that a target and the library that it links would not fit
tells_of_instructions() {
  local expected=$1 said=nothing
  shift
  rm -rf "$work/told"
  if ! cmake "${configuration[@]}" -S "$here/consumer" -B "$work/told" "$@" >"$work/log" 2>&1; then
    said=broken
    if tr -s ' \n' ' ' <"$work/log" | grep -q "is compiled for .*, and parx::[a-z]*, which it links, for"; then said=refused; fi
  elif grep -q "without -march=native" "$work/log"; then said=slow; fi
  [ "$said" = "$expected" ] || { cat "$work/log"; echo "said of instructions: $said, not $expected ($*)"; exit 1; }
}
without=(-DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON)
case $how in
  add_subdirectory)
    use header_only -DPARX_SOURCE_DIR="$root"
    sources=-DPARX_SOURCE_DIR=$root
    for component in comm header_only; do
      tells_of_instructions nothing "$sources" -DCOMPONENTS=$component -DCMAKE_CXX_FLAGS=-march=native
    done
    tells_of_instructions nothing "$sources" -DCOMPONENTS=comm
    tells_of_instructions slow "$sources" -DCOMPONENTS=header_only
    tells_of_instructions nothing "$sources" -DCOMPONENTS=header_only -DFLAGS_BY_LIBRARY=ON
    tells_of_instructions slow "$sources" -DCOMPONENTS=models
    tells_of_instructions nothing "$sources" -DCOMPONENTS=models -DFLAGS_BY_LIBRARY=ON -DPARX_NATIVE=ON
    tells_of_instructions refused "$sources" -DCOMPONENTS=models -DFLAGS_BY_LIBRARY=ON
    tells_of_instructions refused "$sources" -DCOMPONENTS=comm -DFLAGS_BY_LIBRARY=ON
    for option in '$<$<CONFIG:Debug>:-march=native>' '$<$<COMPILE_LANGUAGE:CXX>:-march=native>'; do
      tells_of_instructions refused "$sources" -DCOMPONENTS=comm "-DOPTIONS=$option"
    done
    tells_of_instructions nothing "$sources" -DCOMPONENTS=comm '-DOPTIONS=$<$<CONFIG:Release>:-march=native>' ;;
  installed)
    other=$4 build=$5
    cmake --install "$build" --prefix "$work/prefix" --component parx_development >/dev/null
    # The installed package must not lead back to the sources.
    if grep -rlIF -e "$root" -e "$build" "$work/prefix"; then echo "the installed files name $root"; exit 1; fi
    (cd "$root/include" && find . -name '*.hpp') | sort >"$work/sources"
    (cd "$work/prefix/include" && find . -name '*.hpp') | sort | diff "$work/sources" -
    use models -DCMAKE_PREFIX_PATH="$work/prefix"
    tells_of_instructions nothing -DCMAKE_PREFIX_PATH="$work/prefix"
    tells_of_instructions slow -DCMAKE_PREFIX_PATH="$work/prefix" -DCOMPONENTS=header_only
    command -v pkg-config >/dev/null || { echo "NOT TRIED: pkg-config, which is not installed"; exit 0; }
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name parx.pc)")
    export PKG_CONFIG_PATH
    pkg-config --exists parx-comm-header-only parx
    modules="parx-comm parx-ddp parx-models"
    for module in $modules; do
      definition=()
      case $module in parx-comm*) definition=(-DONLY_COMM) ;; esac
      # shellcheck disable=SC2046
      nice -n 5 "$other" -std=c++20 "${definition[@]}" "$here/consumer/main.cpp" -o "$work/$module" \
        $(pkg-config --cflags --libs "$module") &
    done
    wait
    for module in $modules; do says_the_sum "$work/$module"; done ;;
  comm_only)
    # Should anything include these after all, it does not compile.
    mkdir -p "$work/absent/Eigen" "$work/absent/boost"
    for header in zlib.h Eigen/Core boost/config.hpp; do
      echo "#error \"there is no $header here\"" >"$work/absent/$header"
    done
    export CPLUS_INCLUDE_PATH=$work/absent
    configure -S "$root" -B "$work/parx" -DPARX_COMM_ONLY=ON "${without[@]}"
    quietly nice -n 5 cmake --build "$work/parx" --parallel 2
    cmake --install "$work/parx" --prefix "$work/prefix" >/dev/null
    use comm "${without[@]}" -DCMAKE_PREFIX_PATH="$work/prefix"
    # What is not there is missing by name.
    if cmake -S "$here/consumer" -B "$work/other" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 ||
       ! grep -q "No component parx in this installation" "$work/log"; then
      cat "$work/log"; exit 1
    fi
    # Without the option, one sentence says which there is.
    if cmake -S "$root" -B "$work/all" "${without[@]}" >"$work/log" 2>&1 ||
       ! grep -q "PARX_COMM_ONLY=ON" "$work/log"; then
      cat "$work/log"; exit 1
    fi ;;
esac
