// The config: every error with its pointer, its value and what is allowed; all of them at once.
#include "switchd/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

using namespace iswitch;
using namespace iswitch::switchd;

namespace {

const std::string right_switch = R"({"name":"tor0","ip":"10.77.0.254","mac":"02:00:00:00:00:fe"})";
const std::string right_ports = R"([{"name":"p0","device":"net_af_packet0,iface=sw0"}])";
const std::string right_jobs = R"([{"id":1,"members":4}])";

std::string config(const std::string& switch_part, const std::string& ports,
                   const std::string& jobs, const std::string& rest = "") {
  return R"({"switch":)" + switch_part + R"(,"ports":)" + ports + R"(,"jobs":)" + jobs + rest + "}";
}
std::string with_switch(const std::string& part) { return config(part, right_ports, right_jobs); }
std::string with_ports(const std::string& part) { return config(right_switch, part, right_jobs); }
std::string with_jobs(const std::string& part) { return config(right_switch, right_ports, part); }
std::string with(const std::string& rest) {
  return config(right_switch, right_ports, right_jobs, "," + rest);
}
std::string job_with(const std::string& rest) {
  return with_jobs(R"([{"id":1,"members":4,)" + rest + "}]");
}

/// A file that goes away with the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& contents, mode_t mode) {
    std::string name = "/tmp/iswitch-config-test-XXXXXX";
    const int fd = mkstemp(name.data());
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, contents.data(), contents.size()) == static_cast<ssize_t>(contents.size()));
    REQUIRE(fchmod(fd, mode) == 0);
    close(fd);
    path_ = name;
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Wrong {
  std::string text;
  std::string pointer;
  std::string value;
  std::string allowed;  ///< a part of the problem's text
};

}  // namespace

TEST_CASE("a minimal config has the documented defaults") {
  const auto loaded = parse_config(config(right_switch, right_ports, right_jobs));
  REQUIRE(loaded.errors.empty());
  const Config& c = loaded.value;
  CHECK(c.name == "tor0");
  CHECK(c.address.rules.ip == wire::Ipv4{0x0A4D00FE});
  CHECK(c.address.mac == wire::Mac{{2, 0, 0, 0, 0, 0xFE}});
  CHECK(c.address.rules.udp_port == 17170);
  CHECK(c.address.rules.data_tos == 0xAC);
  CHECK(c.address.rules.control_tos == 0xBC);
  CHECK(c.mac_age == 300 * second);
  REQUIRE(c.ports.size() == 1);
  CHECK(c.ports[0].mtu == 1500);
  CHECK(c.ports[0].transmit == TransmitMode::automatic);
  REQUIRE(c.jobs.size() == 1);
  const control::JobConfig& job = c.jobs[0];
  CHECK(job.id == 1);
  CHECK(job.members == 4);
  CHECK(job.mode == wire::Mode::sync);
  CHECK(job.slots == 1024);
  CHECK(job.segment_bytes == 1440);
  CHECK(job.threshold == 0);
  CHECK_FALSE(job.history);
  CHECK_FALSE(job.base_round);
  CHECK(job.udp_checksum);
  CHECK(job.key.empty());
  CHECK(job.force_after == 0);
  CHECK_FALSE(job.evict_silent);
  CHECK(job.member_timeout == 5 * second);
  CHECK(c.poller_cpus.empty());
  CHECK_FALSE(c.memory.huge_pages);
  CHECK_FALSE(c.poll_busy);
  CHECK(c.idle_after == 100 * millisecond);
  CHECK(c.admin_socket.empty());
  CHECK(c.metrics.empty());
  CHECK(c.log_level == LogLevel::info);
}

TEST_CASE("every key reaches its field") {
  const TemporaryFile key("0123456789abcdef\n", 0600);
  const auto loaded = parse_config(
      R"({"switch":{"name":"a.b-c_1","ip":"10.0.0.1","mac":"06:01:02:03:04:05","udp_port":4000,
          "data_dscp":10,"control_dscp":11,"mac_age_s":7},
          "ports":[{"name":"x","device":"0000:01:00.1","mtu":9000,"transmit":"copied"},
                   {"name":"y","device":"net_null0,size=64","mtu":9216,"transmit":"chained"}],
          "jobs":[{"id":65535,"members":64,"mode":"sync","slots":7,"segment_bytes":8928,"threshold":63,
                   "history":3,"base_round":4294967295,"udp_checksum":false,"key_file":")" +
      key.path() +
      R"(","force_after_ms":250,"evict_silent":true,"member_timeout_ms":1500}],
          "lcores":[3,1],"memory":{"huge_pages":false,"frame_buffers":1024,"payload_buffers":28},
          "poll":"busy","idle_after_ms":5,
          "admin":{"socket":"/run/x.sock","metrics":"127.0.0.1:9477"},"log":{"level":"debug"}})");
  for (const auto& error : loaded.errors) UNSCOPED_INFO(error.line());
  // 28 buffers are the floor of the jobs, but below the least allowed: the one error wanted here.
  REQUIRE(loaded.errors.size() == 1);
  CHECK(loaded.errors[0].pointer == "/memory/payload_buffers");
  const Config& c = loaded.value;
  CHECK(c.name == "a.b-c_1");
  CHECK(c.address.rules.ip == wire::Ipv4{0x0A000001});
  CHECK(c.address.mac == wire::Mac{{6, 1, 2, 3, 4, 5}});
  CHECK(c.address.rules.udp_port == 4000);
  CHECK(c.address.rules.data_tos == 40);
  CHECK(c.address.rules.control_tos == 44);
  CHECK(c.mac_age == 7 * second);
  REQUIRE(c.ports.size() == 2);
  CHECK(c.ports[0].name == "x");
  CHECK(c.ports[0].device == "0000:01:00.1");
  CHECK(c.ports[0].mtu == 9000);
  CHECK(c.ports[0].transmit == TransmitMode::copied);
  CHECK(c.ports[1].transmit == TransmitMode::chained);
  REQUIRE(c.jobs.size() == 1);
  const control::JobConfig& job = c.jobs[0];
  CHECK(job.id == 65535);
  CHECK(job.members == 64);
  CHECK(job.slots == 7);
  CHECK(job.segment_bytes == 8928);
  CHECK(job.threshold == 63);
  CHECK(job.history == 3);
  CHECK(job.base_round == 4294967295u);
  CHECK_FALSE(job.udp_checksum);
  CHECK(std::string(job.key.begin(), job.key.end()) == "0123456789abcdef\n");  // nothing trimmed
  CHECK(job.force_after == 250 * millisecond);
  CHECK(job.evict_silent);
  CHECK(job.member_timeout == 1500 * millisecond);
  CHECK(c.poller_cpus == std::vector<std::uint16_t>{3, 1});
  CHECK(c.memory.huge_pages == false);
  CHECK(c.memory.frame_buffers == 1024);
  CHECK(c.poll_busy);
  CHECK(c.idle_after == 5 * millisecond);
  CHECK(c.admin_socket == "/run/x.sock");
  CHECK(c.metrics == "127.0.0.1:9477");
  CHECK(c.log_level == LogLevel::debug);
}

TEST_CASE("each error names pointer, value and what is allowed") {
  const std::vector<Wrong> table{
      {"[]", "", "[]", "must be an object"},
      {"{}", "/switch", "", "is missing"},
      {with(R"("colour":1)"), "/colour", "1", "unknown key; known here: admin"},
      {with(R"("poll":"fast")"), "/poll", "\"fast\"", "\"adaptive\" or \"busy\""},
      {with(R"("idle_after_ms":60001)"), "/idle_after_ms", "60001", "from 0 to 60000"},
      {with(R"("lcores":[1,2,1])"), "/lcores", "[1,2,1]", "different CPU numbers"},
      {with(R"("lcores":[1,1024])"), "/lcores", "[1,1024]", "different CPU numbers"},
      {with(R"("lcores":[])"), "/lcores", "[]", "array of 1 to 16"},
      {with(R"("lcores":"all")"), "/lcores", "\"all\"", "\"auto\""},
      {with(R"("memory":7)"), "/memory", "7", "\"auto\" or an object"},
      {with(R"("memory":{"huge_pages":"no"})"), "/memory/huge_pages", "\"no\"", "true or false"},
      {with(R"("memory":{"pages":1})"), "/memory/pages", "1", "unknown key"},
      {with(R"("memory":{"payload_buffers":64})"), "/memory/payload_buffers", "64", "need 2048"},
      {with(R"("admin":{"socket":"x"})"), "/admin/socket", "\"x\"", "absolute path"},
      {with(R"("admin":{"metrics":"here:0"})"), "/admin/metrics", "\"here:0\"", "ADDRESS:PORT"},
      {with(R"("admin":{"metrics":"127.0.0.1:65536"})"), "/admin/metrics", "\"127.0.0.1:65536\"",
       "ADDRESS:PORT"},
      {with(R"("log":{"level":"loud"})"), "/log/level", "\"loud\"", "\"warning\" or \"error\""},
      {with(R"("poll":"busy","poll":"busy")"), "/poll", "", "given twice"},
      {with_jobs(R"([{"id":1,"members":4},{"id":2,"members":4,"members":5}])"), "/jobs/1/members",
       "", "given twice"},
      {with_switch("3"), "/switch", "3", "must be an object"},
      {with_switch(R"({"name":"","ip":"10.0.0.1","mac":"02:00:00:00:00:01"})"), "/switch/name",
       "\"\"", "1 to 32 letters"},
      {with_switch(R"({"name":"../x","ip":"10.0.0.1","mac":"02:00:00:00:00:01"})"), "/switch/name",
       "\"../x\"", "1 to 32 letters"},
      {with_switch(R"({"name":"a","mac":"02:00:00:00:00:01"})"), "/switch/ip", "",
       "is missing: must be a unicast IPv4"},
      {with_switch(R"({"name":"a","ip":"10.0.0.256","mac":"02:00:00:00:00:01"})"), "/switch/ip",
       "\"10.0.0.256\"", "IPv4 address"},
      {with_switch(R"({"name":"a","ip":"224.0.0.1","mac":"02:00:00:00:00:01"})"), "/switch/ip",
       "\"224.0.0.1\"", "unicast"},
      {with_switch(R"({"name":"a","ip":167772161,"mac":"02:00:00:00:00:01"})"), "/switch/ip",
       "167772161", "IPv4 address"},
      {with_switch(R"({"name":"a","ip":"10.0.0.1","mac":"03:00:00:00:00:01"})"), "/switch/mac",
       "\"03:00:00:00:00:01\"", "unicast MAC"},
      {with_switch(R"({"name":"a","ip":"10.0.0.1","mac":"0:0:0:0:0:1"})"), "/switch/mac",
       "\"0:0:0:0:0:1\"", "such as"},
      {with_switch(R"({"name":"a","ip":"10.0.0.1","mac":"02:00:00:00:00:01","udp_port":0})"),
       "/switch/udp_port", "0", "from 1 to 65535"},
      {with_switch(R"({"name":"a","ip":"10.0.0.1","mac":"02:00:00:00:00:01","data_dscp":47})"),
       "/switch/control_dscp", "47", "differ"},
      {with_switch(R"({"name":"a","ip":"10.0.0.1","mac":"02:00:00:00:00:01","vlan":2})"),
       "/switch/vlan", "2", "unknown key"},
      {with_ports("[]"), "/ports", "[]", "array of 1 to 32"},
      {with_ports("{}"), "/ports", "{}", "array of 1 to 32"},
      {with_ports(R"([{"name":"a"}])"), "/ports/0/device", "", "is missing"},
      {with_ports(R"([{"name":"a","device":"net_af_packet0"}])"), "/ports/0/device",
       "\"net_af_packet0\"", "DPDK device string"},
      {with_ports(R"([{"name":"a","device":"01:00"}])"), "/ports/0/device", "\"01:00\"",
       "PCI address"},
      {with_ports(R"([{"name":"a","device":"net_null0","mtu":255}])"), "/ports/0/mtu", "255",
       "from 256 to 9216"},
      {with_ports(R"([{"name":"a","device":"net_null0","mtu":1500.0}])"), "/ports/0/mtu", "1500.0",
       "integer"},
      {with_ports(R"([{"name":"a","device":"net_null0","mtu":18446744073709551615}])"),
       "/ports/0/mtu", "18446744073709551615", "integer"},
      {with_ports(R"([{"name":"a","device":"net_null0","transmit":"fast"}])"), "/ports/0/transmit",
       "\"fast\"", "\"chained\" or \"copied\""},
      {with_ports(R"([{"name":"a","device":"net_null0"},{"name":"a","device":"net_null1"}])"),
       "/ports/1/name", "\"a\"", "another port's name"},
      {with_ports(
           R"([{"name":"a","device":"net_null0"},{"name":"b","device":"net_null0,size=9"}])"),
       "/ports/1/device", "\"net_null0,size=9\"", "another port's device"},
      {with_ports(
           R"([{"name":"a","device":"net_af_packet0,iface=x"},{"name":"b","device":"net_af_packet1,iface=x"}])"),
       "/ports/1/device", "\"net_af_packet1,iface=x\"", "interface x"},
      {with_ports(R"([{"name":"a","device":"01:00.0"},{"name":"b","device":"0000:01:00.0"}])"),
       "/ports/1/device", "\"0000:01:00.0\"", "another port's device"},
      {with_jobs("{}"), "/jobs", "{}", "array of jobs"},
      {with_jobs(R"([{"members":4}])"), "/jobs/0/id", "", "is missing"},
      {with_jobs(R"([{"id":1}])"), "/jobs/0/members", "", "from 1 to 64"},
      {with_jobs(R"([{"id":65536,"members":1}])"), "/jobs/0/id", "65536", "from 0 to 65535"},
      {with_jobs(R"([{"id":-1,"members":1}])"), "/jobs/0/id", "-1", "from 0 to 65535"},
      {with_jobs(R"([{"id":1,"members":65}])"), "/jobs/0/members", "65", "from 1 to 64"},
      {with_jobs(R"([{"id":1,"members":0}])"), "/jobs/0/members", "0", "from 1 to 64"},
      {with_jobs(R"([{"id":1,"members":1},{"id":1,"members":2}])"), "/jobs/1/id", "1",
       "another job's id"},
      {job_with(R"("mode":"later")"), "/jobs/0/mode", "\"later\"", R"("sync" or "async")"},
      {job_with(R"("mode":1)"), "/jobs/0/mode", "1", "must be \"sync\""},
      {job_with(R"("slots":0)"), "/jobs/0/slots", "0", "from 1 to 1048576"},
      {job_with(R"("segment_bytes":1441)"), "/jobs/0/segment_bytes", "1441", "multiple of 32"},
      {job_with(R"("segment_bytes":0)"), "/jobs/0/segment_bytes", "0", "from 32 to 8928"},
      {job_with(R"("segment_bytes":8960)"), "/jobs/0/segment_bytes", "8960", "from 32 to 8928"},
      {job_with(R"("segment_bytes":1472)"), "/jobs/0/segment_bytes", "1472",
       "needs an MTU of 1522, port \"p0\" has 1500"},
      {job_with(R"("threshold":5)"), "/jobs/0/threshold", "5", "from 0 to 4"},
      {job_with(R"("history":0)"), "/jobs/0/history", "0", "from 1 to 64 or null"},
      {job_with(R"("base_round":4294967296)"), "/jobs/0/base_round", "4294967296", "or null"},
      {job_with(R"("udp_checksum":0)"), "/jobs/0/udp_checksum", "0", "true or false"},
      {job_with(R"("key_file":"")"), "/jobs/0/key_file", "\"\"", "path or null"},
      {job_with(R"("key_file":"/does/not/exist")"), "/jobs/0/key_file", "\"/does/not/exist\"", ""},
      {job_with(R"("force_after_ms":3600001)"), "/jobs/0/force_after_ms", "3600001",
       "from 0 to 3600000"},
      {job_with(R"("evict_silent":"yes")"), "/jobs/0/evict_silent", "\"yes\"", "true or false"},
      {job_with(R"("member_timeout_ms":9)"), "/jobs/0/member_timeout_ms", "9", "from 10"},
      {job_with(R"("a/b~c":1)"), "/jobs/0/a~1b~0c", "1", "unknown key"},
      {job_with(R"("a\n\"b":1)"), R"(/jobs/0/a\n\"b)", "1", "unknown key"},
  };
  for (const Wrong& wrong : table) {
    CAPTURE(wrong.text);
    const auto loaded = parse_config(wrong.text);
    bool found = false;
    for (const JsonError& error : loaded.errors) {
      UNSCOPED_INFO(error.line());
      found = found || (error.pointer == wrong.pointer && error.value == wrong.value &&
                        error.problem.find(wrong.allowed) != std::string::npos);
      CHECK(error.line().find('\n') == std::string::npos);
    }
    CHECK(found);
    // "{}" lacks three things; everywhere else exactly one thing is wrong.
    CHECK(loaded.errors.size() == (wrong.text == "{}" ? 3 : 1));
  }
}

TEST_CASE("all errors come at once") {
  const auto loaded = parse_config(
      R"({"switch":{"name":"a","ip":"x","mac":"y"},"ports":[{"name":"p","device":"net_null0","mtu":1}],
          "jobs":[{"id":1,"members":99}],"poll":1,"extra":0})");
  std::vector<std::string> pointers;
  for (const JsonError& error : loaded.errors) pointers.push_back(error.pointer);
  CHECK_THAT(pointers, Catch::UnorderedEquals(
                           std::vector<std::string>{"/switch/ip", "/switch/mac", "/ports/0/mtu",
                                                    "/jobs/0/members", "/poll", "/extra"}));
}

TEST_CASE("what is not JSON is one line with its place") {
  const auto loaded = parse_config("{\n  \"switch\": {\n    \"name\": tor0\n}}");
  REQUIRE(loaded.errors.size() == 1);
  const std::string line = loaded.errors[0].line();
  CAPTURE(line);
  CHECK(line.find("not JSON") != std::string::npos);
  CHECK(line.find("line 3, column 14") != std::string::npos);
  CHECK(line.find('\n') == std::string::npos);
  for (const char* text :
       {"", "{", "[1,", "\xff\xfe", "{\"a\":1}x", "nul", "1e999", "{\"jobs\":1e999}"}) {
    CAPTURE(text);
    REQUIRE(parse_config(text).errors.size() == 1);
    CHECK(parse_config(text).errors[0].line().find('\n') == std::string::npos);
  }
}

TEST_CASE("a key file must be private and of a right length") {
  const std::string key(16, 'k');
  const TemporaryFile readable(key, 0640);
  const TemporaryFile writable(key, 0602);
  const TemporaryFile shorter(std::string(15, 'k'), 0600);
  const TemporaryFile longest(std::string(1024, 'k'), 0600);
  const TemporaryFile longer(std::string(1025, 'k'), 0600);
  const auto errors = [](const std::string& path) {
    return parse_config(job_with(R"("key_file":")" + path + "\"")).errors;
  };
  for (const TemporaryFile* file : {&readable, &writable, &shorter, &longer}) {
    REQUIRE(errors(file->path()).size() == 1);
    CHECK(errors(file->path())[0].pointer == "/jobs/0/key_file");
  }
  CHECK(errors(longest.path()).empty());
  CHECK(errors("/dev/zero").size() == 1);
}

TEST_CASE("a job added later keeps the same rules") {
  const std::vector<PortConfig> ports{{.name = "p0", .device = "net_null0", .mtu = 1500}};
  const auto right = parse_job(R"({"id":7,"members":2,"slots":16})", "/job", ports);
  REQUIRE(right.ok());
  CHECK(right.value.id == 7);
  CHECK(right.value.slots == 16);
  const auto wrong = parse_job(R"({"id":7,"members":2,"segment_bytes":8928,"x":1})", "/job", ports);
  REQUIRE(wrong.errors.size() == 2);
  CHECK(wrong.errors[0].pointer == "/job/segment_bytes");
  CHECK(wrong.errors[1].pointer == "/job/x");
  CHECK(parse_job("[]", "/job", ports).errors[0].pointer == "/job");
}

TEST_CASE("segments and MTUs") {
  CHECK(wire::mtu_for_segment(1440) == 1490);
  CHECK(wire::mtu_for_segment(8928) == 8978);
  CHECK(largest_segment({{.name = "a", .device = "", .mtu = 1500}}) == 1440);
  CHECK(largest_segment({{.name = "a", .device = "", .mtu = 9216}}) == 8928);
  CHECK(largest_segment({{.name = "a", .device = "", .mtu = 9000},
                         {.name = "b", .device = "", .mtu = 256}}) == 192);
}

TEST_CASE("asynchronous jobs keep eight results a slot by default") {
  const auto loaded = parse_config(job_with(R"("mode":"async")"));
  REQUIRE(loaded.ok());
  CHECK(loaded.value.jobs[0].mode == wire::Mode::async);
  CHECK(control::history_in_force(loaded.value.jobs[0]) == 8);
}

TEST_CASE("the parent") {
  const std::string ports =
      R"([{"name":"p0","device":"net_af_packet0,iface=sw0"},{"name":"up0","device":"net_af_packet1,iface=sw1"}])";
  const auto with_parent = [&](const std::string& parent, const std::string& job = "") {
    return parse_config(config(right_switch, ports, R"([{"id":1,"members":4)" + job + "}]",
                               R"(,"parent":)" + parent));
  };
  SECTION("none") {
    CHECK_FALSE(parse_config(config(right_switch, ports, right_jobs)).value.parent);
    const auto loaded = with_parent("null");
    CHECK(loaded.ok());
    CHECK_FALSE(loaded.value.parent);
  }
  SECTION("with what has no default") {
    const auto loaded = with_parent(R"({"ip":"10.77.0.253","port":"up0"})");
    REQUIRE(loaded.ok());
    REQUIRE(loaded.value.parent);
    CHECK(loaded.value.parent->ip == wire::Ipv4{0x0A4D00FD});
    CHECK(loaded.value.parent->port == 1);
    CHECK(loaded.value.parent->udp_port == 17170);
    CHECK_FALSE(loaded.value.parent->mac);
  }
  SECTION("with everything") {
    const auto loaded = with_parent(
        R"({"ip":"10.77.0.253","port":"p0","udp_port":5000,"mac":"02:00:00:00:00:01"})");
    REQUIRE(loaded.ok());
    CHECK(loaded.value.parent->port == 0);
    CHECK(loaded.value.parent->udp_port == 5000);
    CHECK(loaded.value.parent->mac == wire::parse_mac("02:00:00:00:00:01"));
  }
  SECTION("wrong in every key") {
    struct WrongParent {
      std::string parent, pointer, allowed;
    };
    const WrongParent wrong = GENERATE(
        WrongParent{R"({"port":"up0"})", "/parent/ip", "is missing"},
        WrongParent{R"({"ip":"10.77.0.253"})", "/parent/port", "is missing"},
        WrongParent{R"({"ip":"10.77.0.254","port":"up0"})", "/parent/ip", "own address"},
        WrongParent{R"({"ip":"224.0.0.1","port":"up0"})", "/parent/ip", "unicast"},
        WrongParent{R"({"ip":"x","port":"up0"})", "/parent/ip", "unicast"},
        WrongParent{R"({"ip":"10.77.0.253","port":"up1"})", "/parent/port", R"("p0" "up0")"},
        WrongParent{R"({"ip":"10.77.0.253","port":1})", "/parent/port", "name of the port"},
        WrongParent{R"({"ip":"10.77.0.253","port":"up0","udp_port":0})", "/parent/udp_port",
                    "1 to 65535"},
        WrongParent{R"({"ip":"10.77.0.253","port":"up0","mac":"03:00:00:00:00:01"})", "/parent/mac",
                    "unicast"},
        WrongParent{R"({"ip":"10.77.0.253","port":"up0","mac":"02:00:00:00:00:fe"})", "/parent/mac",
                    "unicast"},
        WrongParent{R"({"ip":"10.77.0.253","port":"up0","x":1})", "/parent/x", "unknown key"},
        WrongParent{"[]", "/parent", "must be an object"});
    const auto loaded = with_parent(wrong.parent);
    REQUIRE_FALSE(loaded.ok());
    CHECK(loaded.errors[0].pointer == wrong.pointer);
    CHECK_THAT(loaded.errors[0].problem, Catch::Contains(wrong.allowed));
  }
  SECTION("it gives the base round") {
    const auto loaded = with_parent(R"({"ip":"10.77.0.253","port":"up0"})", R"(,"base_round":7)");
    REQUIRE(loaded.errors.size() == 1);
    CHECK(loaded.errors[0].pointer == "/jobs/0/base_round");
    const auto added = parse_job(R"({"id":2,"members":1,"base_round":7})", "/job", {}, true);
    REQUIRE(added.errors.size() == 1);
    CHECK(added.errors[0].pointer == "/job/base_round");
  }
}
