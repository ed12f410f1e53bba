#include "planner/profile/link_times.h"

#include <algorithm>
#include <cmath>

#include "planner/profile/device_times.h"

namespace gradwire {
namespace {

// Of steps of one bucket and of several, of as many elements.
double seconds_of_a_bucket(const Profile& profile, const std::string& transport) {
  for (const ProfiledExchange& several : profile.exchanges) {
    if (several.transport != transport || several.buckets < 2) continue;
    for (const ProfiledExchange& one : profile.exchanges) {
      if (one.transport != transport || one.spec != several.spec || one.buckets != 1 ||
          one.elements != several.elements) {
        continue;
      }
      const double more = several.seconds - one.seconds;
      return std::max(more / static_cast<double>(several.buckets - 1), 0.0);
    }
  }
  return 0;
}

}  // namespace

LinkTimes::LinkTimes(const Profile& profile, const std::string& transport)
    : bucket_(seconds_of_a_bucket(profile, transport)) {
  if (const ProfiledLink* link = find_link(profile, transport); link != nullptr) {
    latency_ = link->latency_seconds;
    processor_ = link->cpu_seconds_per_byte;
  }
  for (const ProfiledExchange& one : profile.exchanges) {
    if (one.transport != transport || one.buckets != 1) continue;
    exchanges_[canonical_method(one.spec)] = exchange_times(profile, transport, one.spec);
  }
  for (const ProfiledMessage& one : profile.messages) {
    if (one.transport != transport) continue;
    waits_ = std::max(one.seconds - latency_, 0.0);
    send_ = one.send_seconds;
  }
}

std::optional<double> LinkTimes::exchange(const std::string& compressor, double elems) const {
  const auto found = exchanges_.find(compressor);
  if (found == exchanges_.end()) return std::nullopt;
  return time_of(found->second, std::llround(elems));
}

}  // namespace gradwire
