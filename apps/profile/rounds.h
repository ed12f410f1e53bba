// A profile measured several times over, so that each of its times is of the same minutes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "apps/profile/measurements.h"
#include "gradwire/status.h"
#include "planner/profile/profile.h"

namespace gradwire {

// Measures one after another, from the first to the last, and then all of them again, `rounds`
// times: what makes a machine slow for a while does so to all entries. Each entry is the median of
// what its rounds found; they stand in the order of `all`. A measurement is left out of rounds as
// its `every` says. `told` hears before each how many have been done and the name of what comes.
// Errors of the measurements, with their name; kInternal where two rounds of one measured different
// things.
Result<Profile> measure_by_rounds(
    std::span<const Measurement> all, int rounds,
    const std::function<void(std::int64_t done, const std::string& name)>& told);

// How often measure_by_rounds() measures something.
std::int64_t measured_in_all(std::span<const Measurement> all, int rounds);

// Each time the median (of an even number the upper one) of the times at the same place in each of
// `found`, at least one; conditions are the first's. kInternal where one of them has more entries.
Result<Profile> median_profile(std::span<const Profile> found);

}  // namespace gradwire
