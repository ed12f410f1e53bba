#include "comm/ucx/inspection.h"

#include <uct/api/uct.h>

#include "base/text.h"
#include "comm/ucx/settings.h"
#include "comm/ucx/worker.h"

namespace gradwire::ucx {
namespace {

std::string kind_name(uct_device_type_t type) {
  switch (type) {
    case UCT_DEVICE_TYPE_NET: return "network";
    case UCT_DEVICE_TYPE_SHM: return "shared memory";
    case UCT_DEVICE_TYPE_ACC: return "accelerator";
    case UCT_DEVICE_TYPE_SELF: return "self";
    default: return "other";
  }
}

void add_transports(uct_component_h component, const char* domain, Inspection& found) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return;  // a device that is not there, or may not be used
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i)
      found.transports.push_back(
          {resources[i].tl_name, resources[i].dev_name, kind_name(resources[i].dev_type)});
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(md);
}

void add_component(uct_component_h component, Inspection& found) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (domains.empty() || uct_component_query(component, &attributes) != UCS_OK) return;
  for (const uct_md_resource_desc_t& domain : domains)
    add_transports(component, domain.md_name, found);
}

void add_all_transports(Inspection& found) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return;
  for (unsigned i = 0; i < count; ++i) add_component(components[i], found);
  uct_release_component_list(components);
}

}  // namespace

Result<Inspection> inspect(const std::string& interfaces) {
  release_signals();
  Inspection found{.header_version = format("%d.%d", UCP_API_MAJOR, UCP_API_MINOR),
                   .running_version = library_version()};
  GW_ASSIGN(const auto worker, Worker::make({interfaces}));
  add_all_transports(found);
  found.memory_types = memory_types(worker->context());
  found.cuda_direct = worker->cuda().direct;
  found.cuda_why = worker->cuda().why;
  for (const Setting& setting : worker->settings())
    found.settings.push_back(
        {setting.variable, setting.value, std::string(to_string(setting.source)), setting.why});
  for (const std::string& name : worker->devices().taken) found.devices.push_back({name, ""});
  for (const DeviceChoice::Left& left : worker->devices().left)
    found.devices.push_back({left.name, left.reason});
  return found;
}

}  // namespace gradwire::ucx
