#include "apps/fetch/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/text.h"

namespace gradwire {

Result<std::string> sha256_of_file(const std::string& path) {
  GW_ASSIGN(const File file, open_to_read(path));
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
