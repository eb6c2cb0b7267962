#!/bin/bash
# torch/python: builds parx_torch as a user does, by the first Python that has PyTorch, and runs its
# own check on two ranks: every operation, DDP's losses beside Gloo's, calls that differ, a killed
# rank.
#   python.sh SOURCES FOLDER [LIBRARY ITS_DEFINITIONS]
sources=$1 folder=$2 library=${3:-} definitions=${4:-} python=
for each in /usr/bin/python3 python3; do
  "$each" -c 'import setuptools, torch.distributed as d; assert d.is_available()' 2>/dev/null &&
    python=$each
done
# Its headers come with wheels of PyTorch, but not with Debian's package.
headers='import sysconfig, torch; print("-I" + sysconfig.get_paths()["include"],
               "-I" + torch.__path__[0] + "/include")'
if [ -z "$python" ] || ! g++ $("$python" -c "$headers") -x c++ -fsyntax-only - \
    <<< "#include <pybind11/detail/common.h>" 2>/dev/null; then
  echo "NOT TRIED: parx as a backend of torch.distributed, because no python3 has PyTorch and what" \
       "builds extensions of it (python3-torch python3-dev python3-setuptools pybind11-dev)"
  exit 77
fi
set -e
mkdir -p "$folder"
cp -ru "$sources"/{setup.py,parx_torch,src} "$folder/"
PARX_INCLUDE=$(cd "$sources/../../../include" && pwd)
export PARX_INCLUDE MAX_JOBS=2 PARX_LIBRARY=$library PARX_NATIVE=0 CFLAGS="-O1 $definitions"
cd "$folder"
start=$SECONDS
"$python" setup.py -q build_ext --inplace
echo "built in $((SECONDS - start)) s"
start=$SECONDS
"$python" -m parx_torch.check -n 2
echo "checked in $((SECONDS - start)) s"
