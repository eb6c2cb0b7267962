#!/bin/bash
# No program decides by a sentence of the library, so that each of these may be reworded.
#   phrases.sh SOURCE_DIR
exec python3 "$(dirname "${BASH_SOURCE[0]}")/phrases.py" "$1"
