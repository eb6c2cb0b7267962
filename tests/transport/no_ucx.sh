#!/bin/bash
# Stands in for the tests of UCX where its headers were not found.
echo "NOT TRIED: collectives, messages and failures over UCX, because its headers were not found (libucx-dev)"
exit 77
