// What a message and a reduction cost: the numbers that algorithms are chosen by and simulated
// with.
#pragma once

namespace gradwire {

// A message of n bytes takes alpha + n * beta from the time on at which both its ends are there. A
// rank's port sends one message and receives one at a time, and is busy with each for gap * alpha +
// n * beta. Reducing n bytes into another n takes n * gamma of the rank. Messages between ranks of
// one node cost alpha_intra and beta_intra. Seconds, and seconds per byte.
// Source: Hockney, Parallel Computing 1994 (alpha, beta); Alexandrov, Ionescu, Schauser, Scheiman,
// SPAA 1995 (the gap).
struct LinkModel {
  double alpha = 13e-6;   // TCP between two network namespaces of one host
  double beta = 0.84e-9;  // what TCP/IP leaves of 10 Gbit/s
  double gamma = 0.04e-9;
  double alpha_intra = 2e-6;  // shared memory
  double beta_intra = 0.1e-9;
  // 0 to 1. 1: every message of a rank costs its start-up, the textbook's one-ported model. 0:
  // messages that start together share it, as if it were spent on the wire.
  double gap = 1;
  // At least 1: as many times alpha, and beta, a message takes while every rank sends one and
  // receives one. 1: nobody is in another's way. More: ranks take turns on processors, or on what
  // joins them. Choices alone heed it (collectives/cost_contention.h), the simulator does not.
  double contention = 1;
  double contention_beta = 1;

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

}  // namespace gradwire
