// iswitch-allreduce from the outside: its result, figures, exit codes and one-line errors.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/agent/ranks.h"

using namespace iswitch::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// A directory that goes with it.
struct Directory {
  fs::path path;
  Directory() {
    std::string name = (fs::temp_directory_path() / "iswitch-allreduce-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Directory() { fs::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

void write_file(const std::string& name, const void* bytes, std::size_t size) {
  std::ofstream(name, std::ios::binary)
      .write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}
std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// Through the shell, as a user would: `environment` stands in front.
Outcome run(const Directory& in, const std::string& name, const std::string& arguments,
            const std::string& environment = "") {
  const char* tool = std::getenv("ISWITCH_ALLREDUCE");
  const std::string out = in / (name + ".stdout"), err = in / (name + ".stderr");
  const std::string command = "env -u RANK -u WORLD_SIZE -u ISWITCH_SWITCH -u ISWITCH_KEY_FILE " +
                              environment + " '" + tool + "' " + arguments + " > '" + out +
                              "' 2> '" + err + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

void is_one_line(const std::string& text) {
  CHECK_THAT(text, Contains("iswitch-allreduce: "));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(text.back() == '\n');
}

}  // namespace

TEST_CASE("iswitch-allreduce sums files") {
  REQUIRE(std::getenv("ISWITCH_ALLREDUCE") != nullptr);
  constexpr std::size_t ranks = 3, length = 10'244;
  TestSwitch on({.jobs = {job_of(ranks)}});
  Directory in;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<float> data(length);
    for (std::size_t i = 0; i < length; ++i) data[i] = value_at(rank, i);
    write_file(in / ("in" + std::to_string(rank)), data.data(), data.size() * sizeof(float));
  }
  std::vector<Outcome> outcomes(ranks);
  const auto all =
      [&](const std::function<std::pair<std::string, std::string>(const std::string&)>& arguments) {
        on_each(ranks, [&](std::size_t rank) -> std::string {
          const auto [line, environment] = arguments(std::to_string(rank));
          outcomes[rank] = run(in, "rank" + std::to_string(rank), line, environment);
          return {};
        });
        for (const Outcome& outcome : outcomes) {
          INFO(outcome.err);
          CHECK(outcome.code == 0);
          CHECK(outcome.err.empty());
        }
      };
  SECTION("flags and files, with figures") {
    all([&](const std::string& rank) {
      return std::pair("--input '" + (in / ("in" + rank)) + "' --output '" + (in / ("out" + rank)) +
                           "' --switch " + on.address() + " --rank " + rank +
                           " --size 3 --repeat 3 --json --tag 5 --timeout 20",
                       std::string());
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<float> sum = floats(read_file(in / ("out" + std::to_string(rank))));
      REQUIRE(sum.size() == length);
      bool right = true;
      for (std::size_t i = 0; i < length; ++i) right = right && sum[i] == sum_at(ranks, i);
      CHECK(right);
      const auto figures = nlohmann::json::parse(outcomes[rank].out);
      CHECK(figures["rank"] == rank);
      CHECK(figures["size"] == ranks);
      CHECK(figures["bytes"] == length * sizeof(float));
      CHECK(figures["repeat"] == 3);
      CHECK(figures["seconds"] > 0.0);
      const double goodput = 3.0 * length * sizeof(float) / figures["seconds"].get<double>();
      CHECK(figures["goodput_bytes_per_second"].get<double>() == Approx(goodput));
      CHECK(figures["results"] == 3 * 29);
      CHECK(figures["retransmissions"] >= 0);
    }
  }
  SECTION("environment and pipes, mean") {
    all([&](const std::string& rank) {
      return std::pair("--mean < '" + (in / ("in" + rank)) + "'",
                       "RANK=" + rank + " WORLD_SIZE=3 ISWITCH_SWITCH=" + on.address());
    });
    for (const Outcome& outcome : outcomes) {
      const std::vector<float> mean = floats(outcome.out);
      REQUIRE(mean.size() == length);
      bool right = true;
      for (std::size_t i = 0; i < length; ++i) right = right && mean[i] == sum_at(ranks, i) / 3.0F;
      CHECK(right);
    }
  }
}

TEST_CASE("iswitch-allreduce says what is wrong") {
  REQUIRE(std::getenv("ISWITCH_ALLREDUCE") != nullptr);
  TestSwitch on({.jobs = {job_of(1, 1), job_of(2, 2)}});
  Directory in;
  write_file(in / "four", "abcd", 4);
  write_file(in / "five", "abcde", 5);
  const std::string usual =
      " --switch " + on.address() + " --timeout 0.5 --input '" + (in / "four") + "'";
  const auto fails = [&](int code, const std::string& arguments, const std::string& text,
                         const std::string& environment = "") {
    INFO(arguments);
    const Outcome outcome = run(in, "bad", arguments, environment);
    CHECK(outcome.code == code);
    is_one_line(outcome.err);
    CHECK_THAT(outcome.err, Contains(text));
    CHECK(outcome.out.empty());
  };
  CHECK(run(in, "good", usual).code == 0);
  CHECK_THAT(run(in, "help", "--help").out, Contains("Exit codes") && Contains("--key-file"));
  fails(2, "--input '" + (in / "four") + "'", "--switch");
  fails(2, usual + " --what", "--what");
  fails(2, usual + " --repeat 0", "--repeat");
  fails(2, usual + " --json", "--output");
  fails(2, usual + " --rank 3 --size 3", "rank 3");
  fails(2, usual, "--rank = x", "RANK=x");
  fails(2, " --switch nowhere --input '" + (in / "four") + "'", "nowhere");
  fails(2, " --switch " + on.address() + " --input '" + (in / "five") + "'", "5 bytes");
  fails(2, usual + " --size 2", "has 1 members");
  fails(2, usual + " --key-file '" + (in / "none") + "'", "key file");
  fails(1, " --switch " + on.address() + " --input '" + (in / "none") + "'", "cannot open input");
  fails(1, usual + " --output '" + (in / "no/dir") + "'", "cannot open output");
  fails(3, usual + " --job 9", "no such job");
  fails(3, usual + " --job 2", "1 of 2");
  on.cut();
  fails(3, usual, "no answer");
}
