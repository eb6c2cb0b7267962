#!/bin/bash
# A header of include/ is there for a user or for another header:   users.sh SOURCE_DIR
#
# A page of the guide, or a README, names it as `chapter/x.hpp`, or it is reached by the #include lines
# of one that is. What the header of a whole chapter, such as parx/comm.hpp, lists is not reached by that
# alone: a list has no use of its own, but for the headers of other chapters in it (parx/ops.hpp). What
# only programs of the repository need is beside them in examples/. x.hpp reaches its detail/x_impl.hpp;
# what libraries instantiate (instances.hpp, and what cmake/libraries.cmake names) is reached as well.
# examples/guide/headers.md names headers that exist.
set -u
# check FOLDER: prints what is wrong.
check() (
  cd "$1" || exit 1
  named=$(cat README.md examples/README.md examples/guide/*.md cmake/libraries.cmake 2>/dev/null |
    grep -oE '[a-z_0-9/]+/[a-z_0-9]+[.]hpp' | sed 's,^parx/,,')
  find include/parx -name '*.hpp' -printf '%P\n' | sort | awk -v named="$named" '
    function visit(path,   list, n, i, implementation) {
      if (!(path in given) || path in reached || path !~ /\//) return
      reached[path]
      implementation = path
      if (sub(/[a-z_0-9]+[.]hpp$/, "detail/&", implementation)) sub(/[.]hpp$/, "_impl.hpp", implementation)
      visit(implementation)
      sub(/[.]hpp$/, "_impl.hpp", path)
      visit(path)
      sub(/_impl[.]hpp$/, ".hpp", path)
      n = split(includes[path], list, " ")
      for (i = 1; i <= n; ++i) visit(list[i])
    }
    {
      given[$0]
      file = "include/parx/" $0
      while ((getline line <file) > 0) {
        if (line !~ /^ *# *include <parx\//) continue
        split(line, part, /[<>]/)
        includes[$0] = includes[$0] " " substr(part[2], 6)
      }
      close(file)
    }
    END {
      n = split(named, names, "\n")
      for (i = 1; i <= n; ++i) visit(names[i])
      for (path in given) {
        if (path ~ /\/instances[.]hpp$/) visit(path)
        if (path ~ /\//) continue
        n = split(includes[path], names, " ")
        chapter = path; sub(/[.]hpp$/, "/", chapter)
        for (i = 1; i <= n; ++i) if (index(names[i], chapter) != 1) visit(names[i])
      }
      for (path in given) {
        if (path !~ /\// || path in reached || path ~ /\/src[.]hpp$/) continue
        print "include/parx/" path ": no header needs it, and no page of the guide names it. If users include it, give it a row in examples/guide/headers.md; what a program needs is beside the program"
      }
    }' | sort
  grep -oE '`[a-z_0-9/]+/[a-z_0-9]+[.]hpp`' examples/guide/headers.md | tr -d '`' | while read -r name; do
    [ -e "include/parx/$name" ] || echo "examples/guide/headers.md: there is no parx/$name"
  done
)
# The rule itself: two headers that need each other alone, and one that only its chapter lists.
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/include/parx/a/detail "$work"/examples/guide
echo '`a/x.hpp` `a/gone.hpp`' >"$work/examples/guide/headers.md"
echo '#include <parx/a/lonely.hpp>' >"$work/include/parx/a.hpp"
echo '#include <parx/a/needed.hpp>' >"$work/include/parx/a/x.hpp"
echo '#include <parx/a/two.hpp>' >"$work/include/parx/a/one.hpp"
echo '#include <parx/a/one.hpp>' >"$work/include/parx/a/two.hpp"
touch "$work"/include/parx/a/{lonely,needed,src,detail/needed_impl}.hpp
refused=$(check "$work" | sed 's/:.*//' | tr '\n' ' ')
expected='include/parx/a/lonely.hpp include/parx/a/one.hpp include/parx/a/two.hpp examples/guide/headers.md '
[ "$refused" = "$expected" ] || { echo "users.sh refuses \"$refused\" of its example, not \"$expected\""; exit 1; }

wrong=$(check "$1")
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
echo "every header has a user"
