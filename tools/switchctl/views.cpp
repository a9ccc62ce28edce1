#include "tools/switchctl/views.h"

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/switchctl/table.h"

namespace iswitch::switchctl {
namespace {

using nlohmann::json;
using Align = Table::Align;

/// A value as a person writes it; a dash for what is absent or null.
std::string plain(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  if (found->is_array()) {
    std::string out;
    for (const json& item : *found) {
      if (!out.empty()) out += ',';
      out += item.is_string() ? item.get<std::string>() : item.dump();
    }
    return out.empty() ? "-" : out;
  }
  return found->dump();
}

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

/// 12 ms, 3.4 s, 5 min 20 s, 3 h 2 min
std::string duration(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return "-";
  const double ms = found->get<double>();
  char text[64];
  if (ms < 1000) {
    std::snprintf(text, sizeof text, "%.0f ms", ms);
  } else if (ms < 60'000) {
    std::snprintf(text, sizeof text, "%.1f s", ms / 1000);
  } else if (ms < 3'600'000) {
    std::snprintf(text, sizeof text, "%d min %d s", static_cast<int>(ms / 60'000),
                  static_cast<int>(ms / 1000) % 60);
  } else {
    std::snprintf(text, sizeof text, "%.0f h %d min",
                  static_cast<double>(static_cast<long long>(ms / 3'600'000)),
                  static_cast<int>(ms / 60'000) % 60);
  }
  return text;
}

using Cell = std::function<std::string(const json&)>;
struct View {
  Table::Column column;
  Cell cell;
};

View words(std::string heading, const char* key) {
  return {{std::move(heading), Align::left}, [key](const json& row) { return plain(row, key); }};
}
View figure(std::string heading, const char* key) {
  return {{std::move(heading), Align::right}, [key](const json& row) { return plain(row, key); }};
}
View time(std::string heading, const char* key) {
  return {{std::move(heading), Align::right},
          [key](const json& row) { return duration(row, key); }};
}

std::string table_text(const json& reply, const char* list, const std::vector<View>& views,
                       const std::string& nothing) {
  std::vector<Table::Column> columns;
  columns.reserve(views.size());
  for (const View& view : views) columns.push_back(view.column);
  Table table(columns);
  if (const auto rows = reply.find(list); rows != reply.end() && rows->is_array()) {
    for (const json& row : *rows) {
      std::vector<std::string> cells;
      cells.reserve(views.size());
      for (const View& view : views) cells.push_back(view.cell(row));
      table.add(std::move(cells));
    }
  }
  return table.text(nothing);
}

}  // namespace

std::string status_text(const json& reply) {
  std::string out;
  const auto line = [&out](const std::string& name, const std::string& value) {
    out += name + std::string(name.size() < 10 ? 10 - name.size() : 1, ' ') + value + "\n";
  };
  line("switch", plain(reply, "name") + "  version " + plain(reply, "version") + ", process " +
                     plain(reply, "pid") + ", up " + duration(reply, "uptime_ms"));
  line("address", plain(reply, "ip") + "  " + plain(reply, "mac") + "  UDP " +
                      plain(reply, "udp_port") + ", shards " + plain(reply, "shards"));
  line("ports", plain(reply, "ports_up") + " of " + plain(reply, "ports") + " up");
  line("jobs", plain(reply, "jobs_running") + " of " + plain(reply, "jobs") + " running");
  if (const auto parent = reply.find("parent"); parent != reply.end() && parent->is_object()) {
    line("parent", plain(*parent, "ip") + "  " + plain(*parent, "mac") + "  UDP " +
                       plain(*parent, "udp_port") + ", behind port " + plain(*parent, "port"));
    for (const json& job : parent->value("jobs", json::array()))
      line("", (plain(job, "text").rfind("job ", 0) == 0 ? "" : "job " + plain(job, "job") + ": ") +
                   plain(job, "text"));
  }
  if (const auto lcores = reply.find("lcores"); lcores != reply.end() && lcores->is_array()) {
    for (const json& lcore : *lcores) {
      line("lcore " + plain(lcore, "lcore"),
           "shard " + plain(lcore, "shard") + ", cpu " + plain(lcore, "cpus") + ", " +
               plain(lcore, "state") + ", busy " + plain(lcore, "busy_percent") +
               " % (poll: " + plain(reply, "poll") + ")");
    }
  }
  if (const auto memory = reply.find("memory"); memory != reply.end() && memory->is_object()) {
    for (const char* pool : {"frame_buffers", "payload_buffers", "header_buffers"}) {
      const auto found = memory->find(pool);
      if (found == memory->end()) continue;
      std::string name(pool);
      name = name.substr(0, name.find('_')) + "s";
      line("memory", name + " " + plain(*found, "free") + " of " + plain(*found, "size") + " free");
    }
    line("memory", std::string("huge pages: ") + plain(*memory, "huge_pages"));
  }
  return out;
}

std::string ports_text(const json& reply) {
  return table_text(
      reply, "ports",
      {words("PORT", "name"),
       words("LINK", "link"),
       words("INTERFACE", "interface"),
       figure("MTU", "mtu"),
       words("TRANSMIT", "transmit"),
       words("CHECKSUM", "checksum"),
       figure("RX FRAMES", "rx_frames"),
       figure("RX BYTES", "rx_bytes"),
       figure("TX FRAMES", "tx_frames"),
       figure("TX BYTES", "tx_bytes"),
       {{"RX LOST", Align::right},
        [](const json& row) {
          return std::to_string(static_cast<long long>(
              number(row, "rx_missed") + number(row, "rx_errors") + number(row, "rx_no_buffer")));
        }},
       {{"TX LOST", Align::right},
        [](const json& row) {
          return std::to_string(
              static_cast<long long>(number(row, "tx_errors") + number(row, "tx_dropped")));
        }},
       words("DEVICE", "device")},
      "no ports");
}

/// What became of a job when its members came back after a restart.
std::string stream_text(const std::string& job, const json& stream) {
  const std::string who = "job " + job;
  if (!stream.value("goes_on", false))
    return who + " started afresh after a restart: " + plain(stream, "reason");
  if (number(stream, "end") == 0) return who + " went on after a restart";
  return who + " went on after a restart, members had up to segment " + plain(stream, "end") +
         " and somebody lacked " + plain(stream, "first");
}

std::string jobs_text(const json& reply) {
  std::string out =
      table_text(reply, "jobs",
                 {figure("JOB", "id"),
                  words("STATE", "state"),
                  words("MODE", "mode"),
                  {{"MEMBERS", Align::right},
                   [](const json& row) {
                     return plain(row, "members_now") + " of " + plain(row, "members_expected");
                   }},
                  {{"THRESHOLD", Align::right},
                   [](const json& row) {
                     return plain(row, "threshold") +
                            (number(row, "threshold_wanted") == 0 ? " (follows)" : " (set)");
                   }},
                  figure("SLOTS", "slots"),
                  figure("SEGMENT", "segment_bytes"),
                  figure("HISTORY", "history"),
                  figure("BASE ROUND", "base_round"),
                  words("KEY", "key"),
                  {{"PARENT", Align::left},
                   [](const json& row) {
                     const auto parent = row.find("parent");
                     if (parent == row.end() || !parent->is_object()) return std::string("-");
                     return plain(*parent, "state") + " " + duration(*parent, "since_ms");
                   }}},
                 "no jobs");
  for (const json& job : reply.value("jobs", json::array())) {
    if (const std::string fault = plain(job, "fault"); fault != "-") out += fault + "\n";
    if (const auto stream = job.find("stream"); stream != job.end() && stream->is_object())
      out += stream_text(plain(job, "id"), *stream) + "\n";
  }
  return out;
}

std::string members_text(const json& reply) {
  return table_text(reply, "members",
                    {figure("JOB", "job"), figure("MEMBER", "member"), words("KIND", "kind"),
                     words("ADDRESS", "ip"), figure("UDP", "udp_port"), words("MAC", "mac"),
                     words("PORT", "port"), time("JOINED", "joined_ms_ago"),
                     time("LAST HEARD", "last_heard_ms_ago")},
                    "no members have joined");
}

std::string slots_text(const json& reply) {
  std::string out =
      table_text(reply, "slots",
                 {figure("JOB", "job"),
                  figure("SEGMENT", "segment"),
                  figure("ROUND", "round"),
                  time("AGE", "age_ms"),
                  words("MISSING MEMBERS", "missing"),
                  words("IN THE SUM", "members"),
                  figure("WORKERS", "workers"),
                  figure("BYTES", "bytes"),
                  {{"STATE", Align::left},
                   [](const json& row) {
                     return std::string(row.value("waiting", false) ? "at the parent" : "open");
                   }}},
                 "no sum is open");
  if (reply.value("truncated", false)) out += "(there may be more; see --limit)\n";
  return out;
}

std::string counters_text(const json& reply, bool all) {
  json shown = {{"counters", json::array()}};
  double received = 0;
  for (const json& row : reply.value("counters", json::array())) {
    if (row.value("terminal", false)) received += number(row, "value");
    if (all || number(row, "value") != 0) shown["counters"].push_back(row);
  }
  std::string out =
      table_text(shown, "counters",
                 {words("COUNTER", "name"),
                  figure("VALUE", "value"),
                  {{"", Align::left},
                   [](const json& row) {
                     return std::string(row.value("terminal", false) ? "a frame ended here" : "");
                   }}},
                 "every counter is zero");
  char total[64];
  std::snprintf(total, sizeof total, "%.0f frames received in all\n", received);
  return out + total;
}

}  // namespace iswitch::switchctl
