// Bugs planted around a switch's pipeline, in what goes in and what comes out, never in the code
// that ships. Each must be caught by a checker (tests/unit/sim/test_bugs.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "switchd/datapath/datapath.h"
#include "tools/sim/frames.h"
#include "tools/sim/random.h"

namespace iswitch::sim {

enum class SwitchBug : std::uint8_t {
  none,
  forget_member,  ///< one member's copy of every result is not sent
  add_twice,      ///< a contribution is fed a second time under another member's identity
  skip_check,     ///< no duplicate check: a late copy of a push counts as a newer one
  swap_job,       ///< a contribution gets the payload of another job's
  wrong_bits,     ///< one member's copy of a result differs in the last float
  lose_frame,     ///< a received frame never reaches the pipeline and no counter
  shared_buffer,  ///< a slot's memory is used again while a result still refers to it
  keep_buffer,    ///< a transmit queue never gives its share back
  fake_barrier,   ///< a member's empty contribution counts for all members
  ignore_tag,     ///< operations that differ are summed
  miscount,       ///< results say one worker less
  lose_mark,      ///< ECN-ECHO is not carried on to results
  renumber,       ///< a result goes to one member under the next round's number
  // After a restart (protocol.md section 9); in jobs without a key:
  deny_stream,   ///< what members say of their stream is not listened to: the job starts afresh
  lose_held,     ///< results that members hand back are lost
  wrong_held,    ///< the last float of a result that is handed back differs
  settle_early,  ///< asynchronous: any result looks like the answer of settling
  forget_doubt,  ///< asynchronous: that nobody knows who is in an update is not said
};

class SwitchBugs {
 public:
  struct Fed {
    datapath::PortId port = 0;
    FrameRef frame;
  };

  SwitchBugs(SwitchBug bug, Random random) : bug_(bug), random_(random) {}
  SwitchBug bug() const { return bug_; }

  /// A frame on its way to the pipeline; false: it is lost. What else is fed goes to `more`.
  bool receive(FramePool& pool, datapath::PortId port, bool from_parent, FrameRef& frame,
               std::vector<Fed>& more);
  /// A control packet on its way out.
  void answer(std::span<std::uint8_t> frame) const;
  /// A member's copy of a result on its way out; false: it is not sent.
  bool send(unsigned member, std::span<std::uint8_t> frame);
  /// The program has ended.
  void forget() { last_.clear(); }

 private:
  struct Seen {  // identities that may be borrowed
    std::array<std::uint8_t, 42> encapsulation;
    datapath::PortId port;
  };
  static void borrow(FrameRef& frame, const Seen& other, std::uint16_t member);
  void remember(datapath::PortId port, Bytes frame);
  void add_as_others(FramePool& pool, const FrameRef& frame, bool all, std::vector<Fed>& more);
  void swap_payload(FrameRef& frame);
  bool receive_held(FrameRef& frame) const;

  SwitchBug bug_;
  Random random_;
  std::map<std::uint32_t, Seen> seen_;      // job << 16 | member
  std::map<std::uint32_t, FrameRef> last_;  // by job
};

}  // namespace iswitch::sim
