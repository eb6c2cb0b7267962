#!/bin/bash
# All tests:   bash tests/run.sh
#              bash tests/run.sh comm nn   those of some chapters, the folders of tests/: builds only
#                                          what these need
#              bash tests/run.sh --all     also the thorough ones, the benchmarks and the example
#                                          trainers, HDF5, and every header by itself
#
# Installs what is missing (as root or with sudo; otherwise prints the command and stops), builds the
# preset "ci" in build/ci and runs every test: the chapters' own, parxrun, a real Slurm, the rules of the
# repository. Benchmarks and trainers, which no test runs without --all, are read by the compiler all the
# same. Says which files took longest to compile, and which tests to run. The last line is "N passed,
# N failed"; the exit code is 0 when none failed.
# PARX_TEST_DATA names a folder of real data sets: ../shared/data unless said, as far as there is one, and
# those in /usr/share/datasets.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. cmake/packages.sh

all=OFF
chapters=()
for word in "$@"; do
  if [ "$word" = --all ]; then
    all=ON
  elif [[ $word =~ ^[a-z_]+$ ]] && [ -d "tests/$word" ]; then
    chapters+=("$word")
  else
    echo "run.sh: there is no chapter \"$word\" in tests/. There are: $(cd tests && echo */ | tr -d /)" >&2
    exit 2
  fi
done

need_packages $build_packages libboost-test1.81-dev libeigen3-dev
want_packages "running under a real srun" slurmctld slurmd slurm-client
want_packages "meeting the real PyTorch" python3-torch
want_packages "LibTorch's modules under parx" libtorch-dev
want_packages "parx below torch.distributed" python3-torch python3-dev python3-pip pybind11-dev
want_packages "training on Fashion-MNIST" dataset-fashion-mnist
want_packages "UCX between hosts" libucx-dev
want_packages "module files" environment-modules

if [ -z "${PARX_TEST_DATA:-}" ] && [ -d ../shared/data ]; then
  PARX_TEST_DATA=$(cd ../shared/data && pwd)
  export PARX_TEST_DATA
  echo "real data sets: those in $PARX_TEST_DATA"
fi

options=(-DPARX_TEST_ALL=$all -DPARX_HDF5=OFF)
want_packages "clang, which compiles the tests faster" clang || options+=(-DPARX_TEST_COMPILER=)
if [ $all = ON ]; then
  options+=(-DPARX_BUILD_BENCHMARKS=ON -DPARX_BUILD_TRAINERS=ON)
  want_packages "reading HDF5" libhdf5-dev && options+=(-DPARX_HDF5=ON)
  want_packages "measuring parx_report's page in a browser" chromium
fi

build=(cmake --build --preset ci --parallel "$(build_jobs)")
which=()
if [ ${#chapters[@]} != 0 ]; then
  build+=(--target "${chapters[@]/#/tests_}")
  which=(--label-regex "^($(IFS='|' && echo "${chapters[*]}"))\$")
fi

# five_longest HEADING: of lines "SECONDS NAME".
five_longest() { sort -rn | awk -v heading="$1" 'NR == 1 { print heading } NR <= 5 { printf "%7.1f s  %s\n", $1, $2 }'; }

log=build/ci/build.log
mkdir -p build/ci
echo "building in build/ci (with $(build_jobs) jobs; the compilers' messages are in $log)"
start=$SECONDS begin=$(date +%s)
if ! { configure ci "${options[@]}" && "${build[@]}"; } >"$log" 2>&1; then
  grep -E -A12 'error|Error|FAILED' "$log" | head -n 100
  echo "the build failed; all it said is in $log"
  echo "0 passed, 1 failed"
  exit 1
fi
echo "built in $((SECONDS - start)) s"
if [ -e build/ci/.ninja_log ]; then
  # Fields: start and end in ms since ninja started, the time of day at the start in ns, the output.
  awk -v begin="$begin" '$3 / 1e9 >= begin && $4 ~ /[.](o|gch|pch)$/ { print ($2 - $1) / 1000, $4 }' build/ci/.ninja_log |
    sed -E 's|CMakeFiles/([^/]*)[.]dir/.*/|\1/|' | five_longest "longest to compile:"
fi

report=$PWD/build/ci/tests.xml
rm -f "$report"
ctest --preset ci "${which[@]}" --output-junit "$report"
ran=$?
# What a test could not try, it says in a line that begins so.
grep -ahoE '^(SKIPPED|NOT TRIED):.*' build/ci/Testing/Temporary/LastTest.log | sort -u
counted() { tr '\n' ' ' <"$report" | grep -oE '<testsuite [^>]*' | grep -oE "[[:space:]]$1=\"[0-9]+\"" | grep -oE '[0-9]+'; }
[ -s "$report" ] || { echo "ctest did not run"; echo "0 passed, 1 failed"; exit 1; }
total=$(counted tests) failed=$(counted failures) skipped=$(counted skipped) disabled=$(counted disabled)
sed -nE 's/.*<testcase name="([^"]*)".* time="([0-9.]+)".*/\2 \1/p' "$report" | five_longest "longest to run:"
[ "$skipped" = 0 ] || echo "$skipped skipped"
echo "$((total - failed - skipped - disabled)) passed, $failed failed"
[ "$ran" = 0 ] && [ "$failed" = 0 ]
