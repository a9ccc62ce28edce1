// Ranks of asynchronous jobs.
#pragma once

#include "tests/unit/agent/ranks.h"

namespace iswitch::test {

inline control::JobConfig async_job(std::uint16_t members, std::uint16_t threshold = 0) {
  control::JobConfig job = job_of(members);
  job.mode = wire::Mode::async;
  job.threshold = threshold;
  // Segments group different workers' pushes, so with a threshold of 2 of 3 three workers may wait
  // for each other in a circle.
  if (threshold > 1) job.force_after = 20 * millisecond;
  return job;
}

/// The operator's Reset.
inline void reset_job(TestSwitch& on, wire::JobId job = 1) {
  on.operate([job](control::Control& control, Time now, control::Effects& effects) {
    control.reset(job, now, effects, [](auto&&...) {});
  });
}

inline Agents join_async(const TestSwitch& on, std::size_t ranks, std::size_t elements,
                         std::string& problem, bool thread = true) {
  return join_all(on, ranks, problem, [&](AgentOptions& options, std::size_t) {
    options.async_elements = elements;
    options.background_thread = thread;
  });
}

/// Whoever joined last may have joined a running job; here nothing has happened in it.
inline std::string begin_all(Agents& agents) {
  for (auto& agent : agents) {
    const auto until = std::chrono::steady_clock::now() + 5s;
    SliceUpdate update;
    MemberEvent event;
    while (std::chrono::steady_clock::now() < until) {
      const auto arrived = agent->next(update, event, 20ms);
      if (!arrived) return error_text(arrived.error());
      if (*arrived != Arrived::event) break;
      if (event.kind != MemberEventKind::joined || !event.untouched) return event.text;
      if (const AgentError error = agent->resume(agent->numbers())) return error_text(error);
    }
  }
  return {};
}

/// Takes `count` updates of every segment and adds them up; pushes meanwhile.
inline std::string push_and_take(Agent& agent, std::size_t rank, std::size_t elements,
                                 std::size_t count, std::vector<float>& weights) {
  const std::size_t per_segment = agent.segment_bytes() / sizeof(float);
  const std::size_t segments = (elements + per_segment - 1) / per_segment;
  std::vector<std::vector<float>> gradients(count, std::vector<float>(elements));
  std::vector<Handle> handles;
  std::vector<std::uint32_t> last = agent.numbers().last;
  const auto until = std::chrono::steady_clock::now() + 30s;
  SliceUpdate update;
  MemberEvent event;
  for (std::size_t left = count * segments; left > 0;) {
    while (handles.size() < count && (handles.size() < 2 || handles[handles.size() - 2].done())) {
      std::vector<float>& gradient = gradients[handles.size()];
      for (std::size_t i = 0; i < elements; ++i)
        gradient[i] = value_at(rank, i, static_cast<std::uint32_t>(handles.size()));
      handles.push_back(agent.push(gradient));
    }
    if (std::chrono::steady_clock::now() >= until)
      return "only " + std::to_string(left) + " updates are missing";
    const auto arrived = agent.next(update, event, 100ms);
    if (!arrived) return error_text(arrived.error());
    if (*arrived == Arrived::event) return event.text;
    if (*arrived == Arrived::nothing) continue;
    if (update.number != ++last[update.segment]) return "an update out of order";
    for (std::size_t i = 0; i < update.values.size(); ++i)
      weights[update.first + i] += update.values[i];
    --left;
  }
  for (Handle& handle : handles)
    if (const AgentError error = handle.wait()) return error_text(error);
  return {};
}

}  // namespace iswitch::test
