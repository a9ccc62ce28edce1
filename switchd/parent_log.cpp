#include "switchd/parent_log.h"

#include "switchd/log.h"
#include "switchd/text.h"

namespace iswitch::switchd {
namespace {

using State = control::ParentView::State;

/// What somebody has to look after.
bool is_trouble(const control::ParentView& parent) {
  return parent.state == State::silent || parent.state == State::refused || !parent.fault.empty();
}

}  // namespace

void ParentLog::write(const std::vector<control::JobView>& jobs, Time now) {
  for (const control::JobView& job : jobs) {
    if (!job.parent) continue;
    const Told now_is{job.parent->state, job.parent->fault};
    const auto [before, added] = told_.try_emplace(job.config.id, now_is);
    if (!added && before->second == now_is) continue;
    before->second = now_is;
    const bool trouble = is_trouble(*job.parent);
    // Between two troubles there are states of no interest.
    if (!trouble && job.parent->state != State::running && job.parent->state != State::forming)
      continue;
    log(trouble ? LogLevel::warning : LogLevel::info,
        job.parent->fault.empty() ? text("job ", job.config.id, ": ") : std::string(),
        control::parent_text(*job.parent, now));
  }
}

}  // namespace iswitch::switchd
