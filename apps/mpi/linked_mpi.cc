#include "apps/mpi/linked_mpi.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/text.h"
#include "comm/rendezvous/socket.h"

namespace gradwire {
namespace {

using rendezvous::Fd;

// "/lib64/ld-linux-x86-64.so.2", from the program's own header; "" where it has none.
std::string loader_of(const std::string& path) {
  if (!check_readable(path).ok()) return "";
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  const bool elf = file && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                   header.e_ident[EI_CLASS] == ELFCLASS64 &&
                   header.e_phentsize == sizeof(Elf64_Phdr);
  for (int i = 0; elf && i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof part));
    file.read(reinterpret_cast<char*>(&part), sizeof part);
    if (!file) return "";
    if (part.p_type != PT_INTERP || part.p_filesz < 2 || part.p_filesz > 4096) continue;
    std::string loader(part.p_filesz - 1, '\0');
    file.seekg(static_cast<std::streamoff>(part.p_offset));
    file.read(loader.data(), static_cast<std::streamsize>(loader.size()));
    return file ? loader : "";
  }
  return "";
}

// What `loader --list path` prints.
Result<std::string> list_of(const std::string& loader, const std::string& path) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Status(Code::kInternal, format("cannot make a pipe (%s)", std::strerror(errno)));
  const Fd out(ends[0]);
  Fd in(ends[1]);
  const pid_t child = ::fork();
  if (child < 0)
    return Status(Code::kInternal, format("cannot start a process (%s)", std::strerror(errno)));
  if (child == 0) {
    ::unsetenv("LD_PRELOAD");
    if (::dup2(in.get(), STDOUT_FILENO) == STDOUT_FILENO)
      ::execl(loader.c_str(), loader.c_str(), "--list", path.c_str(), nullptr);
    ::_exit(127);
  }
  in = Fd();
  std::string text;
  std::array<char, 4096> chunk{};
  ssize_t got = 0;
  do {
    got = ::read(out.get(), chunk.data(), chunk.size());
    if (got > 0) text.append(chunk.data(), static_cast<std::size_t>(got));
  } while (got > 0 || (got < 0 && errno == EINTR));
  (void)::waitpid(child, nullptr, 0);
  return text;
}

// MPICH and what has its binary interface (Intel MPI, MVAPICH) is libmpi.so.12 or, on Debian,
// libmpich.so.12; Open MPI's libmpi has had other numbers since 2010: 0 to 1, 12 of its series 1.10
// alone, 20 and 40.
std::string kind_of(const std::string& library) {
  if (library.starts_with("libmpich.so")) return "mpich";
  if (library == "libmpi.so.12") return "mpich";
  if (library.starts_with("libmpi.so")) return "openmpi";
  return "";
}

}  // namespace

Result<LinkedMpi> mpi_among(const std::vector<std::string>& libraries) {
  LinkedMpi found;
  for (const std::string& library : libraries) {
    const std::string kind = kind_of(library);
    if (kind.empty() || kind == found.name) continue;
    if (!found.name.empty())
      return Status(Code::kInvalidArgument, "the program links two MPIs (got " + found.library +
                                                " and " + library + ", expected one)");
    found = {kind, library};
  }
  return found;
}

Result<LinkedMpi> linked_mpi(const std::string& path) {
  const std::string loader = loader_of(path);
  if (loader.empty()) return LinkedMpi();
  GW_ASSIGN(const std::string text, list_of(loader, path));
  std::vector<std::string> libraries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    if (words >> first) libraries.push_back(first.substr(first.rfind('/') + 1));
  }
  return mpi_among(libraries);
}

}  // namespace gradwire
