#!/bin/bash
# What sites install and accept parx by: ReFrame's check, EasyBuild's easyconfig, the definition of the
# Apptainer image, and the module files:   recipes.sh SOURCE_DIR PARXRUN
set -u
source=$1 parxrun=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
claim() { local text=$1; shift; "$@" >"$work/out" 2>&1 && return; failures=$((failures + 1)); echo "FAILED: $text"; sed 's/^/    /' "$work/out"; }

if command -v python3 >/dev/null; then
  echo "NOT TRIED: ReFrame and EasyBuild themselves, which Debian does not have; a stand-in loads the check"
  "$parxrun" -n 4 --tag-output=false "$(dirname "$parxrun")/hello_all_reduce" >"$work/hello" || exit 1
  claim "the check and the easyconfig hold" python3 "$source/tests/hygiene/recipes.py" "$source" "$work/hello"
else
  echo "NOT TRIED: ReFrame's check and the easyconfig, because there is no python3"
fi

# The image: its scripts are shell, and its files, packages and programs exist.
echo "NOT TRIED: building the image of Apptainer, which Debian 12 does not have"
definition=$source/cmake/recipes/parx.def
section() { awk -v name="%$1" '/^%/ { inside = $1 == name; next } inside' "$definition"; }
for script in post test; do
  section $script >"$work/$script"
  claim "%$script of parx.def is a script" test -s "$work/$script"
  claim "which bash reads" bash -n "$work/$script"
done
claim "its files are there" bash -c 'while read -r file _; do [ -z "$file" ] || [ -e "$0/$file" ] || { echo "$file"; exit 1; }; done' \
  "$source" < <(section files)
words=$(tr -d '\\' <"$work/post" | tr '\n' ' ')
programs=$(grep -oE -- '--target .* cp build' <<<"$words" | sed 's/--target//; s/cp build//')
claim "it builds programs" test -n "$programs"
for program in $programs; do
  claim "there is a program $program" bash -c 'ls "$0"/examples/*/$1.cpp || [ -e "$0/examples/tools/$1/main.cpp" ] || grep -q "$1" "$0/benchmarks/CMakeLists.txt"' "$source" "$program"
done
if command -v apt-cache >/dev/null && apt-cache show g++ >/dev/null 2>&1; then
  for package in $(grep -oE -- '--no-install-recommends .* cd /opt' <<<"$words" | sed 's/--no-install-recommends//; s/cd .opt//'); do
    claim "Debian has its package $package" apt-cache show "$package"
  done
else
  echo "NOT TRIED: the names of its packages, because apt-cache knows none"
fi

# The module files, of an installation that was moved.
installs() {
  cmake -S "$source" -B "$work/build" -DPARX_COMM_ONLY=ON -DPARX_INSTALL=ON \
    -DPARX_INSTALL_LIBRARIES=OFF -DPARX_INSTALL_MODULEFILES=ON &&
    cmake --install "$work/build" --prefix "$work/opt/first" && mv "$work/opt/first" "$work/opt/parx"
}
claim "CMake installs module files" installs
loads='module load parx && [ "$PARX_ROOT" = "$0/opt/parx" ] && [[ :$PATH: = *":$0/opt/parx/bin:"* ]] &&
  [[ :$CMAKE_PREFIX_PATH: = *":$0/opt/parx:"* ]] && [ -e "${CPATH%%:*}/parx/comm.hpp" ] && [ -d "${PKG_CONFIG_PATH%%:*}" ] &&
  module unload parx && [ -z "${PARX_ROOT:-}" ] && [[ :$PATH: != *":$0/opt/parx/bin:"* ]]'
tried=0
for init in /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
  [ -e "$init" ] || { echo "NOT TRIED: the module files with $init, which is not there"; continue; }
  tried=$((tried + 1))
  claim "$init loads the module, and unloads it" bash -c "
    unset MODULEPATH LOADEDMODULES _LMFILES_ CPATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
    . $init; module use \"\$0/opt/parx/share/modulefiles\"; $loads" "$work"
done
[ $failures = 0 ] || exit 1
[ $tried != 0 ] || exit 77
