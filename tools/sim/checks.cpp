#include "tools/sim/checks.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "switchd/pipeline/counters.h"

namespace iswitch::sim {

unsigned RankSet::size() const {
  unsigned size = 0;
  for (const std::uint64_t word : words_) size += static_cast<unsigned>(std::popcount(word));
  return size;
}

void Checks::submitted(const Operation& operation, unsigned rank, Time now) {
  Outcome& outcome = this->outcome(operation);
  if (outcome.submitters.has(rank)) {
    world_.violation(property::honest,
                     format("job %u rank %u: operation %u of base round %u twice: it joined again "
                            "and the job was not reset",
                            operation.job, rank, operation.index, operation.base_round));
  }
  if (outcome.submitters.size() == 0) outcome.first_submitted = now;
  outcome.submitters.add(rank);
}

void Checks::mistaken(const Operation& operation, unsigned rank) {
  outcome(operation).mistaken.add(rank);
}

void Checks::withdrawn(const Operation& operation, unsigned rank) {
  Outcome& outcome = this->outcome(operation);
  outcome.mistaken.remove(rank);
  outcome.submitters.remove(rank);
}

void Checks::wrong(const Ending& ending, const char* what, const std::string& text) {
  world_.violation(what, format("rank %u: %s", ending.rank, text.c_str()));
}

void Checks::ended(const Ending& ending) {
  const Operation& operation = ending.operation;
  if (world_.now() > ending.deadline + ending.slack) {
    wrong(ending, property::deadline,
          format("job %u operation %u of base round %u ended %.3f ms after its deadline",
                 operation.job, operation.index, operation.base_round,
                 static_cast<double>(world_.now() - ending.deadline) / 1e6));
  }
  const agent::Error& error = ending.completion.error;
  JobFigures& figures = figures_[operation.job];
  if (error) {
    ++figures.failed;
    ++figures.errors[static_cast<unsigned>(error.code)];
    if (error.text.empty() || error.text.find('\n') != std::string::npos) {
      wrong(ending, property::honest,
            format("an error (%s) is not one line of text", agent::error_name(error.code)));
    }
    if (rules_[operation.job].unbroken && !ending.stopped) {
      wrong(ending, property::continuity,
            format("job %u operation %u of base round %u failed, though nothing but switches has "
                   "restarted: %s",
                   operation.job, operation.index, operation.base_round, error.text.c_str()));
    }
    return;
  }
  ++figures.completed;
  figures.gradient_bytes += ending.output.size_bytes();
  figures.times.push_back(world_.now() - ending.submitted);
  Outcome& outcome = this->outcome(operation);
  if (++outcome.completed == operation.ranks) {
    figures.longest_round = std::max(figures.longest_round, world_.now() - outcome.first_submitted);
  }
  judge(ending, outcome);
}

void Checks::judge(const Ending& ending, Outcome& outcome) {
  const Operation& operation = ending.operation;
  const JobRules& rules = rules_[operation.job];
  const agent::Completion& completion = ending.completion;
  if (outcome.mistaken.size() != 0) {
    wrong(ending, property::agreement,
          format("job %u operation %u of base round %u has a result though ranks disagree about it",
                 operation.job, operation.index, operation.base_round));
    return;
  }
  const std::uint64_t bits = hash_of(ending.output);
  if (operation.kind == wire::OperationKind::barrier) {
    const unsigned submitters = outcome.submitters.size();
    if (rules.full && submitters < rules.ranks) {
      wrong(ending, property::meeting,
            format("job %u barrier %u of base round %u passed when %u of %u had come",
                   operation.job, operation.index, operation.base_round, submitters, rules.ranks));
    }
  } else if (outcome.known && outcome.bits == bits) {
    elements_checked_ += ending.output.size();  // judged when the first one had it
  } else {
    judge_vector(ending, rules);
  }
  if (rules.full && (completion.partial || completion.smallest_workers != rules.ranks) &&
      (operation.elements > 0 || operation.kind == wire::OperationKind::barrier)) {
    wrong(ending, property::honest,
          format("job %u operation %u of base round %u: full sum called partial %d, workers %u",
                 operation.job, operation.index, operation.base_round, completion.partial ? 1 : 0,
                 completion.smallest_workers));
  }
  if (!outcome.known) {
    outcome.known = true;
    outcome.bits = bits;
    outcome.partial = completion.partial;
    outcome.smallest = completion.smallest_workers;
    outcome.rank = ending.rank;
    return;
  }
  if (outcome.bits != bits || outcome.partial != completion.partial ||
      outcome.smallest != completion.smallest_workers) {
    wrong(ending, property::same_bits,
          format(
              "job %u operation %u of base round %u: differs from what rank %u got (partial %d and "
              "%d, workers %u and %u)",
              operation.job, operation.index, operation.base_round, outcome.rank,
              completion.partial ? 1 : 0, outcome.partial ? 1 : 0, completion.smallest_workers,
              outcome.smallest));
  }
}

void Checks::judge_vector(const Ending& ending, const JobRules& rules) {
  const Operation& operation = ending.operation;
  const auto size = static_cast<std::uint32_t>(ending.output.size());
  const unsigned group_count = groups(operation);
  std::vector<std::uint32_t> first(group_count);  // of this segment, by group
  std::uint32_t fewest = ~0U;
  const bool plain = operation.reduction == agent::Reduction::sum;
  for (std::uint32_t start = 0; start < size; start += operation.segment_elements) {
    const std::uint32_t end = std::min(start + operation.segment_elements, size);
    unsigned workers = 0;
    for (std::uint32_t i = start; i < end; ++i) {
      // Nearly always an element has the ranks that its group's first one in the segment had.
      if (plain && i >= start + group_count) {
        if (group_count == 1)
          i += first_other_sum(operation, i, ending.output.subspan(i, end - i), first[0]);
        if (i == end) break;
        if (ending.output[i] == sum_of(operation, i, first[i % group_count])) continue;
      }
      std::uint32_t ranks = 0;
      if (!judge_element(ending, rules, i, ranks)) return;
      if (i < start + group_count) {
        first[i % group_count] = ranks;
        workers += static_cast<unsigned>(std::popcount(ranks));
      } else if (first[i % group_count] != ranks) {
        wrong(
            ending, property::exact_sum,
            explain(operation, i, ending.output[i]) + ", others in other elements of the segment");
        return;
      }
    }
    fewest = std::min(fewest, workers);
  }
  elements_checked_ += size;
  // What every worker sent can be counted only where none of it was zero.
  if (size > 0 && !operation.zeros && operation.kind == wire::OperationKind::sum &&
      operation.reduction == agent::Reduction::sum &&
      ending.completion.smallest_workers != fewest && group_count == 1) {
    wrong(
        ending, property::honest,
        format("job %u operation %u of base round %u: %u workers in the smallest sum, but said %u",
               operation.job, operation.index, operation.base_round, fewest,
               ending.completion.smallest_workers));
  }
}

bool Checks::judge_element(const Ending& ending, const JobRules& rules, std::uint32_t element,
                           std::uint32_t& ranks) {
  const Operation& operation = ending.operation;
  const float value = ending.output[element];
  const std::uint32_t full = full_ranks(operation, element);
  std::optional<std::uint32_t> found;
  std::uint32_t wanted = full;
  bool exactly = rules.full;

  if (operation.kind == wire::OperationKind::broadcast) {
    found = ranks_in(operation, element, value);
    const unsigned group = element % groups(operation);
    wanted = 0;
    if (!outcome(operation).submitters.has(operation.root)) {  // data from nowhere
      wrong(ending, property::exact_sum,
            explain(operation, element, value) + ", a broadcast whose root never took part");
      return false;
    }
    if (operation.root / ranks_per_element == group) {
      wanted = full & (1U << (operation.root % ranks_per_element));
    }
    exactly = true;
  } else if (operation.reduction == agent::Reduction::sum) {
    found = ranks_in(operation, element, value);
  } else {
    // The number of workers divided by is the segment's own, so it is found by trying.
    for (unsigned n = rules.full ? rules.ranks : 1; n <= rules.ranks && !found; ++n) {
      const double c = coefficient(operation, element);
      const double parts = static_cast<double>(value) * n / c;
      if (!(parts >= 0 && parts < 1e6)) break;  // NaN as well
      const double sum = c * static_cast<double>(std::lround(parts));
      const auto exact = static_cast<float>(sum);
      const auto count = static_cast<float>(n);
      if (exact / count != value && exact * (1.0F / count) != value) continue;
      const auto candidate = ranks_in(operation, element, sum);
      if (candidate && static_cast<unsigned>(std::popcount(*candidate)) <= n) found = candidate;
    }
    if (found && !rules.full) {  // several numbers may fit: who is in it cannot be compared
      ranks = 0;
      return true;
    }
  }
  if (!found || (*found & ~wanted) != 0 || (exactly && *found != wanted)) {
    wrong(ending, property::exact_sum, explain(operation, element, value));
    return false;
  }
  ranks = *found;
  return true;
}

void Checks::counters(const SwitchNode& node, std::uint64_t delivered) const {
  const SwitchTotals totals = node.totals();
  if (delivered != totals.arrived) {
    world_.violation(property::counters,
                     format("links delivered %llu frames to %s, which got %llu",
                            static_cast<unsigned long long>(delivered), node.spec().name.c_str(),
                            static_cast<unsigned long long>(totals.arrived)));
  }
  std::uint64_t terminal = 0;
  std::uint64_t received = 0;
  for (const auto& info : pipeline::counter_infos) {
    const auto found = totals.counters.find(info.name);
    if (found == totals.counters.end()) continue;
    if (info.terminal) terminal += found->second;
    if (std::string_view(info.name) == "parse_received") received = found->second;
  }
  const std::uint64_t outside = totals.while_down + totals.ring_full + totals.in_ring_at_crash;
  if (received != totals.run || terminal != received || outside + received != totals.arrived) {
    world_.violation(
        property::counters,
        format("%s: %llu frames arrived, %llu outside the pipeline (down %llu, ring %llu, crash "
               "%llu), %llu given to it, %llu counted by it as received, %llu in its terminal "
               "counters",
               node.spec().name.c_str(), static_cast<unsigned long long>(totals.arrived),
               static_cast<unsigned long long>(outside),
               static_cast<unsigned long long>(totals.while_down),
               static_cast<unsigned long long>(totals.ring_full),
               static_cast<unsigned long long>(totals.in_ring_at_crash),
               static_cast<unsigned long long>(totals.run),
               static_cast<unsigned long long>(received),
               static_cast<unsigned long long>(terminal)));
  }
}

void Checks::counters(const HostNode& node, std::uint64_t delivered) const {
  const HostTotals& t = node.totals();
  if (delivered != t.arrived ||
      t.arrived != t.while_down + t.not_mine + t.malformed + t.foreign + t.overrun + t.received) {
    world_.violation(property::counters,
                     format("%s: frames delivered by its link and counted by its kernel differ",
                            node.spec().name.c_str()));
  }
}

}  // namespace iswitch::sim
