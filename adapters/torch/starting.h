// Operations as values, handed to gradwire's functions.
#pragma once

#include <vector>

#include "gradwire/c.h"

namespace gradwire::torch_backend {

// Starts them as one work: one operation by its own function, all-reduces of one kind together in
// as many messages as for one, and anything else as a batch.
gw_status start_ops(gw_comm* comm, const std::vector<gw_op>& ops, gw_op_options options,
                    gw_work** work);

}  // namespace gradwire::torch_backend
