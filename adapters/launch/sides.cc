#include "adapters/launch/sides.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous/exchange.h"
#include "comm/rendezvous/hmac.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::launch {
namespace {

ConstByteSpan bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Of this meeting of the ranks alone, the same on all. The launcher's store outlives them, and a
// job of this name, or these ranks once more, may have tokens in it.
Result<std::string> meeting_word(const Rendezvous& rendezvous) {
  constexpr std::string_view kKey = "sides/meeting";
  const Deadline until = deadline_in(rendezvous.timeout_seconds);
  if (rendezvous.rank == 0) {
    const std::string word = rendezvous::random_hex(8);
    GW_TRY(rendezvous.store->set(kKey, bytes_of(word), until));
    return word;
  }
  GW_ASSIGN(const std::vector<std::byte> word, rendezvous.store->get(kKey, until));
  return std::string(reinterpret_cast<const char*>(word.data()), word.size());
}

// Tokens have names below `space`.
TakeToken tokens_of(std::shared_ptr<KeyValueStore> store, const std::string& space) {
  return [store = std::move(store), space](const std::string& name, const std::string& holder,
                                           Deadline until) -> Result<std::string> {
    const std::string key = space + "/" + name;
    const Status taken = store->set(key, bytes_of(holder), until);
    if (taken.ok()) return holder;
    // It has another holder, or the store cannot be reached: then neither can this.
    const auto held = store->get(key, until);
    if (!held.has_value()) return taken;
    return std::string(reinterpret_cast<const char*>(held.value().data()), held.value().size());
  };
}

TakeToken tokens_of_agent(const rendezvous::HostPort& where, const std::string& space) {
  return [where, space](const std::string& name, const std::string& holder, Deadline until) {
    return rendezvous::first_over_torch(where, space + "/" + name, holder, until);
  };
}

// "host:port" of the store of torchrun's elastic agent; nullopt under another launcher.
std::optional<std::string> agent_of(const EnvLookup& env) {
  if (env("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True") return std::nullopt;
  const auto host = env("MASTER_ADDR"), port = env("MASTER_PORT");
  if (!host || !port || host->empty()) return std::nullopt;
  const bool v6 = host->find(':') != std::string::npos && host->front() != '[';
  return (v6 ? "[" + *host + "]" : *host) + ":" + *port;
}

Result<TakeToken> tokens(const Rendezvous& rendezvous, const EnvLookup& env) {
  constexpr std::string_view kFile = "file://";
  const std::string place = env("GRADWIRE_LAUNCHER_STORE").value_or("");
  if (!place.empty() && (!place.starts_with(kFile) || place.size() == kFile.size())) {
    return Status(Code::kInvalidArgument, "bad value for GRADWIRE_LAUNCHER_STORE (got '" + place +
                                              "', expected file://DIRECTORY)");
  }
  const auto agent = agent_of(env);
  // One rank has nobody to lose.
  if ((place.empty() && !agent) || rendezvous.store == nullptr) return TakeToken();
  GW_ASSIGN(const std::string word, meeting_word(rendezvous));
  const std::string space = rendezvous.job + "/" + word;
  if (!place.empty()) {
    GW_ASSIGN(auto store, make_file_store(place.substr(kFile.size()), rendezvous.secret));
    return tokens_of(std::move(store), space);
  }
  GW_ASSIGN(const rendezvous::HostPort where, rendezvous::parse_host_port(*agent));
  return tokens_of_agent(where, space);
}

}  // namespace

Status choose_side_rule(CommunicatorOptions& options, const Rendezvous& rendezvous,
                        const EnvLookup& env) {
  if (const auto lone = env("GRADWIRE_ALLOW_LONE_SURVIVOR")) {
    if (*lone != "0" && *lone != "1") {
      return {Code::kInvalidArgument,
              "bad value for GRADWIRE_ALLOW_LONE_SURVIVOR (got '" + *lone + "', expected 0 or 1)"};
    }
    options.allow_lone_survivor = *lone == "1";
  }
  if (options.take_token) return {};
  GW_ASSIGN(options.take_token, tokens(rendezvous, env));
  return {};
}

}  // namespace gradwire::launch
