// What ranks of a sharded job hold and send: rows Z3 to Z5, Z9 and Z10 of the trainer's acceptance
// table, by the counts of memory, links and wire.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/adapters/sharded_runs.h"
#include "tests/support/short_run.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/accounts/training_memory.h"
#include "trainer/step/gradient_fold.h"

namespace gradwire::testing::sharded_memory_test {
namespace {

// A model of 1,126,410 parameters, most of them in one layer.
constexpr std::int64_t kWide = 1024;

Setting wide_adamw(int stage, int ranks) {
  Setting setting;
  setting.width = kWide;
  setting.stage = stage;
  setting.ranks = ranks;
  setting.bucket_bytes = 1 << 16;
  setting.training = twenty_steps("adamw", 1);
  setting.training.steps = 3;
  return setting;
}

// Bytes of the training state: what a parameter takes, by the dtypes that are allocated.
std::int64_t state(const MemoryUse& use) {
  return use.now_of(MemoryClass::kParameters) + use.now_of(MemoryClass::kMaster) +
         use.now_of(MemoryClass::kGradients) + use.now_of(MemoryClass::kMainGradients) +
         use.now_of(MemoryClass::kMoments);
}

void expect_planned(const Setting& setting, const std::vector<Outcome>& outcomes) {
  for (int rank = 0; rank < setting.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    RunMemoryQuestion question;
    question.micro_batch = setting.training.batch / setting.ranks;
    question.stage = setting.stage;
    question.rank = rank;
    question.ranks = setting.ranks;
    question.offload = setting.offload;
    question.offload_chunk = 777;
    question.micro_batch /= setting.training.accumulate;
    question.accumulate = setting.training.accumulate;
    question.reduce_each = setting.reduce_each;
    question.precision = setting.training.precision;
    question.clips_worker = setting.training.clip_worker > 0;
    const Demands demands = demands_of(setting);
    question.wide_gradients =
        GradientFold::form_of(setting.training, demands) == GradientFold::Form::kWide;
    question.whole_gradients = GradientFold::needs_whole(setting.training, demands);
    const auto planned = run_memory(mlp(setting.width), question);
    ASSERT_TRUE(planned.has_value());
    for (const MemoryClass what :
         {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kMainGradients,
          MemoryClass::kMaster, MemoryClass::kMoments}) {
      const auto i = static_cast<std::size_t>(what);
      const bool sums = what == MemoryClass::kGradients || what == MemoryClass::kMainGradients;
      const bool passes = sums && planned.value().whole_sums;
      EXPECT_EQ(passes ? outcome.device.peak[i] : outcome.device.now[i], planned.value().device[i])
          << to_string(what);
      EXPECT_EQ(outcome.host.now[i], planned.value().host[i]) << to_string(what);
    }
    for (const MemoryClass what :
         {MemoryClass::kGathered, MemoryClass::kActivations, MemoryClass::kWorkspace}) {
      EXPECT_EQ(outcome.device.peak_of(what),
                planned.value().device[static_cast<std::size_t>(what)])
          << to_string(what);
    }
  }
}

// State by stage, in fp32 with AdamW: whole are 4 bytes a parameter of each of parameters and
// gradients below stages 3 and 2, of 16 in all.
TEST(ShardedMemory, Z3_Z4_Z5_BytesOfAParameter) {
  const auto whole = static_cast<double>(model_elems(kWide));
  for (const int ranks : {2, 4}) {
    for (const int stage : {1, 2, 3}) {
      const Setting setting = wide_adamw(stage, ranks);
      const std::vector<Outcome> outcomes = train(setting);
      const double kept = (stage < 3 ? 4.0 : 0.0) + (stage < 2 ? 4.0 : 0.0);
      const double wanted = kept + (16 - kept) / ranks;
      std::int64_t sum = 0;
      for (const Outcome& outcome : outcomes) {
        sum += state(outcome.device);
        EXPECT_NEAR(static_cast<double>(state(outcome.device)) / whole, wanted, 0.01 * wanted);
      }
      EXPECT_EQ(static_cast<double>(sum), whole * wanted * ranks) << "every part has one owner";
      expect_planned(setting, outcomes);
      // The general account of `gradwire plan` too.
      MemoryQuestion question;
      question.params = whole;
      question.bytes = state_bytes("fp32", "adamw", true).value();
      question.stage = stage;
      question.data_ranks = ranks;
      EXPECT_NEAR(training_memory(question).total() / whole, wanted, 0.01 * wanted);
    }
  }
}

// On their way are at most so many buckets, and the tensor that was just written.
TEST(ShardedMemory, Z4_GradientsOnTheirWayAreAFewBuckets) {
  for (const int stage : {2, 3}) {
    const Setting setting = wide_adamw(stage, 2);
    for (const Outcome& outcome : train(setting)) {
      const std::int64_t largest = 4 * kWide * kWide;
      EXPECT_LE(outcome.device.peak_of(MemoryClass::kGradients),
                4 * outcome.own_elems + kBucketsOnTheirWay * setting.bucket_bytes + 2 * largest);
      EXPECT_EQ(outcome.device.now_of(MemoryClass::kGradients), 4 * outcome.own_elems);
    }
  }
}

// Sums of micro-batches are reduced once, so they are whole until the last one's way back, whatever
// the stage; and so is a gradient that must be whole before anything of it is reduced. The account
// says so, to the byte, and stages 2 and 3 hold nothing of it between steps.
TEST(ShardedMemory, Z4_Z5_TheAccountSaysWhatSumsOfMicroBatchesTake) {
  struct Way {
    Precision precision;
    bool scaled;
    double clip_worker;
  };
  ShortRun run(5);
  for (const int stage : {1, 2, 3}) {
    for (const int accumulate : {1, 2, 4}) {
      for (const Way& way : {Way{Precision::kF32, false, 0}, Way{Precision::kF32, false, 0.5},
                             Way{Precision::kBF16, false, 0}, Way{Precision::kF16, true, 0}}) {
        if (!run.takes()) continue;
        Setting setting = wide_adamw(stage, 2);
        setting.training.accumulate = accumulate;
        setting.training.precision = way.precision;
        setting.training.clip_worker = way.clip_worker;
        if (way.scaled) setting.training.loss_scale = LossScaleOptions::parse("1024").value();
        SCOPED_TRACE(format("stage %d, %d micro-batches, %d bytes, clip %g", stage, accumulate,
                            way.precision == Precision::kF32 ? 4 : 2, way.clip_worker));
        const std::vector<Outcome> outcomes = train(setting);
        expect_planned(setting, outcomes);
        for (const Outcome& outcome : outcomes) {
          const bool narrow = way.precision != Precision::kF32;
          const MemoryClass sums = narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients;
          if (accumulate > 1 || way.clip_worker > 0) {
            EXPECT_GE(outcome.device.peak_of(sums), 4 * model_elems(kWide));
          }
          if (stage == 1) continue;
          EXPECT_EQ(outcome.device.now_of(MemoryClass::kGradients) +
                        outcome.device.now_of(MemoryClass::kMainGradients),
                    accumulate > 1 ? 4 * model_elems(kWide) : (narrow ? 2 : 4) * outcome.own_elems);
        }
      }
    }
  }
}

// Bytes of training state with AdamW: of each parameter of the model, and of each of the rank's
// own.
struct Bytes {
  std::int64_t whole;
  std::int64_t own;
};

// By stage, as docs/decisions/0013 has it.
Bytes form(int stage, bool narrow, bool each, bool sums) {
  constexpr Bytes kFp32[][4] = {{{16, 0}, {8, 8}, {4, 12}, {0, 16}},    // one micro-batch
                                {{16, 0}, {8, 8}, {8, 8}, {4, 12}},     // their sum
                                {{16, 0}, {8, 12}, {4, 12}, {0, 16}}};  // each
  constexpr Bytes kNarrow[][4] = {{{16, 0}, {4, 12}, {2, 14}, {0, 16}},
                                  {{18, 0}, {6, 12}, {6, 12}, {4, 14}},
                                  {{20, 0}, {4, 16}, {2, 16}, {0, 18}}};
  return (narrow ? kNarrow : kFp32)[sums ? 1 : each ? 2 : 0][stage];
}

// Every form: stages, precisions, micro-batches, both policies, 1, 2 and 4 ranks, uncompressed and
// with error feedback. What the arena counts is the form, and the account of the run. Under error
// feedback fp16's gradients wait as a whole for each other: 2 bytes of all parameters at the most.
TEST(ShardedMemory, Z2_Z5_EveryFormToTheByte) {
  ShortRun run(5);
  for (const Precision precision : {Precision::kF32, Precision::kBF16, Precision::kF16}) {
    for (const int ranks : {1, 2, 4}) {
      for (const int accumulate : {1, 4}) {
        for (const std::string way : {"sum", "each", "ef14"}) {
          for (const int stage : {0, 1, 2, 3}) {
            if (!run.takes()) continue;
            Setting setting;
            setting.stage = stage;
            setting.ranks = ranks;
            setting.training = twenty_steps("adamw", accumulate);
            setting.training.batch = 16 * ranks;
            setting.training.steps = 3;
            setting.training.precision = precision;
            setting.reduce_each = way == "each";
            if (precision == Precision::kF16) {
              setting.training.loss_scale = LossScaleOptions::parse("1024").value();
            }
            if (way == "ef14")
              setting.compressor = "qsgd:bits=8,ef=ef14,min_elems=0,dense_1d=false";
            SCOPED_TRACE(format("%s, %d ranks, %d micro-batches, %s, stage %d",
                                std::string(to_string(precision)).c_str(), ranks, accumulate,
                                way.c_str(), stage));
            const std::vector<Outcome> outcomes = train(setting);
            expect_planned(setting, outcomes);
            const bool narrow = precision != Precision::kF32;
            const Bytes wanted = form(stage, narrow, way == "each" && accumulate > 1,
                                      way != "each" && accumulate > 1);
            const bool waits = precision == Precision::kF16 && way == "ef14" && accumulate == 1;
            for (const Outcome& outcome : outcomes) {
              EXPECT_EQ(state(outcome.device),
                        wanted.whole * model_elems(32) + wanted.own * outcome.own_elems);
              if (!waits || stage < 2) continue;
              EXPECT_EQ(outcome.device.peak_of(MemoryClass::kGradients),
                        2 * model_elems(32) + 2 * outcome.own_elems);
            }
          }
        }
      }
    }
  }
}

// What exchanges pack tensors in: buckets of several at stage 1, twice the model in all; from stage
// 2 on nothing of it stays.
TEST(ShardedMemory, Z1_Z4_ExchangesKeepWhatTheyPackInAtStageOneAlone) {
  for (const int stage : {1, 2, 3}) {
    Setting setting;
    setting.stage = stage;
    setting.bucket_bytes = 1 << 20;
    setting.training = twenty_steps("adamw", 1);
    setting.training.steps = 3;
    const std::int64_t wanted = stage == 1 ? 2 * 4 * model_elems(32) : 0;
    for (const Outcome& outcome : train(setting)) {
      EXPECT_EQ(outcome.exchanges, static_cast<std::uint64_t>(wanted)) << stage;
    }
    setting.bucket_bytes = 1;  // tensors one by one need no packing
    for (const Outcome& outcome : train(setting)) EXPECT_EQ(outcome.exchanges, 0U) << stage;
  }
}

// Whole are a layer that computes and the next one: fc1 and fc2, with their biases.
TEST(ShardedMemory, Z5_ParametersAreWholeForTwoLayersAtMost) {
  const std::vector<Outcome> outcomes = train(wide_adamw(3, 2));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.device.peak_of(MemoryClass::kGathered),
              4 * (64 * kWide + kWide + kWide * kWide + kWide));
    EXPECT_EQ(outcome.device.now_of(MemoryClass::kGathered), 0);
    EXPECT_LT(outcome.resident_parameters, 8U * 8192 + 2 * 10 * 4096);  // ends of tensors
    EXPECT_EQ(outcome.device.now_of(MemoryClass::kParameters), 4 * outcome.own_elems);
  }
}

// Gradients once, parameters for the way forward and once more for the way back: 3 (N - 1)/N of the
// model a rank and step, where data parallelism sends 2.
TEST(ShardedMemory, Z5_TrafficIsOnceAndAHalfThatOfDataParallelism) {
  for (const int ranks : {2, 4}) {
    std::uint64_t sent[2] = {0, 0};
    for (const int stage : {0, 3}) {
      Setting setting;
      setting.stage = stage;
      setting.ranks = ranks;
      setting.training = twenty_steps("adamw", 1);
      for (const Outcome& outcome : train(setting)) sent[stage / 3] += outcome.steps_wire_bytes;
    }
    const auto once = static_cast<std::uint64_t>(18 * (ranks - 1) * 4 * model_elems(32));
    EXPECT_EQ(sent[0], 2 * once);
    EXPECT_EQ(sent[1], 3 * once);
  }
}

// Micro-batches are added up before they are reduced: more of them send no more gradients. At stage
// 3 each goes forward and back through gathered layers.
TEST(ShardedMemory, Z4_Z5_MicroBatchesAreReducedOnce) {
  for (const int stage : {2, 3}) {
    for (const int micro : {1, 4}) {
      Setting setting;
      setting.stage = stage;
      setting.training = twenty_steps("sgd", micro);
      std::uint64_t sent = 0;
      for (const Outcome& outcome : train(setting)) sent += outcome.steps_wire_bytes;
      const std::int64_t parts = stage == 2 ? 2 : 1 + 2 * micro;
      EXPECT_EQ(sent, static_cast<std::uint64_t>(18 * parts * 4 * model_elems(32)))
          << "stage " << stage << ", " << micro << " micro-batches";
    }
  }
}

// Reduced one by one they send each gradient by itself.
TEST(ShardedMemory, Z4_Z5_MicroBatchesAreReducedOneByOne) {
  for (const int stage : {0, 1, 2, 3}) {
    Setting setting;
    setting.stage = stage;
    setting.training = twenty_steps("sgd", 4);
    setting.reduce_each = true;
    std::uint64_t sent = 0;
    for (const Outcome& outcome : train(setting)) sent += outcome.steps_wire_bytes;
    const std::int64_t gradients = stage == 0 ? 2 * 4 : 4;
    const std::int64_t parameters = stage == 0 ? 0 : stage == 3 ? 2 * 4 : 1;
    EXPECT_EQ(sent, static_cast<std::uint64_t>(18 * (gradients + parameters) * 4 * model_elems(32)))
        << "stage " << stage;
  }
}

// Layers that compute again are not gathered again, and all stays the same to the bit.
TEST(ShardedMemory, Z9_RecomputedLayersTravelNoMore) {
  Setting setting;
  setting.training = twenty_steps("adamw", 2);
  setting.training.batch = 48;
  setting.algorithm = "canonical";
  const Flat wanted = train(setting)[0].params;
  setting.stage = 3;
  const std::vector<Outcome> plain = train(setting);
  for (const std::string policy : {"full", "sqrt"}) {
    setting.training.recompute = policy;
    const std::vector<Outcome> again = train(setting);
    EXPECT_EQ(again[0].params, wanted) << policy;
    EXPECT_EQ(again[0].steps_wire_bytes, plain[0].steps_wire_bytes) << policy;
  }
}

// Owners' parts in the host's arena: a step copies a rank's gradients out and its parameters back,
// at stage 3 when they are gathered, twice.
TEST(ShardedMemory, Z10_OffloadedShardsGiveTheSameBits) {
  Setting setting;
  setting.ranks = 3;
  setting.training = twenty_steps("adamw", 1);
  setting.algorithm = "canonical";
  const Flat wanted = train(setting)[0].params;
  for (const int stage : {1, 2, 3}) {
    setting.stage = stage;
    setting.offload = stage == 3 ? Offload::kParameters : Offload::kOptimizer;
    const std::vector<Outcome> outcomes = train(setting);
    EXPECT_EQ(outcomes[0].params, wanted) << "stage " << stage;
    expect_planned(setting, outcomes);
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.steps_link.bytes_out, 18 * 4 * outcome.own_elems);
      EXPECT_EQ(outcome.steps_link.bytes_in, 18 * 4 * outcome.own_elems * (stage == 3 ? 2 : 1));
      EXPECT_EQ(outcome.device.now_of(MemoryClass::kMoments), 0);
      EXPECT_EQ(outcome.host.now_of(MemoryClass::kMaster), 4 * outcome.own_elems);
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::sharded_memory_test
