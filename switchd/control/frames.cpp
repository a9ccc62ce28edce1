#include "switchd/control/frames.h"

#include <algorithm>
#include <utility>

namespace iswitch::control {

bool tag_is_right(wire::Key key, const wire::Packet& packet, wire::Ipv4 client,
                  std::uint16_t client_port) {
  const Bytes payload = packet.message.payload;  // the header is right before it
  const Bytes datagram{payload.data() - wire::header_bytes, payload.size() + wire::header_bytes};
  return wire::tag_is_right(key, datagram, client, client_port);
}

void FrameWriter::send(const wire::ControlDatagram& datagram, const Destination& to,
                       const Turn& turn) const {
  const datapath::SwitchAddress& own = config_.address;
  OutFrame frame;
  frame.port = to.port;
  frame.bytes.resize(wire::encapsulation_bytes + datagram.size);
  const wire::Route route{
      {own.mac, own.rules.ip, own.rules.udp_port}, to.endpoint, own.rules.control_tos};
  wire::write_encapsulation(route, datagram.size, frame.bytes.data());
  const Bytes payload = datagram.view();
  std::copy(payload.begin(), payload.end(),
            frame.bytes.begin() + static_cast<std::ptrdiff_t>(wire::encapsulation_bytes));
  wire::set_udp_checksum(frame.bytes);
  turn.effects.frames.push_back(std::move(frame));
}

std::uint64_t FrameWriter::unix_microseconds(Time now) const {
  const Time since_start = std::max<Time>(0, now - config_.start_time);
  return config_.start_unix_microseconds + static_cast<std::uint64_t>(since_start / microsecond);
}

std::uint64_t FrameWriter::next_nonce(Time now) {
  last_nonce_ = std::max(last_nonce_ + 1, unix_microseconds(now));
  return last_nonce_;
}

std::uint32_t FrameWriter::next_request_id() {
  if (++last_request_id_ == 0) ++last_request_id_;  // 0 marks what nobody asked for
  return last_request_id_;
}

}  // namespace iswitch::control
