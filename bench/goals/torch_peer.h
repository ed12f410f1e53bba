// PyTorch in a process of its own, which works when it is asked to.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>

namespace gradwire::bench {

class TorchPeer {
 public:
  // Runs "PYTHON SCRIPT serve ELEMENTS" (bench/peers/codec_torch.py). Null, with a line on stderr,
  // where there is no torch.
  static std::unique_ptr<TorchPeer> start(const std::string& python, const std::string& script,
                                          std::size_t elements);
  ~TorchPeer();
  TorchPeer(const TorchPeer&) = delete;
  TorchPeer& operator=(const TorchPeer&) = delete;

  // How long it takes for the work of that name; exits the program when it gives no answer.
  double seconds(const char* name);

 private:
  TorchPeer(pid_t process, std::FILE* to, std::FILE* from)
      : process_(process), to_(to), from_(from) {}

  pid_t process_;
  std::FILE* to_;
  std::FILE* from_;
};

}  // namespace gradwire::bench
