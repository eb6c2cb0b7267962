#!/bin/bash
# A compiler launcher that compiles with another compiler:
#   other_compiler.sh OTHER COMPILER ARGUMENT...     OTHER ARGUMENT...
other=$1
shift 2
# CMake includes a precompiled header where it makes it, and clang would take the one of before.
if [[ $* =~ \ -o\ ([^ ]+[.]gch)\  ]]; then rm -f "${BASH_REMATCH[1]}"; fi
exec "$other" "$@"
