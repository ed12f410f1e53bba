// Short spellings for the steps that schedules are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gradwire/schedule.h"

namespace gradwire {

constexpr Place in_place_of(Range range) { return {BufferId::kIn, range}; }
constexpr Place out_place_of(Range range) { return {BufferId::kOut, range}; }
constexpr Place scratch_place_of(Range range) { return {BufferId::kScratch, range}; }

constexpr Step send_step(int peer, Place from) { return {Step::Op::kSend, peer, from, {}}; }
constexpr Step recv_reduce(int peer, Place to) { return {Step::Op::kRecvReduce, peer, {}, to}; }
constexpr Step recv_copy(int peer, Place to) { return {Step::Op::kRecvCopy, peer, {}, to}; }
constexpr Step local_copy(Place from, Place to) { return {Step::Op::kCopy, -1, from, to}; }
constexpr Step local_reduce(Place from, Place to) { return {Step::Op::kReduce, -1, from, to}; }
constexpr Step finish_step(Place to) { return {Step::Op::kFinish, -1, {}, to}; }

// Nothing yet, over kOut alone.
inline Schedule in_place_schedule(int rank, int size, std::int64_t elems) {
  return {.rank = rank, .size = size, .in_elems = elems, .out_elems = elems, .in_place = true};
}

// Row r of a (rows, elems) buffer.
constexpr Range row(std::int64_t elems, int r) { return {r * elems, (r + 1) * elems}; }

// Rows of given lengths, one after another.
inline std::vector<Range> rows_of(std::span<const std::int64_t> elems) {
  std::vector<Range> rows;
  std::int64_t begin = 0;
  for (const std::int64_t count : elems) {
    rows.push_back({begin, begin + count});
    begin += count;
  }
  return rows;
}

// Almost equal parts of [0, elems), one after another.
inline std::vector<Range> pieces_of(std::int64_t elems, int parts) {
  std::vector<Range> pieces;
  for (int i = 0; i < parts; ++i) pieces.push_back(piece(elems, parts, i));
  return pieces;
}

// All elements of rows first .. last - 1. Requires first < last.
inline Range stretch_of(const std::vector<Range>& rows, int first, int last) {
  return {rows[static_cast<std::size_t>(first)].begin,
          rows[static_cast<std::size_t>(last - 1)].end};
}

constexpr Range shifted(Range range, std::int64_t by) { return {range.begin + by, range.end + by}; }

// x modulo size, in 0 .. size - 1 for x >= -size.
constexpr int around(int x, int size) { return (x % size + size) % size; }

// The two walks of a ring, among any of a group's ranks (ring.cc).

// This rank's place in a ring of `length` ranks, and its neighbours' group ranks.
struct RingSeat {
  int place = 0;
  int length = 1;
  int next = 0;
  int prev = 0;
};

inline RingSeat ring_seat(int rank, int size) {
  return {rank, size, around(rank + 1, size), around(rank - 1, size)};
}

// From 0 .. length - 1 to the place of a chunk.
using ChunkPlaces = std::function<Place(int chunk)>;

// length - 1 rounds, after which this rank has chunk(place) reduced over the ring's ranks; chunks
// hold the own values before.
void add_ring_reduce_scatter(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk);

// length - 1 rounds, after which this rank has all chunks; chunk(place) was there before.
void add_ring_all_gather(Schedule& schedule, const RingSeat& seat, const ChunkPlaces& chunk);

}  // namespace gradwire
