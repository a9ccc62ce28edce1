// A child job's link to the switch above: joins it, pings it, asks it, and knows what it said last.
// uplink_replies.cpp has what the parent says.
// What follows from that for the job's slots and members is not its business (child.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "switchd/control/frames.h"
#include "switchd/control/parent_address.h"
#include "switchd/control/stream.h"
#include "switchd/control/turn.h"

namespace iswitch::control {

/// What the links of a switch's jobs share; it outlives them.
struct UplinkParts {
  const SwitchConfig& config;
  FrameWriter& frames;
  ParentAddress& address;
  Counters& counters;
  std::uint64_t& incarnations;  ///< taken so far, of all jobs
};

/// One life of a job at the parent: another member id, incarnation or base_round is another life.
struct ParentRun {
  MemberId member = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t base_round = 0;
  bool operator==(const ParentRun&) const = default;
};

class Uplink {
 public:
  /// How a request to the parent ended; none: it cannot be asked now.
  using Done = std::function<void(std::optional<wire::Status>, const Turn&)>;

  Uplink(UplinkParts parts, const JobConfig& job, Time now);

  /// Become a member, with a new incarnation; nothing where it is one or is about to be. By Rejoin,
  /// with what its members say of their stream; or by Join, `fresh` being why that cannot go on.
  void open(const Stream& stream, const Turn& turn);
  void open(wire::Resumed::Fresh fresh, const Turn& turn);
  /// Leave. Nobody is waited for, but the Leave is repeated until answered.
  void close(const Turn& turn);
  /// It is no member any more, and does not say so: it comes back with another incarnation.
  void abandon(const Turn& turn);
  /// The place has been lost since this was last asked. Until open() no other one is taken.
  bool take_lost() { return std::exchange(lost_, false); }
  /// One Leave, and nothing after it: this switch or its job ends.
  void farewell(const Turn& turn);

  // ---- asking (one guarded request is outstanding at a time)
  void ask(wire::Action action, const wire::SlotBody& slot, Done done, const Turn& turn);
  void help(const wire::SlotBody& slot, Done done, const Turn& turn);
  bool asks(wire::Action action) const;
  /// What was asked has come about otherwise; its Done is not called.
  void withdraw(wire::Action action, const Turn& turn);

  // ---- what the parent sends; false: not believed, or nothing waits for it
  bool on_reply(const wire::Packet& packet, const Turn& turn);
  /// Its unasked-for replies: a mismatch or a gone result is the caller's to pass on.
  struct Unasked {
    bool believed = false;
    wire::ReplyBody body;
  };
  Unasked on_unasked(const wire::Packet& packet, const Turn& turn);

  /// An order of the parent's, whose tag is right.
  enum class Order : std::uint8_t {
    unwanted,  ///< not a member there
    fresh,
    in_progress,  ///< repeated; its answer will come
    answered,     ///< repeated; answer it again
    replayed,     ///< answer 10
  };
  Order on_order(const wire::ControlHeader& order, const Turn& turn);
  void answer_order(const wire::ControlHeader& order, wire::Status status, const Turn& turn);
  // What orders say of the job.
  bool told_base(std::uint32_t base_round, Time now);  ///< true: news
  void told_halted(bool halted);
  void told_leave(const Turn& turn);

  void tick(const Turn& turn);
  Time next_deadline() const;
  void address_known(const Turn& turn);

  // ---- how it stands
  /// The parent runs (or has halted) the job and answers.
  bool ready() const;
  bool halted() const { return parent_state_ == wire::JobState::halted; }
  /// Meaningful when ready.
  const ParentRun& run() const { return run_; }
  const wire::ReplyBody& terms() const { return terms_; }
  /// What the parent says of the stream, in the run that it is in now.
  wire::Resumed resumed() const;
  /// What it was told of it; none where this switch came by Join.
  const std::optional<Stream>& stream() const { return stream_; }
  datapath::ParentSpec place() const;
  ParentView view() const;

 private:
  enum class Stage : std::uint8_t {
    closed,
    joining,  ///< a Join is out, or will be after a pause
    member,
    unfit,  ///< the job there does not fit: asked now and then whether it still does not
  };
  struct Request {
    wire::Action action = wire::Action::join;
    wire::SlotBody slot;
    std::uint32_t id = 0;
    std::uint64_t nonce = 0;
    Time sent_at = 0;
    Time next_send = 0;
    Time interval = 0;
    unsigned sends = 0;
  };
  struct Wish {
    wire::Action action;
    wire::SlotBody slot;
    Done done;
  };
  struct Asked {  ///< a Ping
    std::uint32_t id = 0;
    std::uint64_t nonce = 0;
    Time at = 0;
  };
  struct Help {
    wire::SlotBody slot;
    std::uint32_t id = 0;
    std::uint64_t nonce = 0;
    Time at = 0;
    std::vector<Done> done;
  };

  static constexpr Time first_repeat = 50 * millisecond;
  static constexpr Time ping_interval = second;
  static constexpr Time forming_ping_interval = 200 * millisecond;
  static constexpr Time least_between_joins = 200 * millisecond;
  /// Rejoins that were not answered; a parent that answers Pings meanwhile knows no Rejoin.
  static constexpr unsigned sends_until_old = 5;

  std::uint64_t next_nonce(Time now) { return parts_.frames.next_nonce(now) + nonce_lead_; }
  wire::Client client() const;  ///< of requests to the parent: this switch
  void start_request(wire::Action action, const wire::SlotBody& slot, Time at, const Turn& turn);
  void send_request(const Turn& turn);
  void send(const wire::ControlDatagram& datagram, const Turn& turn);
  wire::JoinBody join_body() const;
  wire::RejoinBody rejoin_body() const;
  Time within_timeout(Time interval) const;
  void send_ping(const Turn& turn);
  void next_wish(const Turn& turn);
  void fail_wishes(const Turn& turn);
  void fail_helps(const Turn& turn);
  void open(const Turn& turn);
  void join(Time at, const Turn& turn);
  wire::Action joins_by() const { return stream_ ? wire::Action::rejoin : wire::Action::join; }
  void lose_place(const Turn& turn);
  void leave(const Turn& turn);
  void shut();
  void leave_unfit(std::string why, const Turn& turn);
  void joined(const wire::ReplyBody& body, const Turn& turn);
  void learn_stream(const wire::ReplyBody& body);
  void refused(const wire::ReplyBody& body, const Turn& turn);
  void on_request_reply(const wire::ReplyBody& body, const Turn& turn);
  void on_ping_reply(const wire::ReplyBody& body, Time asked_at, const Turn& turn);
  /// `asked_at`: when that was asked which `body` answers; none: it was said unasked.
  void adopt(const wire::ReplyBody& body, std::optional<Time> asked_at, const Turn& turn);
  void jump_nonces(const Turn& turn);
  void take_base(std::uint32_t base_round, Time now);
  void doubt_place(std::uint32_t base_round);
  Asked* ping_of(const wire::Header& header);
  ParentView::State state() const;
  void note_state(Time now);

  UplinkParts parts_;
  ParentConfig parent_;
  JobConfig job_;

  Stage stage_ = Stage::closed;
  ParentRun run_;
  wire::ReplyBody terms_;
  wire::JobState parent_state_ = wire::JobState::forming;
  bool lost_ = false;
  std::optional<Stream> stream_;
  wire::Resumed::Fresh fresh_ = wire::Resumed::Fresh::stranger;  ///< why it came by Join
  MemberId former_ = wire::no_member;   ///< its id since the stream began, if known
  std::optional<bool> waited_for_all_;  ///< the parent's sums, when the job last ran
  unsigned deaf_ = 0;        ///< sendings of the Rejoin in a row that a Ping's 2 alone answered
  unsigned deaf_sends_ = 0;  ///< the last of them
  std::uint32_t life_ = 0;   ///< the parent's, as it last said
  std::optional<wire::Resumed> resumed_;  ///< its answer, once it ran
  std::uint32_t resumed_base_ = 0;        ///< of the run that is about
  Time not_before_ = 0;                   ///< the next Join
  bool ran_ = false;                      ///< the parent has run the job since the Join
  bool silent_ = false;  ///< it was a member, and the parent has not answered or has said Leave
  Time heard_ = 0;       ///< the parent, last
  Time told_at_ = 0;     ///< an order last: replies asked for before it are out of date
  Time base_known_at_ = 0;
  bool check_place_ = false;  ///< the parent may have another row of this switch than it believes
  std::uint64_t unasked_nonce_ = 0;
  std::string fault_;

  std::optional<Request> request_;
  Time joined_at_ = 0;       ///< the last Join first sent
  Time pause_ = 0;           ///< before the next Join after a refusal
  std::deque<Wish> wishes_;  ///< the first one is the request, if that is none of the link's own
  std::array<Asked, 4> pings_{};
  std::size_t newest_ping_ = 0;
  Time next_ping_ = never;
  std::vector<Help> helps_;
  std::uint64_t nonce_lead_ = 0;  ///< the parent remembers a clock ahead of ours

  struct LastOrder {
    wire::ControlHeader header;
    bool answered = false;
    wire::Status status = wire::Status::ok;
  };
  std::optional<LastOrder> last_order_;

  ParentView::State noted_ = ParentView::State::idle;
  Time since_ = 0;
};

}  // namespace iswitch::control
