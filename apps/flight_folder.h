// Where ranks leave what they did last when a job fails.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Where flight records go: GRADWIRE_FLIGHT, which `gradwire run --flight` sets, unless `flag` says.
std::string flight_folder(const std::string& flag);

// Makes the folder if there is none. kInvalidArgument with the system's reason where no file can be
// written in it; that is for the start of a job, since its failure is too late to find out. An
// empty name is in order.
Status check_flight_folder(const std::string& folder);

// This process, rank `rank` of the job, has noticed that its launcher has died, and leaves that
// beside its record; what the record's message says is for people. Nothing where `folder` is empty
// or cannot be written.
void leave_orphan_mark(const std::string& folder, int rank);
// What a rank of an earlier job may have left there: its process may have had the same number, as
// in a container.
void remove_orphan_mark(const std::string& folder, int rank);
// Whether process `pid`, of that rank, has left its mark.
bool has_orphan_mark(const std::string& folder, int rank, std::int64_t pid);

}  // namespace gradwire
