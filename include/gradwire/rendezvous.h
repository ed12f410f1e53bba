// How the ranks of a job find each other: a small key-value store, and who is who.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct LaunchInfo;  // gradwire/config.h

// Keys are at most 256 bytes, values at most 1 MiB. Every key is written once: a second set() of a
// key with other bytes is kInvalidArgument (a duplicate rank shows up that way). Thread-safe.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual Status set(std::string_view key, ConstByteSpan value, Deadline deadline) = 0;
  // Waits until somebody has set `key`. kTimedOut names the key and how long it waited.
  virtual Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) = 0;
};

// A rank's place in its job. The store lives at least as long as whatever was made from this.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string job = "job";  // equal on all ranks, distinct between jobs that share a host
  std::shared_ptr<KeyValueStore> store;  // null only when size == 1
  double timeout_seconds = 60;           // how long to wait for the slowest rank
  // Known to all ranks and nobody else, where not empty: transports that can prove connections with
  // it do.
  std::string secret = {};
};

// Ranks as threads of one process.
std::shared_ptr<KeyValueStore> make_inproc_store();

// Files in `directory`, which all ranks see; created if missing. For tests and shared file systems.
Result<std::shared_ptr<KeyValueStore>> make_file_store(const std::string& directory,
                                                       std::string_view secret = {});

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // rank 0: 0 lets the kernel choose; read it back with tcp_store_port()
  int rank = 0;  // rank 0 serves, and is its own client
  int size = 1;
  std::string job = "job";  // a client of another job is refused
  // Not empty: every message carries an HMAC-SHA256, strangers are refused.
  std::string secret = {};
  double timeout_seconds = 60;
  int listen_fd = -1;  // rank 0: serve on this already listening socket; the store owns it
};
// Garbage, a wrong secret, a stranger of another job or a duplicate rank is refused with a clear
// error on the offender's side; the store keeps serving the others. Rank 0's store serves until
// destroyed, and its destructor waits (bounded) until all ranks have said that they are done.
Result<std::shared_ptr<KeyValueStore>> make_tcp_store(const TcpStoreOptions& options);

// The port of rank 0's store, from a TCP store of any rank; 0 for a store of another kind.
int tcp_store_port(const KeyValueStore& store);

// Meets the other ranks where `info.rendezvous` says: "host:port" of rank 0, which serves a TCP
// store there, or "file://DIR", where a folder named after the job holds a file store (a job that
// is run again needs another name or an emptied DIR). A lone rank needs neither and gets no store.
// Blocks until rank 0 is there, at most `timeout_seconds`; errors as those of the stores.
Result<Rendezvous> open_rendezvous(const LaunchInfo& info, std::string_view secret,
                                   double timeout_seconds = 60);

}  // namespace gradwire
