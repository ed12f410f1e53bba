// What this host's kernel says about another process.
#pragma once

#include <sys/types.h>

#include <string>

namespace gradwire::comm {

// Of this boot of the machine; empty where the system does not say.
std::string boot_id();
// "pid:[4026531836]": this process's namespace of that kind; empty where there is none.
std::string name_space(const char* kind);

// Equal for two processes only if a process number means the same to both: same boot of the same
// machine, same process namespace. One word; "-" where the system does not say.
std::string process_space();

// It is stopped, a zombie, or there is no such process (any more). False also where the kernel does
// not tell.
bool has_ended_or_stopped(pid_t pid);

}  // namespace gradwire::comm
