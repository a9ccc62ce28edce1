#include "switchd/config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "switchd/device.h"
#include "switchd/json_reader.h"
#include "switchd/memory_plan.h"
#include "switchd/text.h"
#include "wire/frame.h"
#include "wire/key_file.h"

namespace iswitch::switchd {
namespace {

using nlohmann::json;
using Errors = JsonErrors;

constexpr std::uint16_t min_mtu = 256;
constexpr std::uint16_t max_mtu = 9216;
constexpr std::size_t max_lcores = 16;
constexpr std::size_t max_ports = 32;  // RTE_MAX_ETHPORTS
constexpr std::uint32_t max_slots = 1u << 20;
constexpr std::uint16_t max_history = 64;

std::string in_quotes(std::string_view value) { return shown(json(std::string(value))); }

using Presence = JsonReader::Presence;

void read_milliseconds(JsonReader& object, const char* key, std::int64_t least, std::int64_t most,
                       Time& out) {
  std::int64_t number = 0;
  if (object.integer(key, least, most, number)) out = number * millisecond;
}

bool name_is_right(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= 32 && plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

constexpr std::string_view name_rule =
    "must be 1 to 32 letters, digits, '.', '_' or '-', the first a letter or digit";

bool address_is_unicast(wire::Ipv4 ip) {
  const std::uint32_t first = ip.value >> 24;
  return first != 0 && first != 127 && first < 224;
}

bool metrics_endpoint_is_right(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || !wire::parse_ipv4(endpoint.substr(0, colon))) return false;
  const std::string port = endpoint.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         port.find_first_not_of("0123456789") == std::string::npos && std::stoul(port) > 0 &&
         std::stoul(port) <= 65535;
}

void read_switch(const json& value, Config& config, Errors& errors) {
  JsonReader object(value, "/switch", errors);
  auto& address = config.address;
  object.string(
      "name", name_rule,
      [&](const std::string& name) {
        config.name = name;
        return name_is_right(name);
      },
      Presence::required);
  object.string(
      "ip", "must be a unicast IPv4 address such as \"10.77.0.254\"",
      [&](const std::string& ip) {
        const auto parsed = wire::parse_ipv4(ip);
        if (parsed) address.rules.ip = *parsed;
        return parsed && address_is_unicast(*parsed);
      },
      Presence::required);
  object.string(
      "mac", "must be a unicast MAC address such as \"02:00:00:00:00:fe\"",
      [&](const std::string& mac) {
        const auto parsed = wire::parse_mac(mac);
        if (parsed) address.mac = *parsed;
        return parsed && !parsed->is_group() && *parsed != wire::Mac{};
      },
      Presence::required);
  object.integer("udp_port", 1, 65535, address.rules.udp_port);
  unsigned data_dscp = address.rules.data_tos >> 2;
  unsigned control_dscp = address.rules.control_tos >> 2;
  object.integer("data_dscp", 0, 63, data_dscp);
  object.integer("control_dscp", 0, 63, control_dscp);
  if (data_dscp == control_dscp) {
    errors.push_back({"/switch/control_dscp", text(control_dscp), "must differ from data_dscp"});
  }
  address.rules.data_tos = static_cast<std::uint8_t>(data_dscp << 2);
  address.rules.control_tos = static_cast<std::uint8_t>(control_dscp << 2);
  std::int64_t mac_age = config.mac_age / second;
  if (object.integer("mac_age_s", 1, 86400, mac_age)) config.mac_age = mac_age * second;
}

PortConfig read_port(const json& value, const std::string& pointer, Errors& errors) {
  PortConfig port;
  JsonReader object(value, pointer, errors);
  object.string(
      "name", name_rule,
      [&](const std::string& name) {
        port.name = name;
        return name_is_right(name);
      },
      Presence::required);
  object.string(
      "device",
      "must be a DPDK device string such as \"net_af_packet0,iface=eth1\" or a PCI address such as "
      "\"0000:01:00.0\"",
      [&](const std::string& device) {
        port.device = device;
        return Device::parse(device).has_value();
      },
      Presence::required);
  object.integer("mtu", min_mtu, max_mtu, port.mtu);
  std::size_t transmit = 0;
  object.choice("transmit", {"auto", "chained", "copied"}, transmit);
  port.transmit = static_cast<TransmitMode>(transmit);
  return port;
}

void read_ports(const json& value, Config& config, Errors& errors) {
  if (!value.is_array() || value.empty() || value.size() > max_ports) {
    errors.push_back(
        {"/ports", shown(value), text("must be an array of 1 to ", max_ports, " ports")});
    return;
  }
  std::set<std::string> names;
  std::set<std::string> devices;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string pointer = text("/ports/", i);
    PortConfig port = read_port(value[i], pointer, errors);
    if (!port.name.empty() && !names.insert(port.name).second) {
      errors.push_back({pointer + "/name", in_quotes(port.name), "is another port's name too"});
    }
    if (const auto device = Device::parse(port.device)) {
      for (const std::string& identity : device->identities()) {
        if (!devices.insert(identity).second) {
          errors.push_back({pointer + "/device", in_quotes(port.device),
                            text("is another port's device too (", identity, ")")});
          break;
        }
      }
    }
    config.ports.push_back(std::move(port));
  }
}

void read_mode(JsonReader& object, control::JobConfig& job) {
  std::size_t mode = 0;
  object.choice("mode", {"sync", "async"}, mode);
  job.mode = mode == 0 ? wire::Mode::sync : wire::Mode::async;
}

void read_segment_bytes(JsonReader& object, const std::string& pointer, control::JobConfig& job,
                        const std::vector<PortConfig>& ports, Errors& errors) {
  constexpr std::int64_t least = wire::min_segment_bytes;
  constexpr std::int64_t most = wire::max_segment_bytes;
  const bool given = object.integer("segment_bytes", least, most, job.segment_bytes,
                                    Presence::optional, ", a multiple of 32");
  if (given && job.segment_bytes % 32 != 0) {
    errors.push_back({pointer + "/segment_bytes", text(job.segment_bytes),
                      text("must be a multiple of 32 from ", least, " to ", most)});
    return;
  }
  for (const PortConfig& port : ports) {
    if (port.mtu >= wire::mtu_for_segment(job.segment_bytes)) continue;
    errors.push_back({pointer + "/segment_bytes", text(job.segment_bytes),
                      text("needs an MTU of ", wire::mtu_for_segment(job.segment_bytes), ", port ",
                           in_quotes(port.name), " has ", port.mtu)});
  }
}

void read_key(JsonReader& object, control::JobConfig& job) {
  const json* path = object.find("key_file");
  if (path == nullptr || path->is_null()) return;
  constexpr std::string_view allowed = "must be a file's path or null";
  if (!path->is_string() || path->get_ref<const std::string&>().empty()) {
    return object.error(object.at("key_file"), *path, allowed);
  }
  const std::string problem = wire::read_key_file(path->get_ref<const std::string&>(), job.key);
  if (!problem.empty()) object.error(object.at("key_file"), *path, problem);
}

control::JobConfig read_job(const json& value, const std::string& pointer,
                            const std::vector<PortConfig>& ports, bool child, Errors& errors) {
  control::JobConfig job;
  JsonReader object(value, pointer, errors);
  object.integer("id", 0, 65535, job.id, Presence::required);
  const bool members =
      object.integer("members", 1, wire::max_members, job.members, Presence::required);
  read_mode(object, job);
  object.integer("slots", 1, max_slots, job.slots);
  read_segment_bytes(object, pointer, job, ports, errors);
  object.integer("threshold", 0, members ? job.members : wire::max_members, job.threshold,
                 Presence::optional, " (0 follows the number of members)");
  object.integer_or_null("history", 1, max_history, job.history);
  object.integer_or_null("base_round", 0, UINT32_MAX, job.base_round);
  if (child && job.base_round)
    errors.push_back({pointer + "/base_round", text(*job.base_round),
                      "must be null at a switch with a parent, which gives it"});
  object.boolean("udp_checksum", job.udp_checksum);
  read_key(object, job);
  read_milliseconds(object, "force_after_ms", 0, 3'600'000, job.force_after);
  object.boolean("evict_silent", job.evict_silent);
  read_milliseconds(object, "member_timeout_ms", 10, 86'400'000, job.member_timeout);
  return job;
}

void read_jobs(const json& value, bool child, Config& config, Errors& errors) {
  if (!value.is_array()) {
    errors.push_back({"/jobs", shown(value), "must be an array of jobs (it may be empty)"});
    return;
  }
  std::set<wire::JobId> ids;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string pointer = text("/jobs/", i);
    const std::size_t before = errors.size();
    control::JobConfig job = read_job(value[i], pointer, config.ports, child, errors);
    const bool id_is_right =
        value[i].is_object() && value[i].contains("id") &&
        std::none_of(errors.begin() + static_cast<std::ptrdiff_t>(before), errors.end(),
                     [&](const JsonError& error) { return error.pointer == pointer + "/id"; });
    if (id_is_right && !ids.insert(job.id).second) {
      errors.push_back({pointer + "/id", text(job.id), "is another job's id too"});
    }
    config.jobs.push_back(std::move(job));
  }
}

/// After switch and ports: the parent is another address, behind one of the ports.
void read_parent(const json& value, Config& config, Errors& errors) {
  if (value.is_null()) return;
  JsonReader object(value, "/parent", errors);
  control::ParentConfig parent;
  parent.ip = {};
  const bool has_ip = object.string(
      "ip", "must be the parent switch's unicast IPv4 address such as \"10.77.0.253\"",
      [&](const std::string& ip) {
        const auto parsed = wire::parse_ipv4(ip);
        if (parsed) parent.ip = *parsed;
        return parsed && address_is_unicast(*parsed);
      },
      Presence::required);
  if (has_ip && parent.ip == config.address.rules.ip)
    errors.push_back({"/parent/ip", in_quotes(wire::to_string(parent.ip)),
                      "is this switch's own address (/switch/ip)"});
  std::string names;
  for (const PortConfig& port : config.ports) names += text(' ', in_quotes(port.name));
  object.string(
      "port", text("must be the name of the port that leads to the parent, one of:", names),
      [&](const std::string& name) {
        const auto found = std::find_if(config.ports.begin(), config.ports.end(),
                                        [&](const PortConfig& port) { return port.name == name; });
        parent.port = static_cast<datapath::PortId>(found - config.ports.begin());
        return found != config.ports.end();
      },
      Presence::required);
  object.integer("udp_port", 1, 65535, parent.udp_port);
  if (const json* mac = object.find("mac"); mac != nullptr && !mac->is_null()) {
    object.string("mac",
                  "must be the parent's unicast MAC address, or null: switchd finds it by ARP",
                  [&](const std::string& address) {
                    parent.mac = wire::parse_mac(address);
                    return parent.mac && !parent.mac->is_group() && *parent.mac != wire::Mac{} &&
                           *parent.mac != config.address.mac;
                  });
  }
  config.parent = parent;
}

void read_lcores(const json& value, Config& config, Errors& errors) {
  if (value == "auto") return;
  const std::string allowed = text("must be \"auto\" or an array of 1 to ", max_lcores,
                                   " different CPU numbers, each of which runs a packet loop");
  const bool numbers = value.is_array() && !value.empty() && value.size() <= max_lcores &&
                       std::all_of(value.begin(), value.end(), [](const json& cpu) {
                         return cpu.is_number_unsigned() && cpu.get<std::uint64_t>() <= 1023;
                       });
  const std::set<json> different =
      numbers ? std::set<json>(value.begin(), value.end()) : std::set<json>();
  if (!numbers || different.size() != value.size()) {
    errors.push_back({"/lcores", shown(value), allowed});
    return;
  }
  for (const json& cpu : value) config.poller_cpus.push_back(cpu.get<std::uint16_t>());
}

void read_memory(const json& value, Config& config, Errors& errors) {
  if (value == "auto") return;
  if (!value.is_object()) {
    errors.push_back({"/memory", shown(value), "must be \"auto\" or an object"});
    return;
  }
  JsonReader object(value, "/memory", errors);
  if (const json* huge = object.find("huge_pages"); huge != nullptr && *huge != "auto") {
    if (huge->is_boolean()) {
      config.memory.huge_pages = huge->get<bool>();
    } else {
      object.error(object.at("huge_pages"), *huge, "must be \"auto\", true or false");
    }
  }
  object.integer_or_null("frame_buffers", 512, 1 << 24, config.memory.frame_buffers);
  object.integer_or_null("payload_buffers", 64, 1 << 24, config.memory.payload_buffers);
}

void read_admin(const json& value, Config& config, Errors& errors) {
  JsonReader object(value, "/admin", errors);
  object.string("socket", "must be an absolute path of at most 107 bytes",
                [&](const std::string& path) {
                  config.admin_socket = path;
                  return path.size() > 1 && path.size() <= 107 && path.front() == '/' &&
                         path.find('\0') == std::string::npos;
                });
  if (const json* metrics = object.find("metrics"); metrics != nullptr && !metrics->is_null()) {
    object.string("metrics", "must be null or ADDRESS:PORT such as \"127.0.0.1:9477\"",
                  [&](const std::string& endpoint) {
                    config.metrics = endpoint;
                    return metrics_endpoint_is_right(endpoint);
                  });
  }
}

void read_log(const json& value, Config& config, Errors& errors) {
  JsonReader object(value, "/log", errors);
  auto level = static_cast<std::size_t>(config.log_level);
  object.choice("level", {"trace", "debug", "info", "warning", "error"}, level);
  config.log_level = static_cast<LogLevel>(level);
}

void check_memory(const Config& config, Errors& errors) {
  if (!config.memory.payload_buffers) return;
  const std::uint64_t needed = payload_buffers_needed(config.jobs, config.parent.has_value());
  if (*config.memory.payload_buffers >= needed) return;
  errors.push_back({"/memory/payload_buffers", text(*config.memory.payload_buffers),
                    text("the jobs need ", needed,
                         " (slots x (1 + history) each, an asynchronous one at a switch with a "
                         "parent slots x (2 + history))")});
}

Config read_config(const json& root, Errors& errors) {
  Config config;
  JsonReader object(root, "", errors);
  if (!root.is_object()) return config;
  if (const json* value = object.required("switch", "an object with name, ip and mac")) {
    read_switch(*value, config, errors);
  }
  if (const json* value = object.required("ports", "an array of ports")) {
    read_ports(*value, config, errors);
  }
  if (const json* value = object.required("jobs", "an array of jobs (it may be empty)")) {
    const auto parent = root.find("parent");
    read_jobs(*value, parent != root.end() && !parent->is_null(), config, errors);
  }
  if (const json* value = object.find("parent")) read_parent(*value, config, errors);
  if (const json* value = object.find("lcores")) read_lcores(*value, config, errors);
  if (const json* value = object.find("memory")) read_memory(*value, config, errors);
  std::size_t poll = 0;
  object.choice("poll", {"adaptive", "busy"}, poll);
  config.poll_busy = poll == 1;
  read_milliseconds(object, "idle_after_ms", 0, 60'000, config.idle_after);
  if (const json* value = object.find("admin")) read_admin(*value, config, errors);
  if (const json* value = object.find("log")) read_log(*value, config, errors);
  if (errors.empty()) check_memory(config, errors);
  return config;
}

}  // namespace

std::uint32_t largest_segment(const std::vector<PortConfig>& ports) {
  std::uint32_t mtu = max_mtu;
  for (const PortConfig& port : ports) mtu = std::min<std::uint32_t>(mtu, port.mtu);
  return wire::largest_segment(mtu);
}

Loaded<Config> parse_config(std::string_view text) {
  Loaded<Config> loaded;
  if (const auto root = parse_json(text, "", loaded.errors)) {
    loaded.value = read_config(*root, loaded.errors);
  }
  return loaded;
}

Loaded<Config> load_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf())) {
    Loaded<Config> loaded;
    loaded.errors.push_back({"", "", text("config file ", path, " cannot be read or is empty")});
    return loaded;
  }
  return parse_config(contents.str());
}

Loaded<control::JobConfig> parse_job(std::string_view text, std::string_view pointer,
                                     const std::vector<PortConfig>& ports, bool child) {
  Loaded<control::JobConfig> loaded;
  if (const auto root = parse_json(text, pointer, loaded.errors)) {
    loaded.value = read_job(*root, std::string(pointer), ports, child, loaded.errors);
  }
  return loaded;
}

}  // namespace iswitch::switchd
