# Debian's packages, for ./demo and ./check: sourced by them.

# What the program needs: a compiler, Meson, and libraries.
program_packages=(g++ meson ninja-build pkg-config python3 libucx-dev libeigen3-dev zlib1g-dev libssl-dev
  libcli11-dev libxxhash-dev libhwy-dev nlohmann-json3-dev libtomlplusplus-dev libspdlog-dev libfmt-dev libjs-chart.js)
# What ./check needs beside these: tests, linters, MPI, downloads of data, and a cache for what several folders compile alike.
packages=("${program_packages[@]}" build-essential git ca-certificates ccache cmake python3-numpy ucx-utils libgtest-dev libgmock-dev
  libcurl4-openssl-dev libmetis-dev openmpi-bin libopenmpi-dev python3-venv clang-format codespell)
# What some tests start, and skip where it is missing: a second MPI, Slurm, Fortran, resets between hosts.
launcher_packages=(mpich libmpich-dev slurm-wlm munge gfortran iptables)
# What makes an environment with PyTorch, and compiles for it.
torch_packages=(python3-venv python3-dev)

# apt_get LOG WORD...: apt-get with its progress shown and its words in LOG.
apt_get() {
  local log=$1
  shift
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=300 -o APT::Status-Fd=1 "$@" 2>&1 |
    show_apt "$log"
}

# install_packages PACKAGE...: those that are missing.
install_packages() {
  local missing=() package installed start log
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || {
    say "packages: no apt-get here; the equivalents of these are needed: $*"
    return 0
  }
  installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)  # 1: some are unknown
  installed=" $(sed -n 's/^\([^ :]*\)[^ ]* installed$/\1/p' <<<"$installed" | tr '\n' ' ') "
  for package in "$@"; do
    [[ "$installed" == *" $package "* ]] || missing+=("$package")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing and there is no sudo (run as root: apt-get install ${missing[*]})"
    as_root=(sudo)
  fi
  say "packages: installing ${#missing[@]} of $# and what they depend on (${missing[*]})"
  start=$(seconds_now)
  log=$(mktemp)
  # Package lists that are there may be missing or too old: they are fetched, and the installation tried again, when it fails.
  if ! apt_get "$log" install --no-install-recommends "${missing[@]}"; then
    say "packages: fetching Debian's package lists"
    apt_get "$log" update || true
    : >"$log"
    apt_get "$log" install --no-install-recommends "${missing[@]}" || {
      grep -E '^(E|W):' "$log" >&2 || cat "$log" >&2
      rm -f "$log"
      fail "installing ${missing[*]} failed (see above)"
    }
  fi
  rm -f "$log"
  say "packages: installed in $(clock_text $(($(seconds_now) - start)))"
}
