#include "planner/profile/profile_file.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "base/text.h"
#include "planner/graph/lined_json.h"

namespace gradwire {
namespace {

using Kind = LinedJson::Kind;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostSize = std::int64_t{1} << 50;
constexpr std::int64_t kMostMacs = std::int64_t{1} << 60;

// The members of an entry, once for reading and writing. `f` takes a name, a value and the least
// that a number may be.
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfileConditions> {
  f("host", e.host, 0);
  f("processor", e.processor, 0);
  f("cores", e.cores, 1);
  f("threads", e.threads, 1);
  f("kernel", e.kernel, 0);
  f("build", e.build, 0);
  f("date", e.date, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledLayer> {
  f("name", e.name, 0);
  f("input", e.input, 1);
  f("output", e.output, 1);
  f("parameters", e.parameters, 0);
  f("forward_macs", e.forward_macs, 0);
  f("backward_macs", e.backward_macs, 0);
  f("rows", e.rows, 1);
  f("forward_seconds", e.forward_seconds, 0);
  f("backward_seconds", e.backward_seconds, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledProduct> {
  f("rows", e.rows, 1);
  f("in", e.in, 1);
  f("out", e.out, 1);
  f("seconds", e.seconds, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledOptimizer> {
  f("name", e.name, 0);
  f("elements", e.elements, 1);
  f("seconds", e.seconds, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledCodec> {
  f("spec", e.spec, 0);
  f("elements", e.elements, 1);
  f("encode_seconds", e.encode_seconds, 0);
  f("decode_seconds", e.decode_seconds, 0);
  f("bits_per_element", e.bits_per_element, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledLink> {
  f("transport", e.transport, 0);
  f("latency_seconds", e.latency_seconds, 0);
  f("bytes_per_second", e.bytes_per_second, 1);
  f("cpu_seconds_per_byte", e.cpu_seconds_per_byte, 0);
}

template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledExchange> {
  f("transport", e.transport, 0);
  f("spec", e.spec, 0);
  f("elements", e.elements, 1);
  f("buckets", e.buckets, 1);
  f("seconds", e.seconds, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledMessage> {
  f("transport", e.transport, 0);
  f("seconds", e.seconds, 0);
  f("send_seconds", e.send_seconds, 0);
}
template <typename Entry, typename F>
void members(Entry& e, F&& f) requires std::same_as<std::remove_const_t<Entry>, ProfiledSum> {
  f("elements", e.elements, 1);
  f("seconds", e.seconds, 0);
}

// A profile's lists, likewise; and whether every profile has it.
template <typename Whole, typename F>
void lists(Whole& profile, F&& f) {
  f("layers", profile.layers, true);
  f("products", profile.products, true);
  f("optimizers", profile.optimizers, true);
  f("codecs", profile.codecs, true);
  f("links", profile.links, true);
  f("exchanges", profile.exchanges, false);
  f("messages", profile.messages, false);
  f("sums", profile.sums, false);
}

nlohmann::ordered_json json_of(const SampleShape& shape) {
  return {shape.channels, shape.height, shape.width};
}
template <typename T>
nlohmann::ordered_json json_of(const T& value) {
  return value;
}

template <typename Entry>
nlohmann::ordered_json entry_json(const Entry& entry) {
  nlohmann::ordered_json json;
  members(entry, [&json](const char* key, const auto& value, int) { json[key] = json_of(value); });
  return json;
}

// What a file is read with: its name stands in every error.
class ProfileReader {
 public:
  explicit ProfileReader(std::string name) : name_(std::move(name)) {}

  Result<Profile> read(const LinedJson& root) {
    if (root.kind != Kind::kObject) return bad(root, "expected an object with \"profile\": 1");
    const LinedJson* version = root.find("profile");
    if (version == nullptr) return bad(root, "no \"profile\" (expected 1, the file's version)");
    if (version->kind != Kind::kInteger || version->integer != kVersion) {
      return bad(*version, "another version of profiles (expected \"profile\": 1)");
    }
    Profile profile;
    std::set<std::string> known{"profile"};
    GW_TRY(take(root, profile.conditions, known));
    Status status;
    lists(profile, [&](const char* key, auto& entries, bool always) {
      known.insert(key);
      if (status.ok() && (always || root.find(key) != nullptr)) status = list(root, key, entries);
    });
    GW_TRY(status);
    GW_TRY(no_others(root, known));
    return profile;
  }

 private:
  Status bad(const LinedJson& at, const std::string& what) const {
    return {Code::kInvalidArgument, format("%s:%d: %s", name_.c_str(), at.line, what.c_str())};
  }

  Status no_others(const LinedJson& at, const std::set<std::string>& known) const {
    for (const auto& [key, value] : at.members) {
      if (known.contains(key)) continue;
      return bad(value, "unknown key '" + key + "' (expected " +
                            joined({known.begin(), known.end()}) + ")");
    }
    return {};
  }

  template <typename Entry>
  Status list(const LinedJson& root, const char* key, std::vector<Entry>& entries) const {
    const LinedJson* found = root.find(key);
    if (found == nullptr) return bad(root, format("no \"%s\" (expected an array)", key));
    if (found->kind != Kind::kArray) return bad(*found, std::string(key) + " must be an array");
    for (const LinedJson& element : found->elements) {
      if (element.kind != Kind::kObject) {
        return bad(element, std::string(key) + " must have objects alone");
      }
      std::set<std::string> known;
      GW_TRY(take(element, entries.emplace_back(), known));
      GW_TRY(no_others(element, known));
    }
    return {};
  }

  // What is computed of sizes must not be beyond any number.
  template <typename Entry>
  Status check_sizes(const LinedJson& /*at*/, const Entry& /*entry*/) const {
    return {};
  }
  Status check_sizes(const LinedJson& at, const ProfiledProduct& one) const {
    const double macs =
        static_cast<double>(one.rows) * static_cast<double>(one.in) * static_cast<double>(one.out);
    if (macs <= static_cast<double>(kMostMacs)) return {};
    return bad(at, format("a product of %s multiplications (expected at most 2^60)",
                          shortest(macs).c_str()));
  }
  Status check_sizes(const LinedJson& at, const ProfiledLink& one) const {
    constexpr double kMost = 1000;
    if (one.latency_seconds > kMost || one.cpu_seconds_per_byte > kMost) {
      return bad(at, format("a link with latency_seconds=%s and cpu_seconds_per_byte=%s (expected "
                            "at most 1000)",
                            shortest(one.latency_seconds).c_str(),
                            shortest(one.cpu_seconds_per_byte).c_str()));
    }
    return {};
  }
  Status check_sizes(const LinedJson& at, const ProfiledMessage& one) const {
    constexpr double kMost = 1000;
    if (one.seconds <= kMost && one.send_seconds <= kMost) return {};
    return bad(at, format("a message with seconds=%s and send_seconds=%s (expected at most 1000)",
                          shortest(one.seconds).c_str(), shortest(one.send_seconds).c_str()));
  }
  Status check_sizes(const LinedJson& at, const ProfiledLayer& one) const {
    const double macs =
        static_cast<double>(one.forward_macs) + static_cast<double>(one.backward_macs);
    if (macs * static_cast<double>(one.rows) <= static_cast<double>(kMostMacs)) return {};
    return bad(at, format("a layer of %s multiplications a sample, %lld samples (expected at most "
                          "2^60 of a micro-batch)",
                          shortest(macs).c_str(), static_cast<long long>(one.rows)));
  }

  template <typename Entry>
  Status take(const LinedJson& at, Entry& entry, std::set<std::string>& known) const {
    Status status;
    members(entry, [&](const char* key, auto& value, int least) {
      known.insert(key);
      if (!status.ok()) return;
      const LinedJson* found = at.find(key);
      status = found == nullptr ? bad(at, format("no \"%s\" (expected one)", key))
                                : set(*found, key, value, least);
    });
    return status.ok() ? check_sizes(at, entry) : status;
  }

  Status set(const LinedJson& at, const char* key, std::string& out, int) const {
    if (at.kind != Kind::kText) return bad(at, std::string(key) + " must be a string");
    out = at.text;
    return {};
  }
  Status set(const LinedJson& at, const char* key, std::int64_t& out, int least) const {
    if (at.kind != Kind::kInteger) return bad(at, std::string(key) + " must be a whole number");
    out = at.integer;
    if (out >= least && out <= kMostSize) return {};
    return bad(at,
               format("%s=%lld (expected %d to 2^50)", key, static_cast<long long>(out), least));
  }
  Status set(const LinedJson& at, const char* key, int& out, int least) const {
    constexpr std::int64_t kMost = 1 << 20;
    std::int64_t value = 0;
    GW_TRY(set(at, key, value, least));
    if (value > kMost) {
      return bad(
          at, format("%s=%lld (expected %d to 2^20)", key, static_cast<long long>(value), least));
    }
    out = static_cast<int>(value);
    return {};
  }
  Status set(const LinedJson& at, const char* key, double& out, int least) const {
    if (at.kind != Kind::kInteger && at.kind != Kind::kNumber) {
      return bad(at, std::string(key) + " must be a number");
    }
    out = at.number;
    if (std::isfinite(out) && out >= least && out <= 1e18) return {};
    return bad(
        at, format("%s=%s (expected %d or more, at most 1e18)", key, shortest(out).c_str(), least));
  }
  Status set(const LinedJson& at, const char* key, SampleShape& out, int least) const {
    if (at.kind != Kind::kArray || at.elements.size() != 3) {
      return bad(at, std::string(key) + " must be three sizes: channels, height, width");
    }
    GW_TRY(set(at.elements[0], key, out.channels, least));
    GW_TRY(set(at.elements[1], key, out.height, least));
    return set(at.elements[2], key, out.width, least);
  }

  std::string name_;
};

}  // namespace

std::string profile_text(const Profile& profile) {
  std::string head = entry_json(profile.conditions).dump();
  std::string text = "{\"profile\": 1, " + head.substr(1, head.size() - 2);
  lists(profile, [&text](const char* key, const auto& entries, bool) {
    text += std::string(",\n\"") + key + "\": [";
    for (const auto& entry : entries) {
      text += (&entry == &entries.front() ? "\n " : ",\n ") + entry_json(entry).dump();
    }
    text += "]";
  });
  return text + "}\n";
}

std::string profile_lines(const Profile& profile) {
  const auto line = [](const std::string& kind, const auto& entry) {
    nlohmann::ordered_json json{{"kind", kind}};
    json.update(entry_json(entry));
    return json.dump() + "\n";
  };
  std::string lines = line("machine", profile.conditions);
  lists(profile, [&](const char* key, const auto& entries, bool) {
    const std::string plural(key);
    for (const auto& entry : entries) lines += line(plural.substr(0, plural.size() - 1), entry);
  });
  return lines;
}

Result<Profile> parse_profile(const std::string& text, const std::string& name) {
  GW_ASSIGN(const LinedJson root, parse_lined_json(text, name));
  return ProfileReader(name).read(root);
}

}  // namespace gradwire
