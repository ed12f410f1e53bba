# Build folders, for ./demo and ./check: sourced by them, after progress.sh and packages.sh.

targets=(all)  # what build() builds
ucx_root= ucx_version=

# show_meson FOLDER: what Meson looks at, from its output.
show_meson() {
  local line
  while IFS= read -r line; do
    progress "configuring $1: ${line:0:70}"
  done
}

# meson_setup FOLDER [MESON OPTION...]
meson_setup() {
  local folder=$1 start
  shift
  start=$(seconds_now)
  say "configuring $folder"
  meson setup "$folder" "$@" 2>&1 | tee "$folder.log" | show_meson "$folder" || {
    say "configuring $folder failed:"
    cat "$folder.log" >&2
    rm -f "$folder.log"
    fail "configuring $folder failed (see above)"
  }
  rm -f "$folder.log"
  say "configured $folder in $(clock_text $(($(seconds_now) - start)))"
}

# configure FOLDER [MESON OPTION...]: once. A folder that was configured for the program alone is widened to the rest; its
# objects stay.
configure() {
  [ -f "$1/build.ninja" ] || meson_setup "$@"
  if [ -f "$1/program-alone" ]; then
    meson configure "$1" -Dtests=auto -Dmpi=auto -Dcuda=auto -Dnccl=auto || fail "configuring $1 anew failed"
    rm -f "$1/program-alone"
  fi
}

# configure_program FOLDER: once, for the program alone: no CUDA, no MPI, no tests.
configure_program() {
  [ ! -f "$1/build.ninja" ] || return 0
  meson_setup "$1" -Dtests=disabled -Dmpi=disabled -Dcuda=disabled -Dnccl=disabled
  touch "$1/program-alone"
}

# run_ninja FOLDER TARGET...: with its progress.
run_ninja() {
  local folder=$1
  shift
  ninja -C "$folder" build.ninja 2>&1 | show_meson "$folder" || {
    ninja -C "$folder" build.ninja >&2 || true
    fail "configuring $folder anew failed (see above)"
  }
  NINJA_STATUS='@%f %t ' ninja -C "$folder" "$@" 2>&1 | show_ninja "$folder" || fail "building $folder failed (see above)"
}

# build FOLDER [MESON OPTION...]: configures once, builds `targets` always (ninja knows what is stale).
build() {
  configure "$@"
  run_ninja "$1" "${targets[@]}"
}

# build_tests FOLDER TEST...: what these tests of a configured folder start; `--suite NAME` stands for all of a suite.
build_tests() {
  local programs
  ninja -C "$1" --quiet build.ninja >/dev/null || fail "configuring $1 anew failed"  # the list of tests may be of an older tree
  programs=$(python3 tests/support/targets_of.py "$@") || fail "no such tests (${*:2})"
  mapfile -t targets <<<"$programs"
  build "$1"
}

# build_program FOLDER: the program gradwire alone, with the packages that it needs.
build_program() {
  install_packages "${program_packages[@]}"
  configure_program "$1"
  run_ninja "$1" apps/gradwire
}

# make_environment FOLDER: a Python environment, once.
make_environment() {
  install_packages python3-venv
  [ -x "$1/bin/python" ] || python3 -m venv "$1" || fail "making a virtual environment in $1 failed"
}

# Installs or updates the wheel, whose own pkg-config files name the machine that made it. Sets ucx_root, ucx_version.
newest_ucx() {
  make_environment .cache/ucx-newest
  .cache/ucx-newest/bin/pip install --quiet --disable-pip-version-check --upgrade --no-deps libucx-cu13 ||
    fail "installing the Python wheel libucx-cu13 failed (it needs a package index)"
  ucx_root=$(.cache/ucx-newest/bin/python -c 'import os, libucx; print(os.path.dirname(os.path.realpath(libucx.__file__)))')
  ucx_version=$(.cache/ucx-newest/bin/python -c 'import importlib.metadata as m; print(m.version("libucx-cu13"))')
}

# build_newest_ucx TARGET...: builds them in build-ucx-newest/.
build_newest_ucx() {
  newest_ucx
  # The folder holds one version of UCX: a newer one starts it anew.
  grep -qsxF "$ucx_root $ucx_version" build-ucx-newest/ucx-of-this-build || rm -rf build-ucx-newest
  targets=("$@")
  build build-ucx-newest -Ducx_root="$ucx_root" -Dmpi=disabled -Dcuda=disabled
  echo "$ucx_root $ucx_version" >build-ucx-newest/ucx-of-this-build
  say "UCX $ucx_version"
}

# Makes .cache/clang-tidy. Of the same sources this release needs two fifths of the time of Debian 12's: it looks for nothing in what
# the system's headers declare. Where it cannot be had, Debian's does the same more slowly.
newest_clang_tidy() {
  make_environment .cache/clang-tidy
  .cache/clang-tidy/bin/pip install --quiet --disable-pip-version-check --only-binary :all: clang-tidy==23.1.4 ||
    install_packages clang-tidy
}

# has_nvcc: whether the build can compile for CUDA.
has_nvcc() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }

# Makes .cache/nvidia, an environment with NCCL's header and library.
nvidia_wheels() {
  make_environment .cache/nvidia
  .cache/nvidia/bin/pip install --quiet --disable-pip-version-check --no-deps nvidia-nccl-cu13 ||
    fail "installing the Python wheel nvidia-nccl-cu13 failed (it needs a package index)"
}
