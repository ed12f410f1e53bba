// Gradients of 16 bits: what they are averaged to, what of them travels, and how much memory their
// copies in fp32 take.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/small_floats.h"
#include "gradwire/aggregator.h"
#include "gradwire/schedule.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/default_gradient.h"

namespace gradwire::testing::sixteen_bits_test {
namespace {

using Bits = std::vector<std::uint16_t>;

struct Tensor {
  std::string name;
  Shape shape;
};
const std::vector<Tensor>& tensors() {
  static const std::vector<Tensor> all{{"bias", Shape::vector(7)},
                                       {"fc1", Shape::matrix(64, 33)},
                                       {"norm", Shape::vector(1500)},
                                       {"fc2", Shape::matrix(40, 40)}};
  return all;
}

std::uint16_t narrow(DType dtype, float value) {
  return dtype == DType::kF16 ? fp16_from_float(value) : bf16_from_float(value);
}
float widen(DType dtype, std::uint16_t bits) {
  return dtype == DType::kF16 ? float_from_fp16(bits) : float_from_bf16(bits);
}

// A gradient that 16 bits hold exactly.
float value_of(DType dtype, std::size_t tensor, int rank, int step, std::int64_t e) {
  const float value = default_gradient(tensors()[tensor].name, rank, step, e);
  return widen(dtype, narrow(dtype, value));
}

struct Case {
  std::string compressor = "none";
  AggregateForm form = AggregateForm::kAllReduce;
  int ranks = 3;
  int steps = 3;
  std::int64_t bucket_bytes = 4 << 20;
  float scale = 1;  // that gradients of 16 bits bear
};

struct Outcome {
  std::vector<std::vector<Bits>> means;  // [step][tensor], of rank 0, or of a shard's owner
  std::vector<std::map<std::string, std::vector<std::byte>>> state;  // by rank
  std::vector<AggregateStats> stats;                                 // by rank
};

// One rank's gradients, in their type or in fp32.
class Gradients {
 public:
  Gradients(DType dtype, bool wide, float scale) : dtype_(dtype), wide_(wide), scale_(scale) {
    for (const Tensor& tensor : tensors()) {
      const auto elems = static_cast<std::size_t>(tensor.shape.elems());
      memory_.emplace_back(elems * size_of(wide ? DType::kF32 : dtype));
    }
  }
  TensorView view(std::size_t t) {
    return {memory_[t].data(), tensors()[t].shape, wide_ ? DType::kF32 : dtype_};
  }
  void fill(std::size_t t, int rank, int step) {
    for (std::int64_t e = 0; e < tensors()[t].shape.elems(); ++e) {
      const float value = value_of(dtype_, t, rank, step, e);
      if (wide_) {
        elements<float>(view(t))[static_cast<std::size_t>(e)] = value;
      } else {
        halves(t)[e] = narrow(dtype_, value * scale_);
      }
    }
  }
  // Rounded to the type, where it is in fp32; without the scale.
  std::uint16_t value(std::size_t t, std::int64_t e) {
    return wide_ ? narrow(dtype_, elements<float>(view(t))[static_cast<std::size_t>(e)])
                 : narrow(dtype_, widen(dtype_, halves(t)[e]) / scale_);
  }

 private:
  std::uint16_t* halves(std::size_t t) {
    return reinterpret_cast<std::uint16_t*>(memory_[t].data());
  }

  DType dtype_;
  bool wide_;
  float scale_;
  std::vector<std::vector<std::byte>> memory_;
};

// What rank 0 has of it after a step, or of scattered means each owner.
Range told_by(const Case& run, const Tensor& tensor, int rank) {
  const std::int64_t elems = tensor.shape.elems();
  if (run.form == AggregateForm::kReduceScatter) return piece(elems, run.ranks, rank);
  return {0, rank == 0 ? elems : 0};
}

Status run_rank(const Case& run, DType dtype, bool wide, Communicator& communicator,
                Outcome& outcome) {
  const int rank = communicator.rank();
  AggregatorOptions options;
  options.compressor = run.compressor;
  options.form = run.form;
  options.bucket_bytes = wide ? 2 * run.bucket_bytes : run.bucket_bytes;
  options.algorithm = "canonical";
  GW_ASSIGN(auto aggregator,
            Aggregator::create(communicator, Registry::builtin(), std::move(options)));
  Gradients gradients(dtype, wide, run.scale);
  for (std::size_t t = 0; t < tensors().size(); ++t) {
    GW_TRY(aggregator->add(tensors()[t].name, gradients.view(t)));
  }
  for (int step = 0; step < run.steps; ++step) {
    if (run.scale != 1) GW_TRY(aggregator->set_narrow_scale(run.scale));
    for (std::size_t t = tensors().size(); t-- > 0;) {
      gradients.fill(t, rank, step);
      GW_TRY(aggregator->ready(static_cast<int>(t)));
    }
    GW_TRY(aggregator->finish());
    for (std::size_t t = 0; t < tensors().size(); ++t) {
      const Range told = told_by(run, tensors()[t], rank);
      Bits& mean = outcome.means[static_cast<std::size_t>(step)][t];
      for (std::int64_t e = told.begin; e < told.end; ++e) {
        mean[static_cast<std::size_t>(e)] = gradients.value(t, e);
      }
    }
  }
  auto& kept = outcome.state[static_cast<std::size_t>(rank)];
  for (const NamedTensor& entry : aggregator->state()) {
    const auto bytes = entry.tensor.bytes();
    kept[entry.name] = {bytes.begin(), bytes.end()};
  }
  outcome.stats[static_cast<std::size_t>(rank)] = aggregator->stats();
  return {};
}

// Of gradients of `dtype`; or of the same values in fp32, whose means are rounded afterwards.
Outcome run_with(const Case& run, DType dtype, bool wide) {
  Outcome outcome;
  std::vector<Bits> empty;
  for (const Tensor& tensor : tensors()) {
    empty.emplace_back(static_cast<std::size_t>(tensor.shape.elems()));
  }
  outcome.means.assign(static_cast<std::size_t>(run.steps), empty);
  outcome.state.resize(static_cast<std::size_t>(run.ranks));
  outcome.stats.resize(static_cast<std::size_t>(run.ranks));
  const auto statuses = on_ranks(run.ranks, [&](std::unique_ptr<Communicator>& communicator) {
    return run_rank(run, dtype, wide, *communicator, outcome);
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << run.compressor << ": " << status.message();
  }
  return outcome;
}

std::string text_of(const Case& run, DType dtype) {
  return run.compressor + ", " + std::string(to_string(dtype)) + ", form " +
         std::to_string(static_cast<int>(run.form));
}

// The same means, each rounded once, and all that is kept between steps.
void expect_as_in_fp32(const Case& run, DType dtype) {
  const Outcome got = run_with(run, dtype, false);
  const Outcome wanted = run_with(run, dtype, true);
  EXPECT_EQ(got.means, wanted.means) << text_of(run, dtype);
  EXPECT_EQ(got.state, wanted.state) << text_of(run, dtype);
}

// As of the same gradients in fp32, rounded once; and so is all that is kept between steps.
TEST(SixteenBits, AreAveragedAsTheirValuesInFp32) {
  const std::vector<std::string> methods{
      "none:combine=gather,min_elems=0",
      "cast:type=bf16,combine=sra",
      "topk:ratio=0.1,ef=ef14",
      "topk:ratio=0.1,ef=ef14,combine=oktopk",
      "qsgd:bits=4,ef=ef14",
      "signsgd:ef=ef14",
      "qsgd:bits=4,ef=ef21",
      "powersgd:rank=2,ef=ef14",
      "onebit:ef=ef14,warmup_steps=1",
  };
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::string& method : methods) {
      for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{4} << 20}) {
        const Case run{.compressor = method, .bucket_bytes = bucket_bytes};
        expect_as_in_fp32(run, dtype);
      }
    }
  }
}

TEST(SixteenBits, TravelInShardsAsTheirValuesInFp32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const AggregateForm form : {AggregateForm::kReduceScatter, AggregateForm::kAllGather}) {
      for (const char* method : {"none", "qsgd:bits=4,ef=ef14", "cast:type=bf16"}) {
        const Case run{.compressor = method, .form = form};
        expect_as_in_fp32(run, dtype);
      }
    }
  }
}

// A power of two that they all bear changes no bit of their values' means, nor of what is kept.
TEST(SixteenBits, MethodsSeeValuesWithoutTheScale) {
  for (const AggregateForm form : {AggregateForm::kAllReduce, AggregateForm::kReduceScatter}) {
    for (const char* method :
         {"none", "cast:type=bf16", "qsgd:bits=4,ef=ef14", "signsgd:ef=ef14"}) {
      Case run{.compressor = method, .form = form};
      const Outcome wanted = run_with(run, DType::kBF16, false);
      run.scale = 4096;
      const Outcome got = run_with(run, DType::kBF16, false);
      EXPECT_EQ(got.means, wanted.means) << text_of(run, DType::kBF16);
      EXPECT_EQ(got.state, wanted.state) << text_of(run, DType::kBF16);
    }
  }
}

// bf16 rounds 65504 / 4 up to 16384, four times which no fp16 holds.
TEST(SixteenBits, MeansThatDoNotFitWithTheScaleAreTheLargestThatDo) {
  const auto statuses = on_ranks(2, [](std::unique_ptr<Communicator>& communicator) -> Status {
    AggregatorOptions options;
    options.compressor = "cast:type=bf16,combine=sra,min_elems=0,dense_1d=false";
    GW_ASSIGN(auto aggregator,
              Aggregator::create(*communicator, Registry::builtin(), std::move(options)));
    const std::vector<float> values{65504, -65504, 1, std::numeric_limits<float>::infinity()};
    std::vector<std::uint16_t> own(values.size());
    GW_TRY(aggregator->add(
        "w", TensorView(reinterpret_cast<std::byte*>(own.data()), Shape::vector(4), DType::kF16)));
    GW_TRY(aggregator->set_narrow_scale(4));
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = fp16_from_float(values[i]);
    GW_TRY(aggregator->ready(0));
    GW_TRY(aggregator->finish());
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(float_from_fp16(own[i]), values[i]) << i;
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
      EXPECT_EQ(aggregator->set_narrow_scale(bad).code(), Code::kInvalidArgument) << bad;
    }
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// Uncompressed: a left fold over ranks in fp32, times 1/N, rounded once; in half of fp32's bytes.
TEST(SixteenBits, UncompressedTheMeanIsRoundedOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int ranks : {1, 2, 3, 5}) {
      const Case run{.ranks = ranks, .steps = 1};
      const Outcome got = run_with(run, dtype, false);
      for (std::size_t t = 0; t < tensors().size(); ++t) {
        for (std::int64_t e = 0; e < tensors()[t].shape.elems(); ++e) {
          float sum = value_of(dtype, t, 0, 0, e);
          for (int r = 1; r < ranks; ++r) sum += value_of(dtype, t, r, 0, e);
          const float mean = ranks == 1 ? sum : sum * static_cast<float>(1.0 / ranks);
          ASSERT_EQ(got.means[0][t][static_cast<std::size_t>(e)], narrow(dtype, mean))
              << text_of(run, dtype) << ", " << ranks << " ranks, " << tensors()[t].name << "[" << e
              << "]";
        }
      }
      // The first step's beside, in which ranks compare what they agree on.
      const auto bytes_of_a_step = [&](bool wide) {
        const Case two{.ranks = ranks, .steps = 2}, three{.ranks = ranks, .steps = 3};
        return run_with(three, dtype, wide).stats[0].wire_bytes -
               run_with(two, dtype, wide).stats[0].wire_bytes;
      };
      EXPECT_EQ(2 * bytes_of_a_step(false), bytes_of_a_step(true)) << ranks << " ranks";
    }
  }
}

// In fp32 there are never more of them than the buckets in work hold, however many there are.
TEST(SixteenBits, AreWidenedBucketByBucket) {
  constexpr int kTensors = 32;
  constexpr std::int64_t kElems = 4096;
  const auto held = [&](DType dtype, const char* compressor) {
    std::uint64_t bytes = 0;
    const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
      AggregatorOptions options;
      options.compressor = compressor;
      options.bucket_bytes = 1;  // a bucket each
      GW_ASSIGN(auto aggregator,
                Aggregator::create(*communicator, Registry::builtin(), std::move(options)));
      std::vector<std::byte> memory(kTensors * kElems * size_of(dtype));
      for (int t = 0; t < kTensors; ++t) {
        GW_TRY(aggregator->add("t" + std::to_string(t),
                               TensorView(memory.data() + t * kElems * size_of(dtype),
                                          Shape::matrix(64, kElems / 64), dtype)));
      }
      for (int step = 0; step < 3; ++step) {
        for (int t = kTensors; t-- > 0;) GW_TRY(aggregator->ready(t));
        GW_TRY(aggregator->finish());
      }
      if (communicator->rank() == 0) bytes = aggregator->stats().held_bytes;
      return Status();
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
  };
  const char* const method = "qsgd:bits=4,combine=sra";
  const std::uint64_t narrow_held = held(DType::kBF16, method);
  const std::uint64_t wide_held = held(DType::kF32, method);
  constexpr std::uint64_t kBucket = kElems * sizeof(float);
  EXPECT_GE(narrow_held, wide_held + kBucket);
  EXPECT_LE(narrow_held, wide_held + 3 * kBucket);
  // Uncompressed they are reduced where they are.
  EXPECT_EQ(held(DType::kBF16, "none"), held(DType::kF32, "none"));
}

TEST(SixteenBits, OtherTypesAreRefusedByName) {
  const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) {
    GW_ASSIGN(auto aggregator, Aggregator::create(*communicator, Registry::builtin(), {}));
    std::vector<std::int32_t> memory(4);
    return aggregator->add("w", view_of(std::span(memory)));
  });
  EXPECT_EQ(statuses[0].code(), Code::kInvalidArgument);
  EXPECT_EQ(statuses[0].message(),
            "aggregator: gradient 'w' is of i32 on the host (expected f32 or f64, f16 or bf16)");
}

}  // namespace
}  // namespace gradwire::testing::sixteen_bits_test
