# The Python wheel, for ./check --wheel: sourced by it, after packages.sh and torch.sh.

# What compiles it, and tries it in a root directory of its own.
wheel_packages=(g++ pkg-config git ca-certificates libucx-dev libeigen3-dev libxxhash-dev libhwy-dev libsodium-dev mmdebstrap)

# Makes it in build-wheel/dist/ and tests it; the last line says how many tests passed.
check_wheel() {
  install_packages "${wheel_packages[@]}" "${torch_packages[@]}"
  make_torch
  local python=()
  [ ! -x .cache/torch/bin/python ] || python=(.cache/torch/bin/python)
  say "making the wheel (build-wheel/make.log)"
  mkdir -p build-wheel
  python3 packaging/make_wheel.py build-wheel "${python[@]}" >build-wheel/make.log 2>&1 ||
    { tail -n 40 build-wheel/make.log >&2; fail "making the wheel failed (build-wheel/make.log)"; }
  say "testing the wheel"
  python3 tests/wheel/wheel_test.py build-wheel
}
