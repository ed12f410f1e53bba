#include "apps/profile/rounds.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "base/text.h"

namespace gradwire {
namespace {

bool takes_part(const Measurement& one, int round) { return round % std::max(one.every, 1) == 0; }

// Puts medians in the place of the first profile's entries.
class Medians {
 public:
  Medians(std::span<const Profile> found, Profile& into) : found_(found), into_(into) {}

  // Of each of `times`, a member of the entries in `list`.
  template <typename Entry>
  Status take(const char* what, std::vector<Entry> Profile::*list,
              std::initializer_list<double Entry::*> times) {
    for (const Profile& one : found_) {
      if ((one.*list).size() == (into_.*list).size()) continue;
      return {Code::kInternal,
              format("profile: a round measured %zu %s (expected %zu, as the first)",
                     (one.*list).size(), what, (into_.*list).size())};
    }
    for (std::size_t entry = 0; entry < (into_.*list).size(); ++entry) {
      for (double Entry::*time : times) {
        std::vector<double> all;
        for (const Profile& one : found_) all.push_back((one.*list)[entry].*time);
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        std::ranges::nth_element(all, middle);
        (into_.*list)[entry].*time = *middle;
      }
    }
    return {};
  }

 private:
  std::span<const Profile> found_;
  Profile& into_;
};

template <typename Entry>
void append(std::vector<Entry> Profile::*list, const Profile& from, Profile& to) {
  std::ranges::copy(from.*list, std::back_inserter(to.*list));
}

void append_all(const Profile& from, Profile& to) {
  append(&Profile::layers, from, to);
  append(&Profile::products, from, to);
  append(&Profile::optimizers, from, to);
  append(&Profile::codecs, from, to);
  append(&Profile::links, from, to);
  append(&Profile::exchanges, from, to);
  append(&Profile::messages, from, to);
  append(&Profile::sums, from, to);
}

}  // namespace

std::int64_t measured_in_all(std::span<const Measurement> all, int rounds) {
  std::int64_t count = 0;
  for (int round = 0; round < rounds; ++round) {
    count += std::ranges::count_if(
        all, [round](const Measurement& one) { return takes_part(one, round); });
  }
  return count;
}

Result<Profile> median_profile(std::span<const Profile> found) {
  Profile median = found.front();
  Medians medians(found, median);
  GW_TRY(medians.take("layers", &Profile::layers,
                      {&ProfiledLayer::forward_seconds, &ProfiledLayer::backward_seconds}));
  GW_TRY(medians.take("products", &Profile::products, {&ProfiledProduct::seconds}));
  GW_TRY(medians.take("optimizers", &Profile::optimizers, {&ProfiledOptimizer::seconds}));
  GW_TRY(medians.take("codecs", &Profile::codecs,
                      {&ProfiledCodec::encode_seconds, &ProfiledCodec::decode_seconds,
                       &ProfiledCodec::bits_per_element}));
  GW_TRY(medians.take("links", &Profile::links,
                      {&ProfiledLink::latency_seconds, &ProfiledLink::bytes_per_second,
                       &ProfiledLink::cpu_seconds_per_byte}));
  GW_TRY(medians.take("exchanges", &Profile::exchanges, {&ProfiledExchange::seconds}));
  GW_TRY(medians.take("messages", &Profile::messages,
                      {&ProfiledMessage::seconds, &ProfiledMessage::send_seconds}));
  GW_TRY(medians.take("sums", &Profile::sums, {&ProfiledSum::seconds}));
  return median;
}

Result<Profile> measure_by_rounds(
    std::span<const Measurement> all, int rounds,
    const std::function<void(std::int64_t done, const std::string& name)>& told) {
  std::vector<std::vector<Profile>> found(all.size());
  std::int64_t done = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t one = 0; one < all.size(); ++one) {
      if (!takes_part(all[one], round)) continue;
      told(done++, all[one].name);
      GW_TRY(all[one].run(found[one].emplace_back()).with_context("profile: " + all[one].name));
    }
  }
  Profile profile;
  for (std::size_t one = 0; one < all.size(); ++one) {
    if (found[one].empty()) continue;
    GW_ASSIGN(const Profile median, median_profile(found[one]));
    append_all(median, profile);
  }
  return profile;
}

}  // namespace gradwire
