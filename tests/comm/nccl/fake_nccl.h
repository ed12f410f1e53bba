// What tests ask of the library that plays NCCL (fake_nccl.cc), which is opened at run time.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "device/shared_library.h"
#include "gradwire/status.h"
#include "tests/emulation/default_stream.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::nccl_test {

// The emulated devices, as the library sees them.
struct PlayedDevices {
  // Null: the device's default stream.
  void (*enqueue)(int device, void* stream, std::function<void()> work);
  int (*device_of)(void* stream);
  int (*current)();  // of the calling thread
};

// The library plays a NCCL whose devices are those of the CUDA emulator: the ranks of a
// communicator are threads of this process. It writes down every call. As NCCL's are
// - works are done on their streams, in their order, some time after the call that ends their
// group,
//   and not before the communicator has been found to be through with that call;
// - a send ends when it has been received, and a work when all ranks have done theirs;
// - a communicator refuses other calls while one is in progress (its end, too, while it is being
//   finalized), calls of one group on two streams, several ranks on one device below
//   2.30, and from there on unless NCCL_MULTI_RANK_GPU_ENABLE is 1 (then each has an error), and a
//   second rank of the same number;
// - an abort ends what the rank's own streams wait for, and no other rank's;
// - a thread may drive several ranks, each on a stream of its own;
// - sums have the order of a ring and the arithmetic of the type.
// Not as NCCL's: calls of different ranks that differ are found (ncclInvalidUsage), and what has
// waited for a minute is ended (ncclSystemError).
struct FakeNccl {
  // All calls since the last time, a line each, in the order of their beginnings.
  const char* (*take_log)();
  // From now on: calls of that name give `result`; "" for what is asked of a communicator
  // (ncclCommGetAsyncError), "rank N" for what is asked of one of rank N. A negative result: as if
  // never asked.
  void (*fail)(const char* call, int result);
  // Communicators that live.
  int (*living)();

  // From now on, null: no longer, what ends a communicator is written down with the calling
  // thread's device.
  void (*ask_device)(int (*device)());

  // What it says to be when it is opened, as NCCL counts: 23003 at first.
  void (*be)(int version);

  static Result<FakeNccl> open(const std::string& path) {
    GW_ASSIGN(const SharedLibrary library, SharedLibrary::open("the fake NCCL", {path}));
    FakeNccl fake{};
    GW_ASSIGN(fake.take_log, library.function<const char* (*)()>("fake_nccl_take_log"));
    GW_ASSIGN(fake.fail, library.function<void (*)(const char*, int)>("fake_nccl_fail"));
    GW_ASSIGN(fake.living, library.function<int (*)()>("fake_nccl_living"));
    GW_ASSIGN(fake.ask_device, library.function<void (*)(int (*)())>("fake_nccl_ask_device"));
    GW_ASSIGN(fake.be, library.function<void (*)(int)>("fake_nccl_be"));
    GW_ASSIGN(auto* const run_on,
              library.function<void (*)(const PlayedDevices*)>("fake_nccl_run_on"));
    static constexpr PlayedDevices kDevices{enqueue, emulation::device_of,
                                            emulation::current_device};
    run_on(&kDevices);
    return fake;
  }

 private:
  static void enqueue(int device, void* stream, std::function<void()> work) {
    if (stream != nullptr) return emulation::run_on(stream, std::move(work));
    emulation::run_on_default_of(device, std::move(work));
  }
};

}  // namespace gradwire::nccl_test
