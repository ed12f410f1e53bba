// What is wrong about a compressor's text, before there is a communicator.
#pragma once

#include <string>

#include "gradwire/status.h"

namespace gradwire {

// kInvalidArgument names an unknown method or key, or a value that no tensor could be coded with.
// Whether methods and keys go together is the aggregator's to say.
Status check_compressor(const std::string& compressor);
// kInvalidArgument where a rule keeps what an exchange leaves over for the next one: micro-batches
// that are exchanged one by one (reduce-each) would hand it on within a step.
Status check_no_feedback(const std::string& compressor);
// Whether what it sends may bear a factor: "none", and casts without error feedback, by all rules.
// An unreadable spec may.
bool carries_scale(const std::string& compressor);
// The spec, or rules, with the present names of keys.
std::string with_present_names(const std::string& compressor);

}  // namespace gradwire
