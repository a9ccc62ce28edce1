#include "switchd/admin/commands.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "switchd/admin/counters.h"
#include "switchd/dataplane/machine.h"
#include "switchd/log.h"
#include "switchd/text.h"
#include "switchd/version.h"

namespace iswitch::switchd {
namespace {

using nlohmann::json;

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::int64_t age_ms(Time now, Time then) { return std::max<Time>(now - then, 0) / millisecond; }

json bits(std::uint64_t mask) {
  json out = json::array();
  for (unsigned i = 0; i < 64; ++i) {
    if ((mask >> i & 1) != 0) out.push_back(i);
  }
  return out;
}

const char* state_name(LcoreState state) {
  switch (state) {
    case LcoreState::polling:
      return "polling";
    case LcoreState::pausing:
      return "pausing";
    case LcoreState::yielding:
      return "yielding";
    case LcoreState::sleeping:
      return "sleeping";
  }
  return "unknown";
}

json pool_json(const rte_mempool* pool) {
  const PoolLevel now = level(pool);
  return {{"size", now.size}, {"free", now.free}};
}

/// The keys of one request. The first thing wrong is kept as its error.
class Request {
 public:
  explicit Request(const json& object) : object_(object) { known_ = {"command", "id"}; }

  const json* find(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  std::uint32_t integer(const char* key, std::uint32_t least, std::uint32_t most,
                        std::optional<std::uint32_t> absent = std::nullopt) {
    const json* value = find(key);
    if (value == nullptr && absent) return *absent;
    const bool right = value != nullptr && value->is_number_unsigned() &&
                       value->get<std::uint64_t>() >= least && value->get<std::uint64_t>() <= most;
    if (right) return static_cast<std::uint32_t>(value->get<std::uint64_t>());
    wrong(key, value, text("must be an integer from ", least, " to ", most));
    return least;
  }

  bool boolean(const char* key) {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    wrong(key, value, "must be true or false");
    return false;
  }

  wire::JobId job() { return static_cast<wire::JobId>(integer("job", 0, 65535)); }
  std::optional<wire::JobId> any_job() {
    if (find("job") == nullptr) return std::nullopt;
    return job();
  }

  void wrong(const char* key, const json* value, std::string_view problem) {
    if (!error_.empty()) return;
    error_ = value == nullptr ? text('/', key, ": is missing: ", problem)
                              : text('/', key, ": ", dump(*value).substr(0, 80), ": ", problem);
  }

  /// After the last key was asked for.
  std::string error() {
    for (const auto& [key, value] : object_.items()) {
      if (known_.count(key) != 0 || !error_.empty()) continue;
      error_ = text('/', key, ": is an unknown key of this command");
    }
    return error_;
  }

 private:
  const json& object_;
  std::set<std::string> known_;
  std::string error_;
};

}  // namespace

struct Commands::State {
  /// Of one request: gives the reply, now or later.
  class Reply {
   public:
    Reply(AdminServer::Respond respond, std::optional<json> id)
        : respond_(std::move(respond)), id_(std::move(id)) {}
    void ok(json body = json::object()) const {
      body["ok"] = true;
      send(std::move(body));
    }
    void error(const std::string& line) const { send({{"ok", false}, {"error", line}}); }
    /// How control says that an operator's act is done.
    control::OperatorDone done() const {
      return [reply = *this](const control::OperatorReply& outcome) {
        if (outcome.error.empty()) {
          reply.ok();
        } else {
          reply.error(outcome.error);
        }
      };
    }

   private:
    void send(json body) const {
      if (id_) body["id"] = *id_;
      respond_(dump(body));
    }
    AdminServer::Respond respond_;
    std::optional<json> id_;
  };

  using Command = void (State::*)(AdminServer::ClientId, Request&, const Reply&);

  explicit State(AdminParts given) : parts(std::move(given)) {}

  AdminParts parts;
  std::map<std::string, Command> commands{
      {"status", &State::status},
      {"ports", &State::ports},
      {"jobs", &State::jobs},
      {"members", &State::members},
      {"slots", &State::slots},
      {"counters", &State::counters},
      {"set-threshold", &State::set_threshold},
      {"force", &State::force},
      {"halt", &State::halt},
      {"resume", &State::resume},
      {"reset", &State::reset},
      {"remove-member", &State::remove_member},
      {"add-job", &State::add_job},
      {"remove-job", &State::remove_job},
      {"capture", &State::capture},
      {"pause", &State::pause},
  };

  void handle(AdminServer::ClientId client, const std::string& line,
              const AdminServer::Respond& respond) {
    const json root = json::parse(line, nullptr, false);
    if (!root.is_object()) return Reply(respond, {}).error("a request is one JSON object a line");
    const auto id = root.find("id");
    const Reply reply(respond, id == root.end() ? std::optional<json>() : *id);
    const auto name = root.find("command");
    const auto command = name != root.end() && name->is_string()
                             ? commands.find(name->get<std::string>())
                             : commands.end();
    if (command == commands.end()) {
      std::string known;
      for (const auto& entry : commands) known += text(known.empty() ? "" : ", ", entry.first);
      return reply.error(text("unknown command; \"command\" must be one of: ", known));
    }
    Request request(root);
    (this->*command->second)(client, request, reply);
  }

  /// Calls an operator's act of control and carries out what it wants.
  template <class Act>
  void act(Request& request, const Reply& reply, std::string_view what, const Act& call) {
    const std::string error = request.error();
    if (!error.empty()) return reply.error(error);
    log(LogLevel::info, "operator: ", what);
    control::Effects effects;
    call(monotonic_now(), effects);
    parts.carry_out(effects);
  }

  void pause(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    log(LogLevel::info, "operator: pause: ending, to come back");
    reply.ok();
    parts.pause();
  }

  // ---- asking

  void status(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    const Config& config = parts.config;
    const Dataplane& dataplane = parts.dataplane;
    const std::vector<control::JobView> jobs = parts.control.jobs();
    std::size_t up = 0;
    for (std::size_t i = 0; i < dataplane.ports().size(); ++i)
      up += dataplane.link(i) == Link::up ? 1 : 0;
    json lcores = json::array();
    for (std::size_t i = 0; i < dataplane.lcores().size(); ++i) {
      lcores.push_back({{"lcore", i + poller_lcore},
                        {"shard", i},
                        {"cpus", {dataplane.lcore_cpus()[i]}},
                        {"state", state_name(dataplane.lcores()[i]->state())},
                        {"busy_percent", parts.busy_percent[i]}});
    }
    const Pools& pools = dataplane.pools();
    reply.ok({{"name", config.name},
              {"version", version},
              {"pid", getpid()},
              {"uptime_ms", age_ms(monotonic_now(), parts.started_at)},
              {"ip", wire::to_string(config.address.rules.ip)},
              {"mac", wire::to_string(config.address.mac)},
              {"udp_port", config.address.rules.udp_port},
              {"shards", dataplane.lcores().size()},
              {"poll", config.poll_busy ? "busy" : "adaptive"},
              {"ports", dataplane.ports().size()},
              {"ports_up", up},
              {"jobs", jobs.size()},
              {"jobs_running", std::count_if(jobs.begin(), jobs.end(),
                                             [](const control::JobView& job) {
                                               return job.state == wire::JobState::running;
                                             })},
              {"parent", status_parent(jobs)},
              {"captures", parts.captures.size()},
              {"lcores", lcores},
              {"memory",
               {{"huge_pages", dataplane.huge_pages()},
                {"frame_buffers", pool_json(pools.frames.get())},
                {"payload_buffers", pool_json(pools.payloads.get())},
                {"header_buffers", pool_json(pools.headers.get())}}}});
  }

  void ports(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    json list = json::array();
    for (std::size_t i = 0; i < parts.dataplane.ports().size(); ++i) list.push_back(port_json(i));
    reply.ok({{"ports", list}});
  }

  json port_json(std::size_t i) const {
    const Port& port = *parts.dataplane.ports()[i];
    const Port::Statistics device = port.statistics();
    const auto sum = [&](pipeline::Tally PortCounters::*counter) {
      return port_sum(parts.dataplane, i, counter);
    };
    const std::uint64_t dropped = sum(&PortCounters::tx_full) + sum(&PortCounters::tx_link_down) +
                                  sum(&PortCounters::tx_oversized) +
                                  sum(&PortCounters::tx_no_buffer);
    const std::string interface = port.interface();
    return {{"name", port.config().name},
            {"device", port.config().device},
            {"mtu", port.config().mtu},
            {"mac", device.mac.empty() ? json() : json(device.mac)},
            {"interface", interface.empty() ? json() : json(interface)},
            {"link", link_name(parts.dataplane.link(i))},
            {"speed_mbps", device.speed_mbps == 0 ? json() : json(device.speed_mbps)},
            {"transmit", port.traits().chained ? "chained" : "copied"},
            {"checksum", port.traits().verifies_checksums ? "hardware" : "software"},
            {"rx_frames", sum(&PortCounters::rx_frames)},
            {"rx_bytes", sum(&PortCounters::rx_bytes)},
            {"tx_frames", sum(&PortCounters::tx_frames)},
            {"tx_bytes", sum(&PortCounters::tx_bytes)},
            {"rx_missed", device.rx_missed},
            {"rx_errors", device.rx_errors},
            {"rx_no_buffer", device.rx_no_buffer},
            {"tx_errors", device.tx_errors},
            {"tx_dropped", dropped}};
  }

  void jobs(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    json list = json::array();
    for (const control::JobView& job : parts.control.jobs()) {
      const control::JobConfig& config = job.config;
      list.push_back({{"id", config.id},
                      {"state", wire::job_state_name(job.state)},
                      {"mode", config.mode == wire::Mode::sync ? "sync" : "async"},
                      {"members_now", job.members.size()},
                      {"members_expected", config.members},
                      {"threshold", job.threshold},
                      {"threshold_wanted", job.threshold_wanted},
                      {"history", job.history},
                      {"slots", job.spec.slots},
                      {"segment_bytes", job.spec.segment_bytes},
                      {"base_round", job.base_round},
                      {"udp_checksum", config.udp_checksum},
                      {"key", has_key(config.id)},
                      {"force_after_ms", config.force_after / millisecond},
                      {"evict_silent", config.evict_silent},
                      {"member_timeout_ms", config.member_timeout / millisecond},
                      {"parent", job.parent ? parent_json(*job.parent) : json()},
                      {"stream", job.stream ? stream_json(*job.stream) : json()},
                      {"fault", job.fault.empty() ? json() : json(job.fault)}});
    }
    reply.ok({{"jobs", list}});
  }

  /// What became of the job's stream when members came back after a restart.
  static json stream_json(const control::StreamView& stream) {
    json out{{"goes_on", stream.resumed.goes_on()}, {"origin", stream.origin}};
    if (!stream.resumed.goes_on()) out["reason"] = wire::fresh_reason_name(stream.resumed.fresh);
    if (stream.at) {
      out["first"] = stream.at->first;
      out["end"] = stream.at->end;
    }
    return out;
  }

  /// How a job stands with its parent.
  json parent_json(const control::ParentView& parent) const {
    const Time now = monotonic_now();
    return {{"ip", wire::to_string(parent.config.ip)},
            {"udp_port", parent.config.udp_port},
            {"port", port_name(parent.config.port)},
            {"mac", parent.mac ? json(wire::to_string(*parent.mac)) : json()},
            {"state", control::parent_state_name(parent.state)},
            {"since_ms", age_ms(now, parent.since)},
            {"member", parent.member == wire::no_member ? json() : json(parent.member)},
            {"text", control::parent_text(parent, now)}};
  }

  /// The switch's parent as its jobs see it: a line a job.
  json status_parent(const std::vector<control::JobView>& jobs) const {
    if (!parts.config.parent) return nullptr;
    const control::ParentConfig& parent = *parts.config.parent;
    json list = json::array();
    json mac;
    for (const control::JobView& job : jobs) {
      if (!job.parent) continue;
      if (job.parent->mac) mac = wire::to_string(*job.parent->mac);
      list.push_back({{"job", job.config.id},
                      {"state", control::parent_state_name(job.parent->state)},
                      {"text", control::parent_text(*job.parent, monotonic_now())}});
    }
    return {{"ip", wire::to_string(parent.ip)},
            {"udp_port", parent.udp_port},
            {"port", port_name(parent.port)},
            {"mac", mac},
            {"jobs", list}};
  }

  // Control gives no keys away, so whether there is one is remembered here.
  std::set<wire::JobId> keyed;
  bool has_key(wire::JobId job) const { return keyed.count(job) != 0; }

  void members(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const std::optional<wire::JobId> only = request.any_job();
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    const Time now = monotonic_now();
    json list = json::array();
    bool found = false;
    for (const control::JobView& job : parts.control.jobs()) {
      if (only && job.config.id != *only) continue;
      found = true;
      for (const control::MemberView& member : job.members) {
        const datapath::MemberSpec& spec = member.spec;
        list.push_back({{"job", job.config.id},
                        {"member", spec.id},
                        {"kind", spec.kind == wire::MemberKind::worker ? "worker" : "switch"},
                        {"ip", wire::to_string(spec.endpoint.ip)},
                        {"udp_port", spec.endpoint.udp_port},
                        {"mac", wire::to_string(spec.endpoint.mac)},
                        {"port", port_name(spec.ingress)},
                        {"incarnation", member.incarnation},
                        {"joined_ms_ago", age_ms(now, member.joined_at)},
                        {"last_heard_ms_ago", age_ms(now, member.last_heard)}});
      }
    }
    if (only && !found) return reply.error(text("no such job: ", *only));
    reply.ok({{"members", list}});
  }

  std::string port_name(datapath::PortId port) const {
    return port < parts.config.ports.size() ? parts.config.ports[port].name : text(port);
  }

  /// The lists of several jobs, gathered as their answers come.
  struct SlotGathering {
    std::size_t waiting = 0;
    std::string error;
    bool truncated = false;
    std::vector<std::pair<wire::JobId, datapath::OpenSlot>> open;
  };

  void slots(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const std::optional<wire::JobId> only = request.any_job();
    const std::uint32_t limit = request.integer("limit", 1, 4096, 100);
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    std::vector<wire::JobId> ids;
    if (only) {
      ids.push_back(*only);
    } else {
      for (const control::JobView& job : parts.control.jobs()) ids.push_back(job.config.id);
    }
    auto gathering = std::make_shared<SlotGathering>();
    gathering->waiting = ids.size() + 1;  // one for this function
    const auto finish = [gathering, reply] {
      if (--gathering->waiting == 0) slots_reply(*gathering, reply);
    };
    control::Effects effects;
    for (const wire::JobId id : ids) {
      parts.control.list_slots(
          id, limit, monotonic_now(), effects,
          [gathering, finish, id, limit](const control::OperatorReply& outcome) {
            if (!outcome.error.empty()) gathering->error = outcome.error;
            gathering->truncated = gathering->truncated || outcome.open.size() >= limit;
            for (const datapath::OpenSlot& slot : outcome.open) {
              gathering->open.emplace_back(id, slot);
            }
            finish();
          });
    }
    parts.carry_out(effects);
    finish();
  }

  static void slots_reply(SlotGathering& gathering, const Reply& reply) {
    if (!gathering.error.empty()) return reply.error(gathering.error);
    std::stable_sort(
        gathering.open.begin(), gathering.open.end(),
        [](const auto& a, const auto& b) { return a.second.opened_at < b.second.opened_at; });
    const Time now = monotonic_now();
    json list = json::array();
    for (const auto& [job, slot] : gathering.open) {
      list.push_back({{"job", job},
                      {"segment", slot.segment},
                      {"round", slot.round},
                      {"age_ms", age_ms(now, slot.opened_at)},
                      {"members", bits(slot.members)},
                      {"missing", bits(slot.missing)},
                      {"workers", slot.workers},
                      {"bytes", slot.bytes},
                      {"waiting", slot.waiting}});
    }
    reply.ok({{"slots", list}, {"truncated", gathering.truncated}});
  }

  void counters(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const bool per_lcore = request.boolean("per_lcore");
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    json list = json::array();
    for (const CounterValue& counter :
         all_counters(parts.dataplane, parts.control.counters(), parts.captures)) {
      json entry{{"name", counter.name}, {"value", counter.value}, {"terminal", counter.terminal}};
      if (per_lcore) entry["lcores"] = counter.lcores;
      list.push_back(std::move(entry));
    }
    reply.ok({{"counters", list}});
  }

  // ---- acting

  void set_threshold(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const wire::JobId job = request.job();
    const auto threshold =
        static_cast<std::uint16_t>(request.integer("threshold", 0, wire::max_members));
    act(request, reply, text("set threshold of job ", job, " to ", threshold),
        [&](Time now, auto& effects) {
          parts.control.set_threshold(job, threshold, now, effects, reply.done());
        });
  }

  void force(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const wire::JobId job = request.job();
    const std::uint32_t segment = request.integer("segment", 0, UINT32_MAX);
    const std::uint32_t round = request.integer("round", 0, UINT32_MAX);
    act(request, reply, text("force segment ", segment, " round ", round, " of job ", job),
        [&](Time now, auto& effects) {
          parts.control.force(job, segment, round, now, effects, reply.done());
        });
  }

  void halt(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    set_halted(request, reply, true);
  }
  void resume(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    set_halted(request, reply, false);
  }
  void set_halted(Request& request, const Reply& reply, bool halted) {
    const wire::JobId job = request.job();
    act(request, reply, text(halted ? "halt" : "resume", " job ", job),
        [&](Time now, auto& effects) {
          parts.control.halt(job, halted, now, effects, reply.done());
        });
  }

  void reset(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const wire::JobId job = request.job();
    act(request, reply, text("reset job ", job),
        [&](Time now, auto& effects) { parts.control.reset(job, now, effects, reply.done()); });
  }

  void remove_member(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const wire::JobId job = request.job();
    const auto member =
        static_cast<wire::MemberId>(request.integer("member", 0, wire::max_members - 1));
    act(request, reply, text("remove member ", member, " of job ", job),
        [&](Time now, auto& effects) {
          parts.control.remove_member(job, member, now, effects, reply.done());
        });
  }

  void remove_job(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const wire::JobId job = request.job();
    act(request, reply, text("remove job ", job), [&](Time now, auto& effects) {
      parts.control.remove_job(job, now, effects, reply.done());
    });
  }

  void add_job(AdminServer::ClientId /*client*/, Request& request, const Reply& reply) {
    const json* job = request.find("job");
    if (job == nullptr) request.wrong("job", nullptr, "an object as in \"jobs\" of the config");
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    Loaded<control::JobConfig> loaded =
        parse_job(dump(*job), "/job", parts.config.ports, parts.config.parent.has_value());
    if (!loaded.ok()) {
      std::string lines;
      for (const JsonError& error : loaded.errors)
        lines += text(lines.empty() ? "" : "; ", error.line());
      return reply.error(lines);
    }
    const bool child = parts.config.parent.has_value();
    std::uint64_t needed = payload_buffers_needed(loaded.value, child);
    for (const control::JobView& other : parts.control.jobs())
      needed += payload_buffers_needed(other.config, child);
    const std::uint32_t budget = parts.dataplane.memory().payload_budget;
    if (needed > budget) {
      return reply.error(text("memory for sums does not suffice: all jobs together would need ",
                              needed, " payload buffers, there are ", budget,
                              "; remove a job, or raise memory.payload_buffers and restart"));
    }
    const wire::JobId id = loaded.value.id;
    const bool key = !loaded.value.key.empty();
    act(request, reply, text("add job ", id), [&](Time now, auto& effects) {
      parts.control.add_job(
          loaded.value, now, effects,
          [this, id, key, done = reply.done()](const control::OperatorReply& outcome) {
            if (outcome.error.empty()) remember_key(id, key);
            done(outcome);
          });
    });
  }

  void remember_key(wire::JobId job, bool key) {
    if (key) {
      keyed.insert(job);
    } else {
      keyed.erase(job);
    }
  }

  void capture(AdminServer::ClientId client, Request& request, const Reply& reply) {
    CaptureOptions options;
    options.ports = ~datapath::PortMask{0};
    if (const json* names = request.find("ports")) options.ports = port_mask(*names, request);
    options.snap = request.integer("snap", 0, 65535, 0);
    if (options.snap != 0 && options.snap < 14) {
      const json value = options.snap;
      request.wrong("snap", &value, "must be 0 (whole frames) or 14 to 65535");
    }
    if (const json* direction = request.find("direction")) {
      options.received = *direction == "rx" || *direction == "both";
      options.transmitted = *direction == "tx" || *direction == "both";
      if (!options.received && !options.transmitted) {
        request.wrong("direction", direction, "must be \"rx\", \"tx\" or \"both\"");
      }
    }
    if (const json* format = request.find("format")) {
      options.pcapng = *format == "pcapng";
      if (!options.pcapng && *format != "pcap") {
        request.wrong("format", format, "must be \"pcapng\" or \"pcap\"");
      }
    }
    if (const std::string error = request.error(); !error.empty()) return reply.error(error);
    if (parts.captures.full()) return reply.error("four captures run already; end one");
    reply.ok({{"format", options.pcapng ? "pcapng" : "pcap"}});
    parts.captures.start(client, options);
  }

  datapath::PortMask port_mask(const json& names, Request& request) const {
    datapath::PortMask mask = 0;
    bool right = names.is_array() && !names.empty();
    for (const json& name : names.is_array() ? names : json::array()) {
      const auto& ports = parts.config.ports;
      const auto found = std::find_if(ports.begin(), ports.end(),
                                      [&](const PortConfig& port) { return name == port.name; });
      right = right && found != ports.end();
      if (found != ports.end()) mask |= datapath::PortMask{1} << (found - ports.begin());
    }
    if (!right) request.wrong("ports", &names, "must be an array of names of ports");
    return mask;
  }
};

Commands::Commands(AdminParts parts) : state_(std::make_unique<State>(std::move(parts))) {
  for (const control::JobConfig& job : state_->parts.config.jobs) {
    state_->remember_key(job.id, !job.key.empty());
  }
}

Commands::~Commands() = default;

void Commands::handle(AdminServer::ClientId client, const std::string& line,
                      const AdminServer::Respond& respond) {
  state_->handle(client, line, respond);
}

}  // namespace iswitch::switchd
