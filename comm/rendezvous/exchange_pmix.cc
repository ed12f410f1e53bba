// PMIx without its headers: six functions of a library whose binary interface the PMIx standard
// fixes, and the three types that they take.
#include <dlfcn.h>

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "comm/rendezvous/exchange.h"

namespace gradwire::rendezvous {
namespace {

constexpr const char* kLibrary = "libpmix.so.2";
constexpr const char* kPmixKey = "gradwire.root";
constexpr int kSuccess = 0;
constexpr int kSucceededAtOnce = -157;  // no callback follows
constexpr std::uint8_t kGlobal = 3;     // scope: for ranks of this node and of others
constexpr std::uint16_t kString = 3;    // type of a value

// pmix_proc_t
struct Process {
  char name_space[256];
  std::uint32_t rank;
};
// pmix_value_t, whose union is no larger than what stands for it here.
struct Value {
  std::uint16_t type;
  alignas(8) union {
    char* string;
    char room[64];
  } data;
};

using DoneCallback = void (*)(int status, void* context);
using ValueCallback = void (*)(int status, Value* value, void* context);

struct Answer {
  int status;
  std::string text;
};

// What the library holds of a call, until it answers; the thread that asked may have given up by
// then.
using Asked = std::promise<Answer>;

void settle(void* context, Answer answer) {
  const std::unique_ptr<Asked> asked(static_cast<Asked*>(context));
  asked->set_value(std::move(answer));
}
void on_done(int status, void* context) { settle(context, {status, ""}); }
void on_value(int status, Value* value, void* context) {
  const bool text = status == kSuccess && value != nullptr && value->type == kString &&
                    value->data.string != nullptr;
  settle(context, {status, text ? value->data.string : ""});
}

// The library stays loaded: its threads may outlive what is asked of it.
class Library {
 public:
  Status load() {
    void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* why = ::dlerror();
      return {Code::kUnsupported,
              format("PMIx, by which ranks under Open MPI's mpirun find each other: cannot load %s "
                     "(%s); install it (Debian: libpmix2), or set GRADWIRE_RENDEZVOUS=host:port of "
                     "rank 0 on every rank",
                     kLibrary, why == nullptr ? "no reason given" : why)};
    }
    GW_TRY(find(handle, "PMIx_Init", init));
    GW_TRY(find(handle, "PMIx_Put", put));
    GW_TRY(find(handle, "PMIx_Commit", commit));
    GW_TRY(find(handle, "PMIx_Fence_nb", fence));
    GW_TRY(find(handle, "PMIx_Get_nb", get));
    GW_TRY(find(handle, "PMIx_Finalize", finalize));
    return find(handle, "PMIx_Error_string", error_string);
  }
  Status failed(const char* function, int status) const {
    return {Code::kInternal, format("%s: %s (%d)", function, error_string(status), status)};
  }

  int (*init)(Process* self, void* info, std::size_t count) = nullptr;
  int (*put)(std::uint8_t scope, const char* key, Value* value) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Process* ranks, std::size_t count, const void* info, std::size_t infos,
               DoneCallback done, void* context) = nullptr;
  int (*get)(const Process* of, const char* key, const void* info, std::size_t infos,
             ValueCallback done, void* context) = nullptr;
  int (*finalize)(const void* info, std::size_t count) = nullptr;
  const char* (*error_string)(int status) = nullptr;

 private:
  template <typename Function>
  static Status find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    if (function != nullptr) return {};
    return {Code::kUnsupported, format("%s has no %s (expected PMIx 2 or later)", kLibrary, name)};
  }
};

// Starts a call by `start(context)` and waits for its answer.
template <typename Start>
Result<std::string> answer(const Library& pmix, const char* function, Deadline deadline,
                           const Start& start) {
  auto asked = std::make_unique<Asked>();
  std::future<Answer> answered = asked->get_future();
  void* const context = asked.release();
  const int started = start(context);
  if (started != kSuccess) settle(context, {started, ""});
  if (answered.wait_until(deadline) != std::future_status::ready)
    return Status(Code::kTimedOut,
                  format("%s did not end in time (some ranks may be missing)", function));
  Answer got = answered.get();
  if (got.status != kSuccess && got.status != kSucceededAtOnce)
    return pmix.failed(function, got.status);
  return std::move(got.text);
}

Result<std::string> exchange(const Library& pmix, const Process& self, int rank,
                             std::string_view text, Deadline deadline) {
  if (rank == 0) {
    std::string copy(text);
    Value value{.type = kString, .data = {.string = copy.data()}};
    const int put = pmix.put(kGlobal, kPmixKey, &value);
    if (put != kSuccess) return pmix.failed("PMIx_Put", put);
  }
  const int commit = pmix.commit();
  if (commit != kSuccess) return pmix.failed("PMIx_Commit", commit);
  GW_TRY(answer(pmix, "PMIx_Fence", deadline, [&](void* context) {
           return pmix.fence(nullptr, 0, nullptr, 0, on_done, context);
         }).error());
  Process root = self;
  root.rank = 0;
  return answer(pmix, "PMIx_Get of rank 0's address", deadline, [&](void* context) {
    return pmix.get(&root, kPmixKey, nullptr, 0, on_value, context);
  });
}

}  // namespace

Result<std::string> exchange_over_pmix(int rank, std::string_view text, Deadline deadline) {
  Library pmix;
  GW_TRY(pmix.load());
  Process self{};
  const int init = pmix.init(&self, nullptr, 0);
  if (init != kSuccess) return pmix.failed("PMIx_Init", init);
  Result<std::string> got = exchange(pmix, self, rank, text, deadline);
  // Else mpirun would take the end of this process for a crash. It would wait for calls that are
  // under way, so only where none is.
  if (got.has_value() || got.error().code() != Code::kTimedOut) (void)pmix.finalize(nullptr, 0);
  if (got.has_value() && static_cast<int>(self.rank) != rank)
    return Status(Code::kInvalidArgument,
                  format("PMIx says rank %u (expected %d, as the launcher's variables say)",
                         self.rank, rank));
  return got;
}

}  // namespace gradwire::rendezvous
