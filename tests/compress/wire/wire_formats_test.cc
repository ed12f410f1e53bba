// Runs the examples of docs/wire_formats.md: blocks that start with ```example.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/text.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire {
namespace {

using testing::CoderRanks;
using Example = std::map<std::string, std::string>;  // key -> text; "line" says where it starts

std::vector<Example> examples() {
  std::ifstream page(GW_WIRE_FORMATS);
  EXPECT_TRUE(page.is_open()) << GW_WIRE_FORMATS;
  std::vector<Example> all;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(page, line);) {
    ++number;
    if (line == "```example") {
      inside = true;
      all.push_back({{"line", std::to_string(number)}, {"type", "f32"}, {"ranks", "1"}});
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      const std::size_t colon = line.find(": ");
      EXPECT_NE(colon, std::string::npos) << "line " << number;
      if (colon == std::string::npos) continue;
      all.back()[line.substr(0, colon)] = line.substr(colon + 2);
    }
  }
  return all;
}

template <typename T>
std::vector<T> numbers(const std::string& text) {
  std::istringstream words(text);
  std::vector<T> values;
  for (std::string word; words >> word;) {
    values.push_back(static_cast<T>(to_double(word).value()));
  }
  return values;
}

// "2" or "2x3".
Shape shape_of(const Example& example, std::size_t elems) {
  const auto found = example.find("shape");
  if (found == example.end()) return Shape::vector(static_cast<std::int64_t>(elems));
  const std::size_t times = found->second.find('x');
  return Shape::matrix(to_int(found->second.substr(0, times)).value(),
                       to_int(found->second.substr(times + 1)).value());
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte b : bytes) text += format("%02x", static_cast<unsigned>(b));
  return text;
}
std::string without_blanks(const std::string& text) {
  std::string packed;
  for (const char c : text) {
    if (c != ' ') packed += c;
  }
  return packed;
}

template <typename T>
void run(const Example& example) {
  const auto made = Registry::builtin().make(std::string_view(example.at("spec")));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto in = numbers<T>(example.at("in"));
  const auto ranks = static_cast<int>(to_int(example.at("ranks")).value());
  auto coders = CoderRanks<T>::open(*made.value(), shape_of(example, in.size()), ranks);
  ASSERT_TRUE(coders.has_value());
  const auto outcome =
      coders.value().step(std::vector<std::vector<T>>(static_cast<std::size_t>(ranks), in), 0);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  std::string payload;  // all rounds, one after another
  for (const auto& round : outcome.bytes) payload += hex(round[0]);
  EXPECT_EQ(payload, without_blanks(example.at("payload")));
  const auto own = numbers<T>(example.at("own"));
  ASSERT_EQ(own.size(), in.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_NEAR(outcome.own[0][i], own[i], 1e-6 * std::abs(static_cast<double>(own[i]))) << i;
  }
}

TEST(WireFormats, EveryExampleOfThePageIsTrue) {
  const auto all = examples();
  EXPECT_GE(all.size(), 8u);
  for (const Example& example : all) {
    SCOPED_TRACE("docs/wire_formats.md line " + example.at("line"));
    for (const char* key : {"spec", "in", "payload", "own"}) {
      ASSERT_TRUE(example.contains(key)) << key;
    }
    if (example.at("type") == "f64") {
      run<double>(example);
    } else {
      run<float>(example);
    }
  }
}

}  // namespace
}  // namespace gradwire
