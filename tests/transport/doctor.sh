#!/bin/bash
# parx_doctor says what UCX has chosen:   doctor.sh PARXRUN PARX_DOCTOR
set -u
said=$(PARX_TRANSPORT=ucx UCX_TLS=tcp "$1" -n 2 --tag-output=false bash -c 'PARX_HOST_ID=$RANK exec "$0"' "$2" 2>&1)
grep -qE '^ +0 - 1 +UCX [0-9.]+: tcp/[a-z0-9.]+ .*no zero copy' <<<"$said" || { echo "$said"; exit 1; }
said=$("$1" -n 2 --tag-output=false "$2" 2>&1)
if grep -q UCX <<<"$said"; then echo "$said"; echo "UCX is named without being asked for"; exit 1; fi
