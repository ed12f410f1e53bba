// The flight records that ranks left in a folder (collectives/failure/flight_recorder.h), read
// back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

struct FlightOperation {
  std::int64_t communicator = 0;
  std::int64_t number = 0;
  bool collective = true;
  std::string what;   // "all_reduce of 1000 f32 sum"
  std::string state;  // "running", "done", "failed"
  std::int64_t begun_us = 0;
  std::int64_t ended_us = 0;
  std::int64_t bytes_sent = 0;
  std::vector<int> waiting_for;
};

struct FlightFile {
  int rank = 0;
  int size = 1;
  std::int64_t generation = 0;
  std::string message;
  bool orphaned = false;  // its launcher had died
  std::vector<int> lost, silent, absent;
  std::vector<FlightOperation> operations;
};

// By generation, then by rank. kInvalidArgument names the file and what is wrong with it; also for
// a folder without any.
using FlightFiles = std::map<std::int64_t, std::map<int, FlightFile>>;
Result<FlightFiles> read_flight_files(const std::string& folder);

// What happened in one generation, for people: a line for each rank, then the cause, and
// why. `files` is not empty.
std::string explain_flight(const std::map<int, FlightFile>& files);

}  // namespace gradwire
