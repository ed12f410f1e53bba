// Outcomes as values. gradwire throws nothing: a fallible function returns Status or Result<T>,
// both
// [[nodiscard]]. A Status is copied freely between threads and kept by whoever waits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gradwire {

// What went wrong, coarse enough to branch on. The message says the rest.
enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,  // the caller's input; retrying cannot help
  kUnsupported,      // valid, but not in this build or on this device
  kOutOfMemory,      // of a device; std::bad_alloc on the host is left alone
  kPeerLost,         // a rank died, stopped or closed; the communicator is finished
  kTimedOut,         // a deadline passed: an operation's own finishes the communicator, that of
                     // Work::wait does not
  kCancelled,        // the caller, or the end of the communicator, asked for an early end
  kCorruptPayload,   // received bytes contradict their own header
  kRankMismatch,     // ranks disagree about operation, size or dtype
  kInternal,         // a bug in gradwire
};

// "invalid argument", "peer lost", ... for messages.
std::string_view to_string(Code code);

// The outcome of an operation. Copyable, cheap when ok, safe to read from any thread.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : rep_->code; }
  std::string_view message() const { return ok() ? std::string_view("ok") : rep_->message; }

  // The same code with "context: " put before the message. Ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;  // null means ok: success never allocates
};

// A T, or the Status that explains why there is none. Names follow C++23 std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // An ok Status explains nothing and becomes kInternal.
  Result(Status error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, error.ok()
                                           ? Status(Code::kInternal, "neither a value nor an error")
                                           : std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  Status error() const { return has_value() ? Status() : std::get<1>(state_); }
  // Requires has_value().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

// Leave the enclosing function with the error, if there is one.
#define GW_TRY(expr)                                                              \
  do {                                                                            \
    if (::gradwire::Status gw_status = (expr); !gw_status.ok()) return gw_status; \
  } while (false)

// GW_ASSIGN(auto group, world.split(color, key)): declares `group`, or leaves with the error.
#define GW_ASSIGN(decl, expr) GW_ASSIGN_AS(decl, expr, GW_JOIN(gw_result_, __LINE__))
#define GW_JOIN(a, b) GW_JOIN_NOW(a, b)
#define GW_JOIN_NOW(a, b) a##b
#define GW_ASSIGN_AS(decl, expr, tmp)       \
  auto tmp = (expr);                        \
  if (!tmp.has_value()) return tmp.error(); \
  decl = std::move(tmp).value()

}  // namespace gradwire
