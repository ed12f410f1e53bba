#include "planner/profile/profile.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace gradwire {
namespace {

// One time for each size, the median of several.
class TimesBySize {
 public:
  void add(std::int64_t size, double seconds) { found_[size].push_back(seconds); }
  MeasuredTimes times() {
    MeasuredTimes all;
    for (auto& [size, seconds] : found_) {
      std::ranges::sort(seconds);
      all.emplace_back(size, seconds[seconds.size() / 2]);
    }
    return all;
  }

 private:
  std::map<std::int64_t, std::vector<double>> found_;
};

template <typename T>
Status check_alike(const std::string& name, const char* what, const T& there, const T& here,
                   const std::string& there_text, const std::string& here_text) {
  if (there == here) return {};
  return {Code::kInvalidArgument,
          format("profile %s is of another machine: %s '%s' (expected this one's, '%s'); measure "
                 "here with gradwire profile",
                 name.c_str(), what, there_text.c_str(), here_text.c_str())};
}

}  // namespace

std::optional<double> time_of(const MeasuredTimes& times, std::int64_t size) {
  if (times.empty()) return std::nullopt;
  const auto x = static_cast<double>(size);
  if (times.size() == 1) {
    return times.front().second * x / static_cast<double>(times.front().first);
  }
  const auto behind =
      std::ranges::find_if(times, [&](const auto& one) { return one.first >= size; });
  auto right = behind == times.end() ? behind - 1 : behind;
  if (right == times.begin()) ++right;
  const auto left = right - 1;
  const double share =
      (x - static_cast<double>(left->first)) / static_cast<double>(right->first - left->first);
  const double time = left->second + share * (right->second - left->second);
  // Noise may have the larger of two sizes take less: beyond them nothing takes less than it did.
  return std::max(time, behind == times.end() ? right->second : 0.0);
}

bool same_shape(const ProfiledLayer& a, const ProfiledLayer& b) {
  return a.input == b.input && a.output == b.output && a.parameters == b.parameters &&
         a.forward_macs == b.forward_macs && a.backward_macs == b.backward_macs;
}

MeasuredTimes product_times(const Profile& profile) {
  TimesBySize found;
  for (const ProfiledProduct& one : profile.products) found.add(one.macs(), one.seconds);
  return found.times();
}

LayerTimes layer_times(const Profile& profile, const ProfiledLayer& shape) {
  TimesBySize forward;
  TimesBySize backward;
  for (const ProfiledLayer& one : profile.layers) {
    if (!same_shape(one, shape)) continue;
    forward.add(one.rows, one.forward_seconds);
    backward.add(one.rows, one.backward_seconds);
  }
  return {forward.times(), backward.times()};
}

MeasuredTimes optimizer_times(const Profile& profile, const std::string& name) {
  TimesBySize found;
  for (const ProfiledOptimizer& one : profile.optimizers) {
    if (one.name == name) found.add(one.elements, one.seconds);
  }
  return found.times();
}

MeasuredTimes encode_times(const Profile& profile, const std::string& spec) {
  TimesBySize found;
  for (const ProfiledCodec& one : profile.codecs) {
    if (one.spec == spec) found.add(one.elements, one.encode_seconds);
  }
  return found.times();
}

MeasuredTimes decode_times(const Profile& profile, const std::string& spec) {
  TimesBySize found;
  for (const ProfiledCodec& one : profile.codecs) {
    if (one.spec == spec) found.add(one.elements, one.decode_seconds);
  }
  return found.times();
}

MeasuredTimes sum_times(const Profile& profile) {
  TimesBySize found;
  for (const ProfiledSum& one : profile.sums) found.add(one.elements, one.seconds);
  return found.times();
}

MeasuredTimes exchange_times(const Profile& profile, const std::string& transport,
                             const std::string& spec) {
  TimesBySize found;
  for (const ProfiledExchange& one : profile.exchanges) {
    if (one.transport != transport || one.spec != spec || one.buckets != 1) continue;
    found.add(one.elements, one.seconds);
  }
  return found.times();
}

const ProfiledLink* find_link(const Profile& profile, const std::string& transport) {
  const auto found = std::ranges::find_if(
      profile.links, [&](const ProfiledLink& link) { return link.transport == transport; });
  return found == profile.links.end() ? nullptr : &*found;
}

Status check_same_machine(const Profile& profile, const std::string& name,
                          const ProfileConditions& here) {
  const ProfileConditions& there = profile.conditions;
  GW_TRY(check_alike(name, "host", there.host, here.host, there.host, here.host));
  GW_TRY(check_alike(name, "processor", there.processor, here.processor, there.processor,
                     here.processor));
  return check_alike(name, "cores", there.cores, here.cores, std::to_string(there.cores),
                     std::to_string(here.cores));
}

}  // namespace gradwire
