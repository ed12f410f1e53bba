// Bytes from the network: wrong lengths are refused, wrong contents are refused or decode to
// something, and neither harms the next step. NaN and infinity never get lost in silence.
#include <limits>

#include "tests/laws/law_data.h"
#include "tests/support/fails.h"

namespace gradwire::laws {
namespace {

using gradwire::testing::CoderRanks;
using Bytes = std::vector<std::byte>;

// Rank 0 of two meets `attack`, applied to what it receives in `round` (the other rank's payload,
// or the sum). The vector's copy is exactly as long as the payload: AddressSanitizer sees any read
// beyond it.
template <typename T, typename Attack>
Status under_attack(const Compressor& compressor, const Shape& shape, int round,
                    const Attack& attack) {
  std::vector<std::unique_ptr<Coder>> coders;
  std::vector<std::vector<T>> grads = gradients<T>(shape.elems(), 0, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const Compressor::Placement where{
        .dtype = DTypeOf<T>::kValue, .rank = rank, .size = 2, .seed = 1, .tensor = 9};
    coders.push_back(std::move(compressor.open(shape, where)).value());
  }
  const auto view = [&shape](std::vector<T>& x) {
    return TensorView(reinterpret_cast<std::byte*>(x.data()), shape, DTypeOf<T>::kValue);
  };
  for (std::size_t r = 0; r < 2; ++r) GW_TRY(coders[r]->begin(view(grads[r]), 1, {}));
  const Traits traits = compressor.traits();
  std::vector<Bytes> kept;  // lent until finish()
  kept.reserve(8);
  for (int now = 0; now < traits.rounds; ++now) {
    const bool gathers = !compressor.round_kind(now, DTypeOf<T>::kValue, 2).reduces();
    std::vector<ConstByteSpan> received;
    for (std::size_t r = 0; r < 2; ++r) {
      Bytes payload(compressor.max_payload_bytes(shape, DTypeOf<T>::kValue, now, 2));
      GW_ASSIGN(const std::size_t count, coders[r]->encode(now, payload, {}));
      payload.resize(count);
      kept.emplace_back(payload.begin(), payload.end());
    }
    const std::size_t last = kept.size() - 1;
    if (gathers) received.push_back(kept[last - 1]);
    const ConstByteSpan good = kept[last];  // for sums: one rank's payload is a legal sum
    received.push_back(good);
    GW_TRY(coders[1]->absorb(now, received, {}));
    if (now == round) {
      Bytes bad = attack(kept[last]);
      kept.push_back(Bytes(bad.begin(), bad.end()));
      received.back() = kept.back();
    }
    GW_TRY(coders[0]->absorb(now, received, {}));
  }
  std::vector<T> mean(grads[0].size());
  return coders[0]->finish(view(mean), {}, {});
}

GW_LAW(WrongLengthsAreCorrupt) {
  with_type([this]<typename T>() {
    for (const Shape& shape : {Shape::vector(7), Shape::matrix(5, 4), Shape::vector(700)}) {
      for (int round = 0; round < compressor().traits().rounds; ++round) {
        if (compressor().max_payload_bytes(shape, dtype(), round, 2) == 0) continue;
        const auto expect_corrupt = [&](const auto& attack) {
          const Status status = under_attack<T>(compressor(), shape, round, attack);
          EXPECT_EQ(status.code(), Code::kCorruptPayload) << status.message();
        };
        expect_corrupt([](const Bytes&) { return Bytes(); });
        expect_corrupt([](const Bytes& good) { return Bytes(good.begin(), good.end() - 1); });
        expect_corrupt([](const Bytes& good) { return Bytes(good.begin() + 1, good.end()); });
        expect_corrupt([](const Bytes& good) { return Bytes(good.size() + 1); });
        expect_corrupt([](const Bytes& good) { return Bytes(good.size() / 2); });
      }
    }
  });
}

GW_LAW(FlippedBitsAreCorruptOrDecode) {
  with_type([this]<typename T>() {
    for (const Shape& shape : {Shape::vector(7), Shape::matrix(3, 4)}) {
      for (int round = 0; round < compressor().traits().rounds; ++round) {
        const std::size_t bytes = compressor().max_payload_bytes(shape, dtype(), round, 2);
        for (std::size_t bit = 0; bit < 8 * bytes; bit += brief() ? 3 : 1) {
          const auto flip = [bit](Bytes payload) {
            if (bit / 8 < payload.size()) payload[bit / 8] ^= std::byte{1} << (bit % 8);
            return payload;
          };
          const Status status = under_attack<T>(compressor(), shape, round, flip);
          EXPECT_TRUE(status.ok() || status.code() == Code::kCorruptPayload) << status.message();
        }
      }
    }
  });
}

GW_LAW(RandomBytesAreCorruptOrDecode) {
  with_type([this]<typename T>() {
    for (const Shape& shape : {Shape::vector(65), Shape::matrix(9, 5)}) {
      for (int round = 0; round < compressor().traits().rounds; ++round) {
        for (std::uint64_t trial = 0; trial < (brief() ? 12U : 50U); ++trial) {
          const RandomStream noise(trial, RandomUse::kTest, 4, 0, 0, 0);
          const auto scramble = [&noise](Bytes payload) {
            for (std::size_t i = 0; i < payload.size(); ++i) {
              payload[i] = static_cast<std::byte>(noise.word(i));
            }
            return payload;
          };
          const Status status = under_attack<T>(compressor(), shape, round, scramble);
          EXPECT_TRUE(status.ok() || status.code() == Code::kCorruptPayload) << status.message();
        }
      }
    }
  });
}

// Either the step fails by name, or every rank's mean shows it, all alike.
GW_LAW(NonFiniteIsNeverSilent) {
  with_type([this]<typename T>() {
    const Shape shape = Shape::matrix(30, 5);
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                        -std::numeric_limits<T>::infinity()}) {
      auto ranks = CoderRanks<T>::open(compressor(), shape, 3);
      auto grads = gradients<T>(shape.elems(), 0, 3, 1);
      grads[1][17] = bad;
      const auto outcome = ranks.value().step(grads, 1);
      if (!outcome.status.ok()) {
        EXPECT_TRUE(outcome.status.code() == Code::kInvalidArgument ||
                    outcome.status.code() == Code::kCorruptPayload)
            << outcome.status.message();
        EXPECT_TRUE(names(outcome.status.message(), "finite")) << outcome.status.message();
      } else {
        for (const auto& mean : outcome.mean) {
          EXPECT_TRUE(std::any_of(mean.begin(), mean.end(), [](T x) { return !std::isfinite(x); }));
          EXPECT_TRUE(same_bits(mean, outcome.mean[0]));
        }
      }
      // The coders go on with sound gradients.
      const auto next = ranks.value().step(gradients<T>(shape.elems(), 0, 3, 2), 2);
      ASSERT_TRUE(next.status.ok()) << next.status.message();
      EXPECT_TRUE(std::all_of(next.mean[0].begin(), next.mean[0].end(),
                              [](T x) { return std::isfinite(x); }));
    }
  });
}

GW_LAW(ZerosStayFinite) {
  with_type([this]<typename T>() {
    for (const Shape& shape : {Shape::vector(600), Shape::matrix(20, 30)}) {
      auto ranks = CoderRanks<T>::open(compressor(), shape, 2);
      const std::vector<T> zeros(static_cast<std::size_t>(shape.elems()));
      const auto outcome = ranks.value().step({zeros, zeros}, 0);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_TRUE(std::all_of(outcome.mean[0].begin(), outcome.mean[0].end(),
                              [](T x) { return std::isfinite(x); }));
    }
  });
}

}  // namespace

std::vector<Law> hostile_laws() {
  return {
      {"WrongLengthsAreCorrupt", WrongLengthsAreCorrupt},
      {"FlippedBitsAreCorruptOrDecode", FlippedBitsAreCorruptOrDecode},
      {"RandomBytesAreCorruptOrDecode", RandomBytesAreCorruptOrDecode},
      {"NonFiniteIsNeverSilent", NonFiniteIsNeverSilent},
      {"ZerosStayFinite", ZerosStayFinite},
  };
}

}  // namespace gradwire::laws
