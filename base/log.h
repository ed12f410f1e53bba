// Log lines go to a sink that programs attach; without one they are dropped. The library owns no
// output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace gradwire {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError };

// A handle that is passed down and copied; the sink must be thread-safe. No global.
class Log {
 public:
  using Sink = std::function<void(LogLevel level, std::string_view line)>;
  Log() = default;
  Log(LogLevel least, Sink sink) : rep_(std::make_shared<const Rep>(Rep{least, std::move(sink)})) {}

  bool on(LogLevel level) const { return rep_ != nullptr && level >= rep_->least; }
  void operator()(LogLevel level, std::string_view line) const {
    if (on(level)) rep_->sink(level, line);
  }

 private:
  struct Rep {
    LogLevel least;
    Sink sink;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace gradwire
