#include "adapters/launch/sides.h"

#include <memory>
#include <span>
#include <string>

#include "comm/rendezvous/exchange.h"
#include "comm/rendezvous/socket.h"

namespace gradwire::launch {
namespace {

ConstByteSpan bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TakeToken tokens_of(std::shared_ptr<KeyValueStore> store, const std::string& job) {
  return [store = std::move(store), job](const std::string& name, const std::string& holder,
                                         Deadline until) -> Result<std::string> {
    const std::string key = job + "/" + name;
    const Status taken = store->set(key, bytes_of(holder), until);
    if (taken.ok()) return holder;
    // It has another holder, or the store cannot be reached: then neither can this.
    const auto held = store->get(key, until);
    if (!held.has_value()) return taken;
    return std::string(reinterpret_cast<const char*>(held.value().data()), held.value().size());
  };
}

// The agent's store outlives the ranks that it starts again, and `job` may be the same then.
TakeToken tokens_of_agent(const rendezvous::HostPort& where, const std::string& job,
                          const EnvLookup& env) {
  const std::string life = env("TORCHELASTIC_RUN_ID").value_or("none") + "/" +
                           env("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return [where, space = life + "/" + job](const std::string& name, const std::string& holder,
                                           Deadline until) {
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
  if (const auto place = env("GRADWIRE_LAUNCHER_STORE"); place && !place->empty()) {
    if (!place->starts_with(kFile) || place->size() == kFile.size()) {
      return Status(Code::kInvalidArgument, "bad value for GRADWIRE_LAUNCHER_STORE ('" + *place +
                                                "' seen; file://DIRECTORY wanted)");
    }
    GW_ASSIGN(auto store, make_file_store(place->substr(kFile.size()), rendezvous.secret));
    return tokens_of(std::move(store), rendezvous.job);
  }
  const auto agent = agent_of(env);
  if (!agent) return TakeToken();
  GW_ASSIGN(const rendezvous::HostPort where, rendezvous::parse_host_port(*agent));
  return tokens_of_agent(where, rendezvous.job, env);
}

}  // namespace

Status choose_side_rule(CommunicatorOptions& options, const Rendezvous& rendezvous,
                        const EnvLookup& env) {
  if (const auto lone = env("GRADWIRE_ALLOW_LONE_SURVIVOR")) {
    if (*lone != "0" && *lone != "1") {
      return {Code::kInvalidArgument,
              "bad value for GRADWIRE_ALLOW_LONE_SURVIVOR ('" + *lone + "' seen; 0 or 1 wanted)"};
    }
    options.allow_lone_survivor = *lone == "1";
  }
  if (options.take_token) return {};
  GW_ASSIGN(options.take_token, tokens(rendezvous, env));
  return {};
}

}  // namespace gradwire::launch
