// Slurm's way of writing many hosts: "rack[03-07,11]-ib,login".
#pragma once

#include <string>
#include <string_view>

#include "gradwire/status.h"

namespace gradwire::rendezvous {

// The first host of a list; several brackets in one name are the product of their numbers, the last
// one fastest, so each gives its first: "r[2-3]n[01,05]" is r2n01, r2n05, ... kInvalidArgument says
// what is wrong with a list that is empty or has an unfinished or empty bracket.
Result<std::string> first_host(std::string_view list);

}  // namespace gradwire::rendezvous
