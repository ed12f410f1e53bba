// What tests ask of the library that plays NCCL (fake_nccl.cc), which is opened at run time.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "device/shared_library.h"
#include "gradwire/status.h"

namespace gradwire::nccl_test {

// The library plays a NCCL whose devices are the host: the ranks of a communicator are threads of
// this process, and what is enqueued has run when the call returns. It writes down every call.
struct FakeNccl {
  // All calls since the last time, a line each, in the order of their beginnings.
  const char* (*take_log)();
  // From now on: calls of that name give `result`; "" for what is asked of a communicator
  // (ncclCommGetAsyncError). A negative result: as if never asked.
  void (*fail)(const char* call, int result);
  // Communicators that live.
  int (*living)();

  // From now on, null: no longer, what is enqueued on a stream for which `what` says yes is its to
  // run, as often as it likes. While no rank calls anything.
  using Catcher = std::function<bool(void* stream, std::function<void()> work)>;
  void (*capture)(const Catcher* what);

  // From now on, null: no longer, what ends a communicator is written down with the calling
  // thread's device.
  void (*ask_device)(int (*device)());

  // What it says to be when it is opened, as NCCL counts: 22105 at first.
  void (*be)(int version);

  static Result<FakeNccl> open(const std::string& path) {
    GW_ASSIGN(const SharedLibrary library, SharedLibrary::open("the fake NCCL", {path}));
    FakeNccl fake{};
    GW_ASSIGN(fake.take_log, library.function<const char* (*)()>("fake_nccl_take_log"));
    GW_ASSIGN(fake.fail, library.function<void (*)(const char*, int)>("fake_nccl_fail"));
    GW_ASSIGN(fake.living, library.function<int (*)()>("fake_nccl_living"));
    GW_ASSIGN(fake.capture, library.function<void (*)(const Catcher*)>("fake_nccl_catch"));
    GW_ASSIGN(fake.ask_device, library.function<void (*)(int (*)())>("fake_nccl_ask_device"));
    GW_ASSIGN(fake.be, library.function<void (*)(int)>("fake_nccl_be"));
    return fake;
  }
};

}  // namespace gradwire::nccl_test
