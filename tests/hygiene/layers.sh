#!/bin/bash
# The architecture as rules over the #include lines:   layers.sh INCLUDE_DIR
#                                  as a drawing:        layers.sh INCLUDE_DIR --map
#
# A header includes only its own folder and folders of a lower level, of those no detail/; the
# communication column and the tensor column do not know each other. What a group is made of
# (core_of) only comm asks for. All of parx is in the inline namespace PARX_ABI, and what says so
# includes core/abi.hpp, which defines that. Includes are written <parx/folder/file.hpp>. None is
# Boost's, and of parxrun, which needs it, none is <boost/asio.hpp>, which is all of Asio.
# What parx::comm is made of (parx_comm_chapters in cmake/targets.cmake) does not need zlib.
# What detail/x_impl.hpp defines is in a library: its chapter's src.hpp includes it, or another _impl.hpp.
# No file is longer than 500 lines, no line wider than 100 columns, those of the tests included.
# clang gives fmt's vformat_to another name than g++ gives it in libfmt: what uses it does not link.
# parx.hpp has every chapter but torch, which needs LibTorch. An example is a program of 150 lines at most, and so is the main.cpp of a
# tool; its parts keep to 500, and are included by nothing but that tool. README.md has the drawing.
set -u
cd "$1" || exit 1
# folder level column
table='
core            0 both
trace           1 both
types           2 both
store           3 communication
transport       4 communication
comm            5 communication
launch          6 communication
mesh            6 communication
tensor          3 tensor
autograd        4 tensor
data            4 tensor
nn              5 tensor
optim           5 tensor
models          6 tensor
ops             6 tensor
checkpoint      7 both
plan            7 both
reduction       7 both
ddp             8 both
tensor_parallel 8 both
amp             8 both
fsdp            8 both
trees           8 both
pipeline        9 both
torch           9 both
train           10 both
parallel        10 both
'
# The table from top to bottom, in columns.
map() {
  echo "$table" | awk '
    NF == 3 { names[$2, $3] = names[$2, $3] (names[$2, $3] == "" ? "" : "  ") $1; if ($2 > top) top = $2 }
    END {
      print "      communication    both                          tensors"
      for (level = top; level >= 0; level--) {
        line = sprintf("%3d   %-15s  %-28s  %s", level, names[level, "communication"],
                       names[level, "both"], names[level, "tensor"])
        sub(/ +$/, "", line); print line
      }
    }'
}
if [ "${2:-}" = --map ]; then map; exit; fi
wrong=$(
  find parx parx.hpp -name '*.hpp' -print0 | sort -z | LC_ALL=C xargs -0 awk -v table="$table" '
    BEGIN {
      rows = split(table, row, "\n")
      for (i = 1; i <= rows; i++) {
        if (split(row[i], word, " ") == 3) { level[word[1]] = word[2]; column[word[1]] = word[3] }
      }
      level["parx"] = 99; column["parx"] = "both"  # parx.hpp itself, and the compiled form of it
    }
    function chapter(path) { if (path == "parx/src.hpp") return "parx"; sub(/^parx\//, "", path); sub(/[\/.].*/, "", path); return path }
    function end_of(path) { if (path != "" && !guarded) print path ": no #pragma once" }
    FNR == 1 {
      end_of(previous); previous = FILENAME; guarded = 0
      here = chapter(FILENAME); found[here]
      if (!(here in level)) print FILENAME ": folder " here " is not in the table of layers"
      if ($0 !~ /^\/\//) print FILENAME ": does not begin with what it is"
      if (FILENAME ~ /^parx\/[^\/]*$/ && here != "parx") chapters[FILENAME]
    }
    /^#pragma once$/ { guarded = 1 }
    /^namespace parx/ && !/^namespace parx::inline PARX_ABI/ {
      print FILENAME ":" FNR ": write namespace parx::inline PARX_ABI"
    }
    /^namespace parx/ { tagged[FILENAME] = 1 }
    /core_of\(/ && here != "comm" {
      print FILENAME ":" FNR ": core_of() is for comm; the group offers to others what they need"
    }
    /[:( ](v?format_to|format_to_n)\(/ {
      print FILENAME ":" FNR ": fmt::vformat instead, or programs compiled by clang do not link"
    }
    /^[ \t]*#[ \t]*include/ {
      where = FILENAME ":" FNR ": "
      if ($0 ~ /"/) print where "write <parx/...>, not quotes"
      if ($0 ~ /<boost\//) print where "includes Boost, which parx does without"
      if ($0 ~ /<Eigen\//) print where "includes Eigen, which parx does without"
      if ($0 ~ /<zlib/ && (column[here] == "communication" || level[here] <= 2))
        print where "includes zlib, which parx::comm does without"
      if (match($0, /<parx\/[^>]+>/)) {
        file = substr($0, RSTART + 1, RLENGTH - 2); there = chapter(file)
        if (here == "parx") everything[file]
        includes[FILENAME] = includes[FILENAME] " " file
        if (there == here) next
        if (file ~ /\/detail\//) print where file " is private to " there "; what two chapters need is public"
        if (!(there in level)) print where there " is not in the table of layers"
        else if (level[there] >= level[here]) print where here " must not include " there ", which is not below it"
        else if (column[here] != "both" && column[there] != "both" && column[here] != column[there])
          print where here " (" column[here] ") must not know " there " (" column[there] ")"
      }
    }
    length > 100 {
      characters = $0; gsub(/[\200-\277]/, "", characters)  # but the first byte of each in UTF-8
      if (length(characters) > 100) print FILENAME ":" FNR ": " length(characters) " columns; keep to 100"
    }
    FNR == 501 { print FILENAME ": longer than 500 lines; split it by ideas" }
    function reaches_tag(path,   list, i) {  # whether what it includes defines PARX_ABI
      if (path == "parx/core/abi.hpp") return 1
      if (path in seen) return 0
      seen[path]
      split(includes[path], list, " ")
      for (i in list) if (reaches_tag(list[i])) return 1
      return 0
    }
    END {
      end_of(previous)
      for (path in tagged) {
        delete seen  # x.hpp and x_impl.hpp include each other
        if (!reaches_tag(path)) print path ": does not include <parx/core/abi.hpp>"
      }
      for (name in level) {
        if (name != "parx" && !(name in found)) print "folder " name " of the table of layers does not exist"
      }
      for (file in chapters) if (!(file in everything) && file != "parx/torch.hpp") print "parx.hpp does not include <" file ">"
    }'
)
long=$(
  cd ../examples 2>/dev/null || exit 0  # an installed parx has headers alone
  for program in */*.cpp tools/*/main.cpp; do
    lines=$(wc -l <"$program")
    [ "$lines" -le 150 ] || echo "examples/$program: $lines lines; keep to 150"
  done
  find . -name '*.[ch]pp' -print0 | sort -z | LC_ALL=C xargs -0 awk '
    { where = "examples/" substr(FILENAME, 3) }
    FNR == 501 { print where ": longer than 500 lines; split it by ideas" }
    /<boost\/asio\.hpp>/ { print where ":" FNR ": includes all of Asio" }
    /[:( ](v?format_to|format_to_n)\(/ { print where ":" FNR ": fmt::vformat instead, or programs compiled by clang do not link" }
    /^#include "tools\// {
      split($0, tool, "/"); split(FILENAME, own, "/")
      if (own[2] != "tools" || (tool[2] != "common" && tool[2] != own[3]))
        print where ":" FNR ": includes a part of tools/" tool[2] "; what several programs need is in tools/common or common"
    }'
)
if [ -f ../README.md ] && [ "$(awk '/^```/ { inside = 0 } inside; /^## Layers/ { layers = 1 } /^```/ && layers { inside = 1; layers = 0 }' ../README.md)" != "$(map)" ]; then
  wrong+="${wrong:+$'\n'}README.md: the drawing of the layers is not what layers.sh --map prints"
fi
wrong+=${long:+${wrong:+$'\n'}$long}
wide=$(
  cd .. && [ -d tests ] || exit 0
  find tests examples benchmarks -name '*.[ch]pp' -print0 | LC_ALL=C xargs -0 awk '
    length > 100 && !/R"\(/ {  # a raw string cannot be broken
      characters = $0; gsub(/[\200-\277]/, "", characters)
      if (length(characters) > 100) print FILENAME ":" FNR ": over 100 columns"
    }'
)
wrong+=${wide:+${wrong:+$'\n'}$wide}
nowhere=$(
  sources=$(grep -rhoE '^#include <parx/[a-z_0-9/]*_impl[.]hpp>' --include=src.hpp --include='*_impl.hpp' parx)
  sources+=$(grep -o 'parx/[a-z_/]*_impl[.]hpp' ../cmake/libraries.cmake 2>/dev/null)
  find parx -name '*_impl.hpp' | sort | while read -r header; do
    grep -qF "$header" <<<"$sources" || echo "$header: no src.hpp includes it"
  done
)
wrong+=${nowhere:+${wrong:+$'\n'}$nowhere}
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
echo "$(find parx -name '*.hpp' | wc -l) headers keep to the layers"
