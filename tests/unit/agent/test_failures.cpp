// Every failure is a value that says what happened, within its deadline, and the agent goes on.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/unit/agent/ranks.h"

using namespace iswitch;
using namespace iswitch::test;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

namespace {

bool names(const AgentError& error, std::uint16_t member) {
  return std::count(error.missing.begin(), error.missing.end(), member) == 1;
}

/// One all-reduce of 1000 floats, checked.
std::string sum_once(Agent& agent, std::size_t rank, std::size_t ranks,
                     const OperationOptions& options = {}) {
  std::vector<float> data(1'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_at(rank, i);
  if (const AgentError error = agent.all_reduce(data, data, Reduce::sum, options).wait()) {
    return error_text(error);
  }
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != sum_at(ranks, i)) return "wrong sum at " + std::to_string(i);
  }
  return {};
}

/// What a Reset interrupts fails with job_reset, and is then done again, as a program would.
std::string sum_again(Agent& agent, std::size_t rank, std::size_t ranks) {
  const auto give_up = Clock::now() + 10s;
  while (true) {
    std::string problem = sum_once(agent, rank, ranks);
    if (problem.empty() || Clock::now() > give_up) return problem;
  }
}

std::string temporary_file(const std::string& content, mode_t mode) {
  char name[] = "iswitch-key-XXXXXX";
  const int fd = mkstemp(name);
  if (write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size())) return {};
  fchmod(fd, mode);
  close(fd);
  return name;
}

}  // namespace

TEST_CASE("a deadline names the members that have not contributed") {
  constexpr std::size_t ranks = 3;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  std::vector<AgentError> errors(2);
  on_each(2, [&](std::size_t rank) -> std::string {
    std::vector<float> data(5'000, 1.0F);
    errors[rank] =
        agents[rank]->all_reduce(data, data, Reduce::sum, {.timeout = 400ms, .tag = 0}).wait();
    return {};
  });
  for (const AgentError& error : errors) {
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::timed_out);
    CHECK(names(error, 2));
    CHECK(error.missing.size() == 1);
    CHECK_THAT(error.text, Contains("member 2"));
    CHECK(error.text.find('\n') == std::string::npos);
  }
  // The late one learns of it, and all go on together.
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
}

TEST_CASE("a killed process is named, and a restarted one takes its place") {
  constexpr std::size_t ranks = 3;
  TestSwitch on({.jobs = {job_of(ranks)}});
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    AgentOptions options = options_for(on, 2);
    options.background_thread = false;  // one thread: this is a copy of a process with many
    auto joined = Agent::join(options);
    const char told = joined ? 'y' : 'n';
    static_cast<void>(!write(ready[1], &told, 1));
    while (true) pause();
  }
  std::string problem;
  Agents agents = join_all(on, 2, problem);
  char told = 0;
  const bool heard = read(ready[0], &told, 1) == 1;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  INFO(problem);
  REQUIRE(problem.empty());
  REQUIRE(heard);
  REQUIRE(told == 'y');

  std::vector<AgentError> errors(2);
  const auto begin = Clock::now();
  on_each(2, [&](std::size_t rank) -> std::string {
    std::vector<float> data(5'000, 1.0F);
    errors[rank] =
        agents[rank]->all_reduce(data, data, Reduce::sum, {.timeout = 500ms, .tag = 0}).wait();
    return {};
  });
  CHECK(Clock::now() - begin < 3s);
  for (const AgentError& error : errors) {
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::timed_out);
    CHECK(names(error, 2));
  }
  auto again = Agent::join(options_for(on, 2));
  INFO((again ? std::string() : again.error().text));
  REQUIRE(again);
  agents.push_back(std::move(*again));
  CHECK(agents[2]->rank() == 2);
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
}

TEST_CASE("a Reset fails what is under way, and the next operation works") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  std::vector<float> data(5'000, 1.0F);
  Handle under_way = agents[0]->all_reduce(data, data);
  std::this_thread::sleep_for(50ms);
  REQUIRE_FALSE(under_way.done());
  on.operate([](control::Control& control, Time now, control::Effects& effects) {
    control.reset(1, now, effects, [](const control::OperatorReply&) {});
  });
  const AgentError error = under_way.wait();
  INFO(error.text);
  CHECK(error.code == AgentErrorCode::job_reset);
  CHECK(agents[0]->statistics().resets == 1);
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
}

TEST_CASE("a halted job holds operations back, and says so at their deadline") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  const auto halt = [&on](bool halted) {
    on.operate([halted](control::Control& control, Time now, control::Effects& effects) {
      control.halt(1, halted, now, effects, [](const control::OperatorReply&) {});
    });
  };
  SECTION("resumed in time") {
    halt(true);
    std::thread operation_ends([&] {
      std::this_thread::sleep_for(200ms);
      halt(false);
    });
    const auto begin = Clock::now();
    CHECK(on_each(ranks, [&](std::size_t rank) { return sum_once(*agents[rank], rank, ranks); }) ==
          "");
    CHECK(Clock::now() - begin >= 150ms);
    operation_ends.join();
  }
  SECTION("not resumed") {
    halt(true);
    std::vector<AgentError> errors(ranks);
    on_each(ranks, [&](std::size_t rank) -> std::string {
      std::vector<float> data(10, 1.0F);
      errors[rank] =
          agents[rank]->all_reduce(data, data, Reduce::sum, {.timeout = 300ms, .tag = 0}).wait();
      return {};
    });
    for (const AgentError& error : errors) {
      INFO(error.text);
      CHECK(error.code == AgentErrorCode::halted);
    }
    halt(false);
    CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
          "");
  }
}

TEST_CASE("a switch that is gone, and nobody waits for") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  const auto adjust = [](AgentOptions& options, std::size_t) { options.resume_within = 0ms; };
  Agents agents = join_all(on, ranks, problem, adjust);
  REQUIRE(problem.empty());
  REQUIRE(on_each(ranks, [&](std::size_t rank) { return sum_once(*agents[rank], rank, ranks); }) ==
          "");
  std::vector<AgentError> errors(ranks);
  const auto fail_all = [&](std::chrono::milliseconds timeout) {
    const auto begin = Clock::now();
    on_each(ranks, [&](std::size_t rank) -> std::string {
      std::vector<float> data(5'000, 1.0F);
      errors[rank] =
          agents[rank]->all_reduce(data, data, Reduce::sum, {.timeout = timeout, .tag = 0}).wait();
      return {};
    });
    return Clock::now() - begin;
  };
  SECTION("silently, and back with no memory of anybody") {
    on.cut();
    CHECK(fail_all(600ms) < 2s);
    for (const AgentError& error : errors) {
      INFO(error.text);
      CHECK(error.code == AgentErrorCode::switch_gone);
    }
    on.set_faults({}, {});
    on.restart();
  }
  SECTION("with a word") {
    std::thread leaves([&] {
      std::this_thread::sleep_for(100ms);
      on.leave();
    });
    std::vector<float> data(5'000, 1.0F);
    const auto begin = Clock::now();
    const AgentError error = agents[0]->all_reduce(data, data).wait();
    CHECK(Clock::now() - begin < 5s);  // far before the deadline of 20 s
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::switch_gone);
    leaves.join();
    on.restart();
  }
  // The same agents are members of the next life's job, and so are new ones.
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
  agents.clear();
  agents = join_all(on, ranks, problem);
  INFO(problem);
  REQUIRE(problem.empty());
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
}

TEST_CASE("ranks that disagree are told") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  const bool by_tag = GENERATE(false, true);
  std::vector<AgentError> errors(ranks);
  on_each(ranks, [&](std::size_t rank) -> std::string {
    std::vector<float> data(by_tag ? 100 : 100 + rank, 1.0F);
    const OperationOptions options{.timeout = 5s,
                                   .tag = by_tag ? static_cast<std::uint32_t>(rank) : 0};
    errors[rank] = agents[rank]->all_reduce(data, data, Reduce::sum, options).wait();
    return {};
  });
  for (const AgentError& error : errors) {
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::mismatch);
  }
  CHECK(on_each(ranks, [&](std::size_t rank) { return sum_again(*agents[rank], rank, ranks); }) ==
        "");
}

TEST_CASE("forced sums are reported as partial") {
  constexpr std::size_t ranks = 3;
  control::JobConfig job = job_of(ranks);
  job.force_after = 50 * millisecond;
  TestSwitch on({.jobs = {job}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  std::vector<Handle> handles(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(800));
  CHECK(on_each(2, [&](std::size_t rank) -> std::string {
          for (std::size_t i = 0; i < data[rank].size(); ++i) data[rank][i] = value_at(rank, i);
          handles[rank] = agents[rank]->all_reduce(data[rank], data[rank], Reduce::mean);
          if (const AgentError error = handles[rank].wait()) return error_text(error);
          for (std::size_t i = 0; i < data[rank].size(); ++i) {
            // Divided by the two that are in it, not by the three members.
            if (data[rank][i] != sum_at(2, i) / 2.0F) return "wrong mean";
          }
          return {};
        }) == well);
  for (const Handle& handle : handles) {
    CHECK(handle.partial());
    CHECK(handle.smallest_workers() == 2);
  }
  // A broadcast whose root stays away is no broadcast.
  const AgentError error = agents[0]->broadcast(data[0], 2).wait();
  INFO(error.text);
  CHECK(error.code == AgentErrorCode::root_missing);
}

TEST_CASE("join says what is wrong in one line") {
  TestSwitch on({.jobs = {job_of(2)}});
  AgentOptions options = options_for(on, 0);
  options.join_timeout = 300ms;
  const auto failure = [](const AgentOptions& wrong) {
    auto joined = Agent::join(wrong);
    REQUIRE_FALSE(joined);
    const AgentError error = joined.error();
    INFO(error.text);
    CHECK_FALSE(error.text.empty());
    CHECK(error.text.find('\n') == std::string::npos);
    return error;
  };
  SECTION("addresses that are none") {
    for (const char* address : {"", "switch", "10.0.0", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000",
                                "10.0.0.1:1x", "10.0.0.1:1:2", "256.0.0.1"}) {
      options.switch_address = address;
      const AgentError error = failure(options);
      CHECK(error.code == AgentErrorCode::bad_argument);
      CHECK_THAT(error.text, Contains(std::string("'") + address + "'"));
    }
    options.switch_address = on.address();
    options.local_address = "here";
    CHECK(failure(options).code == AgentErrorCode::bad_argument);
    options.local_address = "192.0.2.1";
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::system);
    CHECK_THAT(error.text, Contains("192.0.2.1"));
  }
  SECTION("a rank beyond what a switch has") {
    options.rank = 64;
    CHECK(failure(options).code == AgentErrorCode::bad_argument);
    options.rank = 5;  // and one beyond what this job has
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::refused);
    CHECK_THAT(error.text, Contains("job 1") && Contains(on.address()));
  }
  SECTION("no switch there") {
    std::string address;
    {
      TestSwitch gone({.jobs = {job_of(1)}});
      address = gone.address();
    }
    options.switch_address = address;
    const auto begin = Clock::now();
    const AgentError error = failure(options);
    CHECK(Clock::now() - begin < 2s);
    CHECK(error.code == AgentErrorCode::switch_gone);
    CHECK_THAT(error.text, Contains(address) && Contains("job 1") && Contains("nothing listens"));
  }
  SECTION("a switch that is silent") {
    on.cut();
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::switch_gone);
    CHECK_THAT(error.text, Contains(on.address()) && Contains("300 ms"));
  }
  SECTION("others that do not come") {
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::timed_out);
    CHECK_THAT(error.text, Contains("1 of 2"));
  }
  SECTION("an unknown job") {
    options.job = 77;
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::refused);
    CHECK_THAT(error.text, Contains("job 77"));
  }
  SECTION("a local port that is taken") {
    options.local_port = on.port();
    options.local_address = "127.0.0.2";
    const AgentError error = failure(options);
    CHECK(error.code == AgentErrorCode::system);
    CHECK_THAT(error.text, Contains(on.address()) && Contains("another process has this port"));
  }
}

TEST_CASE("keys") {
  const std::string right = "0123456789abcdef0123456789abcdef";
  control::JobConfig job = job_of(1);
  job.key.assign(right.begin(), right.end());
  TestSwitch on({.jobs = {job}});
  AgentOptions options = options_for(on, 0);
  options.join_timeout = 1s;
  const auto try_key = [&](const std::string& content, mode_t mode) {
    const std::string file = temporary_file(content, mode);
    options.key_file = file;
    auto joined = Agent::join(options);
    unlink(file.c_str());
    return joined ? AgentError{} : joined.error();
  };
  CHECK_FALSE(try_key(right, 0600));

  AgentError error = try_key("ffffffffffffffff", 0600);
  INFO(error.text);
  CHECK(error.code == AgentErrorCode::refused);
  CHECK_THAT(error.text, Contains("key") && Contains(on.address()));

  error = try_key(right, 0640);
  CHECK(error.code == AgentErrorCode::bad_argument);
  CHECK_THAT(error.text, Contains("0640") && Contains("iswitch-key-"));
  error = try_key("short", 0600);
  CHECK(error.code == AgentErrorCode::bad_argument);
  CHECK_THAT(error.text, Contains("16 to 1024") && Contains("holds 5"));
  error = try_key(std::string(1'025, 'k'), 0600);
  CHECK(error.code == AgentErrorCode::bad_argument);
  options.key_file = "no-such-key-file";
  auto joined = Agent::join(options);
  REQUIRE_FALSE(joined);
  CHECK_THAT(joined.error().text, Contains("no-such-key-file") && Contains("No such file"));

  options.key_file.clear();  // none where one is needed
  auto unsigned_join = Agent::join(options);
  REQUIRE_FALSE(unsigned_join);
  CHECK(unsigned_join.error().code == AgentErrorCode::refused);
}

TEST_CASE("vectors and handles that are no good") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  REQUIRE(problem.empty());
  Agent& agent = *agents[0];
  std::vector<float> data(100, 1.0F), other(99, 1.0F);
  CHECK(agent.all_reduce(data, other).wait().code == AgentErrorCode::bad_argument);
  CHECK(agent.all_reduce({data.data(), 50}, {data.data() + 1, 50}).wait().code ==
        AgentErrorCode::bad_argument);
  CHECK(agent.all_reduce({data.data(), 50}, {static_cast<float*>(nullptr), 50}).wait().code ==
        AgentErrorCode::bad_argument);
  Handle empty;
  CHECK(empty.done());
  CHECK(empty.wait().code == AgentErrorCode::bad_argument);
  CHECK(data == std::vector<float>(100, 1.0F));
  CHECK(agent.broadcast(other, 64).wait().code == AgentErrorCode::root_missing);  // nobody's rank
  // A deadline that has passed already is a failure like any other, and the next operation works.
  const AgentError late =
      agent.all_reduce(data, data, Reduce::sum, {.timeout = 0ms, .tag = 0}).wait();
  CHECK((late.code == AgentErrorCode::timed_out || late.code == AgentErrorCode::none));
  CHECK(sum_again(agent, 0, 1) == well);
}

// In a network namespace of its own, with an MTU of 1280 on loopback; see in_namespace.sh.

TEST_CASE("an MTU that is too small for the job's segments is told with both numbers",
          "[.namespace]") {
  TestSwitch on({.jobs = {job_of(1)}});
  AgentOptions options = options_for(on, 0);
  options.join_timeout = 1s;
  auto joined = Agent::join(options);
  REQUIRE_FALSE(joined);
  INFO(joined.error().text);
  CHECK(joined.error().code == AgentErrorCode::refused);
  CHECK_THAT(joined.error().text, Contains("1440") && Contains("1490") && Contains("1280"));
}

TEST_CASE("an MTU that shrinks under a running job is told with both numbers", "[.namespace]") {
  INFO("only in in_namespace.sh's network: this changes loopback");
  REQUIRE(std::system("ip link show lo | grep -q 'mtu 1280 '") == 0);
  control::JobConfig job = job_of(1);
  job.segment_bytes = 1'216;
  TestSwitch on({.jobs = {job}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  INFO(problem);
  REQUIRE(problem.empty());
  CHECK(sum_once(*agents[0], 0, 1) == well);
  REQUIRE(std::system("ip link set lo mtu 1000") == 0);
  const std::string wrong = sum_once(*agents[0], 0, 1);
  REQUIRE(std::system("ip link set lo mtu 1280") == 0);
  CHECK_THAT(wrong, Contains("1000") && Contains("1266"));
}

TEST_CASE("no route is told with what to do", "[.namespace]") {
  AgentOptions options;
  options.switch_address = "198.51.100.1";
  options.join_timeout = 1s;
  auto joined = Agent::join(options);
  REQUIRE_FALSE(joined);
  INFO(joined.error().text);
  CHECK(joined.error().code == AgentErrorCode::system);
  CHECK_THAT(joined.error().text, Contains("198.51.100.1:17170") && Contains("no route"));
}
