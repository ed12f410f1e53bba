# PyTorch's environment and its tests, for ./check: sourced by it.

# has_torch: whether .cache/torch holds the releases that the tests want.
has_torch() {
  [ -x .cache/torch/bin/python ] && .cache/torch/bin/python - <<'PYTHON' 2>/dev/null
import importlib.metadata as installed
assert installed.version("torch").split("+")[0] == "2.13.0" and installed.version("numpy") and installed.version("expecttest")
PYTHON
}

# Makes .cache/torch, which later runs keep. Where that cannot be, the tests on PyTorch are skipped, with the reason in .cache/torch-missing.
make_torch() {
  has_torch && return
  say "installing torch==2.13.0 into .cache/torch"
  mkdir -p .cache
  rm -rf .cache/torch .cache/torch-missing
  (install_packages "${torch_packages[@]}" && python3 -m venv .cache/torch &&
    timeout 600 .cache/torch/bin/pip install --quiet --disable-pip-version-check --retries 2 torch==2.13.0 numpy expecttest) >.cache/torch.log 2>&1 ||
    echo "exit status $?" >>.cache/torch.log
  has_torch && return
  (grep -iE '^(E:|error)' .cache/torch.log || cat .cache/torch.log) | tail -n 3 | tee .cache/torch-missing >&2
  rm -rf .cache/torch
  say "without PyTorch its tests will be skipped (pip install torch==2.13.0 numpy expecttest: .cache/torch.log)"
}

# wants_torch: whether a suite that is asked for uses it.
wants_torch() {
  [ "${#suites[@]}" -eq 0 ] || [[ " ${suites[*]} " =~ \ (torch|multiprocess)\  ]]
}

# of_the_emulator FOLDER: the library over the emulated devices.
of_the_emulator() { printf '%s' "$1/tests/gpu/library/libgradwire_emulated.so"; }

# compile_for_torch FOLDER: the extension for .cache/torch, for either library, and the device of the tests, so that no test does.
compile_for_torch() {
  [ -x .cache/torch/bin/python ] || return 0
  say "compiling the extension for PyTorch"
  python3 tests/torch/in_environment.py "$(of_the_emulator "$1")" tests/torch/emulated.py >&2 &
  local library
  for library in "$1/adapters/c/libgradwire.so" "$(of_the_emulator "$1")"; do
    python3 tests/torch/in_environment.py "$library" -m gradwire.torch.build >&2 || broke "the extension for PyTorch does not compile ($library)"
  done
  wait "$!" || broke "the device of PyTorch's tests does not compile (tests/torch/emulated.py)"
}

# on_torch LIBRARY TEST...: a test of tests/torch/, whole; one that lacks something says so, and is no failure.
on_torch() {
  local library=$1 result=0
  shift
  say "tests/torch/$*"
  GRADWIRE_TEST_FULL=1 python3 tests/torch/in_environment.py "$library" "tests/torch/$1" "${@:2}" || result=$?
  [ "$result" -eq 0 ] || [ "$result" -eq 77 ] || status=1
}

# torch_of FOLDER: everything on PyTorch, whole.
torch_of() {
  [ -x .cache/torch/bin/python ] || fail "no PyTorch in .cache/torch ($(cat .cache/torch-missing))"
  compile_for_torch "$1"
  local test ranks library="$1/adapters/c/libgradwire.so"
  for ranks in 2 3; do on_torch "$library" pytorch_suite.py --ranks "$ranks" --at-least 83; done
  for test in by_name collectives modes compression parallel faults launched_faults methods stock_hook trainer_agreement pip; do
    on_torch "$library" "${test}_test.py"
  done
  say "with tensors on emulated devices"
  for test in device counts nccl by_name collectives modes compression parallel faults bench_rows; do
    GRADWIRE_TEST_DEVICE=emulated on_torch "$(of_the_emulator "$1")" "${test}_test.py"
  done
  for test in methods stock_hook; do  # the models of ten million parameters would take hours there
    GRADWIRE_TEST_DEVICE=emulated on_torch "$(of_the_emulator "$1")" "${test}_test.py" --short
  done
  python3 tests/multiprocess/launchers_test.py "$1/apps/gradwire" --whole torchrun torchrun_in_srun || status=1
}
