#include "switchd/pipeline/job_stats.h"

namespace iswitch::pipeline {

JobStatsList::~JobStatsList() {
  for (const Node* node = head_.load(std::memory_order_relaxed); node != nullptr;) {
    const std::unique_ptr<const Node> owned(node);
    node = node->next;
  }
}

JobStats& JobStatsList::open(wire::JobId job) {
  Node* node = head_.load(std::memory_order_relaxed);
  while (node != nullptr && node->job.load(std::memory_order_relaxed) != unused) node = node->next;
  if (node == nullptr) {
    node = std::make_unique<Node>().release();
    node->next = head_.load(std::memory_order_relaxed);
    head_.store(node, std::memory_order_release);
  }
  for (Tally& value : node->stats.values_) value.set(0);
  for (std::atomic<Time>& time : node->stats.last_heard_) time.store(0, std::memory_order_relaxed);
  node->job.store(job, std::memory_order_release);
  return node->stats;
}

void JobStatsList::close(const JobStats& stats) {
  for (Node* node = head_.load(std::memory_order_relaxed); node != nullptr; node = node->next) {
    if (&node->stats == &stats) node->job.store(unused, std::memory_order_release);
  }
}

}  // namespace iswitch::pipeline
