#include "collectives/cost/link_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::string_view kHeading = "gradwire links 2";
constexpr std::size_t kMostEntries = 256;
constexpr std::uintmax_t kMostBytes = 1 << 20;

struct Entry {
  std::string key;  // its text
  LinkModel links;
  std::int64_t when = 0;
};

std::string key_text(std::uint64_t key) {
  return format("%016llx", static_cast<unsigned long long>(key));
}

// Seconds, and seconds per byte, that a link may really have.
bool plausible(const LinkModel& links) {
  const auto within = [](double value, double most) { return value >= 0 && value <= most; };
  return within(links.alpha, 100) && within(links.alpha_intra, 100) && within(links.beta, 1) &&
         within(links.beta_intra, 1) && within(links.gamma, 1) && within(links.gap, 1) &&
         links.contention >= 1 && links.contention <= 1e6 && links.contention_beta >= 1 &&
         links.contention_beta <= 1e6;
}

std::optional<Entry> entry_of(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  Entry entry;
  if (!(words >> entry.key) || entry.key.size() != key_text(0).size()) return std::nullopt;
  for (const auto number : kLinkNumbers) {
    if (!(words >> word)) return std::nullopt;
    const auto value = to_double(word);
    if (!value) return std::nullopt;
    entry.links.*number = *value;
  }
  if (!(words >> word)) return std::nullopt;
  const auto when = to_int(word);
  if (!when || words >> word || !plausible(entry.links)) return std::nullopt;
  entry.when = *when;
  return entry;
}

std::string text_of(const Entry& entry) {
  std::string text = entry.key;
  for (const auto number : kLinkNumbers) text += " " + shortest(entry.links.*number);
  return text + " " + std::to_string(entry.when) + "\n";
}

// What can be used; a clock that went back makes entries of the future, which cannot.
std::vector<Entry> read_entries(const std::string& file, std::int64_t now) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  if (error || bytes > kMostBytes) return {};
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line != kHeading) return {};
  std::vector<Entry> entries;
  while (std::getline(in, line)) {
    const auto entry = entry_of(line);
    if (entry && entry->when <= now && now - entry->when <= kLinksLastSeconds) {
      entries.push_back(*entry);
    }
  }
  return entries;
}

}  // namespace

std::optional<LinkModel> cached_links(const std::string& file, std::uint64_t key,
                                      std::int64_t now) {
  const std::vector<Entry> entries = read_entries(file, now);
  const auto found = std::ranges::find(entries, key_text(key), &Entry::key);
  return found == entries.end() ? std::nullopt : std::optional(found->links);
}

void cache_links(const std::string& file, std::uint64_t key, std::int64_t now,
                 const LinkModel& links) {
  std::vector<Entry> entries = read_entries(file, now);
  const std::string text_key = key_text(key);
  std::erase_if(entries, [&](const Entry& e) { return e.key == text_key; });
  entries.insert(entries.begin(), {text_key, links, now});
  std::ranges::stable_sort(entries, std::ranges::greater{}, &Entry::when);
  if (entries.size() > kMostEntries) entries.resize(kMostEntries);
  std::string text = std::string(kHeading) + "\n";
  for (const Entry& entry : entries) text += text_of(entry);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  std::string fresh = file + ".XXXXXX";
  const int fd = mkstemp(fresh.data());
  if (fd < 0) return;
  std::FILE* const out = ::fdopen(fd, "w");
  const bool whole = out != nullptr && std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool closed = (out != nullptr ? std::fclose(out) : ::close(fd)) == 0;
  if (!whole || !closed || std::rename(fresh.c_str(), file.c_str()) != 0) ::unlink(fresh.c_str());
}

}  // namespace gradwire
