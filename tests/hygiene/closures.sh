#!/bin/bash
# A closure has one layout in the objects of two compilers. In which order a lambda keeps what it captures by
# default, the language leaves open, and g++ and clang differ: in templates, and where `this` is captured with
# it. A program by one and a library by the other would then read wrong captures: a template's lambda is in the
# objects of both, and the linker takes one. So such lambdas say what they capture.
#   closures.sh SOURCE_DIR GCC CLANG [FLAG...]     compiles the library and a trainer by both, for their
#                                                  debugging information
set -eu
source=$1 gcc=$2 clang=$3; shift 3
not_tried() { echo "NOT TRIED: closures of two compilers, because $1"; exit 77; }
command -v llvm-dwarfdump >/dev/null || not_tried "there is no llvm-dwarfdump"
[[ $("$gcc" --version) == *"Free Software Foundation"* ]] || not_tried "$gcc is not g++"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
compare() {  # compare SOURCE FLAG...
  local name
  for compiler in "$gcc" "$clang"; do
    name=$(basename "$compiler")
    "$compiler" -std=c++20 -g -O0 -w "${@:2}" -I"$source/include" -I"$source/examples" \
      -c "$1" -o "$work/$name.o"
    llvm-dwarfdump "$work/$name.o" | grep -E '^0x|DW_AT_(name|decl_file|decl_line)' >"$work/$name.txt"
  done
  python3 "$folder/closures.py" "$work/$(basename "$gcc").txt" "$work/$(basename "$clang").txt"
}
printf '#include <parx/%s.hpp>\n' src parallel/detail/models_impl >"$work/library.cpp"
compare "$work/library.cpp" -DPARX_SEPARATE_COMPILATION -DPARX_COMPILED_MODELS "$@"
compare "$source/examples/trainers/train_gpt.cpp" "$@"
