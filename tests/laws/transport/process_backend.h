// Ranks as processes, for the laws of Transport.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradwire/rendezvous.h"
#include "gradwire/transport.h"
#include "tests/laws/transport/transport_laws.h"

namespace gradwire::laws {

using MakeTransport =
    std::function<Result<std::unique_ptr<Transport>>(const Rendezvous& rendezvous)>;

// Each rank calls `make` in a process of its own, forked from this one, which never calls it.
// Backends should set short times, so that the laws about stopped ranks end soon.
TransportBackend process_backend(std::string name, MakeTransport make);

}  // namespace gradwire::laws
