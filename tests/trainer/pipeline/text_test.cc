// Schedules as text and CSV: both ways, and what is not one.
#include "trainer/pipeline/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/trainer/pipeline/every_schedule.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire::text_test {
namespace {

// With everything that a text can say: two pipes, versions, every kind.
PipelineSchedule one_of_each() {
  PipelineSchedule schedule{.micro_batches = 2, .rank_of = {{0, 1}, {1, 0}}};
  schedule.ranks.resize(2);
  for (int kind = 0; kind < kPipelineOpKinds; ++kind) {
    PipelineOp op{.kind = static_cast<PipelineOpKind>(kind)};
    if (has_micro_batch(op.kind)) op.micro = 1;
    schedule.ranks[0].push_back(op);
    op.stage = 1;
    op.version = 7;
    schedule.ranks[1].push_back(op);
    op.pipe = 1;
    schedule.ranks[0].push_back(op);
    op.stage = 0;
    schedule.ranks[1].push_back(op);
  }
  return schedule;
}

std::string refusal(std::string_view text) {
  const auto schedule = parse_pipeline(text);
  if (schedule.has_value()) return "read";
  EXPECT_EQ(schedule.error().code(), Code::kInvalidArgument);
  return std::string(schedule.error().message());
}

TEST(PipelineText, SchedulesAreReadBackAsTheyWere) {
  std::vector<PipelineSchedule> schedules{one_of_each()};
  for (const PipelineCase& one : every_pipeline()) schedules.push_back(one.schedule());
  for (const PipelineSchedule& schedule : schedules) {
    const auto from_text = parse_pipeline(pipeline_text(schedule));
    ASSERT_TRUE(from_text.has_value()) << from_text.error().message();
    EXPECT_EQ(from_text.value(), schedule);
    const auto from_csv = parse_pipeline(pipeline_csv(schedule));
    ASSERT_TRUE(from_csv.has_value()) << from_csv.error().message();
    EXPECT_EQ(from_csv.value(), schedule);
  }
}

TEST(PipelineText, LayersOfStagesAreReadBack) {
  const PipelineSpec spec{.kind = PipelineKind::kZeroBubbleV, .layers = {3, 1, 4, 2}};
  const PipelineSchedule schedule = generate_pipeline(spec, 2, 3).value();
  const std::string text = pipeline_text(schedule);
  EXPECT_NE(text.find("place 0 1 1 0\nlayers 3 1 4 2\nrank 0:"), text.npos) << text;
  EXPECT_EQ(parse_pipeline(text).value(), schedule);
}

TEST(PipelineText, TheFormIsThePagesOne) {
  const PipelineSchedule schedule = one_f_one_b_schedule(2, 3);
  EXPECT_EQ(pipeline_text(schedule),
            "pipeline ranks=2 stages=2 micro-batches=3\n"
            "place 0 1\n"
            "rank 0: 0F0 0F1 0B0 0F2 0B1 0B2\n"
            "rank 1: 1F0 1B0 1F1 1B1 1F2 1B2\n");
  EXPECT_EQ(pipeline_csv(schedule), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(parse_pipeline("# by hand\r\n\r\n  pipeline  ranks=2 stages=2 micro-batches=3 # m\r\n"
                           "place 0 1\n\nrank 0: 0F0 0F1 0B0 0F2 0B1 0B2 # first\n"
                           "rank 1: 1F0 1B0 1F1 1B1 1F2 1B2")
                .value(),
            schedule);
}

TEST(PipelineText, NamesOfPytorchAreRead) {
  const auto schedule = parse_pipeline(
      "0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD, ,1RECV_F0,1F0,1B0,1SEND_B0,,1REDUCE_GRAD,1RESHARD\n");
  ASSERT_TRUE(schedule.has_value()) << schedule.error().message();
  EXPECT_EQ(pipeline_text(schedule.value()),
            "pipeline ranks=2 stages=2 micro-batches=1\n"
            "place 0 1\n"
            "rank 0: 0UNSHARD 0F0 0SF0 0RB0 0I0 0W0 0RG 0RESHARD\n"
            "rank 1: 1UNSHARD 1RF0 1F0 1B0 1SB0 1RG 1RESHARD\n");
  EXPECT_EQ(pipeline_csv(schedule.value()),
            "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n");
}

TEST(PipelineText, ErrorsNameThePlaceWhatIsThereAndWhatIsWanted) {
  const std::string head = "pipeline ranks=2 stages=2 micro-batches=3\n";
  const std::string op = ", expected an operation such as 2F0, 3I1 or 0OPT";
  EXPECT_EQ(refusal(""),
            "line 1, column 1: got the end of the line, expected pipeline ranks=R stages=S "
            "micro-batches=M");
  EXPECT_EQ(refusal("pipeline ranks=0"),
            "line 1, column 10: got 'ranks=0', expected ranks=1 to 65536");
  EXPECT_EQ(refusal("pipeline ranks=2 stages=two"),
            "line 1, column 18: got 'stages=two', expected stages=1 to 65536");
  EXPECT_EQ(refusal("pipeline ranks=2 stages=2"),
            "line 1, column 26: got the end of the line, expected micro-batches=1 to 65535");
  EXPECT_EQ(refusal("pipeline ranks=2 stages=2 micro-batches=3 x"),
            "line 1, column 43: got 'x', expected the end of the line");
  EXPECT_EQ(refusal(head + "rank 0: 0F0"),
            "line 2, column 1: got 'rank', expected place and the rank of each stage");
  EXPECT_EQ(refusal(head + "place 0 2"),
            "line 2, column 9: got '2', expected the rank of stage 1, 0 to 1");
  EXPECT_EQ(refusal(head + "place 0"),
            "line 2, column 8: got the end of the line, expected the rank of stage 1, 0 to 1");
  EXPECT_EQ(refusal(head + "place 0 1 1"),
            "line 2, column 11: got '1', expected the end of the line");
  EXPECT_EQ(refusal(head + "place 0 1\nlayers 3"),
            "line 3, column 9: got the end of the line, expected the layers of stage 1, 1 to "
            "65536");
  EXPECT_EQ(refusal(head + "place 0 1\nlayers 3 0"),
            "line 3, column 10: got '0', expected the layers of stage 1, 1 to 65536");
  EXPECT_EQ(refusal(head + "place 0 1\nlayers 3 4\nlayers 3 4"),
            "line 4, column 1: got 'layers', expected place or rank 0:");
  EXPECT_EQ(refusal(head + "place 0 1\nrank 1: 1F0"), "line 3, column 6: got '1:', expected 0:");
  EXPECT_EQ(refusal(head + "place 0 1\nrank 0: 0F0\n"),
            "line 3, column 12: got the end of the line, expected rank 1:");
  EXPECT_EQ(refusal(head + "place 0 1\nrank 0: 0F0\n\nrank 1: 1F0 1X0"),
            "line 5, column 13: got '1X0'" + op);
  EXPECT_EQ(refusal(head + "place 0 1\nrank 0: 0F0\nrank 1: 1F0\nrank 2:"),
            "line 5, column 1: got 'rank', expected nothing behind the last rank");
  EXPECT_EQ(refusal("0F0,0B0\n1F0, 1Q0 \n"), "line 2, column 6: got '1Q0'" + op);
  EXPECT_EQ(refusal("0F0,0B0\n1F0,0F1\n"),
            "line 2, column 5: got '0F1', expected stage 0 of pipe 0 on rank 0 alone, where it "
            "stands first");
  EXPECT_EQ(refusal("0F0,0B0\n2F0,2B0\n"),
            "line 2, column 8: got the end of the line, expected an operation of stage 1 of pipe 0 "
            "on some rank");
  EXPECT_EQ(refusal("0OPT"), "line 1, column 5: got the end of the line" + op);
}

// A terminal would obey the bytes of a file that is none.
TEST(PipelineText, ErrorsShowBytesThatAreNotPrintable) {
  const std::string bytes("\x1b[2J\0\x7f\xc2\x9b~", 9);
  EXPECT_EQ(refusal(bytes),
            "line 1, column 1: got '\\x1b[2J\\x00\\x7f\\xc2\\x9b~', expected an operation such as "
            "2F0, 3I1 or 0OPT");
  const std::string head = "pipeline ranks=1 stages=1 micro-batches=1\nplace 0\nrank 0: ";
  EXPECT_EQ(
      refusal(head + std::string(41, '\a')), "line 3, column 9: got '" + [] {
        std::string shown;
        for (int i = 0; i < 40; ++i) shown += "\\x07";
        return shown;
      }() + "...', expected an operation such as 2F0, 3I1 or 0OPT");
}

TEST(PipelineText, OperationsOutOfBoundsAreRefused) {
  for (const char* op : {"0", "F0", "0F", "0F-1", "-1F0", "+1F0", "0F65535", "65536F0", "0F0@256",
                         "0F0@", "0F0#", "0F0#65536", "0F0#1@1", "0F0 ", "0f0", "0OPT0", "0FB0",
                         "99999999999F0", "(0F1;1B2)OVERLAP_F_B"}) {
    EXPECT_FALSE(pipeline_op(op).has_value()) << op;
  }
  EXPECT_EQ(to_string(pipeline_op("65535F65534@255#65535").value()), "65535F65534@255#65535");
}

TEST(PipelineText, ChangedTextsAreReadOrRefused) {
  std::mt19937 random(23);
  const std::string letters = "0123456789FBIWR@#,: \n_=SENDOPT";
  const std::vector<std::string> originals{pipeline_text(one_of_each()),
                                           pipeline_csv(one_of_each()),
                                           pipeline_text(one_f_one_b_schedule(3, 4))};
  for (int round = 0; round < 3000; ++round) {
    std::string text = originals[random() % originals.size()];
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 4);
      } else {
        text[at] = letters[random() % letters.size()];
      }
    }
    const auto schedule = parse_pipeline(text);
    if (schedule.has_value()) {
      EXPECT_EQ(parse_pipeline_text(pipeline_text(schedule.value())).value(), schedule.value());
    } else {
      EXPECT_TRUE(schedule.error().message().starts_with("line ")) << schedule.error().message();
    }
  }
}

}  // namespace
}  // namespace gradwire::text_test
