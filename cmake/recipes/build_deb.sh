#!/usr/bin/env bash
# Builds libparx-dev and parx-tools out of this checkout: bash cmake/recipes/build_deb.sh OUT
# Needs the packages debhelper and devscripts, and those of debian/control.
set -euo pipefail
out=${1:?where the packages go}
mkdir -p "$out"
out=$(cd "$out" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
version=$(sed -n 's/^#define PARX_VERSION "\(.*\)"$/\1/p' "$source/include/parx/core/version.hpp")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/parx-$version"
tar -C "$source" --exclude=./build --exclude=./.git -cf - . | tar -C "$work/parx-$version" -xf -
cp -r "$source/cmake/recipes/debian" "$work/parx-$version/debian"
cat >"$work/parx-$version/debian/changelog" <<CHANGES
parx ($version) unstable; urgency=medium

  * What has changed is in the history of the source.

 -- The parx authors <parx@localhost>  $(date -R)
CHANGES
(cd "$work/parx-$version" && dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary)
cp "$work"/*.deb "$out"
ls "$out"/*.deb
