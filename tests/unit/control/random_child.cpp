#include "tests/unit/control/random_child.h"

#include <algorithm>

#include "wire/serial.h"

namespace control_test {
namespace {

constexpr Time ms = millisecond;

bool guarded(Action action) { return action != Action::ping && action != Action::help; }

std::uint32_t incarnation_of(const Sent& join) {
  std::uint32_t value = 0;
  for (std::size_t i = 12; i < 16; ++i) value = value << 8 | join.body.at(i);
  return value;
}

}  // namespace

RandomChild::RandomChild(std::uint64_t seed) : random_(seed) {
  config_ = job_config(1, static_cast<std::uint16_t>(1 + dice(3)));
  if (chance(40)) config_.mode = wire::Mode::async;
  if (chance(50)) config_.key.assign(16, 0x5A);
  bench_ = std::make_unique<Bench>(std::vector{config_}, parent_config(),
                                   static_cast<std::uint16_t>(1 + dice(2)));
  bench_->answering = false;
  bench_->datapath.start_ends_halt = chance(50);
  parent_ = std::make_unique<Parent>(*bench_);
  parent_->terms.mode = config_.mode;
  parent_->terms.slots = chance(50) ? 64 : 16;
  parent_->key = config_.key;
  parent_->carry = [this](const wire::ControlDatagram& datagram) {
    if (silent_ || (lossy_ && chance(15))) return;
    // A restart takes longer than what is under way.
    const auto arrive = [this, datagram, life = parent_life_] {
      if (life != parent_life_) return;
      Client as;
      as.endpoint = parent_->endpoint;
      as.ingress = parent_port;
      bench_->deliver(as, datagram);
    };
    after_a_while(arrive);
    if (lossy_ && chance(10)) after_a_while(arrive);
  };
  for (unsigned n = 0; n < config_.members; ++n) {
    Worker worker;
    worker.client = client(n);
    worker.client.key = config_.key;
    workers_.push_back(worker);
  }
  bench_->on_sent = [this](const Sent& sent) { on_sent(sent); };
}

std::vector<std::string> RandomChild::run(int steps) {
  for (int i = 0; i < steps && wrongs_.empty(); ++i) step();
  come_to_rest();
  check_end();
  return wrongs_;
}

void RandomChild::step() {
  const auto what = dice(100);
  if (what < 12) {
    worker_acts(workers_[dice(workers_.size())]);
  } else if (what < 16) {
    parent_acts();
  } else if (what < 56) {
    bench_->answer_one(static_cast<std::uint16_t>(dice(bench_->datapath.shards())));
  } else {
    pass_time(static_cast<Time>(dice(chance(10) ? 700 : 40)) * ms);
  }
  check_datapath();
}

void RandomChild::after_a_while(std::function<void()> what) {
  const Time delay = lossy_ && chance(10) ? static_cast<Time>(dice(1500)) * ms
                                          : static_cast<Time>(1 + dice(5)) * ms;
  in_flight_.emplace(bench_->now + delay, std::move(what));
}

void RandomChild::run_due() {
  while (!in_flight_.empty() && in_flight_.begin()->first <= bench_->now) {
    const auto what = std::move(in_flight_.begin()->second);
    in_flight_.erase(in_flight_.begin());
    what();
  }
}

void RandomChild::pass_time(Time by) {
  const Time end = bench_->now + by;
  while (bench_->now < end) {
    Time next = std::min(end, bench_->now + 20 * ms);
    if (!in_flight_.empty())
      next = std::min(next, std::max(bench_->now, in_flight_.begin()->first));
    next = std::max(next, bench_->now);
    bench_->at(next);
    run_due();
    for (Worker& worker : workers_) worker_repeats(worker);
    parent_orders();
    if (bench_->arps.size() > 0 && !silent_) {
      bench_->arps.clear();
      if (!lossy_ || !chance(30)) after_a_while([this] { parent_->show_address(); });
    }
  }
}

// ---- the parent

void RandomChild::parent_gets(const Sent& sent) {
  if (sent.is_reply) {
    if (!orders_.empty() && orders_.front().header.nonce == sent.nonce &&
        sent.status() == Status::ok) {
      orders_.pop_front();
    }
    return;
  }
  const auto resets = parent_->resets;
  parent_->answer(sent);
  if (parent_->resets != resets) ++met["Resets that went up"];
  bases_.insert(parent_->base);
  if (sent.action == Action::join && parent_->row)
    places_[parent_->row->incarnation].insert(parent_->row->id);
  if (sent.action == Action::join) {
    // The reply says all that orders would.
    ordered_base_ = parent_->base;
    ordered_halted_ = parent_->state == JobState::halted;
    orders_.clear();
  }
}

void RandomChild::order(Action action) {
  const auto header = parent_->next_header(action);
  const auto datagram = action == Action::reset
                            ? wire::write_reset(header, parent_->base, parent_->client())
                            : wire::write_plain_request(header, parent_->client());
  orders_.push_back({header, datagram, bench_->now});
}

/// What a switch does for its members: tells the difference, repeats until answered.
void RandomChild::parent_orders() {
  if (!parent_->row || parent_->state == JobState::forming) {
    orders_.clear();
    return;
  }
  if (orders_.empty()) {
    const bool halted = parent_->state == JobState::halted;
    if (ordered_base_ != parent_->base) {
      ordered_base_ = parent_->base;
      order(Action::reset);
    } else if (ordered_halted_ != halted) {
      ordered_halted_ = halted;
      order(halted ? Action::halt : Action::resume);
    }
  }
  if (orders_.empty() || orders_.front().repeat_at > bench_->now) return;
  orders_.front().repeat_at = bench_->now + 100 * ms;
  parent_->deliver(orders_.front().datagram);
}

void RandomChild::restart_parent(std::uint32_t new_base) {
  parent_->forget();
  ++parent_life_;
  parent_->base = new_base;
  bases_.insert(new_base);
  orders_.clear();
  parent_->state = chance(30) ? JobState::forming : JobState::running;
}

void RandomChild::parent_acts() {
  switch (dice(9)) {
    case 0:
      ++met["the parent resets"];
      parent_->base += 2 + static_cast<std::uint32_t>(dice(50));
      bases_.insert(parent_->base);
      break;
    case 1:
    case 2:
      if (parent_->state == JobState::forming) break;
      ++met["the parent halts or resumes"];
      parent_->state = parent_->state == JobState::halted ? JobState::running : JobState::halted;
      break;
    case 3:
      ++met["the parent restarts"];
      restart_parent(parent_->base + 100'000);
      break;
    case 4:
      ++met["the parent restarts with its clock behind"];
      restart_parent(parent_->base - static_cast<std::uint32_t>(dice(1000)));
      break;
    case 5:
      ++met["the parent evicts the child"];
      parent_->evict();
      orders_.clear();
      break;
    case 6:
      silent_ = !silent_;
      if (silent_) ++met["the parent falls silent"];
      break;
    case 7:
      if (!parent_->row) break;
      ++met["the parent leaves"];
      {
        const auto header = parent_->next_header(Action::leave);
        Client as;
        as.endpoint = parent_->endpoint;
        as.ingress = parent_port;
        bench_->deliver(as, wire::write_plain_request(header, parent_->client()));
      }
      restart_parent(parent_->base + 50'000);
      break;
    default:
      ++met["the parent forms"];
      parent_->state = parent_->state == JobState::forming ? JobState::running : JobState::forming;
      break;
  }
}

// ---- the workers

void RandomChild::start_join(Worker& worker) {
  worker.member = worker.running = false;
  worker.asked.reset();
  worker.join = worker.client.next_header(Action::join);
  worker.joined_by = worker.join->nonce;
  worker.repeat_at = bench_->now;
}

void RandomChild::worker_acts(Worker& worker) {
  if (!worker.member) {
    if (!worker.join) start_join(worker);
    return;
  }
  if (worker.asked) return;
  switch (dice(7)) {
    case 0:
      ++met["a worker restarts"];
      ++worker.client.incarnation;
      worker.halted = false;
      worker.switch_nonce = 0;
      return start_join(worker);
    case 1:
      ++met["a worker leaves"];
      {
        const auto header = worker.client.next_header(Action::leave);
        bench_->deliver(worker.client,
                        wire::write_plain_request(header, worker.client.as_client()));
      }
      return start_join(worker);
    case 2:
    case 3:
      worker.asked = worker.client.next_header(Action::reset);
      break;
    case 4:
      worker.asked = worker.client.next_header(Action::halt);
      break;
    case 5:
      worker.asked = worker.client.next_header(Action::resume);
      break;
    default: {
      const auto header = worker.client.next_header(Action::help);
      return bench_->deliver(worker.client,
                             wire::write_slot_request(header, {1, 9}, worker.client.as_client()));
    }
  }
  worker.repeat_at = bench_->now;
}

void RandomChild::worker_repeats(Worker& worker) {
  if (bench_->now < worker.repeat_at) return;
  worker.repeat_at = bench_->now + 150 * ms;
  const auto as = worker.client.as_client();
  if (lossy_ && chance(15)) return;
  if (worker.join) {
    wire::JoinBody body = join_body(worker.client);
    body.mode = config_.mode;
    return bench_->deliver(worker.client, wire::write_join(*worker.join, body, as));
  }
  if (worker.asked) {
    return bench_->deliver(worker.client, worker.asked->action == Action::reset
                                              ? wire::write_reset(*worker.asked, 0, as)
                                              : wire::write_plain_request(*worker.asked, as));
  }
  if (worker.member)
    bench_->deliver(worker.client,
                    wire::write_plain_request(worker.client.next_header(Action::ping), as));
}

void RandomChild::worker_gets(Worker& worker, const Sent& sent) {
  if (!sent.is_reply) {
    if (sent.action == Action::help || !worker.member) return;
    Status status = Status::ok;
    if (sent.nonce < worker.switch_nonce) {
      status = Status::replayed_nonce;
    } else if (sent.nonce > worker.switch_nonce) {
      worker.switch_nonce = sent.nonce;
      if (sent.action == Action::reset) learn_base(worker, sent.reset_base());
      if (sent.action == Action::halt || sent.action == Action::resume)
        worker.halted = sent.action == Action::halt;
    }
    Client answering = worker.client;
    answering.id = sent.member;
    return bench_->member_reply(answering, sent, status);
  }
  const bool of_join = worker.join && worker.join->nonce == sent.nonce;
  if (of_join) {
    if (sent.status() == Status::not_a_member) return start_join(worker);
    if (sent.status() != Status::ok) return start_join(worker);
    worker.client.id = sent.body_member();
    worker.member = true;
    worker.base = sent.base_round();
    worker.base_known = worker.client.nonce;
    if (sent.state() == JobState::forming) return;  // repeated until it runs
    worker.running = true;
    worker.halted = sent.state() == JobState::halted;
    worker.join.reset();
    return;
  }
  if (!worker.member || worker.join || sent.nonce <= worker.joined_by) return;
  if (sent.action == Action::help) return;
  if (worker.asked && worker.asked->nonce == sent.nonce) {
    ++met[std::string(wire::action_name(sent.action)) + ": " + wire::status_name(sent.status())];
    worker.asked.reset();
  } else if (sent.action != Action::ping) {
    return;  // nothing waits for it
  }
  if (sent.status() == Status::not_a_member) {
    // An agent whose place is lost: everything ends, and it joins again.
    if (sent.request_id != 0) start_join(worker);
    return;
  }
  // An older base_round in the answer to something asked since it knows the newer one: what told it
  // that was of another life of the switch's or its parent's.
  if (wire::serial_newer(worker.base, sent.base_round()) && sent.nonce > worker.base_known)
    return start_join(worker);
  learn_base(worker, sent.base_round());
  if (sent.state() != JobState::forming) worker.halted = sent.state() == JobState::halted;
}

void RandomChild::learn_base(Worker& worker, std::uint32_t base) {
  if (!wire::serial_newer(base, worker.base)) return;
  worker.base = base;
  worker.base_known = worker.client.nonce;
}

// ---- what must hold of everything that the child says

void RandomChild::on_sent(const Sent& sent) {
  Sent seen = sent;
  if (!tamper || tamper(seen)) check(seen);
  if (sent.to.ip == parent_ip) {
    if (silent_ || (lossy_ && chance(15))) return;
    after_a_while([this, sent] {
      if (!silent_) parent_gets(sent);
    });
    return;
  }
  for (Worker& worker : workers_) {
    if (worker.client.endpoint.ip != sent.to.ip) continue;
    if (lossy_ && chance(10)) continue;
    after_a_while([this, &worker, sent] { worker_gets(worker, sent); });
  }
}

void RandomChild::check(const Sent& sent) {
  const bool up = sent.to.ip == parent_ip;
  // The client is whoever made the request.
  const auto& own = switch_address().rules;
  const wire::Ipv4 client_ip = sent.is_reply ? sent.to.ip : own.ip;
  const std::uint16_t client_port = sent.is_reply ? sent.to.udp_port : own.udp_port;
  if (!wire::tag_is_right(config_.key, sent.datagram, client_ip, client_port)) wrong("tag");
  if (up) {
    check_parent_frame(sent);
  } else {
    check_member_frame(sent);
  }
}

void RandomChild::check_parent_frame(const Sent& sent) {
  if (sent.port != parent_port) wrong("out of another port than the parent's");
  if (sent.is_reply) return;
  const auto known = parent_bytes_.find(sent.nonce);
  if (known != parent_bytes_.end()) {
    if (known->second != sent.datagram) wrong("two things under one nonce");
    if (!guarded(sent.action)) wrong("repeated what is said once");
    return;
  }
  parent_bytes_[sent.nonce] = sent.datagram;
  if (sent.nonce <= parent_nonce_) wrong("a nonce that does not grow");
  parent_nonce_ = sent.nonce;
  if (sent.action == Action::reset && sent.reset_base() != 0) wrong("a child chooses a base_round");
  if (sent.action != Action::join) return;
  // The latest may be said again, to make sure of its place.
  const std::uint32_t incarnation = incarnation_of(sent);
  if (!incarnations_.insert(incarnation).second && incarnation != incarnation_)
    wrong("an incarnation used again");
  incarnation_ = incarnation;
}

void RandomChild::check_member_frame(const Sent& sent) {
  const bool is_reset = !sent.is_reply && sent.action == Action::reset;
  const bool runs = sent.is_reply && sent.state() != JobState::forming;
  if (!is_reset && !runs) return;
  const std::uint32_t base = is_reset ? sent.reset_base() : sent.base_round();
  if (bases_.count(base) == 0) wrong("a base_round that the parent never had");
  if (!runs || sent.status() == Status::not_a_member) return;
  for (std::uint16_t shard = 0; shard < bench_->datapath.shards(); ++shard)
    if (bench_->datapath.shard(shard).started_bases.count(base) == 0)
      wrong("told to run before every shard does");
}

void RandomChild::check_datapath() {
  for (std::uint16_t number = 0; number < bench_->datapath.shards(); ++number) {
    const auto& shard = bench_->datapath.shard(number);
    if (!shard.running) continue;
    if (bases_.count(shard.base) == 0) wrong("started in a base_round that the parent never had");
    const auto place = places_.find(shard.parent->incarnation);
    if (place == places_.end() || place->second.count(shard.parent->member) == 0)
      wrong("started with a place that the parent never gave");
    if (shard.spec.slots != parent_->terms.slots)
      wrong("started with other slots than the parent's");
  }
}

// ---- the end

void RandomChild::come_to_rest() {
  lossy_ = silent_ = false;
  if (parent_->state == JobState::forming) parent_->state = JobState::running;
  for (int i = 0; i < 600 && wrongs_.empty(); ++i) {
    bench_->answer_all();
    for (Worker& worker : workers_)
      if (!worker.member && !worker.join) start_join(worker);
    pass_time(20 * ms);
    check_datapath();
  }
  bench_->answer_all();
}

void RandomChild::check_end() {
  if (!wrongs_.empty()) return;
  const auto view = bench_->view();
  const bool halted = parent_->state == JobState::halted;
  ++met[halted ? "ended halted" : "ended running"];
  if (view.state != parent_->state)
    return wrong("at rest the child is " + std::string(wire::job_state_name(view.state)) + ", " +
                 control::parent_text(*view.parent, bench_->now));
  if (view.base_round != parent_->base) wrong("at rest in another base_round than the parent");
  for (std::uint16_t number = 0; number < bench_->datapath.shards(); ++number) {
    const auto& shard = bench_->datapath.shard(number);
    if (!shard.running || shard.base != parent_->base) wrong("a shard at rest: base_round");
    if (shard.halted != halted) wrong("a shard at rest: halted");
    if (!parent_->row || shard.parent->incarnation != parent_->row->incarnation ||
        shard.parent->member != parent_->row->id)
      wrong("a shard at rest: its place at the parent");
    if (shard.members.size() != config_.members) wrong("a shard at rest: members");
  }
  for (const Worker& worker : workers_) {
    if (!worker.member || worker.join || worker.asked) wrong("a worker was not answered");
    if (worker.base != parent_->base) wrong("a worker does not know the base_round");
    if (worker.halted != halted) wrong("a worker does not know whether the job is halted");
  }
}

}  // namespace control_test
