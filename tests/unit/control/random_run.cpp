#include "tests/unit/control/random_run.h"

#include <algorithm>
#include <tuple>

#include "wire/serial.h"

namespace control_test {
namespace {

constexpr std::uint32_t slot_round = 77;  ///< the fake datapath knows its slots by this round

std::string text(Action action) { return wire::action_name(action); }
std::string text(Status status) { return wire::status_name(status); }

Model::Request request_of(const wire::ControlHeader& header) {
  Model::Request request;
  request.header = header;
  return request;
}

}  // namespace

RandomRun::RandomRun(std::uint64_t seed) : random_(seed) {
  const auto shards = static_cast<std::uint16_t>(1 + dice(3));
  for (const wire::JobId id : {1, 2}) {
    JobConfig config = job_config(id, static_cast<std::uint16_t>(1 + dice(4)));
    config.evict_silent = chance(50);
    config.member_timeout = 2 * second;
    if (chance(50)) config.key.assign(16 + id, static_cast<std::uint8_t>(id));
    if (chance(20)) config.base_round = 0xFFFF'FFFD;  // near its wrap
    if (chance(40)) config.mode = wire::Mode::async;
    configs_.push_back(config);
    models_.emplace(id, Model(config));
    for (unsigned n = 0; n < config.members + 2U; ++n) {
      Agent agent;
      agent.client = client(n, id);
      agent.client.key = config.key;
      agents_.push_back(agent);
    }
  }
  bench_ = std::make_unique<Bench>(configs_, shards);
  bench_->answering = false;
  bench_->datapath.start_ends_halt = chance(50);
  for (std::uint32_t segment = 0; segment < 4; ++segment)
    bench_->datapath.slots[{segment, slot_round}] = static_cast<datapath::SlotState>(1 + segment);
  bench_->datapath.missing[{2, slot_round}] = 0b101;
  bench_->on_sent = [this](const Sent& sent) {
    Sent seen = sent;
    if (!tamper || tamper(seen)) check(seen);
    for (Agent& agent : agents_) {
      if (agent.client.job != sent.job || place_key(agent.client) != place_key(sent)) continue;
      if (lossy_ && chance(20)) continue;
      agent.mailbox.push_back(sent);
      if (lossy_ && chance(10)) agent.mailbox.push_back(sent);
    }
  };
}

void RandomRun::wrong(const std::string& what) { wrongs_.push_back(what); }

std::vector<std::string> RandomRun::run(int steps) {
  for (int i = 0; i < steps; ++i) step();
  come_to_rest();
  check_end();
  return wrongs_;
}

void RandomRun::step() {
  const auto what = dice(100);
  Agent& agent = agents_[dice(agents_.size())];
  if (what < 30) {
    ask_something(agent);
  } else if (what < 65) {
    bench_->answer_one(static_cast<std::uint16_t>(dice(bench_->datapath.shards())));
  } else if (what < 85) {
    read_mail(agent);
  } else if (what < 95) {
    pass_time(static_cast<Time>(dice(chance(10) ? 1500 : 80)) * millisecond);
  } else {
    operator_acts();
  }
  check_rows();
}

// ---- what goes in

void RandomRun::ask_something(Agent& agent) {
  Client& client = agent.client;
  const auto as = client.as_client();
  if (!agent.history.empty() && chance(30)) {  // again, or an old one replayed
    ++met["repeated or replayed"];
    const std::size_t back = chance(70) ? 1 : 1 + dice(agent.history.size());
    return send(agent, agent.history[agent.history.size() - back]);
  }
  const auto join_percent = client.id == wire::no_member ? 90U : 25U;
  if (chance(join_percent)) {
    if (chance(25)) {  // the process restarted and knows nothing
      ++client.incarnation;
      agent.member = agent.halted = false;
    }
    Model::Request request = request_of(client.next_header(Action::join));
    const auto wanted = static_cast<MemberId>(chance(50) ? wire::no_member : dice(5));
    request.join = join_body(client, wanted);
    request.join.mode = configs_[client.job - 1U].mode;
    if (request.join.mode == wire::Mode::async) ++met["asynchronous Joins"];
    return ask(agent, request, wire::write_join(request.header, request.join, as));
  }
  static constexpr Action actions[] = {
      Action::leave, Action::reset, Action::set_threshold, Action::force_broadcast,
      Action::help,  Action::halt,  Action::resume,        Action::ping};
  const Action action = chance(70) ? actions[1 + dice(7)] : actions[dice(8)];
  Model::Request request = request_of(client.next_header(action));
  if (chance(5)) request.header.member = static_cast<MemberId>(dice(6));
  const wire::SlotBody slot{static_cast<std::uint32_t>(dice(5)), slot_round};
  request.threshold = static_cast<std::uint16_t>(dice(90));
  const auto state = static_cast<datapath::SlotState>(1 + slot.segment);
  request.slot_complete = state == datapath::SlotState::open || state == datapath::SlotState::kept;
  switch (action) {
    case Action::reset:
      return ask(agent, request, wire::write_reset(request.header, 0, as));
    case Action::set_threshold:
      return ask(agent, request, wire::write_set_threshold(request.header, request.threshold, as));
    case Action::force_broadcast:
    case Action::help:
      return ask(agent, request, wire::write_slot_request(request.header, slot, as));
    default:
      return ask(agent, request, wire::write_plain_request(request.header, as));
  }
}

void RandomRun::ask(Agent& agent, const Model::Request& request,
                    const wire::ControlDatagram& datagram) {
  const bool exempt =
      request.header.action == Action::ping || request.header.action == Action::help;
  const Asked asked{request, datagram};
  if (!exempt) {
    agent.history.push_back(asked);
    agent.waiting = true;
  }
  send(agent, asked);
}

void RandomRun::send(Agent& agent, const Asked& asked) {
  if (lossy_ && chance(10)) return;
  const PlaceKey from = place_key(agent.client);
  const auto& header = asked.request.header;
  Model& model = models_.at(agent.client.job);
  const auto verdict = model.receive(from, asked.request, bench_->now);
  const RequestKey key{from, agent.client.job, header.action, header.request_id, header.nonce};
  if (verdict.fresh) {
    Expectation& expectation = expected_[key];
    expectation.status = verdict.status;
    expectation.is_join = header.action == Action::join;
    expectation.resets = verdict.resets && verdict.status == Status::ok;
    expectation.base_then = bench_->view(agent.client.job).base_round;
    ++met[text(header.action) + ": " + text(verdict.status)];
    if (verdict.resets) ++met["resets"];
  } else {
    if (!verdict.absorbed) now_status_ = verdict.status;
    ++met[verdict.absorbed ? "absorbed" : "at once: " + text(verdict.status)];
  }
  ++expected_[key].deliveries;
  now_delivered_ = {key};
  now_replies_ = 0;
  const bool absorbed = verdict.absorbed;
  bench_->deliver(agent.client, asked.datagram);
  if (absorbed && now_replies_ != 0) wrong("answered what was to be absorbed");
  if (now_status_ && now_replies_ != 1) wrong("no reply at once to " + text(header.action));
  now_delivered_.clear();
  now_status_.reset();
}

void RandomRun::operator_acts() {
  const JobConfig& config = configs_[dice(configs_.size())];
  Model& model = models_.at(config.id);
  auto& control = bench_->control;
  const auto done = [this](const control::OperatorReply&) { ++acts_done_; };
  ++acts_begun_;
  switch (dice(5)) {
    case 0:
      ++model.clearings;
      control.reset(config.id, bench_->now, bench_->effects, done);
      break;
    case 1: {
      model.halted = chance(50);
      control.halt(config.id, model.halted, bench_->now, bench_->effects, done);
      break;
    }
    case 2: {
      const auto id = static_cast<MemberId>(dice(config.members));
      if (model.rows.count(id) != 0) {
        model.evict(id);
        ++met["evicted by the operator"];
      }
      control.remove_member(config.id, id, bench_->now, bench_->effects, done);
      break;
    }
    case 3: {
      model.threshold = static_cast<std::uint16_t>(dice(65));
      control.set_threshold(config.id, model.threshold, bench_->now, bench_->effects, done);
      break;
    }
    default: {
      --acts_begun_;
      const Agent& agent = agents_[dice(agents_.size())];
      bench_->notice(static_cast<datapath::Notice::Kind>(dice(4)), agent.client, 1, slot_round, 7);
    }
  }
  bench_->settle();
}

void RandomRun::pass_time(Time by) {
  for (auto& entry : models_) entry.second.tick(bench_->now + by);
  const auto rows_before = bench_->control.counters().evictions;
  bench_->at(bench_->now + by);
  if (bench_->control.counters().evictions > rows_before) ++met["evicted for silence"];
}

// ---- what agents make of what they get

void RandomRun::read_mail(Agent& agent) {
  if (agent.mailbox.empty()) return;
  const Sent mail = agent.mailbox.front();
  agent.mailbox.pop_front();
  if (!mail.is_reply) return obey(agent, mail);
  if (agent.history.empty() || !agent.waiting) return;
  const auto& header = agent.history.back().request.header;
  if (mail.nonce != header.nonce || mail.request_id != header.request_id ||
      mail.action != header.action)
    return;
  // A joiner repeats its Join until the reply says running.
  agent.waiting = header.action == Action::join && mail.status() == Status::ok &&
                  mail.state() == JobState::forming;
  if (mail.status() == Status::ok && header.action == Action::join) {
    agent.client.id = mail.body_member();
    agent.member = true;
    agent.base_round = mail.base_round();
    agent.halted = mail.state() == JobState::halted;  // whatever an earlier membership left
  }
  if (mail.status() == Status::not_a_member || header.action == Action::leave) agent.member = false;
  if (!agent.member) return;
  agent.base_round = wire::serial_latest(agent.base_round, mail.base_round());
  if (mail.state() != JobState::forming) agent.halted = mail.state() == JobState::halted;
}

void RandomRun::obey(Agent& agent, const Sent& request) {
  if (lossy_ && chance(10)) return;  // it never came
  Status status = Status::ok;
  if (request.action != Action::help) {
    if (request.nonce < agent.switch_nonce) status = Status::replayed_nonce;
    if (request.nonce > agent.switch_nonce) {
      agent.switch_nonce = request.nonce;
      if (request.action == Action::reset) {
        if (!members_forget)
          agent.base_round = wire::serial_latest(agent.base_round, request.reset_base());
      } else {
        agent.halted = request.action == Action::halt;
      }
      ++met["passed on: " + text(request.action)];
    }
  }
  Client answering = agent.client;
  answering.id = request.member;
  models_.at(agent.client.job).heard(place_key(agent.client), bench_->now);
  bench_->member_reply(answering, request, status);
}

// ---- what must hold of everything that comes out

void RandomRun::check(const Sent& sent) {
  const auto key = configs_[sent.job - 1U].key;
  const bool tagged = sent.is_reply
                          ? wire::tag_is_right(key, sent.datagram, sent.to.ip, sent.to.udp_port)
                          : wire::tag_is_right(key, sent.datagram, switch_address().rules.ip,
                                               switch_address().rules.udp_port);
  if (!tagged) wrong("tag");
  if (sent.is_reply && sent.request_id != 0) {
    check_reply(sent);
  } else {
    check_numbers(sent);
  }
  check_announced_base(sent);
}

void RandomRun::check_reply(const Sent& sent) {
  const PlaceKey to = place_key(sent);
  const RequestKey key{to, sent.job, sent.action, sent.request_id, sent.nonce};
  const auto found = expected_.find(key);
  if (found == expected_.end()) return wrong("a reply that nobody waits for");
  Expectation& expectation = found->second;
  if (++expectation.replies > expectation.deliveries) wrong("more replies than requests");
  Model& model = models_.at(sent.job);
  const bool at_once = !now_delivered_.empty() && now_delivered_.front() == key && now_status_;
  if (at_once) {
    ++now_replies_;
    if (sent.status() != *now_status_)
      wrong(text(sent.action) + " answered " + text(sent.status()) + ", not " + text(*now_status_));
    return;
  }
  if (!now_delivered_.empty() && now_delivered_.front() == key) ++now_replies_;
  Status status = expectation.status;
  const auto id = model.id_at(to);
  if (expectation.is_join && status == Status::ok && !id) status = Status::not_a_member;
  if (sent.action == Action::help) {
    if (sent.status() == Status::gone && sent.missing() == 0) wrong("gone, but not what");
  } else if (sent.status() != status) {
    wrong(text(sent.action) + " answered " + text(sent.status()) + ", not " + text(status));
  }
  if (sent.body_member() != (id ? *id : wire::no_member)) wrong("member id in a reply");
  if (sent.members_now() != model.rows.size()) wrong("members now in a reply");
  if (sent.status() == Status::ok && expectation.resets &&
      !wire::serial_newer(sent.base_round(), expectation.base_then))
    wrong("a reset without a newer base_round");
  if (expectation.is_join && sent.status() == Status::ok && sent.state() != JobState::forming)
    for (std::uint16_t shard = 0; shard < bench_->datapath.shards(); ++shard) {
      auto& there = bench_->datapath.shard(shard, sent.job);
      if (there.members.count(*id) == 0 || there.members[*id].endpoint.ip != sent.to.ip)
        wrong("a Join answered before its row is there: job " + std::to_string(sent.job) +
              ", member " + std::to_string(*id) + ", client port " +
              std::to_string(sent.to.udp_port));
      else if (expectation.resets && there.put_at[*id] > there.started_at)
        wrong("a row put after the start it was to be part of");
    }
  model.replied(to, {sent.action, sent.job, sent.member, sent.request_id, sent.nonce},
                sent.status());
}

void RandomRun::check_numbers(const Sent& sent) {
  const auto repeated = sent_bytes_.find(sent.nonce);
  if (repeated != sent_bytes_.end()) {
    if (repeated->second != sent.datagram) return wrong("two things under one nonce");
    return check_repetition(sent, sent_at_[sent.nonce]);
  }
  if (sent.nonce <= newest_nonce_) wrong("a nonce that does not grow");
  newest_nonce_ = std::max(newest_nonce_, sent.nonce);
  sent_bytes_[sent.nonce] = sent.datagram;
  sent_at_[sent.nonce] = {bench_->now};
}

void RandomRun::check_repetition(const Sent& sent, std::vector<Time>& times) {
  if (sent.is_reply || sent.action == Action::help || sent.action == Action::leave)
    return wrong("repeated what is said once");
  Time gap = 50 * millisecond;
  for (std::size_t i = 1; i < times.size(); ++i) gap = std::min(gap * 2, second);
  if (bench_->now - times.back() < gap) wrong("repeated too soon");
  times.push_back(bench_->now);
  ++met["repeated by the switch"];
}

void RandomRun::check_announced_base(const Sent& sent) {
  const bool is_reset = !sent.is_reply && sent.action == Action::reset;
  if (!is_reset && !sent.is_reply) return;
  // A repeated Reset may be older than what is published since.
  const std::uint32_t base = is_reset ? sent.reset_base() : sent.base_round();
  const auto known = published_base_.find(sent.job);
  if (known == published_base_.end()) {
    published_base_[sent.job] = base;
  } else if (wire::serial_newer(base, known->second)) {
    if (base - known->second < 2) wrong("a base_round not two later");
    known->second = base;
  } else if (sent.is_reply && base != known->second) {
    wrong("an older base_round than before");
  }
  const bool open_for_business = is_reset || sent.state() != JobState::forming;
  for (std::uint16_t shard = 0; shard < bench_->datapath.shards(); ++shard) {
    const auto& there = bench_->datapath.shard(shard, sent.job);
    if (!is_reset && open_for_business && there.started_bases.count(base) == 0)
      wrong("a base_round told before every shard has it");
    if (is_reset && models_.at(sent.job).formed && there.stops == 0)
      wrong("a Reset announced before every shard has cleared");
  }
}

void RandomRun::check_rows() {
  for (const auto& view : bench_->control.jobs()) {
    const Model& model = models_.at(view.config.id);
    bool same = view.members.size() == model.rows.size();
    std::map<PlaceKey, int> places;
    for (const auto& member : view.members) {
      const PlaceKey place{member.spec.endpoint.ip.value, member.spec.endpoint.udp_port,
                           member.spec.ingress};
      if (++places[place] > 1) wrong("two rows for one place");
      const auto row = model.rows.find(member.spec.id);
      same = same && row != model.rows.end() && row->second.place == place &&
             row->second.incarnation == member.incarnation &&
             row->second.last_heard == member.last_heard;
    }
    if (!same) wrong("the membership table of job " + std::to_string(view.config.id));
    if (view.threshold_wanted != model.threshold) wrong("threshold");
    if (view.state != JobState::forming && !model.formed) wrong("running without members");
  }
}

// ---- the end

void RandomRun::come_to_rest() {
  lossy_ = false;
  for (int round = 0; round < 60; ++round) {
    bench_->answer_all();
    for (Agent& agent : agents_) {
      if (agent.waiting) send(agent, agent.history.back());
      while (!agent.mailbox.empty()) read_mail(agent);
      if (models_.at(agent.client.job).id_at(place_key(agent.client))) {
        // Alive, so that nobody is evicted while things come to rest.
        const Model::Request ping = request_of(agent.client.next_header(Action::ping));
        send(agent, {ping, wire::write_plain_request(ping.header, agent.client.as_client())});
      }
    }
    bench_->answer_all();
    pass_time(round < 40 ? 60 * millisecond : second);
  }
  bench_->answer_all();
}

void RandomRun::check_end() {
  check_rows();
  if (acts_done_ != acts_begun_) wrong("an act of the operator not ended once");
  for (const auto& view : bench_->control.jobs()) check_job_at_rest(view);
  check_agents_at_rest();
}

void RandomRun::check_job_at_rest(const control::JobView& view) {
  const Model& model = models_.at(view.config.id);
  const JobState state = !model.formed  ? JobState::forming
                         : model.halted ? JobState::halted
                                        : JobState::running;
  if (view.state != state) wrong("the state of a job at rest");
  ++met[std::string("ended ") + wire::job_state_name(state)];
  for (std::uint16_t shard = 0; shard < bench_->datapath.shards(); ++shard) {
    const auto& there = bench_->datapath.shard(shard, view.config.id);
    if (there.members.size() != view.members.size()) wrong("rows in the datapath");
    for (const auto& member : view.members) {
      const auto row = there.members.find(member.spec.id);
      if (row == there.members.end() || !(row->second == member.spec)) wrong("a row's data");
    }
    if (there.threshold != model.threshold) wrong("the datapath's threshold");
    if (there.stops > model.clearings) wrong("slots cleared that nothing had to clear");
    if (there.running != model.formed) wrong("the datapath runs or not");
    if (there.running && there.base != view.base_round) wrong("the datapath's base_round");
    if (there.running && there.halted != model.halted) wrong("the datapath is halted or not");
  }
}

void RandomRun::check_agents_at_rest() {
  for (const Agent& agent : agents_) {
    const auto view = bench_->view(agent.client.job);
    const Model& model = models_.at(agent.client.job);
    const auto id = model.id_at(place_key(agent.client));
    if (!agent.history.empty()) {
      const auto& header = agent.history.back().request.header;
      const auto found = expected_.find({place_key(agent.client), agent.client.job, header.action,
                                         header.request_id, header.nonce});
      if (found == expected_.end() || found->second.replies == 0)
        wrong("a " + text(header.action) + " never answered");
    }
    if (!id || !agent.member || agent.client.id != *id) continue;
    ++met["agents compared at rest"];
    if (agent.base_round != view.base_round) wrong("a member does not know its base_round");
    if (view.state != JobState::forming && agent.halted != (view.state == JobState::halted))
      wrong("a member does not know whether the job is halted");
  }
}

}  // namespace control_test
