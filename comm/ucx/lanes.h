// What carries the messages of an endpoint.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <string_view>

namespace gradwire::ucx {

// "1.13.1": the library that runs, which need not be the one that was compiled against.
std::string library_version();

// The transports that UCX took for an endpoint, in its order: "sysv", "tcp+cma"; "?" if it does not
// say.
std::string lanes_of(ucp_ep_h endpoint);

// The same from the text of ucp_ep_print_info(), which is all that UCX before 1.15 offers.
std::string lanes_in(std::string_view text);

}  // namespace gradwire::ucx
