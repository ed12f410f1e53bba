#include "apps/profile/link_measurement.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "apps/sweep/child.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kShortestTime = 1e-12;  // seconds: a quotient of two noisy times stays positive

Status failed(const std::string& transport, const std::string& what) {
  return {Code::kInternal, "profile: two ranks over " + transport + ": " + what};
}

// Until it has ended; nullopt: it had not by then, and is ended.
std::optional<int> wait_for(Child& child, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (const auto status = child.poll()) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  child.end();
  return std::nullopt;
}

}  // namespace

Result<ProfiledLink> link_of_rows(const std::string& transport, const std::string& lines) {
  std::vector<nlohmann::json> rows;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("time_us_p50")) rows.push_back(std::move(row));
  }
  if (rows.size() != 2) {
    return failed(transport,
                  format("%zu rows of messages (expected 2) in: %s", rows.size(), lines.c_str()));
  }
  const double bytes = rows[1]["bytes"].get<double>() - rows[0]["bytes"].get<double>();
  const double first = rows[0]["time_us_p50"].get<double>() * 1e-6;
  const double more = rows[1]["time_us_p50"].get<double>() * 1e-6 - first;
  if (bytes <= 0) return failed(transport, "rows of one size (expected two sizes)");
  return ProfiledLink{.transport = transport,
                      .latency_seconds = first,
                      .bytes_per_second = bytes / std::max(more, kShortestTime * bytes),
                      .cpu_seconds_per_byte = rows[1]["cpu_seconds_per_gb"].get<double>() * 1e-9};
}

Result<ProfiledLink> measure_link(const std::string& transport, double seconds) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  if (error) return failed(transport, "cannot find this program: " + error.message());
  const std::string log =
      (fs::temp_directory_path(error) / format("gradwire_profile_%d", static_cast<int>(::getpid())))
          .string();
  if (error) return failed(transport, "no folder for temporary files: " + error.message());
  GW_ASSIGN(Child child, Child::start({program, "bench", "send_recv", "--ranks", "2", "--transport",
                                       transport, "--min", "1K", "--max", "4M", "--factor", "4096",
                                       "--seconds", shortest(seconds), "--json", "-"},
                                      log));
  constexpr double kBeside = 60;  // seconds: start, warm-up and checks
  const std::optional<int> status = wait_for(child, kBeside + 10 * seconds);
  auto lines = read_whole_file(log);
  fs::remove(log, error);
  if (!lines.has_value()) return lines.error();
  if (!status) {
    return Status(Code::kTimedOut,
                  format("profile: two ranks over %s had not ended after %s s", transport.c_str(),
                         shortest(kBeside + 10 * seconds).c_str()));
  }
  if (*status != 0) {
    return failed(transport, format("exit status %d: %s", *status, lines.value().c_str()));
  }
  return link_of_rows(transport, lines.value());
}

}  // namespace gradwire
