// How the ranks of a job find each other: a small key-value store, and each rank's number.
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

// A store that all ranks of a job see. Keys have 1 to 256 bytes, values at most 1 MiB. A key is
// written once. Any thread may call it.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Stores `value` under `key`; both are copied. Returns at the latest at `deadline`. Storing the
  // same bytes again does nothing. Errors: kInvalidArgument if a length is out of range or the key
  // holds other bytes (two processes claim one rank, or two jobs share the store); kOutOfMemory if
  // the store is full; of a remote store also kTimedOut and kPeerLost if rank 0 does not answer.
  virtual Status set(std::string_view key, ConstByteSpan value, Deadline deadline) = 0;
  // Waits until a rank has set `key`, and returns a copy of the value. Errors: kTimedOut at
  // `deadline`, naming the key and the time waited; kInvalidArgument for a key of a wrong length or
  // a value that was not written with this rank's secret; kCorruptPayload for a damaged value;
  // kPeerLost if rank 0's store is gone.
  virtual Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) = 0;
};

// A rank's place in its job. Objects made from it share ownership of the store.
struct Rendezvous {
  int rank = 0;                          // this rank, 0 to size - 1
  int size = 1;                          // number of ranks
  std::string job = "job";               // the job's id: equal on all its ranks, different between
                                         // jobs that share a host or a store
  std::shared_ptr<KeyValueStore> store;  // may be null only if size == 1
  double timeout_seconds = 60;           // how long to wait for the slowest rank, seconds
  // A secret that only the job's ranks know; empty: none. Transports that support it authenticate
  // connections with it (docs/security.md).
  std::string secret = {};
};

// A store for ranks that are threads of one process. Never fails.
std::shared_ptr<KeyValueStore> make_inproc_store();

// A store of files in `directory`, which all ranks see; it is created if missing. For shared file
// systems and tests. With a secret, values carry an HMAC-SHA256. Errors: kInvalidArgument if the
// folder cannot be created or written.
Result<std::shared_ptr<KeyValueStore>> make_file_store(const std::string& directory,
                                                       std::string_view secret = {});

// The arguments of make_tcp_store().
struct TcpStoreOptions {
  std::string host = "127.0.0.1";  // name or address of rank 0's host
  int port = 0;             // TCP port number of rank 0; at rank 0, 0 lets the kernel choose one
                            // (tcp_store_port() has it)
  int rank = 0;             // this rank; rank 0 serves
  int size = 1;             // number of ranks, at most 65,536
  std::string job = "job";  // the job's id; clients of another job are refused
  std::string secret = {};  // if not empty, every message carries an HMAC-SHA256, and clients
                            // without the secret are refused
  double timeout_seconds = 60;  // how long to wait for rank 0 to answer, seconds; above 0
  int listen_fd = -1;           // rank 0: file descriptor of a socket that listens already, whose
                                // ownership passes to the store; -1: none
};
// A store that rank 0 serves over TCP. Collective. At rank 0 it returns once the socket listens; at
// other ranks it returns once connected. Rank 0 serves until its store is destroyed; the destructor
// waits up to timeout_seconds for the other ranks to disconnect. Rank 0 refuses malformed messages,
// wrong secrets, other jobs and duplicate ranks, and continues to serve the other clients. Errors:
// kInvalidArgument for an option out of range, a port that is taken, or a refused client (the
// message has rank 0's reason); kPeerLost or kTimedOut if rank 0 does not answer in time.
Result<std::shared_ptr<KeyValueStore>> make_tcp_store(const TcpStoreOptions& options);

// The TCP port number of rank 0's store, at any rank; 0 for a store of another kind.
int tcp_store_port(const KeyValueStore& store);

// Opens the store that info.rendezvous names. Collective. With "file://DIR" the store is a folder
// in DIR that is named after the job: a job that runs again needs another name or an emptied DIR. A
// job of one rank gets no store. Blocks until rank 0 answers, at most `timeout_seconds` seconds.
// Errors: those of make_file_store() and make_tcp_store(); kInvalidArgument for an empty or
// malformed info.rendezvous; kUnsupported if PMIx is wanted and its library is missing.
Result<Rendezvous> open_rendezvous(const LaunchInfo& info, std::string_view secret,
                                   double timeout_seconds = 60);

}  // namespace gradwire
