#include "tools/sim/worker.h"

#include <algorithm>

namespace iswitch::sim {

namespace {

constexpr Time reset_patience = second;

// Sizes of every kind: a few elements, whole segments, and anything.
std::uint32_t vector_size(Random& random, const WorkloadSpec& load, std::uint32_t segment) {
  if (load.edges) {
    switch (random.below(4)) {
      case 0:
        return 1 + static_cast<std::uint32_t>(random.below(8));
      case 1:
        return segment * (1 + static_cast<std::uint32_t>(
                                  random.below(std::max(1U, load.max_elements / segment))));
      default:
        break;
    }
  }
  return load.min_elements +
         static_cast<std::uint32_t>(random.below(load.max_elements - load.min_elements + 1));
}

}  // namespace

Operation SyncProgram::operation(std::uint64_t seed, std::uint32_t base_round,
                                 std::uint32_t index) {
  Random random(
      mix(seed ^ mix(std::uint64_t{job} << 48 ^ std::uint64_t{base_round} << 16 ^ index)));
  Operation op;
  op.job = job;
  op.job_number = number;
  op.base_round = base_round;
  op.index = index;
  op.segment_elements = segment_bytes / 4;
  op.ranks = ranks;
  op.seed = random.next();
  // Few in one stream, so that it is not the tag alone that tells its operations apart; never those
  // of another stream, which a worker may take this one for until it is told.
  op.user_tag =
      static_cast<std::uint32_t>(mix(base_round)) + static_cast<std::uint32_t>(random.below(3));
  op.root = static_cast<unsigned>(random.below(ranks));
  const double kind = random.unit();
  if (kind < workload.barriers) {
    op.kind = wire::OperationKind::barrier;
    return op;
  }
  if (kind < workload.barriers + workload.broadcasts) op.kind = wire::OperationKind::broadcast;
  if (op.kind == wire::OperationKind::sum && random.chance(workload.means)) {
    op.reduction = agent::Reduction::mean;
  }
  op.zeros = random.chance(workload.zeros);
  op.elements = vector_size(random, workload, op.segment_elements);
  auto& known = known_[{base_round, index}];
  op.known = known.lock();
  if (!op.known) {
    op.known = std::make_shared<const std::vector<float>>(coefficients(op));
    known = op.known;
    if (known_.size() > 64) std::erase_if(known_, [](const auto& k) { return k.second.expired(); });
  }
  return op;
}

Worker::Worker(World& world, HostNode& host, SyncProgram& program, Checks& checks, unsigned rank,
               double slowness, Random random)
    : Member(world, host, program, rank, slowness, random), program_(program), checks_(checks) {}

void Worker::begin() {
  in_flight_.clear();
  in_stream_ = false;
  ended_ = false;
  reset_ask_at_ = never;
}

bool Worker::done() const {
  return in_stream_ && !ended_ && in_flight_.empty() && program_.workload.operations != 0 &&
         next_index_ >= program_.workload.operations;
}

bool Worker::may_begin() const {
  const std::uint32_t operations = program_.workload.operations;
  if (operations != 0 && next_index_ >= operations) return false;
  if (!program_.stopping) return true;
  const auto begun = program_.begun.find(base_round_);
  return begun != program_.begun.end() && next_index_ < begun->second;
}

void Worker::work(agent::Engine& engine, Time now) {
  if (!in_stream_ || engine.origin() != base_round_) {
    if (!in_flight_.empty()) return;  // of the old stream; they are failing
    in_stream_ = true;
    base_round_ = engine.origin();
    next_index_ = 0;
    ended_ = false;
    compute_until_ = now;
  }
  if (ended_) {
    // The engine asks for a Reset where one is needed; a program may grow impatient.
    if (now >= reset_ask_at_) {
      reset_ask_at_ = now + reset_patience;
      engine.request_reset(now);
    }
    next_run_ = reset_ask_at_;
    return;
  }
  while (in_flight_.size() < program_.workload.depth && may_begin()) {
    if (now < compute_until_) {
      next_run_ = compute_until_;
      return;
    }
    submit(engine, now);
  }
}

void Worker::submit(agent::Engine& engine, Time now) {
  std::unique_ptr<Pending> pending;
  if (spare_.empty()) {
    pending = std::make_unique<Pending>();
  } else {
    pending = std::move(spare_.back());
    spare_.pop_back();
  }
  const Operation& op = pending->operation =
      program_.operation(world_.seed, base_round_, next_index_);
  auto& begun = program_.begun[base_round_];
  begun = std::max(begun, next_index_ + 1);
  ++next_index_;
  compute_until_ = now + compute_time();
  pending->submitted = now;
  pending->deadline = now + program_.workload.deadline;
  const bool root = op.kind == wire::OperationKind::broadcast && rank_ == op.root;
  const bool sends = op.kind == wire::OperationKind::sum || root;
  pending->in_place = random_.chance(0.5);
  pending->input.resize(op.elements + 1);
  if (sends) fill(op, rank_, pending->in());
  if (!pending->in_place) pending->output.assign(op.elements + 1, -1.0F);

  agent::Request request;
  request.kind = op.kind;
  request.reduction = op.reduction;
  if (sends) request.input = pending->in();
  request.output = pending->out();
  request.root = op.root;
  request.user_tag = op.user_tag;
  request.deadline = pending->deadline;
  if (random_.chance(program_.workload.mistakes)) {
    request.user_tag += 100 + rank_;
    checks_.mistaken(op, rank_);
  }
  world_.trace.add(now, What::submit, host_.number(), op.index, op.base_round);
  checks_.submitted(op, rank_, now);
  pending->id = engine.submit(request, now);
  in_flight_.push_back(std::move(pending));
}

void Worker::check_input(Pending& pending) {
  if (pending.in_place || pending.operation.kind != wire::OperationKind::sum) return;
  if (!is_filled(pending.operation, rank_, pending.in())) {
    world_.violation(property::exact_sum,
                     format("rank %u: the input of an operation was written", rank_));
  }
}

void Worker::completed(const agent::Completion& completion, agent::Engine& engine, Time now) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const auto& p) { return p->id == completion.id; });
  if (found == in_flight_.end()) {
    world_.violation(property::honest,
                     format("rank %u: a completion of nothing that is under way", rank_));
    return;
  }
  std::unique_ptr<Pending> pending = std::move(*found);
  in_flight_.erase(found);
  const auto code = completion.error.code;
  world_.trace.add(now, What::complete, host_.number(), pending->operation.index,
                   static_cast<std::uint32_t>(code));
  checks_.ended({pending->operation, completion, rank_, pending->out(), pending->submitted,
                 pending->deadline, slack(pending->deadline), program_.stopping});
  check_input(*pending);
  if (code == agent::ErrorCode::none) ++successes_;
  if (code != agent::ErrorCode::none && code != agent::ErrorCode::root_missing) {
    if (pending->submitted == now && in_flight_.empty() &&
        next_index_ == pending->operation.index + 1) {
      // Told of an end that came while nothing was under way: the stream itself is a new one.
      checks_.withdrawn(pending->operation, rank_);
      in_stream_ = false;
    } else {
      ended_ = true;
      reset_ask_at_ = now + reset_patience;
      // This member has broken the present epoch, whichever one it took it for.
      if (code == agent::ErrorCode::timed_out || code == agent::ErrorCode::mismatch ||
          code == agent::ErrorCode::gone || code == agent::ErrorCode::halted) {
        base_round_ = engine.origin();
      }
    }
  }
  spare_.push_back(std::move(pending));
}

}  // namespace iswitch::sim
