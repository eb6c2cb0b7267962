# shellcheck shell=bash disable=SC2034
# Debian packages for parx, sourced by tests/run.sh and examples/quickstart.sh.
#
#   need_packages PACKAGE...             installs what is missing; where it may not, prints the command
#                                        that would, and exits with code 1
#   want_packages "what for" PACKAGE...  the same for something optional: says loudly that it is missing
#                                        and returns 1 instead
build_packages="cmake g++ ninja-build libboost1.81-dev libfmt-dev libcxxopts-dev zlib1g-dev"

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf ' %s' "$package"
  done
}

# "" as root, "sudo" where it works without asking or there is somebody to ask.
as_root() {
  if [ "$(id -u)" = 0 ]; then return 0; fi
  command -v sudo >/dev/null || return 1
  if sudo -n true 2>/dev/null || [ -t 0 ]; then echo sudo; else return 1; fi
}

apt_command() { echo "apt-get install -y --no-install-recommends$*"; }

# install_packages " a b": 0 when they are there afterwards.
install_packages() {
  local prefix
  prefix=$(as_root) || return 1
  echo "installing$1 ..."
  # The package lists of a fresh machine are empty or old, so a first failure may only mean that.
  local apt="$prefix env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
  local install="$apt install -y --no-install-recommends$1"
  $install >/dev/null 2>&1 || { $apt update && $install >/dev/null; } || return 1
  [ -z "$(missing_packages $1)" ]
}

need_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian system, so packages are not checked. Needed: $*"
    return 0
  fi
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  install_packages "$missing" && return 0
  echo "Packages are missing and could not be installed from here. Run this, then try again:" >&2
  echo "  sudo $(apt_command "$missing")" >&2
  exit 1
}

want_packages() {
  local purpose=$1 missing
  shift
  command -v dpkg-query >/dev/null || return 1
  missing=$(missing_packages "$@")
  if [ -z "$missing" ] || install_packages "$missing"; then return 0; fi
  echo "NOT TRIED: $purpose, because$missing could not be installed (sudo $(apt_command "$missing"))"
  return 1
}

# Compilers that may run at once: one for each core, and for each 1.5 GB of memory.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  if [ "$memory" -lt "$cores" ]; then echo "$memory"; else echo "$cores"; fi
}

# configure PRESET [OPTION...]: with Ninja, or with make where there is no Ninja.
configure() {
  if command -v ninja >/dev/null; then
    cmake --preset "$@"
  else
    cmake --preset "$@" -G "Unix Makefiles"
  fi
}
