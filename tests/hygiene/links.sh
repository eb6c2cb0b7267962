#!/bin/bash
# Links between the texts of the repository lead to files and headings that exist:   links.sh FILE.md...
set -u
wrong=0
slugs() {  # of the headings, as GitHub makes them
  awk '/^```/ { inside = !inside } !inside && /^#+ / {
    sub(/^#+ /, ""); $0 = tolower($0); gsub(/[^a-z0-9 _-]/, ""); gsub(/ /, "-"); print }' "$1"
}
for text in "$@"; do
  while read -r line link; do
    file=${link%%#*} heading=""
    [[ $link == *#* ]] && heading=${link#*#}
    path=$text
    [ -z "$file" ] || path=$(dirname "$text")/$file
    if [ ! -e "$path" ]; then
      echo "$text:$line: there is no $file"; wrong=1
    elif [ -n "$heading" ] && ! slugs "$path" | grep -qxF -- "$heading"; then
      echo "$text:$line: ${file:-it} has no heading #$heading"; wrong=1
    fi
  done < <(awk '/^```/ { inside = !inside }
    !inside { rest = $0
      while (match(rest, /\]\([^) ]+\)/)) {
        link = substr(rest, RSTART + 2, RLENGTH - 3); rest = substr(rest, RSTART + RLENGTH)
        if (link !~ /^[a-z]+:/) print FNR, link
      } }' "$text")
done
[ $wrong = 0 ] && echo "the links of $# texts lead somewhere"
exit $wrong
