#!/bin/bash
# The pictures of the guide are still what the command beside them draws:
#   pictures.sh PARXRUN PICTURE_TOUR GUIDE
# The ring must be the same to the byte; the steps of ddp and fsdp must consist of the same spans,
# whose times differ from run to run.
set -eu
parxrun=$1 tour=$2 guide=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PARX_TRANSPORT=tcp timeout 100 "$parxrun" -n 2 "$tour" --folder "$work" 2>&1 | tee "$work.said"
[ ! -s "$work.said" ] || { echo "picture_tour says something"; rm -f "$work.said"; exit 1; }
rm -f "$work.said"
spans() { grep -oE '<title>[^<]*' "$1" | sort | uniq -c; }
[ "$(cd "$work" && echo *)" = "ddp_step.svg fsdp_step.svg ring.svg" ] || { ls "$work"; exit 1; }
cmp "$work/ring.svg" "$guide/ring.svg" || { echo "ring.svg: draw it again"; exit 1; }
for name in ddp_step fsdp_step; do
  [ "$(tail -n 1 "$work/$name.svg")" = "</svg>" ] || { echo "$name.svg is not whole"; exit 1; }
  diff <(spans "$guide/$name.svg") <(spans "$work/$name.svg") ||
    { echo "$name.svg: the step has other spans than the guide's picture; draw it again"; exit 1; }
done
echo "3 pictures of the guide are what picture_tour draws"
