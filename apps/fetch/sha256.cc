#include "apps/fetch/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/text.h"

namespace gradwire {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return Status(Code::kInvalidArgument, "cannot read '" + path + "': " + std::strerror(errno));
  }
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  bool fine = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::array<char, 65536> chunk{};
  for (std::size_t got = 1; fine && got > 0;) {
    got = std::fread(chunk.data(), 1, chunk.size(), file.get());
    fine = EVP_DigestUpdate(context.get(), chunk.data(), got) == 1;
  }
  fine = fine && std::ferror(file.get()) == 0 &&
         EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1;
  if (!fine) return Status(Code::kInternal, "cannot compute the sha256 of '" + path + "'");
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += format("%02x", digest[i]);
  return text;
}

}  // namespace gradwire
