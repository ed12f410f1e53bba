// Where ranks leave what they did last when a job fails.
#pragma once

#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Where flight records go: GRADWIRE_FLIGHT, which `gradwire run --flight` sets, unless `flag` says.
std::string flight_folder(const std::string& flag);

// Makes the folder if there is none. kInvalidArgument with the system's reason where no file can be
// written in it; that is for the start of a job, since its failure is too late to find out. An
// empty name is in order.
Status check_flight_folder(const std::string& folder);

}  // namespace gradwire
