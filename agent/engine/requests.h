// Control packets of a member (protocol.md section 6): nonces and request ids, repetition until
// answered, matching of replies, answers to the switch's own requests.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "agent/engine/engine.h"

namespace iswitch::agent {

struct ResetBody {
  std::uint32_t base_round = 0;
};
struct ThresholdBody {
  std::uint16_t threshold = 0;
};
struct ControlRequest {
  wire::Action action = wire::Action::ping;
  std::variant<std::monostate, wire::JoinBody, wire::RejoinBody, ResetBody, ThresholdBody,
               wire::SlotBody>
      body;
};

/// Times between repetitions: the first, doubling up to the most.
struct Pace {
  Time first = 0;
  Time most = 0;
  /// Each repetition is a request of its own: an answer to an earlier one comes too late.
  bool renewed = false;
};

/// What a datagram from the switch answers.
enum class Answers : std::uint8_t { nothing, main, ping, help, unasked };
struct Reply {
  Answers answers = Answers::nothing;
  wire::Action action = wire::Action::ping;
  wire::ReplyBody body;
  wire::SlotBody about;    ///< help: what was asked for
  bool authentic = false;  ///< the tag is right under this member's key
  Time asked_at = 0;       ///< when what it answers was first sent; meaningless for unasked
};

/// What identifies a request and, from it, its reply.
struct SentRequest {
  wire::Action action = wire::Action::ping;
  std::uint32_t id = 0;
  std::uint64_t nonce = 0;
  Time at = 0;  ///< first sent
};
/// A request that is repeated until answered.
struct RepeatedRequest {
  SentRequest sent;
  wire::ControlDatagram datagram;
  ControlRequest request;
  wire::MemberId sender = wire::no_member;
  Time send_at = 0;
  Time interval = 0;
  Time most = 0;
  bool renewed = false;
  unsigned times = 0;  ///< sent so far
};

class Requests {
 public:
  Requests(const EngineOptions& options, Statistics& statistics);

  // The switch takes one request at a time (a newer one replaces it), so there is one main request;
  // Ping and Help are exempt.

  /// Replaces the main request; first sent at `at`.
  void start(const ControlRequest& request, wire::MemberId sender, Pace pace, Time at, Time now);
  void stop() { main_.reset(); }
  /// There is something to learn: the main request goes (again) now.
  void hurry(Time now) {
    if (main_) main_->send_at = std::min(main_->send_at, now);
  }
  std::optional<wire::Action> main() const;
  /// How often the main request has been sent without an answer.
  unsigned main_times() const { return main_ ? main_->times : 0; }
  /// Sent once nothing else is outstanding and this is a member. The newest is dropped when eight
  /// wait, and a Reset when one has been asked for already.
  void want(const ControlRequest& request);
  /// The job has been Reset: nobody need be asked for that any more.
  void was_reset();

  void ping(wire::MemberId sender, Time now);
  void help(wire::MemberId sender, wire::SlotBody slot, Time now);
  /// Queues the answer to a request of the switch.
  void answer(const wire::Header& request, wire::MemberId self, const wire::ReplyBody& body);
  /// Leave, sent once: nobody waits for its answer.
  void farewell(wire::MemberId sender, Time now);

  /// Finds what a reply answers. The main request is over once answered.
  Reply match(const wire::Message& message, Bytes datagram);
  bool authentic_request(Bytes datagram) const;

  /// A request of the switch: do it, answer it without doing it again, or refuse it.
  enum class Freshness : std::uint8_t { fresh, repeated, replayed };
  Freshness freshness(const wire::Header& request);
  /// Another switch may have come: its nonces start anywhere.
  void forget_peer();

  /// A source's nonces must grow; after a refusal as replayed they jump ahead of whatever was seen.
  void jump_nonces();

  void tick(wire::MemberId sender, bool member, Time now);
  bool ready() const { return queued_ != 0; }
  bool transmit(Outgoing& out);
  Time next_deadline() const { return main_ ? main_->send_at : never; }

  /// Something authentic came from the switch.
  void heard() { unanswered_ = bad_tags_ = 0; }
  /// Requests sent since anything was heard, and when the first of them was.
  unsigned unanswered() const { return unanswered_; }
  /// Answers that are not signed with this member's key are believed only when they insist.
  static constexpr unsigned unproven_believed = 3;
  /// Instead of them the switch says that their tags are wrong: it has another key.
  bool keys_differ() const { return bad_tags_ >= unproven_believed; }
  Time unanswered_since() const { return unanswered_since_; }

 private:
  static constexpr std::size_t most_queued = 32;
  static constexpr std::size_t most_wanted = 8;
  static constexpr std::size_t most_helps = 32;  ///< whose answers are known

  SentRequest next(wire::Action action, Time now);
  wire::ControlDatagram compose(const ControlRequest& request, const SentRequest& sent,
                                wire::MemberId sender) const;
  wire::Client client() const { return {options_.key, options_.own_ip, options_.own_port}; }
  /// Of the switch's own requests and the answers to them: the requester is the switch.
  wire::Client asking_switch() const {
    return {options_.key, options_.switch_ip, options_.switch_port};
  }
  void queue(const wire::ControlDatagram& datagram);
  void asked(Time now);

  const EngineOptions& options_;
  Statistics& statistics_;
  std::optional<RepeatedRequest> main_;
  std::optional<SentRequest> ping_;
  struct SentHelp {
    SentRequest sent;
    wire::SlotBody about;
  };
  std::array<SentHelp, most_helps> helps_;  ///< the latest; id 0: none, or answered
  std::size_t next_help_ = 0;
  std::array<ControlRequest, most_wanted> wanted_;
  std::size_t wanted_count_ = 0;

  std::array<wire::ControlDatagram, most_queued> queue_;
  std::size_t queue_head_ = 0;
  std::size_t queued_ = 0;

  std::uint32_t next_id_ = 1;
  std::uint64_t last_nonce_ = 0;
  std::uint64_t nonce_lead_ = 0;  // microseconds ahead of the clock
  std::optional<SentRequest> peer_request_;
  std::uint64_t peer_unasked_nonce_ = 0;
  unsigned unanswered_ = 0;
  unsigned bad_tags_ = 0;  // refused for it since anything was heard
  Time unanswered_since_ = 0;
};

}  // namespace iswitch::agent
