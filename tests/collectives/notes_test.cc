#include "collectives/failure/notes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradwire::notes_test {
namespace {

EngineNote a_proposal() {
  EngineNote note{.kind = EngineNote::Kind::kPropose};
  note.proposal.ready = true;
  note.communicator = 4094;
  note.operation = 1ull << 40;
  note.proposal.generation = 77;
  note.proposal.lost = {0, 5, 65534};
  note.proposal.certain = {5};
  note.text = "all_reduce of 1000 f32 sum";
  return note;
}

TEST(EngineNotes, WhatIsEncodedIsDecoded) {
  const EngineNote note = a_proposal();
  const auto read = decode_note(encode(note), 65535);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, note.kind);
  EXPECT_EQ(read->standing, note.standing);
  EXPECT_TRUE(read->proposal.ready);
  EXPECT_EQ(read->communicator, note.communicator);
  EXPECT_EQ(read->operation, note.operation);
  EXPECT_EQ(read->proposal.generation, note.proposal.generation);
  EXPECT_EQ(read->proposal.lost, note.proposal.lost);
  EXPECT_EQ(read->proposal.certain, note.proposal.certain);
  EXPECT_EQ(read->text, note.text);
}

TEST(EngineNotes, LongTextIsCut) {
  const auto read = decode_note(encode({.text = std::string(5000, 'x')}), 1);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->text, std::string(160, 'x'));
}

// A rack of a large job, or every second of its ranks: the survivors agree on all of them.
TEST(EngineNotes, ThousandsOfLossesPass) {
  for (const int step : {1, 2, 3}) {
    EngineNote note{.kind = EngineNote::Kind::kPropose};
    for (int r = 7; r < 16'000; r += step) {
      note.proposal.lost.push_back(r);
      if (r % 5 != 0) note.proposal.certain.push_back(r);
    }
    const std::vector<std::byte> bytes = encode(note);
    EXPECT_LE(bytes.size(), 4096u);  // Transport::kMostNoteBytes
    const auto read = decode_note(bytes, 16'000);
    ASSERT_TRUE(read.has_value()) << step;
    EXPECT_EQ(read->proposal.lost, note.proposal.lost) << step;
    EXPECT_EQ(read->proposal.certain, note.proposal.certain) << step;
    EXPECT_FALSE(decode_note(bytes, 15'990).has_value()) << step;  // ranks that are none
  }
}

TEST(EngineNotes, HalfOfTheLargestJobPassesInOnePiece) {
  EngineNote note{.kind = EngineNote::Kind::kPropose};
  for (int r = 32'768; r < 65'536; ++r) note.proposal.lost.push_back(r);
  note.proposal.certain = {40'000};
  const auto read = decode_note(encode(note), 65'536);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->proposal.lost, note.proposal.lost);
  EXPECT_EQ(read->proposal.certain, note.proposal.certain);
}

TEST(EngineNotes, HostileBytesAreRefused) {
  const std::vector<std::byte> good = encode(a_proposal());
  EXPECT_FALSE(decode_note({}, 65535).has_value());
  for (std::size_t length = 0; length < 40; ++length) {
    EXPECT_FALSE(decode_note({good.data(), length}, 65535).has_value()) << length << " bytes";
  }
  EXPECT_FALSE(decode_note(good, 65534).has_value());  // a rank that is none
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return decode_note(bytes, 65535).has_value();
  };
  EXPECT_FALSE(with(0, 1));  // another version
  EXPECT_FALSE(with(1, 0));  // kinds
  EXPECT_FALSE(with(1, 6));
  EXPECT_FALSE(with(2, 4));  // standings
  EXPECT_FALSE(with(3, 2));
  EXPECT_FALSE(with(20, 200));  // more lost ranks than bytes
  EXPECT_FALSE(with(21, 255));
  EXPECT_FALSE(with(22, 4));  // more certain ones than lost ones
  EXPECT_FALSE(with(28, 0));  // not ascending
  EXPECT_FALSE(with(30, 4));  // a run that ends before it begins
  EXPECT_FALSE(with(38, 6));  // certain, but not lost
  EXPECT_TRUE(with(36, 5));
}

}  // namespace
}  // namespace gradwire::notes_test
