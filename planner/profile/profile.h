// What a machine was measured to take: the planner's costs where they are more than a file's rates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/layers/layer.h"

namespace gradwire {

// Where, when and with what a profile was measured.
struct ProfileConditions {
  std::string host;
  std::string processor;  // as the kernel names it
  int cores = 1;          // that the program could use
  int threads = 1;        // that computed
  std::string kernel;
  std::string build;  // version, commit, compiler
  std::string date;   // UTC, 2026-01-31T12:00:00Z
};

// A layer of a model by its shape: what it reads and writes of a sample, its parameters, and its
// products (multiplications with their additions) of a sample. Seconds of a micro-batch. What a
// pass does besides, loading samples and the loss, is an entry of its own behind a model's layers,
// which reads the model's output and has no products.
struct ProfiledLayer {
  std::string name;  // "mlp fc1"
  SampleShape input = {};
  SampleShape output = {};
  std::int64_t parameters = 0;
  std::int64_t forward_macs = 0;
  std::int64_t backward_macs = 0;  // by inputs, where they are derived, and by parameters
  std::int64_t rows = 1;           // samples of the micro-batch
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// (rows, in) times (in, out), fp32.
struct ProfiledProduct {
  std::int64_t rows = 1;
  std::int64_t in = 1;
  std::int64_t out = 1;
  double seconds = 0;

  std::int64_t macs() const { return rows * in * out; }
};

// One step of so many fp32 parameters.
struct ProfiledOptimizer {
  std::string name;
  std::int64_t elements = 1;
  double seconds = 0;
};

// A tensor of fp32 elements.
struct ProfiledCodec {
  std::string spec;
  std::int64_t elements = 1;
  double encode_seconds = 0;
  double decode_seconds = 0;  // of one rank's payload
  double bits_per_element = 0;
};

// Between two ranks of the machine, each a process that sends and receives at the same time.
struct ProfiledLink {
  std::string transport;  // "shm", "tcp"
  double latency_seconds = 0;
  double bytes_per_second = 1;      // each way
  double cpu_seconds_per_byte = 0;  // of a rank's processor, user and system
};

// A step of an aggregator between two ranks, each on a processor core of its own, that computed
// before it: of so many buckets, each of one tensor of so many fp32 elements.
struct ProfiledExchange {
  std::string transport;
  std::string spec;  // "none": uncompressed
  std::int64_t elements = 1;
  std::int64_t buckets = 1;
  double seconds = 0;  // wall-clock, without waiting for the other rank to begin
};

// A few bytes from one rank to another that sleeps until they come.
struct ProfiledMessage {
  std::string transport;
  double seconds = 0;       // until they are there: half of a round trip
  double send_seconds = 0;  // until the sender goes on
};

// A micro-batch's gradients of so many fp32 elements, added to those before it.
struct ProfiledSum {
  std::int64_t elements = 1;
  double seconds = 0;
};

struct Profile {
  ProfileConditions conditions = {};
  std::vector<ProfiledLayer> layers = {};
  std::vector<ProfiledProduct> products = {};
  std::vector<ProfiledOptimizer> optimizers = {};
  std::vector<ProfiledCodec> codecs = {};
  std::vector<ProfiledLink> links = {};
  // Profiles of earlier versions have none of these.
  std::vector<ProfiledExchange> exchanges = {};
  std::vector<ProfiledMessage> messages = {};
  std::vector<ProfiledSum> sums = {};
};

// Seconds by a size, ascending: what was measured of one thing.
using MeasuredTimes = std::vector<std::pair<std::int64_t, double>>;

// Between two measured sizes on the line between them, beyond the ends on that of the last two,
// never below 0; of one size in proportion. nullopt of none.
std::optional<double> time_of(const MeasuredTimes& times, std::int64_t size);

// By multiplications with their additions. Of several products with as many the median.
MeasuredTimes product_times(const Profile& profile);
// Whether both read, write and multiply alike: their times are of the same thing.
bool same_shape(const ProfiledLayer& a, const ProfiledLayer& b);
// By samples of a micro-batch, forward and backward: of the layers of that shape; empty where none
// was measured.
struct LayerTimes {
  MeasuredTimes forward = {};
  MeasuredTimes backward = {};
};
LayerTimes layer_times(const Profile& profile, const ProfiledLayer& shape);
// By elements. `spec` as it was measured.
MeasuredTimes optimizer_times(const Profile& profile, const std::string& name);
MeasuredTimes encode_times(const Profile& profile, const std::string& spec);
MeasuredTimes decode_times(const Profile& profile, const std::string& spec);
MeasuredTimes sum_times(const Profile& profile);
// Of one bucket over that transport.
MeasuredTimes exchange_times(const Profile& profile, const std::string& transport,
                             const std::string& spec);
// Null where it was not measured.
const ProfiledLink* find_link(const Profile& profile, const std::string& transport);

// kInvalidArgument where `profile`, read from `name`, was measured elsewhere than `here`: names
// what differs (host, processor or cores), what it is there and what it is here. Another build,
// kernel or date is no other machine.
Status check_same_machine(const Profile& profile, const std::string& name,
                          const ProfileConditions& here);

}  // namespace gradwire
