// Operator graphs: files and their errors, built-in ones, models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/graph/built_in_graphs.h"
#include "planner/graph/graph_file.h"
#include "planner/graph/model_graph.h"
#include "planner/graph/operator_graph.h"
#include "tests/support/fails.h"
#include "trainer/models.h"

namespace gradwire::graph_test {
namespace {

using ::testing::ElementsAre;

const std::string kText = R"({"name": "two layers", "samples": 32,
 "operators": [
  {"name": "a", "macs": [3200, 6400], "parameter_bytes": 400, "channels": 10,
   "splits": ["channels", "inside"], "layer": 3},
  {"name": "b", "group": "g", "macs": [0, 0], "channels": 10, "reads": "own", "inputs": ["a"]},
  {"name": "c", "group": "g", "macs": [1, 2], "positions": 4, "inputs": ["a", "b"]}
]}
)";

TEST(OperatorGraph, FilesSayOperators) {
  const OperatorGraph graph = parse_graph(kText, "g.json").value();
  EXPECT_EQ(graph.name, "two layers");
  EXPECT_EQ(graph.samples, 32);
  ASSERT_EQ(graph.size(), 3);
  EXPECT_EQ(graph.at(0).forward_macs, 3200);
  EXPECT_EQ(graph.at(0).backward_macs, 6400);
  EXPECT_EQ(graph.at(0).layer, 3);
  EXPECT_TRUE(graph.at(0).splits_channels);
  EXPECT_TRUE(graph.at(0).splits_inside);
  EXPECT_FALSE(graph.at(0).splits_positions);
  EXPECT_FALSE(graph.at(1).reads_all_channels);
  EXPECT_THAT(graph.at(2).inputs, ElementsAre(0, 1));
  EXPECT_EQ(graph.output_bytes(0), 32 * 10 * 4);
  EXPECT_THAT(graph.readers(), ElementsAre(ElementsAre(1, 2), ElementsAre(2), ElementsAre()));
  EXPECT_THAT(graph.groups(), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

TEST(OperatorGraph, TextsOfGraphsReadBack) {
  for (const std::string& name : built_in_graph_names()) {
    const std::string text = graph_text(built_in_graph(name).value());
    const auto again = parse_graph(text, name);
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(graph_text(again.value()), text);
  }
}

// The error of the text with `from` replaced by `to`.
Status with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return parse_graph(text.replace(place, from.size(), to), "g.json").error();
}

TEST(OperatorGraph, ErrorsNameTheLine) {
  EXPECT_THAT(with("\"samples\": 32", "\"samples\": 0"),
              fails(Code::kInvalidArgument, "g.json:2", "samples", "0"));
  EXPECT_THAT(with("\"samples\"", "\"sample\""),
              fails(Code::kInvalidArgument, "g.json:1", "sample", "samples"));
  EXPECT_THAT(with("3200, 6400", "3200"), fails(Code::kInvalidArgument, "g.json:3", "macs"));
  EXPECT_THAT(with("3200, 6400", "3200, -1"),
              fails(Code::kInvalidArgument, "g.json:3", "macs", "-1"));
  EXPECT_THAT(with("\"parameter_bytes\": 400", "\"parameter_bytes\": \"400\""),
              fails(Code::kInvalidArgument, "g.json:3", "parameter_bytes"));
  EXPECT_THAT(with("\"inside\"", "\"rows\""), fails(Code::kInvalidArgument, "g.json:4", "rows"));
  EXPECT_THAT(with("\"inputs\": [\"a\"]", "\"inputs\": [\"c\"]"),
              fails(Code::kInvalidArgument, "g.json:5", "c", "before"));
  EXPECT_THAT(with("\"own\"", "\"some\""), fails(Code::kInvalidArgument, "g.json:5", "some"));
  EXPECT_THAT(with("\"channels\": 10, \"reads\"", "\"channels\": 11, \"reads\""),
              fails(Code::kInvalidArgument, "g.json:5", "10", "11"));
  EXPECT_THAT(with("\"positions\": 4", "\"positions\": 4.5"),
              fails(Code::kInvalidArgument, "g.json:6", "positions", "whole"));
  EXPECT_THAT(with("\"name\": \"c\"", "\"name\": \"a\""),
              fails(Code::kInvalidArgument, "g.json:6", "a", "twice"));
  EXPECT_THAT(with("\"positions\": 4,", "\"positions\": 4, \"positions\": 4,"),
              fails(Code::kInvalidArgument, "g.json:6", "positions", "twice"));
  EXPECT_THAT(with("]}\n", "]\n"), fails(Code::kInvalidArgument, "g.json", "JSON"));
  EXPECT_THAT(parse_graph("[]", "g.json").error(),
              fails(Code::kInvalidArgument, "g.json:1", "operators"));
  EXPECT_THAT(parse_graph("{\"operators\": []}", "g.json").error(),
              fails(Code::kInvalidArgument, "g.json:1", "operators"));
}

TEST(OperatorGraph, LstmsAreUnrolled) {
  const OperatorGraph graph = unrolled_lstm(2, 8, 16, 64);
  EXPECT_TRUE(check_graph(graph).ok()) << check_graph(graph).message();
  EXPECT_EQ(graph.size(), 8 + 16 + 8);
  EXPECT_EQ(graph.groups().size(), 10U);
  // 4 (input and state) by width products for each cell, with twice as many backward.
  std::int64_t cells = 0;
  std::int64_t parameters = 0;
  for (const GraphOperator& one : graph.operators) {
    if (!one.name.starts_with("layer")) continue;
    cells += one.forward_macs;
    parameters += one.parameter_bytes;
    EXPECT_EQ(one.backward_macs, 2 * one.forward_macs);
  }
  EXPECT_EQ(cells, 16 * 16 * 8 * 64 * 64);
  EXPECT_EQ(parameters, 2 * 8 * 64 * 64 * 4);
}

TEST(OperatorGraph, InceptionBlocksHaveFourBranches) {
  const OperatorGraph graph = inception_like(2, 4, 16);
  EXPECT_TRUE(check_graph(graph).ok()) << check_graph(graph).message();
  EXPECT_EQ(graph.groups().size(), 10U);
  EXPECT_EQ(graph.size(), 2 + 2 * 8);
}

TEST(OperatorGraph, ModelsAreChainsOfTheirLayers) {
  const auto model = make_model<float>({.name = "mlp", .hidden = {8}}, {1, 2, 3}, 5).value();
  const OperatorGraph graph = model_graph(model, 10).value();
  ASSERT_EQ(graph.size(), static_cast<int>(model.layers()));
  std::int64_t macs = 0;
  std::int64_t parameters = 0;
  for (const GraphOperator& one : graph.operators) {
    macs += one.forward_macs;
    parameters += one.parameter_bytes;
  }
  EXPECT_EQ(macs, 10 * (6 * 8 + 8 * 5));
  EXPECT_EQ(parameters, 4 * (6 * 8 + 8 + 8 * 5 + 5));
  for (int number = 1; number < graph.size(); ++number) {
    EXPECT_THAT(graph.at(number).inputs, ElementsAre(number - 1));
  }
}

TEST(OperatorGraph, BlocksOfAGptSplitInside) {
  ModelOptions options{.name = "gpt"};
  options.width = 16;
  options.layers = 3;
  const auto model = make_model<float>(options, {8, 1, 1}, 11).value();
  const OperatorGraph graph = model_graph(model, 2).value();
  int inside = 0;
  for (const GraphOperator& one : graph.operators) {
    inside += one.splits_inside ? 1 : 0;
    if (one.splits_inside) {
      EXPECT_EQ(one.positions, 8);
      EXPECT_EQ(one.channels, 16);
    }
  }
  EXPECT_EQ(inside, 2 * 3);
}

}  // namespace
}  // namespace gradwire::graph_test
