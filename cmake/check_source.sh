#!/bin/bash
# The compiler's opinion of a source without its code, which is half of the work or more: stands before
# the compiler's command line, as CMake's CXX_COMPILER_LAUNCHER. What would be the object file is empty.
"$@" -fsyntax-only || exit
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then exec touch "$2"; fi
  shift
done
