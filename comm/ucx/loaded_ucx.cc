// UCX without linking it, for a library that must load where there is none: each of its functions
// that gradwire calls is defined here and passes the call on to the loaded one. UCX's ABI is stable
// within its major version, and structs carry masks of the fields that they have.
#include <dlfcn.h>
#include <ucp/api/ucp.h>
#include <ucs/async/async_fwd.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <string>

#include "comm/ucx/ucx_transport.h"

// Every function: library, result, name, parameters, arguments.
// clang-format off
#define GW_UCX_FUNCTIONS(F)                                                                        \
  F(ucp, ucs_status_ptr_t, ucp_am_send_nbx, (ucp_ep_h a, unsigned b, const void* c, size_t d,      \
      const void* e, size_t f, const ucp_request_param_t* g), (a, b, c, d, e, f, g))               \
  F(ucp, void, ucp_cleanup, (ucp_context_h a), (a))                                                \
  F(ucp, ucs_status_t, ucp_config_modify, (ucp_config_t* a, const char* b, const char* c),         \
      (a, b, c))                                                                                   \
  F(ucp, void, ucp_config_print, (const ucp_config_t* a, FILE* b, const char* c,                   \
      ucs_config_print_flags_t d), (a, b, c, d))                                                   \
  F(ucp, ucs_status_t, ucp_config_read, (const char* a, const char* b, ucp_config_t** c),          \
      (a, b, c))                                                                                   \
  F(ucp, void, ucp_config_release, (ucp_config_t* a), (a))                                         \
  F(ucp, ucs_status_t, ucp_context_query, (ucp_context_h a, ucp_context_attr_t* b), (a, b))        \
  F(ucp, ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h a, const ucp_request_param_t* b), (a, b))   \
  F(ucp, ucs_status_t, ucp_ep_create, (ucp_worker_h a, const ucp_ep_params_t* b, ucp_ep_h* c),     \
      (a, b, c))                                                                                   \
  F(ucp, void, ucp_ep_print_info, (ucp_ep_h a, FILE* b), (a, b))                                   \
  F(ucp, void, ucp_get_version, (unsigned* a, unsigned* b, unsigned* c), (a, b, c))                \
  F(ucp, ucs_status_t, ucp_init_version, (unsigned a, unsigned b, const ucp_params_t* c,           \
      const ucp_config_t* d, ucp_context_h* e), (a, b, c, d, e))                                   \
  F(ucp, void, ucp_request_cancel, (ucp_worker_h a, void* b), (a, b))                              \
  F(ucp, void, ucp_request_free, (void* a), (a))                                                   \
  F(ucp, ucp_tag_message_h, ucp_tag_probe_nb, (ucp_worker_h a, ucp_tag_t b, ucp_tag_t c, int d,   \
      ucp_tag_recv_info_t* e), (a, b, c, d, e))                                                    \
  F(ucp, ucs_status_ptr_t, ucp_tag_recv_nbx, (ucp_worker_h a, void* b, size_t c, ucp_tag_t d,      \
      ucp_tag_t e, const ucp_request_param_t* f), (a, b, c, d, e, f))                              \
  F(ucp, ucs_status_ptr_t, ucp_tag_send_nbx, (ucp_ep_h a, const void* b, size_t c, ucp_tag_t d,    \
      const ucp_request_param_t* e), (a, b, c, d, e))                                              \
  F(ucp, ucs_status_t, ucp_worker_arm, (ucp_worker_h a), (a))                                      \
  F(ucp, ucs_status_t, ucp_worker_create, (ucp_context_h a, const ucp_worker_params_t* b,          \
      ucp_worker_h* c), (a, b, c))                                                                 \
  F(ucp, void, ucp_worker_destroy, (ucp_worker_h a), (a))                                          \
  F(ucp, ucs_status_t, ucp_worker_get_address, (ucp_worker_h a, ucp_address_t** b, size_t* c),     \
      (a, b, c))                                                                                   \
  F(ucp, ucs_status_t, ucp_worker_get_efd, (ucp_worker_h a, int* b), (a, b))                       \
  F(ucp, unsigned, ucp_worker_progress, (ucp_worker_h a), (a))                                     \
  F(ucp, void, ucp_worker_release_address, (ucp_worker_h a, ucp_address_t* b), (a, b))             \
  F(ucp, ucs_status_t, ucp_worker_set_am_recv_handler, (ucp_worker_h a,                            \
      const ucp_am_handler_param_t* b), (a, b))                                                    \
  F(ucs, ucs_status_t, ucs_async_remove_handler, (int a, int b), (a, b))                           \
  F(ucs, ucs_status_t, ucs_async_set_event_handler, (ucs_async_mode_t a, int b,                    \
      ucs_event_set_types_t c, ucs_async_event_cb_t d, void* e, ucs_async_context_t* f),           \
      (a, b, c, d, e, f))                                                                          \
  F(ucs, void, ucs_debug_disable_signal, (int a), (a))                                             \
  F(ucs, ucs_status_t, ucs_global_opts_get_value, (const char* a, char* b, size_t c), (a, b, c))   \
  F(ucs, ucs_status_t, ucs_global_opts_set_value, (const char* a, const char* b), (a, b))          \
  F(ucs, const char*, ucs_status_string, (ucs_status_t a), (a))                                    \
  GW_UCX_QUERY(F)
#if UCP_API_VERSION >= UCP_VERSION(1, 15)
#define GW_UCX_QUERY(F)                                                                            \
  F(ucp, ucs_status_t, ucp_ep_query, (ucp_ep_h a, ucp_ep_attr_t* b), (a, b))
#else
#define GW_UCX_QUERY(F)
#endif
// clang-format on

namespace gradwire::ucx {
namespace {

constexpr const char* kUcp = "libucp.so.0";
constexpr const char* kUcs = "libucs.so.0";

// The loaded ones. Never closed: UCX leaves threads and hooks behind.
struct Functions {
#define GW_MEMBER(library, result, name, parameters, arguments) decltype(&::name) name = nullptr;
  GW_UCX_FUNCTIONS(GW_MEMBER)
#undef GW_MEMBER
  Status status;

  Functions() : status(find()) {}
  Status find();
};

Status cannot(const std::string& what) {
  const char* why = dlerror();
  return {Code::kUnsupported, "ucx: cannot load " + what + " (" + (why == nullptr ? "?" : why) +
                                  "); install UCX 1.13 or later (Debian and Ubuntu: the package "
                                  "libucx0), or use transport tcp, which needs none"};
}

template <typename Function>
bool find_in(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Status Functions::find() {
  void* const ucp = dlopen(kUcp, RTLD_NOW | RTLD_LOCAL);
  if (ucp == nullptr) return cannot(kUcp);
  void* const ucs = dlopen(kUcs, RTLD_NOW | RTLD_LOCAL);
  if (ucs == nullptr) return cannot(kUcs);
#define GW_FIND(library, result, name, parameters, arguments) \
  if (!find_in(library, #name, name)) return cannot(#name);
  GW_UCX_FUNCTIONS(GW_FIND)
#undef GW_FIND
  return {};
}

const Functions& functions() {
  static const Functions loaded;
  return loaded;
}

}  // namespace

Status load() { return functions().status; }

}  // namespace gradwire::ucx

extern "C" {
#define GW_PASS_ON(library, result, name, parameters, arguments) \
  result name parameters { return gradwire::ucx::functions().name arguments; }
GW_UCX_FUNCTIONS(GW_PASS_ON)
#undef GW_PASS_ON
}
