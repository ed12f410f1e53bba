#include "apps/log_lines.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/environment.h"
#include "base/nearest.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 5> kNames{"trace", "debug", "info", "warn", "error"};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::off;
}

}  // namespace

Result<Log> make_log(const std::string& flag, int rank) {
  const std::string name = flag.empty() ? environment("GRADWIRE_LOG").value_or("warn") : flag;
  if (name == "off") return Log();
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != name) continue;
    const auto logger = std::make_shared<spdlog::logger>(
        "gradwire", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_level(spdlog::level::trace);  // Log filters
    logger->set_pattern("%H:%M:%S.%e [%l] rank " + std::to_string(rank) + ": %v");
    logger->flush_on(spdlog::level::trace);
    return Log(static_cast<LogLevel>(i), [logger](LogLevel level, std::string_view line) {
      logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
    });
  }
  const std::vector<std::string> known{"trace", "debug", "info", "warn", "error", "off"};
  return Status(Code::kInvalidArgument,
                "GRADWIRE_LOG must be one of trace, debug, info, warn, error, off (got '" + name +
                    "'" + did_you_mean(name, known) + ")");
}

}  // namespace gradwire
