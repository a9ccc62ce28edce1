// The checkers of these tests, each shown to bite.
#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/pipeline/rig.h"

using namespace iswitch;
using namespace iswitch::testing;

namespace {

bool complained(const BlockPool& pool, const std::string& what) {
  const auto& list = pool.complaints();
  return std::find(list.begin(), list.end(), what) != list.end();
}

/// Buffers that forget to share, as a pipeline without the shares of its outbox would.
struct ForgetfulPool : BlockPool {
  using BlockPool::BlockPool;
  void share(Handle, unsigned) {}
};

}  // namespace

TEST_CASE("the pool sees a write while shared") {
  BlockPool pool(4);
  const auto block = pool.acquire();
  pool.data(block)[0] = 1;
  pool.share(block, 1);
  CHECK(pool.complaints().empty());
  pool.data(block)[0] = 2;
  pool.release(block);
  CHECK(complained(pool, "written while shared"));
}

TEST_CASE("the pool sees a write past the room, a double release and use after release") {
  BlockPool pool(4);
  auto block = pool.acquire();
  pool.data(block)[BlockPool::room] = 0;
  pool.release(block);
  CHECK(complained(pool, "written past the room"));
  pool.release(block);
  CHECK(complained(pool, "released twice"));
  pool.data(block);
  CHECK(complained(pool, "read after its release"));
}

TEST_CASE("the pool sees a leak, and is exhausted where it says so") {
  BlockPool pool(1);
  const auto block = pool.acquire();
  CHECK(pool.in_use() == 1);
  CHECK_FALSE(pool.acquire());
  pool.release(block);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("the pool would see an outbox that holds no shares") {
  ForgetfulPool pool(100);
  {
    struct NullSink {
      void forward(unsigned, PortMask) {}
      void transmit(PortId, Bytes) {}
      bool control(const datapath::ControlFrame&) { return true; }
      void notice(const Notice&) {}
      void result(const pipeline::Delivery<BlockPool::Handle>&) {}
    } sink;
    pipeline::PipelineConfig config;
    config.address.mac = switch_mac;
    config.address.rules.ip = switch_ip;
    pipeline::Pipeline<ForgetfulPool> pipeline(config, pool);
    pipeline.execute({1, 1, datapath::Install{small_job()}}, 0, sink);
    datapath::MemberSpec member;
    member.endpoint = endpoint_of(0);
    pipeline.execute({2, 1, datapath::PutMember{member}}, 0, sink);
    pipeline.execute({3, 1, datapath::Start{0}}, 0, sink);
    const FrameBytes frame = make_frame(Part{.member = 0, .floats = {1}});
    const pipeline::Frame received{.bytes = frame.data(),
                                   .size = static_cast<std::uint32_t>(frame.size()),
                                   .port = 0,
                                   .offload = {}};
    pipeline.run({&received, 1}, 0, sink);
  }
  CHECK(complained(pool, "released twice"));
}

TEST_CASE("the partition of counters notices a frame in none and a frame in two") {
  pipeline::Counters counters;
  CHECK(check_partition(counters).empty());
  counters.add(Counter::parse_received, 2);
  counters.add(Counter::l2_flooded);
  CHECK_FALSE(check_partition(counters).empty());
  counters.add(Counter::aggregate_added);
  CHECK(check_partition(counters).empty());
  counters.add(Counter::aggregate_opened);  // not terminal
  CHECK(check_partition(counters).empty());
  counters.add(Counter::control_passed);
  CHECK_FALSE(check_partition(counters).empty());
}

TEST_CASE("every counter has a name of its stage, and faults their own") {
  std::vector<std::string> names;
  pipeline::Counters counters;
  pipeline::for_each_counter(counters, [&](const char* name, std::uint64_t, bool terminal) {
    const std::string text = name;
    const std::string stage = text.substr(0, text.find('_'));
    CHECK((stage == "parse" || stage == "classify" || stage == "aggregate" || stage == "deliver" ||
           stage == "parent" || stage == "control" || stage == "notice" || stage == "l2" ||
           stage == "local"));
    if (text.find("_drop_") != std::string::npos) CHECK(terminal);
    CHECK(std::find(names.begin(), names.end(), text) == names.end());
    names.push_back(text);
  });
  CHECK(names.size() == pipeline::counter_count);
  for (auto f = static_cast<unsigned>(wire::Fault::none) + 1;
       f < static_cast<unsigned>(wire::Fault::count_); ++f) {
    const auto fault = static_cast<wire::Fault>(f);
    CHECK(std::string(pipeline::counter_name(pipeline::parse_drop(fault))) ==
          std::string("parse_drop_") + wire::fault_name(fault));
  }
  for (unsigned a = 0; a < pipeline::row_accounts.size(); ++a)
    CHECK(
        pipeline::counter_is_terminal(pipeline::account_of(static_cast<pipeline::Row>(a)).counter));
}
