#!/bin/sh
# Runs the agent tests that need a network of their own: loopback with an MTU of 1280, held to 20 Mb/s,
# so that send buffers fill. Exit code 77: this machine does not allow it.
set -u
tests=$1
if [ "${2:-}" != inside ]; then
  unshare --user --map-root-user --net true 2>/dev/null || {
    echo "skipped: no user and network namespaces here (unshare --user --net)"
    exit 77
  }
  exec unshare --user --map-root-user --net "$0" "$tests" inside
fi
ip link set lo mtu 1280 up || { echo "skipped: cannot set up loopback"; exit 77; }
tc qdisc add dev lo root tbf rate 20mbit burst 4kb latency 20s || {
  echo "skipped: this kernel has no token bucket filter (sch_tbf)"
  exit 77
}
exec "$tests" "[.namespace]"
