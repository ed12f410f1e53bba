#include "apps/profile/profile_table.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {
namespace {

std::string shape_text(const SampleShape& shape) {
  return format("%lldx%lldx%lld", static_cast<long long>(shape.channels),
                static_cast<long long>(shape.height), static_cast<long long>(shape.width));
}

double micros(double seconds) { return seconds * 1e6; }

// Multiplications with their additions, 10^9 a second; "-" where there is no product.
std::string rate(std::int64_t macs, double seconds) {
  if (macs == 0 || seconds <= 0) return "-";
  return format("%.2f", static_cast<double>(macs) / seconds * 1e-9);
}

std::string layers_table(const Profile& profile) {
  if (profile.layers.empty()) return {};
  std::size_t width = 5;
  for (const ProfiledLayer& one : profile.layers) width = std::max(width, one.name.size());
  const int w = static_cast<int>(width);
  std::string text =
      format("\n%-*s %13s %13s %10s %7s %12s %12s %9s\n", w, "layer", "input", "output",
             "parameters", "samples", "forward us", "backward us", "GMAC/s");
  for (const ProfiledLayer& one : profile.layers) {
    text += format("%-*s %13s %13s %10lld %7lld %12.2f %12.2f %9s\n", w, one.name.c_str(),
                   shape_text(one.input).c_str(), shape_text(one.output).c_str(),
                   static_cast<long long>(one.parameters), static_cast<long long>(one.rows),
                   micros(one.forward_seconds), micros(one.backward_seconds),
                   rate(one.rows * (one.forward_macs + one.backward_macs),
                        one.forward_seconds + one.backward_seconds)
                       .c_str());
  }
  return text;
}

std::string products_table(const Profile& profile) {
  if (profile.products.empty()) return {};
  std::string text = format("\n%-24s %12s %9s\n", "product", "us", "GMAC/s");
  for (const ProfiledProduct& one : profile.products) {
    const std::string name =
        format("%lld x %lld x %lld", static_cast<long long>(one.rows),
               static_cast<long long>(one.in), static_cast<long long>(one.out));
    text += format("%-24s %12.2f %9s\n", name.c_str(), micros(one.seconds),
                   rate(one.macs(), one.seconds).c_str());
  }
  return text;
}

std::string optimizers_table(const Profile& profile) {
  if (profile.optimizers.empty()) return {};
  std::string text = format("\n%-24s %12s %12s\n", "optimizer", "elements", "us");
  for (const ProfiledOptimizer& one : profile.optimizers) {
    text += format("%-24s %12lld %12.2f\n", one.name.c_str(), static_cast<long long>(one.elements),
                   micros(one.seconds));
  }
  return text;
}

std::string codecs_table(const Profile& profile) {
  if (profile.codecs.empty()) return {};
  std::string text = format("\n%-24s %12s %12s %12s %10s\n", "compressor", "elements", "encode us",
                            "decode us", "bits/elem");
  for (const ProfiledCodec& one : profile.codecs) {
    text += format("%-24s %12lld %12.2f %12.2f %10.3f\n", one.spec.c_str(),
                   static_cast<long long>(one.elements), micros(one.encode_seconds),
                   micros(one.decode_seconds), one.bits_per_element);
  }
  return text;
}

std::string links_table(const Profile& profile) {
  if (profile.links.empty()) return {};
  std::string text = format("\n%-24s %12s %12s %18s\n", "two ranks over", "latency us", "MB/s",
                            "processor ns/byte");
  for (const ProfiledLink& one : profile.links) {
    text +=
        format("%-24s %12.2f %12.1f %18.4f\n", one.transport.c_str(), micros(one.latency_seconds),
               one.bytes_per_second * 1e-6, one.cpu_seconds_per_byte * 1e9);
  }
  return text;
}

std::string exchanges_table(const Profile& profile) {
  std::string text;
  if (!profile.sums.empty()) text += format("\n%-24s %12s %12s\n", "", "elements", "us");
  for (const ProfiledSum& one : profile.sums) {
    text += format("%-24s %12lld %12.2f\n", "sum of gradients",
                   static_cast<long long>(one.elements), micros(one.seconds));
  }
  if (!profile.exchanges.empty()) {
    text += format("\n%-12s %-24s %12s %8s %12s\n", "step over", "compressor", "elements",
                   "buckets", "us");
  }
  for (const ProfiledExchange& one : profile.exchanges) {
    text += format("%-12s %-24s %12lld %8lld %12.2f\n", one.transport.c_str(), one.spec.c_str(),
                   static_cast<long long>(one.elements), static_cast<long long>(one.buckets),
                   micros(one.seconds));
  }
  if (!profile.messages.empty()) {
    text += format("\n%-24s %12s %12s\n", "message over", "there us", "sent us");
  }
  for (const ProfiledMessage& one : profile.messages) {
    text += format("%-24s %12.2f %12.2f\n", one.transport.c_str(), micros(one.seconds),
                   micros(one.send_seconds));
  }
  return text;
}

}  // namespace

std::string profile_table(const Profile& profile) {
  const ProfileConditions& c = profile.conditions;
  return format("%s, %s, %d %s, %d %s; %s; %s; %s\n", c.host.c_str(), c.processor.c_str(), c.cores,
                c.cores == 1 ? "core" : "cores", c.threads, c.threads == 1 ? "thread" : "threads",
                c.kernel.c_str(), c.build.c_str(), c.date.c_str()) +
         layers_table(profile) + products_table(profile) + optimizers_table(profile) +
         codecs_table(profile) + links_table(profile) + exchanges_table(profile);
}

}  // namespace gradwire
