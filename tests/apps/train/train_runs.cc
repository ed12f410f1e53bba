#include "tests/apps/train/train_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "apps/train/train.h"

namespace gradwire {
namespace {

// The header's text and the elements of a safetensors file.
std::pair<std::string, std::vector<float>> split(const std::string& file) {
  std::uint64_t header = 0;
  if (file.size() < 8) return {};
  std::memcpy(&header, file.data(), 8);
  if (header > file.size() - 8) return {};
  std::vector<float> values((file.size() - 8 - header) / sizeof(float));
  std::memcpy(values.data(), file.data() + 8 + header, values.size() * sizeof(float));
  return {file.substr(8, header), values};
}

}  // namespace

std::string train(Words flags) {
  flags.push_back("--quiet");
  const auto outcome = train_command(flags);
  if (!outcome.has_value()) return std::string(outcome.error().message());
  return outcome.value() == 0 ? "ok" : "status " + std::to_string(outcome.value());
}

Status refusal(Words flags) {
  flags.push_back("--quiet");
  const auto outcome = train_command(flags);
  return outcome.has_value() ? Status() : outcome.error();
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  std::string line;
  while (std::getline(file, line)) {
    lines.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << path << ": " << line;
  }
  return lines;
}

double relative_distance(const std::string& path_a, const std::string& path_b) {
  const auto [header_a, a] = split(contents(path_a));
  const auto [header_b, b] = split(contents(path_b));
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(header_a, header_b);
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(difference / norm);
}

Words all_compressors() {
  const std::string small = ",min_elems=0,dense_1d=false";
  Words specs{"none", "none:combine=sra", "cast:fp16", "cast:bf16,ef=ef14"};
  for (const char* method :
       {"topk:ratio=0.05,ef=ef14", "topk:ratio=0.05", "qsgd:bits=8", "qsgd:bits=4,combine=gather",
        "qsgd:bits=2,ef=ef14", "signsgd:ef=ef14", "signsgd:ef=ef14,combine=gather",
        "signsgd:vote=majority", "powersgd:rank=2,ef=ef14", "powersgd:rank=1,warm=false,ef=ef14"}) {
    specs.push_back(method + small);
  }
  specs.push_back("*.bias=none;fc1.*=topk:ratio=0.1,ef=ef14;*=qsgd:bits=8");
  return specs;
}

}  // namespace gradwire
