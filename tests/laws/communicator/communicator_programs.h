// The laws of Communicator as programs that one rank runs. A program returns what it found wrong,
// empty when all is well, so that ranks may be threads or processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/communicator.h"

namespace gradwire {

// Every reduction x dtype x op x algorithm x odd counts against the scalar reference, bit for bit.
std::string reduce_everything(Communicator& world);
// What of the product of operations x algorithms x types x reductions x counts is taken.
struct Sizes {
  std::vector<std::int64_t> elems;  // of the whole tensor
  int stride = 1;                   // every so many-th case; prime to the lengths of the lists
  int first = 0;                    // of them, so that samples differ
  bool only_f32 = false;
  // Else means may differ by rounding, as where each rank's part is scaled before it is added.
  bool exact_means = true;
};
// Data whose reductions are exact, so that every algorithm has one right answer, bit for bit.
std::string reduce_exactly(Communicator& world, const Sizes& sizes);
std::string move_exactly(Communicator& world, const Sizes& sizes);
// Maxima and minima of NaNs, zeros of both signs and infinities.
std::string keep_nans(Communicator& world);
// Tensors of many segments, against the same reference.
std::string reduce_large(Communicator& world);
// all_gather, all_gather_v, all_gather_unsized, all_to_all(_v), broadcast from every root, send and
// recv.
std::string move_everything(Communicator& world);
// As above with rows of megabytes and of nothing.
std::string move_large(Communicator& world);
// The next five are for two ranks and more.
// 64 messages between two ranks, both ways at once, of 1 element to 16 segments, before the first
// is received: with one tag and several, in order, in reverse and shuffled, from any source.
std::string send_many(Communicator& world, std::int64_t segment_elems);
// With segments of 512 KiB between two ranks, and of 32 KiB among more.
std::string send_many_large(Communicator& world);
// A root of 1,000 broadcasts of 1 MiB beside a rank that comes late, and 64 messages of 4 MiB to
// ranks that receive late: no process holds more than 64 MiB beside its tensors. For processes.
std::string run_ahead(Communicator& world);
// A probe that no deadline bounds ends when a message comes.
std::string probe_without_end(Communicator& world);
// 64 messages of 4 MiB whose sender gives up amid them: the others hear who did, and why.
std::string abort_amid_messages(Communicator& world);
// Rows and columns of a grid, each driven by a thread of its own at the same time. Needs 4 ranks.
std::string rows_and_columns(Communicator& world);
// Splits: order by key, groups of one, nobody's color, ids that come back.
std::string split_and_split_again(Communicator& world);
// create_group() by its members alone: pairs of neighbours while others are elsewhere, all ranks in
// reverse order, a group of a group; bad lists are refused.
std::string groups_of_members(Communicator& world);
// A communicator ends while its operations run, which some ranks have not begun: they end well.
std::string end_amid_operations(Communicator& world);
// Hundreds of operations started before the first is waited for.
std::string many_outstanding(Communicator& world);
// Every operation that has both forms, in place and out of place; sums of scaled inputs.
std::string work_in_place_and_apart(Communicator& world);
// Operations that were planned once.
std::string run_again_and_again(Communicator& world);
// Several operations in one Work.
std::string run_batches(Communicator& world);
// Many tensors as one.
std::string reduce_fused(Communicator& world);
// Bad arguments are refused and do no harm.
std::string refuse_bad_arguments(Communicator& world);
// The counters agree with the closed forms.
std::string count_bytes(Communicator& world);

}  // namespace gradwire
