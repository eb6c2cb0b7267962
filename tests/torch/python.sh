#!/bin/bash
# torch/python: installs parx_torch as a user does, for the first Python that has PyTorch, and runs
# its own check on two ranks: every operation, DDP's losses beside Gloo's, calls that differ, a
# killed rank. Then the ways by which PyTorch finds it.
#   python.sh SOURCES FOLDER [LIBRARY ITS_DEFINITIONS]
sources=$1 folder=$2 library=${3:-} definitions=${4:-} python=
here=$(cd "$(dirname "$0")" && pwd)
for each in /usr/bin/python3 python3; do
  "$each" -c 'import setuptools, pip, torch.distributed as d; assert d.is_available()' \
    2>/dev/null && python=$each
done
# Its headers come with wheels of PyTorch, but not with Debian's package.
headers='import sysconfig, torch; print("-I" + sysconfig.get_paths()["include"],
               "-I" + torch.__path__[0] + "/include")'
if [ -z "$python" ] || ! g++ $("$python" -c "$headers") -x c++ -fsyntax-only - \
    <<< "#include <pybind11/detail/common.h>" 2>/dev/null; then
  echo "NOT TRIED: parx as a backend of torch.distributed, because no python3 has PyTorch and what" \
       "builds extensions of it (python3-torch python3-dev python3-pip pybind11-dev)"
  exit 77
fi
set -e
mkdir -p "$folder"
cp -ru "$sources"/{setup.py,pyproject.toml,parx_torch,src} "$folder/"
PARX_INCLUDE=$(cd "$sources/../../../include" && pwd)
export PARX_INCLUDE MAX_JOBS=2 PARX_LIBRARY=$library PARX_NATIVE=0 CFLAGS="-O1 $definitions"
start=$SECONDS
"$python" -m pip install -q --no-build-isolation --no-deps --upgrade --target "$folder/installed" \
  --root-user-action=ignore --disable-pip-version-check "$folder"
echo "installed in $((SECONDS - start)) s"
export PYTHONPATH=$folder/installed${PYTHONPATH:+:$PYTHONPATH}
start=$SECONDS
cd "$folder/installed"
"$python" -m parx_torch.check -n 2
"$python" "$here/autoload.py" "$sources"
echo "checked in $((SECONDS - start)) s"
