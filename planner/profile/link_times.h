// What a profile knows of exchanges and messages over one transport, besides their bytes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "planner/profile/profile.h"

namespace gradwire {

class LinkTimes {
 public:
  // Of `transport`; where nothing was measured all is 0.
  LinkTimes(const Profile& profile, const std::string& transport);

  // Whether exchanges or messages were measured.
  bool any() const { return !exchanges_.empty() || waits_ > 0 || send_ > 0; }
  // Seconds of an aggregator's step of one bucket between two ranks, by the compressor's canonical
  // text (Compressor::spec()). nullopt where it was not measured.
  std::optional<double> exchange(const std::string& compressor, double elems) const;
  // Seconds that each more bucket takes, of next to no elements.
  double bucket() const { return bucket_; }
  // Seconds by which a message that is waited for is later than the link's latency.
  double waits() const { return waits_; }
  // Seconds of the sender's processor.
  double send() const { return send_; }
  // What the link itself was measured to take between the two ranks: seconds a message, and of the
  // processor a byte.
  double latency() const { return latency_; }
  double processor() const { return processor_; }

 private:
  std::map<std::string, MeasuredTimes> exchanges_;  // by the canonical text
  double bucket_ = 0;
  double waits_ = 0;
  double send_ = 0;
  double latency_ = 0;
  double processor_ = 0;
};

}  // namespace gradwire
