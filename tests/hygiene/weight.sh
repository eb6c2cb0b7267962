#!/bin/bash
# What three programs reach of parx grows only when somebody says so:
#   weight.sh check|check_all|record SOURCE_DIR [COMPILER]
# hello is README's first program, header-only and in the compiled form, and training its training
# program in the compiled form. weight.txt has, for each, the bytes of its object code, the lines of
# parx's headers after the preprocessor, and by folder which headers these are and whose code the
# bytes are. When a figure has grown by more than 2 %, the message says which headers are new and
# who includes them, and which folders grew. `record` writes weight.txt anew. The object code of the
# training program takes half a minute and is made by check_all and record alone.
# Seconds follow these figures (1 kB of object code costs some 30 ms), and vary where these do not.
set -u
what=$1 source=$2 compiler=${3:-g++}
not_tried() { echo "NOT TRIED: what programs weigh, because $1"; exit 77; }
said=$("$compiler" --version 2>/dev/null)
[[ $said == *"Free Software Foundation"* ]] || not_tried "$compiler is not g++"
[ "$("$compiler" -dumpversion | cut -d. -f1)" = 12 ] || not_tried "the figures are those of g++ 12"
[[ $("$compiler" -dumpmachine) == x86_64-* ]] || not_tried "the figures are those of x86-64"
command -v python3 >/dev/null || not_tried "there is no python3"
exec python3 "$(dirname "${BASH_SOURCE[0]}")/weight.py" "$what" "$source" "$compiler"
