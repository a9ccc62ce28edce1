#include "switchd/memory_plan.h"

#include <catch2/catch.hpp>

using namespace iswitch;
using namespace iswitch::switchd;

TEST_CASE("a slot's open sum and kept results each need a buffer") {
  control::JobConfig job;
  job.members = 4;
  job.slots = 100;
  CHECK(payload_buffers_needed(job, false) == 200);  // history 1
  job.threshold = 3;
  CHECK(payload_buffers_needed(job, false) == 900);  // history 8
  job.history = 2;
  CHECK(payload_buffers_needed(job, false) == 300);
  CHECK(payload_buffers_needed(std::vector{job, job}, false) == 600);
}

TEST_CASE("an asynchronous child has a sum waiting at its parent beside the open one") {
  control::JobConfig job;
  job.members = 4;
  job.slots = 100;
  CHECK(payload_buffers_needed(job, true) == 200);  // synchronous: the open sum is what waits
  job.mode = wire::Mode::async;
  CHECK(payload_buffers_needed(job, false) == 900);
  CHECK(payload_buffers_needed(job, true) == 1000);
  CHECK(plan_memory({}, {job}, true).payload_budget ==
        plan_memory({}, {job}, false).payload_budget + 100);
}

TEST_CASE("pools hold what queues and jobs can hold at once") {
  control::JobConfig job;
  job.members = 4;
  MemoryWish wish;
  wish.largest_frame = 9018;
  wish.largest_segment = 8928;
  wish.ports = {{1024, 1024}, {1024, 512}};
  const MemoryPlan plan = plan_memory(wish, {job});
  CHECK(plan.frame_bytes >= 128 + 9000 + 14);
  CHECK(plan.payload_bytes >= 128 + 8928);
  CHECK(plan.header_bytes >= 128 + 64);
  CHECK(plan.frame_buffers >= 2048 + 1536);
  CHECK(plan.header_buffers >= 1536);
  CHECK(plan.payload_budget == 2048 + 4096);
  // A result pushed out of its slot may still wait in a transmit queue.
  CHECK(plan.payload_buffers >= plan.payload_budget + 1536);
  CHECK(plan.total_bytes() > std::uint64_t{plan.payload_buffers} * plan.payload_bytes);

  wish.payload_buffers = 5000;
  wish.frame_buffers = 600;
  const MemoryPlan given = plan_memory(wish, {job});
  CHECK(given.payload_budget == 5000);
  CHECK(given.frame_buffers == 600);
}
