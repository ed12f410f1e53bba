// Measured links, kept in a file for the next job. A cache: whatever is wrong with it, it is as if
// it were not there.
//
//   file = "gradwire links 2\n" entry*
//   entry = key " " alpha " " beta " " gamma " " alpha_intra " " beta_intra " " gap " "
//           contention " " contention_beta " " when "\n"
//   key = 16 hexadecimal digits; when = seconds since 1970
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gradwire/link_model.h"

namespace gradwire {

// All of a link's, in the order in which the file has them.
inline constexpr std::array kLinkNumbers{
    &LinkModel::alpha,      &LinkModel::beta, &LinkModel::gamma,      &LinkModel::alpha_intra,
    &LinkModel::beta_intra, &LinkModel::gap,  &LinkModel::contention, &LinkModel::contention_beta};

// Older entries are as good as none: machines and networks change.
inline constexpr std::int64_t kLinksLastSeconds = 7 * 24 * 3600;

// now: seconds since 1970.
std::optional<LinkModel> cached_links(const std::string& file, std::uint64_t key, std::int64_t now);

// Puts an entry in the place of the one with its key, and of what is too old; of many the youngest
// stay. Makes the folder. The file is replaced in one step, so nobody reads half of it; of two jobs
// that write at once, one entry may be lost.
void cache_links(const std::string& file, std::uint64_t key, std::int64_t now,
                 const LinkModel& links);

}  // namespace gradwire
