// The cost model of messages and reductions. It selects collective algorithms ("auto") and drives
// the simulator.
#pragma once

namespace gradwire {

// The link parameters, in seconds and seconds per byte. Once both ends have posted it, a message of
// n bytes takes
//
//   alpha + n beta                  between nodes
//   alpha_intra + n beta_intra      between ranks of one node
//
// A rank's port sends one message and receives one message at a time. It is busy with each for
// gap alpha + n beta seconds. Reducing n bytes into n other bytes takes the rank n gamma seconds.
//
// Source: Hockney, "The communication challenge for MPP", Parallel Computing 1994 (alpha, beta);
// Alexandrov, Ionescu, Schauser, Scheiman, "LogGP", SPAA 1995 (the gap).
struct LinkModel {
  double alpha = 13e-6;        // start-up of a message between nodes, seconds: TCP between two
                               // network namespaces of one host
  double beta = 0.84e-9;       // seconds per byte between nodes: 10 Gbit/s less TCP/IP's headers
  double gamma = 0.04e-9;      // seconds per byte of a reduction
  double alpha_intra = 2e-6;   // start-up inside a node, seconds: shared memory
  double beta_intra = 0.1e-9;  // seconds per byte inside a node
  // The share of alpha that occupies the port, a ratio from 0 to 1. At 1 a rank pays alpha for each
  // of its messages, one after another (the one-port model of textbooks). At 0 messages that start
  // together pay alpha once.
  double gap = 1;
  // How much longer messages take while every rank sends one and receives one: factors of alpha
  // (contention) and beta (contention_beta), ratios of at least 1. At 1 ranks do not slow each
  // other down; above, they share processors or a network link. They affect the choice of
  // algorithms, not the simulator.
  double contention = 1;
  double contention_beta = 1;  // ratio, at least 1: as contention, for beta

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

}  // namespace gradwire
