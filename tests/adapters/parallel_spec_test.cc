// What --parallel's text means, what is answered where it means nothing, and its canonical form.
#include "adapters/trainer/mesh/parallel_spec.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/names.h"

namespace gradwire::parallel_spec_test {
namespace {

ParallelSpec parsed(const std::string& text) {
  const auto spec = ParallelSpec::parse(text);
  EXPECT_TRUE(spec.has_value()) << text << ": " << spec.error().message();
  return spec.has_value() ? spec.value() : ParallelSpec();
}

std::string mistake(const std::string& text) {
  const auto spec = ParallelSpec::parse(text);
  return spec.has_value() ? "parsed as " + to_string(spec.value())
                          : std::string(spec.error().message());
}

TEST(ParallelSpec, EveryPartHasItsPlace) {
  const ParallelSpec spec =
      parsed(" pp=4/interleaved[chunks=3] ,dp=8, zero=1,tp=2/megatron[sequence=on]");
  EXPECT_EQ(spec.dp, 8);
  EXPECT_EQ(spec.tp, 2);
  EXPECT_EQ(spec.layout.kind, TensorLayout::Kind::kMegatron);
  EXPECT_TRUE(spec.layout.sequence);
  EXPECT_EQ(spec.pp, 4);
  EXPECT_EQ(spec.order.kind, PipelineOrder::Kind::kInterleaved);
  EXPECT_EQ(spec.order.chunks, 3);
  EXPECT_EQ(spec.zero, 1);
}

TEST(ParallelSpec, WhatIsNotSaid) {
  const ParallelSpec spec = parsed("zero=2");
  EXPECT_EQ(spec.dp, ParallelSpec::kUnsaid);
  EXPECT_EQ(spec.tp, 1);
  EXPECT_EQ(spec.pp, 1);
  EXPECT_EQ(spec.layout, TensorLayout());
  EXPECT_EQ(spec.order.kind, PipelineOrder::Kind::k1f1b);
  EXPECT_EQ(parsed("pp=2/interleaved").order.chunks, 2);
  EXPECT_EQ(parsed("dp=2").zero, ParallelSpec::kUnsaid);
}

TEST(ParallelSpec, CanonicalTextsReadBackAsThemselves) {
  for (const std::string text : {"dp=4",
                                 "dp=2,tp=2",
                                 "tp=2/hybrid",
                                 "tp=6/spatial[2x3]",
                                 "tp=2/megatron[sequence=on]",
                                 "pp=2",
                                 "pp=4/gpipe",
                                 "pp=4/interleaved",
                                 "pp=4/interleaved[chunks=3]",
                                 "pp=4/zb-h1",
                                 "pp=4/zb-v",
                                 "pp=2/zb-v-half",
                                 "pp=8/zb-v-min",
                                 "pp=4/breadth-first",
                                 "pp=4/chimera",
                                 "pp=4/chimera[doubling=on]",
                                 "pp=4/pipedream",
                                 "pp=4/pipedream[vertical_sync=on]",
                                 "pp=4/2bw",
                                 "pp=4/1f1b[stages=3+4+4+1]",
                                 "pp=2/zb-v[stages=1+2+3+4]",
                                 "pp=2/interleaved[stages=1+2+3+4]",
                                 "pp=2/breadth-first[chunks=1,stages=7+5]",
                                 "dp=2,pp=2/chimera[doubling=on,stages=7+5],zero=1",
                                 "pp=2/pipedream[vertical_sync=on,stages=7+5]",
                                 "pp=4/breadth-first[chunks=1]",
                                 "pp=4/file[a/b=c,d.txt]",
                                 "dp=1048576,tp=3,pp=5/zb-h1,zero=3",
                                 "zero=0",
                                 "tp=1",
                                 "pp=1/gpipe"}) {
    EXPECT_EQ(to_string(parsed(text)), text);
  }
}

TEST(ParallelSpec, OtherTextsOfOneValueHaveItsCanonicalText) {
  const std::vector<std::pair<std::string, std::string>> all{
      {"zero=1 , dp=4", "dp=4,zero=1"},
      {"pp=2/1f1b", "pp=2"},
      {"pp=2/interleaved[chunks=2]", "pp=2/interleaved"},
      {"tp=2/megatron", "tp=2"},
      {"tp=2/megatron[sequence=off]", "tp=2"},
      {"tp=1,pp=1,dp=3", "dp=3"},
      {"pp=1", "tp=1"}};
  for (const auto& [text, canonical] : all) {
    EXPECT_EQ(to_string(parsed(text)), canonical) << text;
    EXPECT_EQ(parsed(canonical), parsed(text)) << text;
  }
}

TEST(ParallelSpec, WrongStagesAreAnsweredByItem) {
  const std::vector<std::pair<std::string, std::string>> all{
      {"pp=2/1f1b[stages=3+x]",
       "item 'pp=2/1f1b[stages=3+x]': got stages=3+x, expected a number of layers, 1 to 65536, for "
       "each stage, such as stages=3+4+4+1"},
      {"pp=2/1f1b[stages=3+0]",
       "item 'pp=2/1f1b[stages=3+0]': got stages=3+0, expected a number of layers, 1 to 65536, for "
       "each stage, such as stages=3+4+4+1"},
      {"pp=2/1f1b[stages=3+4+4]",
       "item 'pp=2/1f1b[stages=3+4+4]': got stages=3+4+4, 3 numbers, expected 2, one for each "
       "stage"},
      {"pp=2/zb-v[stages=3+4]",
       "item 'pp=2/zb-v[stages=3+4]': got stages=3+4, 2 numbers, expected 4, one for each stage"},
      {"pp=1/1f1b[stages=3]",
       "item 'pp=1/1f1b[stages=3]': got stages= on one rank, expected pp=2 or more"},
      {"pp=2/1f1b[stages=1+2,stages=1+2]",
       "item 'pp=2/1f1b[stages=1+2,stages=1+2]': stages= is given twice (expected once)"},
      {"pp=2/interleaved[stages=2]",
       "item 'pp=2/interleaved[stages=2]': got stages=2, 1 numbers, expected 4, one for each "
       "stage"}};
  for (const auto& [text, answer] : all) EXPECT_EQ(mistake(text), answer) << text;
}

TEST(ParallelSpec, WrongTextsAreAnsweredByItem) {
  const std::string items = "dp=N, tp=N[/LAYOUT], pp=N[/SCHEDULE] or zero=N";
  const std::string schedules =
      "(expected gpipe, 1f1b, interleaved, zb-h1, zb-v, zb-v-half, zb-v-min, breadth-first, "
      "chimera, pipedream, 2bw, file)";
  const std::vector<std::pair<std::string, std::string>> all{
      {"", "item '': expected " + items},
      {"dp=2,", "item '': expected " + items},
      {"dp", "item 'dp': expected " + items},
      {"ddp=2", "item 'ddp=2': 'ddp' is no axis; did you mean 'dp'? (expected " + items + ")"},
      {"zeros=2",
       "item 'zeros=2': 'zeros' is no axis; did you mean 'zero'? (expected " + items + ")"},
      {"dp=2,dp=2", "item 'dp=2': 'dp' is given twice (expected once)"},
      {"dp=0", "item 'dp=0': got '0', expected 1 to 1048576"},
      {"dp=", "item 'dp=': got '', expected 1 to 1048576"},
      {"dp=two", "item 'dp=two': got 'two', expected 1 to 1048576"},
      {"dp=99999999999999999999",
       "item 'dp=99999999999999999999': got '99999999999999999999', expected 1 to 1048576"},
      {"dp=2/ring", "item 'dp=2/ring': got '2/ring', expected 1 to 1048576"},
      {"zero=4", "item 'zero=4': got '4', expected 0 to 3"},
      {"tp=2/rows", "item 'tp=2/rows': 'rows' is no layout (expected megatron, hybrid, spatial)"},
      {"tp=2/", "item 'tp=2/': '' is no layout (expected megatron, hybrid, spatial)"},
      {"tp=2/hybrid[x=1]", "item 'tp=2/hybrid[x=1]': 'hybrid' takes no keys (got [x=1])"},
      {"tp=2/megatron[sequence=yes]",
       "item 'tp=2/megatron[sequence=yes]': got sequence=yes, expected on or off"},
      {"tp=2/megatron[on]", "item 'tp=2/megatron[on]': got [on], expected [sequence=...]"},
      {"tp=4/spatial",
       "item 'tp=4/spatial': got 'spatial' without its tiles, expected "
       "spatial[RxC]"},
      {"tp=4/spatial[2x3]", "item 'tp=4/spatial[2x3]': 2 x 3 = 6 tiles, but tp=4"},
      {"tp=4/spatial[0x4]", "item 'tp=4/spatial[0x4]': got '0', expected 1 to 1048576"},
      {"pp=2/1f2b", "item 'pp=2/1f2b': '1f2b' is no schedule; did you mean '1f1b'? " + schedules},
      {"pp=2/gpipe[chunks=2]",
       "item 'pp=2/gpipe[chunks=2]': got [chunks=2], expected [stages=...]"},
      {"pp=2/interleaved[chunks=0]",
       "item 'pp=2/interleaved[chunks=0]': got '0', expected 1 to 1024"},
      {"pp=2/interleaved[depth=2]",
       "item 'pp=2/interleaved[depth=2]': got [depth=2], expected [chunks=...]"},
      {"pp=2/interleaved[]", "item 'pp=2/interleaved[]': got [], expected [chunks=...]"},
      {"pp=2/interleaved[chunks=2,dp=2", "item 'pp=2/interleaved[chunks=2,dp=2': '[' has no ']'"},
      {"pp=2/gpipe]", "item 'pp=2/gpipe]': ']' has no '['"},
      {"pp=2/interleaved[chunks=2]x",
       "item 'pp=2/interleaved[chunks=2]x': got 'x' behind ']', expected nothing"},
      {"pp=2/file", "item 'pp=2/file': no path (expected file[PATH])"},
      {"pp=2/file[]", "item 'pp=2/file[]': no path (expected file[PATH])"}};
  for (const auto& [text, wanted] : all) EXPECT_EQ(mistake(text), wanted) << text;
}

TEST(ParallelSpec, HybridAndSpatialDivideImages) {
  for (const char* text :
       {"dp=4", "tp=2", "tp=2/megatron[sequence=on]", "tp=1/hybrid", "tp=1/spatial[1x1]"}) {
    EXPECT_FALSE(parsed(text).divides_images()) << text;
  }
  for (const char* text : {"tp=2/hybrid", "dp=2,tp=4/spatial[2x2]"}) {
    EXPECT_TRUE(parsed(text).divides_images()) << text;
  }
}

MeshSizes mesh_for(const std::string& text, int ranks) {
  const auto mesh = parsed(text).mesh(ranks);
  EXPECT_TRUE(mesh.has_value()) << mesh.error().message();
  return mesh.has_value() ? mesh.value() : MeshSizes{0, 0, 0};
}

TEST(ParallelSpec, AMissingDpTakesTheRanksThatAreLeft) {
  EXPECT_EQ(mesh_for("zero=1", 6), (MeshSizes{1, 6, 1}));
  EXPECT_EQ(mesh_for("tp=2", 6), (MeshSizes{1, 3, 2}));
  EXPECT_EQ(mesh_for("pp=3,tp=2", 6), (MeshSizes{3, 1, 2}));
  EXPECT_EQ(mesh_for("pp=3,tp=2,dp=1", 6), (MeshSizes{3, 1, 2}));
  EXPECT_EQ(mesh_for("pp=1/2bw", 4), (MeshSizes{1, 4, 1}));
  EXPECT_TRUE(parsed("pp=1/2bw").has_stages());
  EXPECT_FALSE(parsed("pp=1/pipedream").has_stages());
}

TEST(ParallelSpec, AMeshThatDoesNotFitIsRefusedWithItsProduct) {
  EXPECT_EQ(parsed("dp=3,pp=2").mesh(4).error().message(),
            "pp=2 x dp=3 x tp=1 = 6 ranks, but the job has 4");
  EXPECT_EQ(parsed("pp=2,tp=2").mesh(6).error().message(),
            "pp=2 x tp=2 = 4 ranks, and the job's 6 are no multiple of them");
  EXPECT_EQ(parsed("pp=4").mesh(2).error().message(),
            "pp=4 x tp=1 = 4 ranks, and the job's 2 are no multiple of them");
}

}  // namespace
}  // namespace gradwire::parallel_spec_test
