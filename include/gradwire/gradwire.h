// Everything at once, for programs that use the library.
#pragma once

#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"
#include "gradwire/coder.h"
#include "gradwire/communicator.h"
#include "gradwire/compressor.h"
#include "gradwire/config.h"
#include "gradwire/registry.h"
#include "gradwire/rendezvous.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"
#include "gradwire/version.h"
#include "gradwire/wire_format.h"
#include "gradwire/work.h"
