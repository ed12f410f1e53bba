// docs/parallelism.md says what `gradwire plan --explain` prints, and the forms that it computes
// by.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "apps/whole_file.h"
#include "tests/apps/plan/captured_plan.h"
#include "trainer/accounts/layer_traffic.h"
#include "trainer/accounts/training_memory.h"

namespace gradwire::plan_page_test {
namespace {

std::vector<std::string> lines_of_page() {
  const auto page = read_whole_file(GW_PARALLELISM);
  EXPECT_TRUE(page.has_value()) << page.error().message();
  std::istringstream in(page.has_value() ? page.value() : "");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What a block of the page shows: a command behind "$ gradwire plan", and what it prints.
struct Shown {
  std::vector<std::string> words;
  std::string text;
};

std::vector<Shown> shown_blocks() {
  constexpr std::string_view kCommand = "$ gradwire plan ";
  std::vector<Shown> blocks;
  bool inside = false;
  for (const std::string& line : lines_of_page()) {
    if (line.starts_with(kCommand)) {
      inside = true;
      blocks.emplace_back();
      std::istringstream in(line.substr(kCommand.size()));
      for (std::string word; in >> word;) blocks.back().words.push_back(word);
    } else if (line.starts_with("```")) {
      inside = false;
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

TEST(PlanPage, M19_ShowsWhatIsPrinted) {
  const std::vector<Shown> blocks = shown_blocks();
  ASSERT_EQ(blocks.size(), 2U);
  for (const Shown& block : blocks) {
    EXPECT_EQ(captured_plan(block.words).text, block.text) << block.words.back();
  }
}

// "2 B C_in" with these sizes; "–" is 0.
std::int64_t value_of(const std::string& form, const std::map<std::string, std::int64_t>& sizes) {
  if (form == "–") return 0;
  std::int64_t product = 1;
  std::istringstream in(form);
  for (std::string word; in >> word;) {
    const auto named = sizes.find(word);
    product *= named != sizes.end() ? named->second : std::stoll(word);
  }
  return product;
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream in(row.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' ');
    const std::size_t end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

// Rows of the page's tables with so many columns, by their first cell.
std::map<std::string, std::vector<std::string>> rows_of_page(std::size_t columns) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const std::string& line : lines_of_page()) {
    if (!line.starts_with("|")) continue;
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() == columns) rows[cells[0]] = cells;
  }
  return rows;
}

// The table of a layer's communication, row by row, has the forms of layer_traffic().
TEST(PlanPage, M19_TheTableHasTheForms) {
  const std::map<std::string, std::int64_t> sizes{{"B", 5}, {"C_in", 7}, {"C_out", 11}};
  const LayerSize size{7 * 11, 7, 11};
  const auto rows = rows_of_page(5);
  for (const LayerDivision division : kLayerDivisions) {
    const std::string name(to_string(division));
    ASSERT_EQ(rows.count(name), 1U) << name;
    const std::vector<std::string>& row = rows.at(name);
    const PhaseElems phases = layer_traffic(division, size, 5);
    EXPECT_EQ(value_of(row[1], sizes), phases.forward) << name;
    EXPECT_EQ(value_of(row[2], sizes), phases.backward) << name;
    EXPECT_EQ(value_of(row[3], sizes), phases.gradients) << name;
  }
}

// Bytes that runs are said to have sent in a step are those of the forms: of a gpt of 4 blocks,
// width 64, untied, on 32 samples of 32 tokens. The loss takes 5 numbers a position where ranks
// share the logits.
TEST(PlanPage, M19_BytesOfTheRunsAreTheForms) {
  const auto rows = rows_of_page(7);
  const auto bytes = [&](const std::string& run) {
    std::string digits = rows.contains(run) ? rows.at(run)[2] : "no row";
    std::erase(digits, ',');
    return std::stod(digits);
  };
  const auto tensor_bytes = [](std::int64_t samples, std::int64_t ranks) {
    const TransformerShape shape{
        .layers = 4, .width = 64, .heads = 4, .sequence = 32, .batch = samples};
    const TensorTraffic traffic = tensor_traffic(shape, ranks);
    return 4 * (traffic.blocks + traffic.ends + sent_by_rank(2 * 5 * samples * 32, ranks));
  };
  const double parameters = 205312;
  EXPECT_EQ(bytes("one rank"), 0);
  EXPECT_EQ(bytes("dp=4"), 4 * 2 * parameters * 3 / 4);
  EXPECT_EQ(bytes("dp=4,zero=3"), 4 * 3 * parameters * 3 / 4);
  EXPECT_EQ(bytes("tp=4"), tensor_bytes(32, 4));
  EXPECT_EQ(bytes("pp=4"), 4 * 32 * 32 * 64);
}

}  // namespace
}  // namespace gradwire::plan_page_test
