#!/bin/bash
# A compiler launcher that compiles with another compiler:
#   other_compiler.sh OTHER COMPILER ARGUMENT...     OTHER ARGUMENT...
exec "$1" "${@:3}"
