#include "adapters/c/outcome.h"

#include "gradwire/c.h"
#include "gradwire/tensor.h"
#include "gradwire/version.h"

namespace gradwire::c {
namespace {

// A thread's own: what gw_last_error() says.
std::string& last_error() {
  thread_local std::string sentence;
  return sentence;
}

static_assert(static_cast<int>(Code::kOk) == GW_OK);
static_assert(static_cast<int>(Code::kInvalidArgument) == GW_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::kUnsupported) == GW_UNSUPPORTED);
static_assert(static_cast<int>(Code::kOutOfMemory) == GW_OUT_OF_MEMORY);
static_assert(static_cast<int>(Code::kPeerLost) == GW_PEER_LOST);
static_assert(static_cast<int>(Code::kTimedOut) == GW_TIMED_OUT);
static_assert(static_cast<int>(Code::kCancelled) == GW_CANCELLED);
static_assert(static_cast<int>(Code::kCorruptPayload) == GW_CORRUPT_PAYLOAD);
static_assert(static_cast<int>(Code::kRankMismatch) == GW_RANK_MISMATCH);
static_assert(static_cast<int>(Code::kInternal) == GW_INTERNAL);

}  // namespace

gw_status number_of(Code code) { return static_cast<gw_status>(code); }

Status status_of(gw_status number, std::string message) {
  if (number == GW_OK) return {};
  return {static_cast<Code>(number), std::move(message)};
}

gw_status answer(const Status& status) {
  if (!status.ok()) last_error().assign(status.message());
  return number_of(status.code());
}

Status check_given(const void* pointer, const char* function, const char* argument) {
  if (pointer != nullptr) return {};
  return {Code::kInvalidArgument, std::string(function) + ": " + argument + " is NULL"};
}

}  // namespace gradwire::c

using namespace gradwire;

const char* gw_version(void) { return GRADWIRE_VERSION; }

int gw_api_version(void) { return GW_API_VERSION; }

const char* gw_status_name(gw_status status) {
  if (status == GW_IN_PROGRESS) return "in progress";
  if (status < GW_OK || status > GW_INTERNAL) return "?";
  return to_string(static_cast<Code>(status)).data();
}

const char* gw_last_error(void) { return c::last_error().c_str(); }

size_t gw_dtype_size(gw_dtype dtype) {
  if (dtype < GW_F64 || dtype > GW_U8) return 0;
  return size_of(static_cast<DType>(dtype));
}
