// The asking half of the TCP store: one connection to rank 0, shared by the threads of a process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/rendezvous.h"

namespace gradwire::rendezvous {

class TcpClient final : public KeyValueStore {
 public:
  // Connects and shakes hands, trying again until `deadline` while nobody answers; where there are
  // several `ports` from `where` on, while none of them answers as this job.
  static Result<std::shared_ptr<KeyValueStore>> join(const HostPort& where, int ports,
                                                     const TcpStoreOptions& options,
                                                     Deadline deadline);
  TcpClient(Fd fd, Channel channel, std::string where, int rank);
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;
  // Says goodbye; waits for nothing longer than a second.
  ~TcpClient() override;

  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;
  int port() const;
  const std::string& where() const { return where_; }

 private:
  // One connection, or one to each of several ports.
  static Result<std::shared_ptr<KeyValueStore>> try_once(const HostPort& where, int ports,
                                                         const TcpStoreOptions& options,
                                                         Deadline deadline);
  static Result<std::shared_ptr<KeyValueStore>> greet(Fd fd, const HostPort& where,
                                                      const TcpStoreOptions& options,
                                                      Deadline deadline);
  // Sends a request and waits for the reply that carries its id. Whichever caller finds nobody
  // reading reads for all; the others sleep.
  Result<Reply> ask(Kind kind, std::uint32_t id, ConstByteSpan body, Deadline deadline);
  // One turn at the socket, called and left with the lock held, which it gives up while it sleeps.
  void pump(std::unique_lock<std::mutex>& lock, Deadline until);
  Status take_replies();
  void fail(Status status);
  Status closed(const Moved& moved) const;
  std::uint32_t new_id();

  Fd fd_;
  const Fd wake_;  // ends the sleep of the one who pumps
  std::mutex mutex_;
  std::condition_variable progressed_;
  Channel channel_;
  const std::string where_;
  const int rank_;
  bool pumping_ = false;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, std::optional<Reply>> open_;  // asked; with the answer once it is there
  Status failed_;                                       // of the connection; sticky
};

}  // namespace gradwire::rendezvous
