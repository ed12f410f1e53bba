# The runs of ./check, one function each: sourced by it, after build.sh and torch.sh.

results=()  # of Meson's test runs, for tests/support/count_tests.py
# Continuous integration says CI=true: what ./check installs must be there then (tests/support/expected_skips.toml).
in_ci=()
[ "${CI:-}" != true ] || in_ci=(--ci)
status=0
broken=()  # what failed beside tests, for the counts
time_limits=1  # times the tests' own time limits

# Many tests wait more than they compute, so more run at a time than there are processors. A test that must not have neighbours
# says so itself (is_parallel: false).
test_jobs=${GRADWIRE_TEST_JOBS:-$(($(nproc) + 2))}

# meson_test FOLDER WORD...: adds to the counts of tests/support/count_tests.py.
meson_test() {
  local folder=$1 log=testlog-${#results[@]}
  shift
  meson test -C "$folder" --no-rebuild --print-errorlogs --num-processes "$test_jobs" --logbase "$log" \
    --timeout-multiplier "$time_limits" "$@" || status=1
  results+=("$folder/meson-logs/$log.junit.xml")
}

# run_tests FOLDER [SUITE...]
run_tests() {
  local folder=$1 suite
  shift
  local wanted=()
  for suite in "$@"; do wanted+=(--suite "$suite"); done
  say "testing $folder${*:+ ($*)}"
  meson_test "$folder" "${wanted[@]}"
}

# broke WORDS: what failed, if it is no test of Meson's.
broke() {
  status=1
  broken+=(--broken "$*")
}

# Prints the counts and ends. A skip that tests/support/expected_skips.toml does not expect is a failure.
report() {
  python3 tests/support/count_tests.py "${in_ci[@]}" "${broken[@]}" "${results[@]}" || status=1
  exit "$status"
}

# The architectures of this machine's GPUs. Without any, kernels are compiled and not run: for one, which takes two thirds of
# the time of two.
kernel_archs() {
  local seen
  seen=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | sed 's/\.//; s/^/sm_/' | paste -sd ';') || true
  printf '%s' "${seen:-sm_90}"
}

# Where there is a CUDA compiler the tests are built in two configurations: with CUDA and NCCL, and without.
check_all() {
  if has_nvcc && [ ! -x .cache/nvidia/bin/python ]; then (nvidia_wheels) || say "without NCCL"; fi
  if wants_torch; then make_torch & fi
  if [ "${#suites[@]}" -eq 0 ] || [[ " ${suites[*]} " =~ \ lint\  ]]; then newest_clang_tidy; fi
  local nvidia=()
  [ ! -x .cache/nvidia/bin/python ] || nvidia=(-Dnvidia_python="$PWD/.cache/nvidia/bin/python")
  # A build folder from before there was NCCL learns of it.
  if [ "${#nvidia[@]}" -gt 0 ] && [ -f build/build.ninja ] && ! meson introspect build --buildoptions | grep -F "$PWD/.cache/nvidia" >/dev/null; then
    meson configure build "${nvidia[@]}"
  fi
  build build "${nvidia[@]}" -Dgpu_archs="$(kernel_archs)"
  wait
  if wants_torch; then compile_for_torch build; fi
  if [ "${#suites[@]}" -gt 0 ]; then
    run_tests build "${suites[@]}"
  else
    say "reading the sources"  # seconds, but for what clang-tidy has not read before: minutes
    meson_test build --suite lint
    say "testing build"
    meson_test build --no-suite lint
  fi
  if has_nvcc && [ "${#suites[@]}" -eq 0 ]; then
    if (configure build-plain -Dcuda=disabled -Dnccl=disabled -Dmpi=disabled -Doptimization=1 && build_without_cuda); then
      run_tests build-plain devices
    else
      broke "gradwire does not compile without CUDA (build-plain)"
    fi
  fi
  if [ "${#suites[@]}" -eq 0 ]; then sample_mutants; fi
  report
}

# Methods are compiled without their kernels, and the folder device/ is tested without a device.
build_without_cuda() {
  build_tests build-plain --suite devices
  targets=(compress/libcompress.a)
  build build-plain
}

# A few mutants of the folder device/, by the programs that are compiled soonest.
sample_mutants() {
  say "leaving out a few waits (./check --mutants tries all)"
  if (build_mutants sample -Doptimization=1 -- tests/emulation/emulation_tests tests/emulation/waits_test); then
    python3 tests/mutants/run_mutants.py build-mutants/sample --sample 8 --seconds 90 || broke "the sample of mutants failed (a wait that is left out unseen, or the run itself: above)"
  else
    broke "the tests of the sampled waits do not compile (build-mutants/sample)"
  fi
}

# Under ASan: what is freed is kept for a while, up to 256 MiB unless told otherwise, which tests of memory would take for growth.
keep_little_of_what_is_freed() { export ASAN_OPTIONS="quarantine_size_mb=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}"; }

check_sanitized() {
  # -O1 and no vector extensions: Eigen under sanitizers takes gigabytes and minutes otherwise.
  # g++ 12 warns about its own headers when it instruments them, so warnings are left to the plain build.
  local sanitize=(-Dwerror=false -Dbuildtype=debug -Doptimization=1 -Dcpu=baseline -Db_lundef=false -Dmpi=disabled -Dcuda=disabled)
  build build-asan "${sanitize[@]}" -Db_sanitize=address,undefined
  # UCX wraps madvise(), which a thread calls when its TSan state is gone already: ranks as threads only.
  build build-tsan "${sanitize[@]}" -Ducx=disabled -Db_sanitize=thread
  time_limits=6
  keep_little_of_what_is_freed
  run_tests build-asan unit laws multiprocess
  run_tests build-tsan unit laws
  report
}

# What --asan-sample runs: for each part of the tree a program whose ranks work side by side, and what the fuzz targets and
# the decoders' fuzzing found, which without a sanitizer only a crash would show.
asan_sample=(
  pages                      # device
  transport_laws_tcp         # comm
  communicator_laws_inproc   # collectives
  codec_defects              # compress
  aggregate_two_level        # aggregate
  trainer_offload_overlap    # trainer
  sharded modes_ps_async     # adapters/trainer
  c_works_tcp                # adapters/c
  train_modes                # apps
  device_laws_inproc         # the paths of device memory
  decoder_replay fuzz_rendezvous fuzz_tcp fuzz_control fuzz_flight fuzz_manifest fuzz_exchange
)
check_asan_sample() {
  # Without debug information but lines, and without UBSan, it compiles in half the time of --sanitize.
  configure build-asan-sample -Dwerror=false -Dbuildtype=plain -Doptimization=1 -Dcpp_args=-g1 -Dc_args=-g1 -Dcpu=baseline -Db_lundef=false \
    -Dmpi=disabled -Dcuda=disabled -Dnccl=disabled -Db_sanitize=address
  build_tests build-asan-sample "${asan_sample[@]}"
  time_limits=6
  keep_little_of_what_is_freed
  say "testing build-asan-sample (${asan_sample[*]})"
  meson_test build-asan-sample "${asan_sample[@]}"
  report
}

# check_scan NEWEST: on the newest UCX where it is not empty.
check_scan() {
  local folder=build only=()
  if [ -n "$1" ]; then
    build_newest_ucx apps/gradwire
    folder=build-ucx-newest only=(Scan.test_ucx)
  else
    build build
  fi
  python3 tests/multiprocess/rendezvous_scan_test.py "$folder/apps/gradwire" 10000 "${only[@]}"
}

# build_mutants FOLDER [MESON OPTION...] -- PROGRAM...: from sources with switches for waits and streams, in build-mutants/FOLDER/.
build_mutants() {
  local folder=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  python3 tests/mutants/mutants.py write build-mutants || fail "writing sources to build-mutants/ failed"
  mkdir -p build-mutants/.cache
  if [ -d .cache/torch ]; then ln -sfn ../../.cache/torch build-mutants/.cache/torch; fi
  cd build-mutants
  configure "$folder" -Dcuda=disabled -Dnccl=disabled -Dmpi=disabled "${options[@]}"
  run_ninja "$folder" "$@"
}

check_mutants() {
  local programs
  programs=$(python3 tests/mutants/run_mutants.py --programs) || fail "tests/mutants/run_mutants.py --programs failed"
  mapfile -t programs <<<"$programs"
  (build_mutants build -- "${programs[@]}") || exit 1
  python3 tests/mutants/run_mutants.py build-mutants/build --seconds "$1" || status=1
  exit "$status"
}

# check_soak NEWEST SECONDS
check_soak() {
  local folder=build transports=(ucx tcp auto auto-nodes) transport
  if [ -n "$1" ]; then
    build_newest_ucx tests/multiprocess/soak_rank
    folder=build-ucx-newest transports=(ucx auto auto-nodes)
  else
    build build
  fi
  for transport in "${transports[@]}"; do
    python3 tests/multiprocess/soak_test.py "$folder"/tests/multiprocess/soak_rank "$transport" "$2" "$RANDOM" || status=1
  done
  exit "$status"
}

# faults_of FOLDER TRANSPORTS TRANSPORTS-OF-LINK-FAULTS: every case of the fault matrix.
faults_of() {
  local rank=$1/tests/multiprocess/fault_rank
  python3 tests/multiprocess/faults_matrix_test.py "$rank" "$1/apps/gradwire" "$2" --whole || status=1
  python3 tests/multiprocess/faults_links_test.py "$rank" "$3" bench --whole || status=1
}

check_faults() {
  build build
  faults_of build auto,ucx,ucx-tcp,tcp tcp,ucx
  build_newest_ucx tests/multiprocess/fault_rank apps/gradwire
  faults_of build-ucx-newest ucx,ucx-tcp ucx
  exit "$status"
}

check_launchers() {
  make_torch &
  build build
  wait
  python3 tests/multiprocess/launchers_test.py build/apps/gradwire --whole
}

check_torch() {
  make_torch &
  build build
  wait
  torch_of build
  exit "$status"
}

# check_fuzz SECONDS
check_fuzz() {
  install_packages clang libclang-rt-14-dev
  [ -f build-fuzz/build.ninja ] || CC=clang CXX=clang++ meson_setup build-fuzz -Dfuzz=true -Dbuildtype=debug -Doptimization=1 -Dcpu=baseline \
    -Db_lundef=false -Db_sanitize=address,undefined -Dmpi=disabled -Dcuda=disabled
  run_ninja build-fuzz fuzzers
  # As many at a time as there are cores; what one printed is shown when it found something.
  export fuzz_seconds=$1
  find build-fuzz/tests/fuzz -maxdepth 1 -type f -name 'fuzz_*' -printf '%f\n' | sort | xargs -P "$(nproc)" -I{} bash -c '
    corpus=$(mktemp -d); log=$corpus.log; found=0
    python3 "tests/fuzz/corpus.py" unpack "tests/fuzz/corpus/${1#fuzz_}.hex" "$corpus"
    "build-fuzz/tests/fuzz/$1" -max_total_time="$fuzz_seconds" -print_funcs=0 -rss_limit_mb=4096 -timeout=60 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$1-" "$corpus" >"$log" 2>&1 || { tail -40 "$log" >&2; found=1; }
    inputs=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log")
    printf "check: %s: %s inputs in %s s\n" "$1" "${inputs:-?}" "$fuzz_seconds" >&2
    rm -rf "$corpus" "$log"; exit "$found"' _ {} ||
    fail "a fuzz target found something (see above; its input is in build-fuzz/)"
  say "no finding"
}
