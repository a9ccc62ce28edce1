// What goes into the pipeline and what comes out of it.
#pragma once

#include <cstdint>

#include "switchd/datapath/datapath.h"
#include "wire/frame.h"
#include "wire/result_header.h"

namespace iswitch::pipeline {

using datapath::MemberMask;
using datapath::PortId;
using datapath::PortMask;

inline constexpr unsigned max_burst = 64;

/// A received frame. The driver owns the bytes, keeps them until run() has returned, and frees
/// every frame that the sink did not take by forward().
struct Frame {
  const std::uint8_t* bytes = nullptr;
  std::uint32_t size = 0;
  PortId port = 0;
  wire::Offload offload;
  Bytes view() const { return {bytes, size}; }
};

/// Where one member's copies go, or what goes to the parent.
struct Destination {
  PortId port = 0;
  wire::ResultTemplate header;
};

/// One result for the members in `to`; or, with `up`, what a child sends to its parent (its sum, or
/// a result that it hands back: fields.type() tells): `to` is 1 then, and destinations[0] the
/// parent. Of `payload` there is one share for each copy, which a sink may take (see result below).
/// For member m, `destinations[m].header.write(fields, out)` makes the copy's 64
/// header bytes.
template <class Handle>
struct Delivery {
  wire::ResultMessage fields;
  Handle payload{};  ///< null when the result is empty
  MemberMask to = 0;
  const Destination* destinations = nullptr;  ///< indexed by member id
  bool up = false;
};

/// Of a burst in the pipeline.
enum class Stage : std::uint8_t { parse, classify, aggregate, deliver };

// A Sink has, called by the pipeline within run(), execute() and housekeep():
//
//   void forward(unsigned index, PortMask ports)
//     frame burst[index] goes out of these ports as it is
//
//   void transmit(PortId port, Bytes frame)
//     a short frame made here (ARP, ICMP echo); copied
//
//   bool control(const datapath::ControlFrame& frame)
//     false: no room, counted as a drop
//
//   void notice(const datapath::Notice& notice)
//
//   unsigned result(const Delivery<Handle>& delivery), or void
//     a result for members, or a sum for the parent: both are sent alike. Gives how many of the
//     delivery's shares of the payload it has taken, one for each copy that refers to it; void:
//     none
//
// and may have
//
//   void refused(unsigned index, Counter reason)
//     burst[index] is malformed or from somebody who had no right to send it; counted so
//
//   void stage(Stage stage)
//     of a burst has ended: for a clock

}  // namespace iswitch::pipeline
