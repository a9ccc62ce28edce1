// Starting, stopping, forking, waiting from many threads, and memory that stays flat.
#include <dirent.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "tests/unit/agent/ranks.h"

using namespace iswitch;
using namespace iswitch::test;
using Clock = std::chrono::steady_clock;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
#else
constexpr bool sanitized = false;
#endif

std::size_t entries(const char* directory) {
  std::size_t count = 0;
  DIR* dir = opendir(directory);
  while (dir != nullptr && readdir(dir) != nullptr) ++count;
  if (dir != nullptr) closedir(dir);
  return count;
}

std::size_t heap_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

TEST_CASE("a thousand starts and stops in one process") {
  TestSwitch on({.jobs = {job_of(1)}});
  const std::size_t descriptors = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  std::size_t heap = 0;
  for (int i = 0; i < 1'000; ++i) {
    AgentOptions options = options_for(on, 0);
    options.background_thread = i % 4 != 0;
    auto joined = Agent::join(options);
    INFO(i << (joined ? "" : " " + joined.error().text));
    REQUIRE(joined);
    if (i % 3 == 0) {
      float one = 1.0F;
      REQUIRE_FALSE((*joined)->all_reduce({&one, 1}, {&one, 1}).wait());
    }
    if (i % 2 == 0) REQUIRE_FALSE((*joined)->leave());
    if (i == 200) heap = heap_in_use();
  }
  CHECK(entries("/proc/self/fd") == descriptors);
  CHECK(entries("/proc/self/task") == threads);
  if (!sanitized) CHECK(heap_in_use() < heap + std::size_t{256} * 1024);
}

TEST_CASE("an agent that goes while operations run wakes everybody") {
  const bool thread = GENERATE(true, false);
  const bool leave = GENERATE(true, false);
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem, [&](AgentOptions& options, std::size_t) {
    options.background_thread = thread;
  });
  REQUIRE(problem.empty());
  std::vector<float> data(100'000, 1.0F);
  std::vector<Handle> handles(3);
  for (Handle& handle : handles) handle = agents[0]->all_reduce(data, data);
  std::vector<AgentError> errors(4);
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    waiters.emplace_back([&, i] { errors[i] = handles[i % 3].wait(); });
  }
  std::this_thread::sleep_for(50ms);
  const auto begin = Clock::now();
  if (leave) {
    CHECK_FALSE(agents[0]->leave());
  } else {
    agents[0].reset();
  }
  for (std::thread& waiter : waiters) waiter.join();
  CHECK(Clock::now() - begin < 2s);
  for (const AgentError& error : errors) {
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::closed);
  }
  // Nothing may touch the vectors any more, and handles stay usable.
  for (Handle& handle : handles) {
    CHECK(handle.done());
    CHECK(handle.wait().code == AgentErrorCode::closed);
  }
  if (leave) {
    CHECK(agents[0]->all_reduce(data, data).wait().code == AgentErrorCode::closed);
    CHECK_FALSE(agents[0]->leave());
    agents[0].reset();
  }
}

TEST_CASE("leaving a switch that does not answer is bounded, and said") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  REQUIRE(problem.empty());
  on.cut();
  const auto begin = Clock::now();
  SECTION("leave") {
    const AgentError error = agents[0]->leave();
    INFO(error.text);
    CHECK(error.code == AgentErrorCode::switch_gone);
    CHECK(Clock::now() - begin < 4s);
  }
  SECTION("destructor") {
    agents.clear();
    CHECK(Clock::now() - begin < 1500ms);
  }
}

TEST_CASE("a leave takes effect at the switch") {
  TestSwitch on({.jobs = {job_of(2)}});
  std::string problem;
  Agents agents = join_all(on, 2, problem);
  REQUIRE(problem.empty());
  REQUIRE(on.job(1).members.size() == 2);
  agents[1].reset();
  CHECK(on.job(1).members.size() == 1);
}

TEST_CASE("one operation is waited for by many threads, with and without a thread of the agent's") {
  const bool thread = GENERATE(true, false);
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem, [&](AgentOptions& options, std::size_t) {
    options.background_thread = thread;
  });
  REQUIRE(problem.empty());
  std::vector<std::vector<float>> data(ranks, std::vector<float>(30'000, 2.0F));
  Handle first = agents[0]->all_reduce(data[0], data[0]);
  CHECK_FALSE(first.wait_for(20ms));
  CHECK_FALSE(first.done());
  std::vector<std::thread> waiters;
  std::atomic<int> ended_well{0};
  waiters.reserve(4);
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&, i] {
      Handle mine = first;
      if (i == 3) {
        for (int k = 0; k < 200 && !mine.done(); ++k) agents[0]->progress(1ms);
      }
      while (!mine.wait_for(std::chrono::milliseconds(i))) {
      }
      if (!mine.wait()) ++ended_well;
    });
  }
  CHECK_FALSE(agents[1]->all_reduce(data[1], data[1]).wait());
  for (std::thread& waiter : waiters) waiter.join();
  CHECK(ended_well == 4);
  CHECK(data[0] == std::vector<float>(30'000, 4.0F));
  CHECK(data[1] == data[0]);
}

TEST_CASE("operations submitted from several threads of one rank") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  REQUIRE(problem.empty());
  CHECK(on_each(4, [&](std::size_t thread) -> std::string {
          std::vector<float> data(2'000);
          for (int turn = 0; turn < 100; ++turn) {
            std::fill(data.begin(), data.end(), static_cast<float>(thread * 1'000 + turn));
            if (const AgentError error = agents[0]->all_reduce(data, data).wait())
              return error_text(error);
            for (const float value : data) {
              if (value != static_cast<float>(thread * 1'000 + turn)) return "wrong value";
            }
          }
          return {};
        }) == well);
}

TEST_CASE("a caller-driven agent moves by progress alone") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem, [](AgentOptions& options, std::size_t) {
    options.background_thread = false;
  });
  REQUIRE(problem.empty());
  std::vector<float> data(20'000, 3.0F);
  Handle handle = agents[0]->all_reduce(data, data);
  std::this_thread::sleep_for(30ms);
  CHECK_FALSE(handle.done());
  const auto give_up = Clock::now() + 10s;
  while (!handle.done() && Clock::now() < give_up) agents[0]->progress(10ms);
  CHECK_FALSE(handle.wait());
  agents[0]->progress();
  // Waiting for no time at all moves it too.
  handle = agents[0]->all_reduce(data, data);
  while (!handle.wait_for(0ms) && Clock::now() < give_up) {
  }
  CHECK(handle.done());
}

TEST_CASE("a background agent finishes operations that nobody waits for") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  REQUIRE(problem.empty());
  std::vector<float> data(20'000, 3.0F);
  // First many that are waited for at once, so that the thread has learned to stay out of the way.
  for (int i = 0; i < 50; ++i) REQUIRE_FALSE(agents[0]->barrier().wait());
  for (int i = 0; i < 5; ++i) {
    Handle handle = agents[0]->all_reduce(data, data);
    const auto give_up = Clock::now() + 10s;
    while (!handle.done() && Clock::now() < give_up) std::this_thread::sleep_for(1ms);
    CHECK(handle.done());
  }
  // And it keeps the membership alive while nothing is asked of it.
  std::this_thread::sleep_for(1'500ms);
  CHECK(on.job(1).members.size() == 1);
  CHECK_FALSE(agents[0]->barrier().wait());
}

TEST_CASE("after fork the child's copy is closed and touches nothing") {
  TestSwitch on({.jobs = {job_of(1)}});
  std::string problem;
  Agents agents = join_all(on, 1, problem);
  REQUIRE(problem.empty());
  std::vector<float> data(100'000, 1.0F);
  Handle under_way = agents[0]->all_reduce(data, data);
  int report[2];
  REQUIRE(pipe(report) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Several threads of the parent are gone here, perhaps with locks held: only the agent is used.
    std::string text;
    float one = 1.0F;
    const AgentError submitted = agents[0]->all_reduce({&one, 1}, {&one, 1}).wait();
    if (submitted.code != AgentErrorCode::closed) text += "operation: " + submitted.text + ". ";
    if (submitted.text.find("fork") == std::string::npos) text += "text: " + submitted.text + ". ";
    if (!under_way.done()) text += "inherited handle is not done. ";
    const AgentError waited = under_way.wait();
    if (waited && waited.code != AgentErrorCode::closed) text += "wait: " + waited.text + ". ";
    if (agents[0]->leave().code != AgentErrorCode::closed) text += "leave did not say closed. ";
    if (agents[0]->size() != 0 || agents[0]->rank() != 0xFFFF) text += "rank or size of nothing. ";
    agents[0]->progress(1ms);
    static_cast<void>(agents[0]->statistics());
    agents[0].reset();
    text += "end";
    static_cast<void>(!write(report[1], text.data(), text.size()));
    _exit(0);
  }
  close(report[1]);
  std::string text;
  char chunk[256];
  for (ssize_t size = 0; (size = read(report[0], chunk, sizeof chunk)) > 0;) {
    text.append(chunk, static_cast<std::size_t>(size));
  }
  close(report[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(text == "end");
  CHECK(status == 0);
  // The parent has noticed nothing.
  CHECK_FALSE(under_way.wait());
  CHECK(on.job(1).members.size() == 1);
  CHECK_FALSE(agents[0]->barrier().wait());
}

TEST_CASE("a child that lives on does not keep the member's port") {
  TestSwitch on({.jobs = {job_of(1)}});
  AgentOptions options = options_for(on, 0);
  auto joined = Agent::join(options);
  REQUIRE(joined);
  const std::uint16_t port = on.job(1).members.at(0).spec.endpoint.udp_port;
  int up[2], end[2];
  REQUIRE(pipe(up) == 0);
  REQUIRE(pipe(end) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(end[1]);
    static_cast<void>(!write(up[1], &byte, 1));
    static_cast<void>(!read(end[0], &byte, 1));  // until the parent is done
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(up[0], &byte, 1) == 1);
  close(up[0]);
  close(up[1]);
  (*joined).reset();
  options.local_port = port;
  auto again = Agent::join(options);
  INFO((again ? std::string() : again.error().text));
  CHECK(again);
  close(end[1]);
  close(end[0]);
  waitpid(child, nullptr, 0);
}

TEST_CASE("ten thousand small operations leave memory where it was") {
  constexpr std::size_t ranks = 2;
  TestSwitch on({.jobs = {job_of(ranks)}});
  std::string problem;
  Agents agents = join_all(on, ranks, problem);
  REQUIRE(problem.empty());
  const auto many = [&](int count) {
    return on_each(ranks, [&](std::size_t rank) -> std::string {
      std::vector<float> data(10);
      for (int turn = 0; turn < count; ++turn) {
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_at(rank, i);
        if (const AgentError error = agents[rank]->all_reduce(data, data).wait())
          return error_text(error);
        if (data[3] != sum_at(ranks, 3)) return "wrong sum";
      }
      return {};
    });
  };
  REQUIRE(many(1'000) == well);
  const std::size_t before = heap_in_use();
  const std::size_t buffers = on.buffers_in_use();
  REQUIRE(many(10'000) == well);
  if (!sanitized) CHECK(heap_in_use() < before + std::size_t{128} * 1024);
  CHECK(on.buffers_in_use() <= buffers + 1);
  CHECK(agents[0]->statistics().operations_done == 11'000);
}
