// What compression keeps of parameters that ranks hold boxes of: written by two replicas of two
// ranks each, and read in the same boxes, in others, and whole.
#include "adapters/trainer/boxed_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "adapters/trainer/checkpoints.h"
#include "adapters/trainer/strategy_state.h"
#include "aggregate/state/reshard.h"
#include "base/elements.h"
#include "base/mesh.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/store.h"

namespace gradwire::testing::boxed_state_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr int kReplicas = 2;
constexpr std::int64_t kRows = 4;
constexpr std::int64_t kColumns = 6;
constexpr std::int64_t kElems = kRows * kColumns;
constexpr std::int64_t kBoxElems = kElems / 2;  // of one rank of two

// Whole, by rows, or by columns; of rank `part` of two.
enum class Cut { kWhole, kRows, kColumns };

ParameterTable table_of(Cut cut, int part) {
  ParameterInfo info{.name = "w", .shape = Shape::matrix(kRows, kColumns)};
  if (cut != Cut::kWhole) {
    const std::int64_t half = (cut == Cut::kRows ? kRows : kColumns) / 2;
    info.box =
        TensorBox::of(info.shape).cut(cut == Cut::kRows ? 0 : 1, {part * half, (part + 1) * half});
    info.shape = info.box->shape();
  }
  return {info};
}

// Of the elements of such a box, in its order, the places in the tensor.
std::vector<std::int64_t> places_of(Cut cut, int part) {
  std::vector<std::int64_t> places;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      const bool here = cut == Cut::kWhole || (cut == Cut::kRows ? row / 2 : column / 3) == part;
      if (here) places.push_back(row * kColumns + column);
    }
  }
  return places;
}

// Whole numbers below 50, which floats add exactly.
float drawn(int replica, int part, std::int64_t i, int what) {
  return static_cast<float>((replica * 31 + part * 17 + i * 7 + what * 13) % 47 - 20);
}

struct Entry {
  std::vector<float> values;
  std::vector<std::int8_t> codes;
  std::vector<std::int64_t> numbers;
  TensorView view() {
    if (!codes.empty()) return view_of(std::span(codes));
    return numbers.empty() ? view_of(std::span(values)) : view_of(std::span(numbers));
  }
};
using State = std::map<std::string, Entry>;

std::vector<NamedTensor> views(State& state) {
  std::vector<NamedTensor> all;
  for (auto& [name, entry] : state) all.push_back({name, entry.view()});
  return all;
}

std::vector<float> draws(int replica, int part, std::int64_t count, int what) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = drawn(replica, part, i, what);
  }
  return values;
}

// What a rank keeps of the rows that it holds: it owns half of their sum.
State kept_by(int replica, int part) {
  State state;
  state["aggregator.step"].numbers = {10};
  state["w.error"].values = draws(replica, part, kBoxElems, 0);
  state["w.error2"].values = draws(replica, part, kBoxElems / kReplicas, 1);
  state["w.ef21.v"].values = draws(replica, part, kBoxElems, 2);
  state["w.ef21.h"].values = draws(replica, part, kBoxElems, 3);
  state["w.ef21.average"].values = draws(replica, part, kBoxElems / kReplicas, 4);
  state["w.coder.q"].values = draws(replica, part, 3, 5);
  return state;
}

// The same entries of a run that begins, of a box of so many elements.
State begun(std::int64_t elems) {
  State state;
  const auto size = static_cast<std::size_t>(elems);
  state["aggregator.step"].numbers = {0};
  for (const char* name : {"w.error", "w.ef21.v", "w.ef21.h"}) {
    state[name].values.assign(size, 0);
  }
  for (const char* name : {"w.error2", "w.ef21.average"}) {
    state[name].values.assign(size / kReplicas, 0);
  }
  state["w.coder.q"].values = {1, 2, 3};
  return state;
}

// Two replicas of two ranks, each with half of the rows.
Status write(const std::string& folder, State (*kept)(int, int)) {
  const MeshSizes mesh{1, kReplicas, 2};
  const auto ended = on_ranks(4, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const MeshCoordinates at = coordinates_of(mesh, communicator->rank());
    const ParameterTable table = table_of(Cut::kRows, at.tp);
    State state = kept(at.dp, at.tp);
    const std::vector<NamedTensor> own = views(state);
    // What belongs to no parameter is the same on all ranks of a replica.
    std::vector<TensorPart> parts =
        strategy_parts(own, table, at.dp, kReplicas, EntryOwner(nullptr, at));
    std::vector<float> model(static_cast<std::size_t>(kBoxElems), 1.0F);
    if (at.dp == 0)
      parts.push_back({"parameters/w", box_of(table[0]), 0, view_of(std::span(model))});
    CheckpointPosition position;
    position.step = 10;
    position.mesh = mesh;
    Checkpoints checkpoints(*communicator, {.folder = folder, .written_by = "test"});
    return checkpoints.save(position, {}, parts);
  });
  for (const Status& status : ended) GW_TRY(status);
  return {};
}

Result<LoadedState> load(const std::string& folder, State& own, const ParameterTable& table,
                         int replica) {
  const CheckpointStore store(folder);
  GW_ASSIGN(CheckpointReader reader, CheckpointReader::open(store.path_of(10)));
  std::set<std::string> used;
  return load_old_state(reader, views(own), table, replica, used);
}

std::map<std::string, std::vector<float>> floats_of(const LoadedState& state) {
  std::map<std::string, std::vector<float>> all;
  for (const NamedTensor& entry : state.tensors) {
    if (entry.tensor.dtype() != DType::kF32) continue;
    const auto values = elements<float>(ConstTensorView(entry.tensor));
    all[entry.name].assign(values.begin(), values.end());
  }
  return all;
}

// Element by element of the tensor: a replica's residual, and what its ranks owe of their halves of
// the sums of the rows that they hold.
std::array<float, kElems> owed_by(int replica) {
  std::array<float, kElems> owed{};
  for (const int part : {0, 1}) {
    const std::vector<std::int64_t> places = places_of(Cut::kRows, part);
    for (std::int64_t i = 0; i < kBoxElems; ++i) {
      auto& at = owed[static_cast<std::size_t>(places[static_cast<std::size_t>(i)])];
      at += drawn(replica, part, i, 0);
      const std::int64_t first = replica * kBoxElems / kReplicas;
      if (i >= first && i < first + kBoxElems / kReplicas) at += drawn(replica, part, i - first, 1);
    }
  }
  return owed;
}

TEST(BoxedState, TheSameBoxesAreReadBitForBit) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write(folder.path(), kept_by).ok());
  for (const int replica : {0, 1}) {
    for (const int part : {0, 1}) {
      State own = begun(kBoxElems);
      const auto loaded = load(folder.path(), own, table_of(Cut::kRows, part), replica);
      ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
      EXPECT_TRUE(loaded.value().begun.empty());
      State wanted = kept_by(replica, part);
      const auto now = floats_of(loaded.value());
      EXPECT_EQ(now.size() + 1, wanted.size());  // and the steps
      for (const auto& [name, values] : now) EXPECT_EQ(values, wanted[name].values) << name;
    }
  }
}

// What is owed follows its elements; moving averages too. Shifts and factors begin again.
TEST(BoxedState, OtherBoxesAreCutFromTheJoinedResidual) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write(folder.path(), kept_by).ok());
  for (const Cut cut : {Cut::kWhole, Cut::kColumns}) {
    for (const int replica : {0, 1}) {
      for (const int part : {0, 1}) {
        const std::vector<std::int64_t> places = places_of(cut, part);
        const auto elems = static_cast<std::int64_t>(places.size());
        State own = begun(elems);
        const auto loaded = load(folder.path(), own, table_of(cut, part), replica);
        ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
        auto now = floats_of(loaded.value());
        const auto owed = owed_by(replica);
        ASSERT_EQ(now["w.error"].size(), places.size());
        for (std::size_t i = 0; i < places.size(); ++i) {
          EXPECT_EQ(now["w.error"][i], owed[static_cast<std::size_t>(places[i])]) << i;
          const std::int64_t row = places[i] / kColumns;
          const std::int64_t in_old = places[i] - row / 2 * kBoxElems;
          EXPECT_EQ(now["w.ef21.v"][i], drawn(replica, static_cast<int>(row / 2), in_old, 2)) << i;
        }
        EXPECT_EQ(now["w.error2"].size(), places.size() / kReplicas);
        EXPECT_THAT(now["w.error2"], Each(0.0F));
        EXPECT_THAT(now["w.ef21.h"], Each(0.0F));
        EXPECT_THAT(now["w.ef21.average"], Each(0.0F));
        EXPECT_THAT(now["w.coder.q"], ElementsAre(1, 2, 3));
        EXPECT_THAT(loaded.value().begun,
                    UnorderedElementsAre("w.error2", "w.ef21.h", "w.ef21.average", "w.coder.q"));
      }
    }
  }
}

class WholeSize final : public ParameterSizes {
 public:
  std::int64_t elems_of(std::string_view) const override { return kElems; }
};

// Two replicas of two ranks become one rank: the deferred mean stays.
TEST(BoxedState, OtherBoxesOnOtherReplicasKeepTheDeferredMean) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write(folder.path(), kept_by).ok());
  State own = begun(kElems);
  own["w.error2"].values.resize(kElems);  // of the only owner
  own["w.ef21.average"].values.resize(kElems);
  std::vector<LoadedState> states;
  std::vector<std::vector<NamedTensor>> by_old_rank;
  for (const int replica : {0, 1}) {
    auto loaded = load(folder.path(), own, table_of(Cut::kWhole, 0), replica);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
    by_old_rank.push_back(loaded.value().tensors);
    states.push_back(std::move(loaded).value());
  }
  const Status status = reshard_state(views(own), by_old_rank, 0, 1, WholeSize());
  ASSERT_TRUE(status.ok()) << status.message();
  const auto first = owed_by(0);
  const auto second = owed_by(1);
  for (std::size_t i = 0; i < kElems; ++i) {
    EXPECT_EQ(own["w.error"].values[i], (first[i] + second[i]) / 2) << i;
  }
  EXPECT_THAT(own["w.error2"].values, Each(0.0F));
}

// A residual in int8: codes with a scale for the block that the box is.
State stored_by(int replica, int part) {
  State state;
  state["aggregator.step"].numbers = {10};
  for (std::int64_t i = 0; i < kBoxElems; ++i) {
    state["w.error"].codes.push_back(static_cast<std::int8_t>(drawn(replica, part, i, 0) * 5));
  }
  state["w.error.scale"].values = {part == 0 ? 0.5F : 2.0F};
  return state;
}

TEST(BoxedState, StoredResidualsAreJoinedByValue) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write(folder.path(), stored_by).ok());
  State same = stored_by(0, 0);
  const auto exact = load(folder.path(), same, table_of(Cut::kRows, 1), 1);
  ASSERT_TRUE(exact.has_value()) << exact.error().message();
  State wanted = stored_by(1, 1);
  for (const NamedTensor& entry : exact.value().tensors) {
    EXPECT_TRUE(std::ranges::equal(entry.tensor.bytes(), wanted[entry.name].view().bytes()))
        << entry.name;
  }
  State own;
  own["aggregator.step"].numbers = {0};
  own["w.error"].codes.assign(kBoxElems, 0);
  own["w.error.scale"].values = {0};
  const auto loaded = load(folder.path(), own, table_of(Cut::kColumns, 1), 1);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  const auto find = [&](const std::string& name) {
    return std::ranges::find(loaded.value().tensors, name, &NamedTensor::name)->tensor;
  };
  const float scale = elements<float>(ConstTensorView(find("w.error.scale")))[0];
  const auto codes = elements<std::int8_t>(ConstTensorView(find("w.error")));
  const std::vector<std::int64_t> places = places_of(Cut::kColumns, 1);
  float most = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t part = places[i] / kBoxElems;
    const float before = drawn(1, static_cast<int>(part), places[i] - part * kBoxElems, 0) * 5 *
                         (part == 0 ? 0.5F : 2.0F);
    most = std::max(most, std::abs(before));
    EXPECT_NEAR(static_cast<float>(codes[i]) * scale, before, scale / 2 * 1.0001F) << i;
  }
  EXPECT_FLOAT_EQ(scale, most / 127);  // of the elements that are here
}

TEST(BoxedState, AResidualThatNobodyTakesIsRefused) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write(folder.path(), kept_by).ok());
  State own = begun(kElems);
  own.erase("w.error");
  EXPECT_THAT(load(folder.path(), own, table_of(Cut::kWhole, 0), 0).error(),
              fails(Code::kInvalidArgument, "w.error", "counterpart"));
}

TEST(BoxedState, NamesAreTakenApart) {
  const ParameterTable table{{.name = "a", .shape = Shape::vector(2)},
                             {.name = "a.b", .shape = Shape::vector(2)}};
  const BoxedName whole = boxed_name(table, "a.b.ef21.h");
  EXPECT_EQ(whole.info, &table[1]);
  EXPECT_EQ(whole.box, "");
  EXPECT_EQ(whole.kind, "ef21.h");
  const BoxedName box = boxed_name(table, "a[0:1].error.scale");
  EXPECT_EQ(box.info, &table[0]);
  EXPECT_EQ(box.box, "[0:1]");
  EXPECT_EQ(box.kind, "error.scale");
  for (const char* none : {"aggregator.step", "a", "ab.error", "a[0:1]error"}) {
    EXPECT_EQ(boxed_name(table, none).info, nullptr) << none;
  }
}

}  // namespace
}  // namespace gradwire::testing::boxed_state_test
