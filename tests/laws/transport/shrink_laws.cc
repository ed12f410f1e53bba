#include "tests/laws/transport/shrink_laws.h"

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/failure/notes.h"
#include "tests/support/passing_transport.h"
#include "tests/support/process_ranks.h"

namespace gradwire::laws {
namespace {

// Ends its rank at a point of shrinking; else as the transport below.
class Ending final : public PassingTransport {
 public:
  Ending(std::unique_ptr<Transport> inner, Point point, std::function<void(Transport&)> end)
      : PassingTransport(std::move(inner)), point_(point), end_(std::move(end)) {}

  std::vector<Note> take_notes() override { return inner_->take_notes(); }
  std::vector<LostPeer> all_lost() const override { return inner_->all_lost(); }
  bool sever() override { return inner_->sever(); }

  void tell(int peer, ConstByteSpan note) override {
    const auto said = decode_note(note, size());
    if (said && said->kind == EngineNote::Kind::kPropose) {
      end_at(Point::kFirstProposal);
      if (said->proposal.ready) end_at(Point::kReady);
    }
    inner_->tell(peer, note);
  }
  Status rebuild(std::span<const int> survivors, std::uint32_t generation,
                 Deadline until) override {
    end_at(Point::kRebuilding);
    Status rebuilt = inner_->rebuild(survivors, generation, until);
    if (rebuilt.ok()) end_at(Point::kRebuilt);
    return rebuilt;
  }

 private:
  void end_at(Point point) {
    if (point == point_ && !std::exchange(ended_, true)) end_(*inner_);
  }
  Point point_;
  std::function<void(Transport&)> end_;
  bool ended_ = false;
};

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// Sums job ranks + 1, which the test knows for every set of survivors.
Status sum(Communicator& world, std::size_t elems) {
  std::vector<float> data(elems, static_cast<float>(world.job_rank(world.rank()) + 1));
  const Status status = wait_for(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  if (!status.ok()) return status;
  float wanted = 0;
  for (int r = 0; r < world.size(); ++r) wanted += static_cast<float>(world.job_rank(r) + 1);
  for (const float value : data) {
    if (value != wanted) return {Code::kInternal, "wrong sum"};
  }
  return {};
}

Status sum_until_error(Communicator& world) {
  const Deadline until = deadline_in(60);
  while (std::chrono::steady_clock::now() < until) {
    if (const Status status = sum(world, 20000); !status.ok()) return status;
  }
  return {Code::kInternal, "no error came"};
}

std::vector<int> members(const Communicator& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(world.job_rank(r));
  return ranks;
}

void go_on(std::unique_ptr<Communicator> world) {
  const std::vector<int> wanted{1, 3};
  // A rank may have gone on with rank 2 before it ended: then it fails and shrinks again.
  for (int round = 0; round < 4 && members(*world) != wanted; ++round) {
    const Status failure = sum_until_error(*world);
    EXPECT_EQ(failure.code(), Code::kPeerLost) << failure.message();
    // They need not wait for its deadline: nobody is missing of whom they do not know.
    const Deadline start = std::chrono::steady_clock::now();
    auto shrunk = world->shrink(start + std::chrono::seconds(80));
    ASSERT_TRUE(shrunk.has_value()) << shrunk.error().message();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    world = std::move(shrunk).value();
  }
  ASSERT_EQ(members(*world), wanted);
  for (int i = 0; i < 20; ++i) {
    const Status status = sum(*world, i % 5 == 0 ? 300'000 : 1000);
    ASSERT_TRUE(status.ok()) << "sum " << i << ": " << status.message();
  }
}

}  // namespace

void shrink_past(const TransportBackend& backend, Point point, Fate fate, const MakeWorld& make) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    Transport& hook = *transport;
    const int rank = transport->rank();
    if (rank == 2) {
      transport = std::make_unique<Ending>(std::move(transport), point,
                                           [&](Transport& inner) { backend.end(inner, fate); });
    }
    auto world = make(std::move(transport));
    ASSERT_TRUE(world.has_value()) << world.error().message();
    if (const Status first = sum(*world.value(), 1000); rank != 0 && !first.ok()) {
      EXPECT_EQ(first.code(), Code::kPeerLost) << first.message();  // rank 0 was early
    }
    if (rank == 0) return backend.end(hook, Fate::kKilled);
    if (rank == 2) {  // ranks as threads come back from their end
      (void)sum_until_error(*world.value());
      (void)world.value()->shrink();
      return;
    }
    go_on(std::move(world).value());
  };
  backend.run(4, body, {{0, Fate::kKilled}, {2, fate}}, 100);
}

namespace {

Result<std::unique_ptr<Communicator>> plain(std::unique_ptr<Transport> transport) {
  return make_communicator(std::move(transport), {.deadline_seconds = 20});
}

// Ranks 3 and 4 of five do not wait for the others, which live, but come to shrink when these have
// ended. Of the two sides one goes on.
void some_come_late(const TransportBackend& backend) {
  const ProcessCount met, early, late, early_go, late_go;
  const auto body = [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    const bool comes_late = rank < 3;
    auto world = plain(std::move(transport));
    ASSERT_TRUE(world.has_value()) << world.error().message();
    ASSERT_EQ(sum(*world.value(), 1000).message(), "ok");
    met.come();
    ASSERT_TRUE(met.await(5, 30));
    if (comes_late) {
      EXPECT_TRUE(early.await(2, 40));
      EXPECT_EQ(sum(*world.value(), 1000).code(), Code::kPeerLost);
    } else {
      world.value()->abort("the test asks for it");
    }
    const auto shrunk = world.value()->shrink(deadline_in(comes_late ? 10 : 1));
    const Status ends = shrunk.has_value() ? sum(*shrunk.value(), 1000) : shrunk.error();
    EXPECT_EQ(ends.code(), shrunk.has_value() ? Code::kOk : Code::kPeerLost) << ends.message();
    if (shrunk.has_value()) (comes_late ? late_go : early_go).come();
    (comes_late ? late : early).come();
    EXPECT_TRUE(late.await(3, 40));  // who has ended counts for no side
  };
  backend.run(5, body, {}, 100);
  EXPECT_NE(early_go.await(2, 0), late_go.await(3, 0));
  EXPECT_NE(early_go.await(1, 0), late_go.await(1, 0));
}

// Ranks 0 and 1 wait for the others in one group, and these for them in another, so that they hold
// each other for absent. Who ends up on whose side depends on when each of them came; those that go
// on are one side, whichever ranks it has.
void each_waits_for_the_other(const TransportBackend& backend) {
  const ProcessCount met, done, goes_on;
  const auto body = [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    auto world = make_communicator(std::move(transport), {.deadline_seconds = 3});
    ASSERT_TRUE(world.has_value()) << world.error().message();
    auto first = world.value()->split(0, 0);
    auto second = world.value()->split(0, 0);
    ASSERT_TRUE(first.has_value() && second.has_value());
    met.come();
    ASSERT_TRUE(met.await(4, 30));
    const Status failure = sum(rank < 2 ? *first.value() : *second.value(), 1000);
    EXPECT_FALSE(failure.ok());
    auto shrunk = world.value()->shrink(deadline_in(10));
    if (shrunk.has_value()) goes_on.come();
    done.come();
    EXPECT_TRUE(done.await(4, 40));  // who has ended counts for no side
    if (!shrunk.has_value()) return;
    const int size = shrunk.value()->size();
    EXPECT_FALSE(goes_on.await(size + 1, 0))
        << "rank " << rank << " is one of " << size << " that go on, and others do, too";
  };
  backend.run(4, body, {}, 100);
}

TEST_P(TransportLaws, OfTwoSidesThatWaitForEachOtherAtMostOneGoesOn) {
  each_waits_for_the_other(GetParam());
}

TEST_P(TransportLaws, OfThoseThatComeLateAndTheOthersOneSideGoesOn) { some_come_late(GetParam()); }

TEST_P(TransportLaws, OneIsKilledBeforeItProposes) {
  shrink_past(GetParam(), Point::kFirstProposal, Fate::kKilled, plain);
}
TEST_P(TransportLaws, OneIsKilledBeforeItIsReady) {
  shrink_past(GetParam(), Point::kReady, Fate::kKilled, plain);
}
TEST_P(TransportLaws, OneIsKilledWhileTheyRebuild) {
  shrink_past(GetParam(), Point::kRebuilding, Fate::kKilled, plain);
}
TEST_P(TransportLaws, OneIsKilledWhenItHasRebuilt) {
  shrink_past(GetParam(), Point::kRebuilt, Fate::kKilled, plain);
}
TEST_P(TransportLaws, OneIsStoppedBeforeItProposes) {
  shrink_past(GetParam(), Point::kFirstProposal, Fate::kStopped, plain);
}
TEST_P(TransportLaws, OneIsStoppedBeforeItIsReady) {
  shrink_past(GetParam(), Point::kReady, Fate::kStopped, plain);
}
TEST_P(TransportLaws, OneIsStoppedWhileTheyRebuild) {
  shrink_past(GetParam(), Point::kRebuilding, Fate::kStopped, plain);
}
TEST_P(TransportLaws, OneIsStoppedWhenItHasRebuilt) {
  shrink_past(GetParam(), Point::kRebuilt, Fate::kStopped, plain);
}

}  // namespace
}  // namespace gradwire::laws
