// The serving half of the TCP store: one thread in rank 0, one poll(2) over all connections.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/forks.h"
#include "comm/rendezvous/server_session.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::rendezvous {

struct TcpServerOptions {
  double handshake_seconds = 5;     // a connection that has not joined by then is dropped
  double goodbye_seconds = 5;       // how long stop() waits for ranks that still use the store
  std::size_t max_strangers = 256;  // connections that have not joined; the oldest
                                    // makes room, those with a good hello last
};

class TcpServer {
 public:
  // Serves on `listener` until destroyed.
  static Result<std::unique_ptr<TcpServer>> start(Fd listener, std::shared_ptr<JobState> job,
                                                  TcpServerOptions options);
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;
  // Waits until every rank has come and said goodbye or lost its connection; for one that is
  // silent, until goodbye_seconds after it was last heard (or, never heard, after the start).
  ~TcpServer();

  int port() const { return port_; }
  // Any thread: the table has changed.
  void wake() const { rendezvous::wake(wake_); }

 private:
  struct Connection {
    Connection(Fd socket, JobState& job, Deadline now)
        : fd(std::move(socket)), session(job), since(now), heard(now) {}
    Fd fd;
    ServerSession session;
    Deadline since;
    Deadline heard;
    bool dead = false;
  };

  using Connections = std::vector<std::unique_ptr<Connection>>;

  TcpServer(Fd listener, Fd wake, std::shared_ptr<JobState> job, TcpServerOptions options,
            int port);
  void loop();
  void accept_some(Deadline now);
  void read_from(Connection& connection, Deadline now);
  void write_to(Connection& connection);
  Deadline drop_at(const Connection& connection) const;
  Deadline next_deadline(Deadline now) const;
  bool may_end(Deadline now) const;
  std::size_t strangers() const;
  Connections::iterator least_wanted();

  Fd listener_;
  Fd wake_;
  std::shared_ptr<JobState> job_;
  const TcpServerOptions options_;
  const int port_;
  const Deadline started_;
  std::atomic<bool> stopping_ = false;
  Connections connections_;  // oldest first; the thread's alone
  ForkMark mark_;
  std::thread thread_;
};

}  // namespace gradwire::rendezvous
