// Starting one rank.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"

namespace gradwire {

struct ChildOptions {
  std::string file;                      // what to execute: found in PATH unless it has a slash
  std::vector<std::string> arguments;    // argv, the program's name first
  std::vector<std::string> environment;  // "NAME=value" to add or replace
  pid_t launcher = 0;                    // the child dies with this process, its parent
};

struct RankProcess {
  pid_t pid = 0;       // also its process group
  rendezvous::Fd out;  // read ends of its standard output and error, non-blocking
  rendezvous::Fd err;
  rendezvous::Fd joining;  // read end of what it says on its way into the job, non-blocking
};

// Starts the program in a process group of its own, with the default signal dispositions, nothing
// blocked and /dev/null as standard input. It is killed when the calling thread ends. An error says
// why it could not be executed: kUnsupported when the file cannot be found, else kInvalidArgument.
Result<RankProcess> start_child(const ChildOptions& options);

// `program` as start_child() should execute it: this very program when it is asked for by the name
// that it was started under (or as "gradwire") and PATH does not know that name.
std::string resolve_program(const std::string& program);

}  // namespace gradwire
