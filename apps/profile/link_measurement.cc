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

// What this program printed, run with these words. kTimedOut after so many seconds.
Result<std::string> printed_by(const std::string& transport, const std::vector<std::string>& words,
                               double seconds) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> command{fs::read_symlink("/proc/self/exe", error).string()};
  if (error) return failed(transport, "cannot find this program: " + error.message());
  command.insert(command.end(), words.begin(), words.end());
  const std::string log =
      (fs::temp_directory_path(error) / format("gradwire_profile_%d", static_cast<int>(::getpid())))
          .string();
  if (error) return failed(transport, "no folder for temporary files: " + error.message());
  GW_ASSIGN(Child child, Child::start(command, log));
  const std::optional<int> status = wait_for(child, seconds);
  auto lines = read_whole_file(log);
  fs::remove(log, error);
  if (!lines.has_value()) return lines.error();
  if (!status) {
    return Status(Code::kTimedOut, format("profile: two ranks over %s had not ended after %s s",
                                          transport.c_str(), shortest(seconds).c_str()));
  }
  if (*status != 0) {
    return failed(transport, format("exit status %d: %s", *status, lines.value().c_str()));
  }
  return lines;
}

std::vector<nlohmann::json> rows_of(const std::string& lines) {
  std::vector<nlohmann::json> rows;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("time_us_p50")) rows.push_back(std::move(row));
  }
  return rows;
}

constexpr double kBeside = 60;  // seconds: start, warm-up and checks

}  // namespace

Result<ProfiledLink> link_of_rows(const std::string& transport, const std::string& lines) {
  const std::vector<nlohmann::json> rows = rows_of(lines);
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
  GW_ASSIGN(
      const std::string lines,
      printed_by(transport,
                 {"bench", "send_recv", "--ranks", "2", "--transport", transport, "--min", "1K",
                  "--max", "4M", "--factor", "4096", "--seconds", shortest(seconds), "--json", "-"},
                 kBeside + 10 * seconds));
  return link_of_rows(transport, lines);
}

Status exchanges_of_rows(const std::string& transport, const std::string& lines, Profile& profile) {
  ProfiledMessage message{.transport = transport, .seconds = 0, .send_seconds = 0};
  const std::size_t before = profile.exchanges.size();
  for (const nlohmann::json& row : rows_of(lines)) {
    const auto what = row["what"].get<std::string>();
    const double seconds = row["time_us_p50"].get<double>() * 1e-6;
    if (what == "message") message.seconds = seconds;
    if (what == "send") message.send_seconds = seconds;
    if (what != "exchange" && what != "buckets") continue;
    profile.exchanges.push_back({.transport = transport,
                                 .spec = row["compressor"].get<std::string>(),
                                 .elements = row["elements"].get<std::int64_t>(),
                                 .buckets = row["count"].get<std::int64_t>(),
                                 .seconds = seconds});
  }
  if (profile.exchanges.size() == before || message.seconds <= 0) {
    return failed(transport, "no rows of exchanges and a message (expected some) in: " + lines);
  }
  profile.messages.push_back(message);
  return {};
}

Status measure_exchanges(const std::string& transport, const std::vector<std::string>& compressors,
                         const std::vector<std::int64_t>& elements, int rounds, Profile& profile) {
  constexpr std::int64_t kFew = 64;  // elements
  std::vector<std::string> sizes{std::to_string(kFew)};
  for (const std::int64_t count : elements) sizes.push_back(std::to_string(count));
  const auto list = [](const std::vector<std::string>& words, char between) {
    std::string all;
    for (const std::string& word : words)
      all += (all.empty() ? "" : std::string(1, between)) + word;
    return all;
  };
  constexpr double kOfARound = 1;  // seconds, at most
  const double most = kBeside + kOfARound * rounds * static_cast<double>(compressors.size()) *
                                    static_cast<double>(sizes.size());
  GW_ASSIGN(const std::string lines,
            printed_by(transport,
                       {"bench", "exchange", "--transport", transport, "--compressors",
                        list(compressors, ';'), "--elements", list(sizes, ','), "--rounds",
                        std::to_string(rounds), "--json", "-"},
                       most));
  return exchanges_of_rows(transport, lines, profile);
}

}  // namespace gradwire
