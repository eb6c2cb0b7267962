#!/bin/bash
# Words that could mean several things have one meaning in the names of types.
#   glossary.sh SOURCE_DIR
exec python3 "$(dirname "${BASH_SOURCE[0]}")/glossary.py" "$1"
