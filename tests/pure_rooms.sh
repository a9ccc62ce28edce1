#!/usr/bin/env bash
# The pure rooms take time, packets and orders as values. So their archives must ask for no socket,
# clock or thread, and their sources may include only what the arrows between the rooms allow.
#
# usage: pure_rooms.sh SOURCE_DIR ROOM=ARCHIVE...     ROOM: a folder below SOURCE_DIR, as wire
#        pure_rooms.sh --self-test                    the check itself, against things it must refuse
set -euo pipefail

symbols='socket|socketpair|bind|connect|listen|accept4?|shutdown|send(to|msg|mmsg)?|recv(from|msg|mmsg)?'
symbols+='|[gs]etsockopt|getaddrinfo|if_nametoindex|poll|ppoll|select|pselect|epoll_.*|eventfd|timerfd_.*|ioctl'
symbols+='|clock|clock_.*|time|times|gettimeofday|ftime|nanosleep|usleep|sleep|alarm|setitimer|timer_.*'
symbols+='|pthread_.*|thrd_.*|mtx_.*|cnd_.*|call_once|sem_.*|fork|vfork|clone|sched_.*|futex'
symbols+='|_ZNSt6chrono.*|_ZNSt6thread.*|_ZNSt18condition_variable.*|_ZNSt5mutex.*|_ZSt4(cout|cerr|clog|cin)'
symbols+='|syslog|rte_.*|_ZN6spdlog.*'

headers='chrono|ctime|time\.h|sys/time\.h|sys/timerfd\.h|thread|mutex|shared_mutex|condition_variable|future'
headers+='|stop_token|semaphore|latch|barrier|threads\.h|pthread\.h|sched\.h|sys/socket\.h|netinet/.*|arpa/.*'
headers+='|net/.*|netdb\.h|linux/.*|poll\.h|sys/(epoll|poll|select|eventfd|ioctl|un)\.h|iostream|syslog\.h'
headers+='|spdlog/.*|rte_.*|ethdev_.*'

# Own headers that a room may include, by folder.
allowed() {
  case $1 in
    wire) echo 'wire' ;;
    switchd/pipeline) echo 'wire|switchd/datapath|switchd/pipeline' ;;
    switchd/control) echo 'wire|switchd/datapath|switchd/control' ;;
    agent/congestion) echo 'wire|agent/congestion' ;;
    agent/engine) echo 'wire|agent/congestion|agent/engine|iswitch' ;;
    *) echo "pure_rooms: no arrows are known for the room $1" >&2; return 1 ;;
  esac
}

# refused_symbols ARCHIVE: undefined symbols that a pure room must not have (glibc's version cut off).
refused_symbols() {
  nm -u "$1" | awk '$1 == "U" || $1 == "w" { sub(/@.*/, "", $2); print $2 }' | sort -u |
    grep -xE "(__)?($symbols)" || true
}

# refused_includes ROOM_DIR ARROWS: "file: header" for includes against the rules.
refused_includes() {
  local line file header
  grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+[>"]' "$1" --include='*.h' --include='*.cpp' |
    while IFS= read -r line; do
      file=${line%%:*} header=${line#*[<\"]} header=${header%[>\"]}
      if [[ $header =~ ^($headers)$ ]] ||
        { [[ $line == *\"* ]] && ! [[ ${header%/*} =~ ^($2)$ ]]; }; then
        echo "$file: $header"
      fi
    done
}

check_room() {  # ROOM_DIR ARCHIVE ARROWS
  local found bad=0
  [ -f "$2" ] || { echo "pure_rooms: no archive $2" >&2; return 1; }
  found=$(refused_symbols "$2")
  if [ -n "$found" ]; then echo "$2 asks for:" $found; bad=1; fi
  found=$(refused_includes "$1" "$3")
  if [ -n "$found" ]; then echo "includes against the arrows:"; echo "$found"; bad=1; fi
  return $bad
}

self_test() {
  local dir
  dir=$(mktemp -d)
  trap "rm -rf '$dir'" EXIT
  expect() {  # pure|impure TEXT...
    local want=$1 got=pure
    shift
    rm -rf "$dir/room" && mkdir "$dir/room"
    printf '%s\n' "$@" > "$dir/room/a.cpp"
    # Headers of our own do not exist here: only the includes are looked at.
    { grep -v '#include "' "$dir/room/a.cpp" || true; } > "$dir/b.cpp"
    "${CXX:-c++}" -std=c++20 -O0 -c "$dir/b.cpp" -o "$dir/b.o"
    rm -f "$dir/a.a" && ar rc "$dir/a.a" "$dir/b.o"
    check_room "$dir/room" "$dir/a.a" 'wire' > /dev/null || got=impure
    [ $got = $want ] || { echo "self-test: taken for $got: $*" >&2; exit 1; }
  }
  expect pure '#include <atomic>' '#include "wire/frame.h"' 'int f(int x) { return x; }'
  expect impure '#include <chrono>' 'int f() { return 0; }'
  expect impure '#include "switchd/log.h"' 'int f() { return 0; }'
  expect impure '  #  include <sys/socket.h>' 'int f() { return 0; }'
  expect impure 'extern "C" int socket(int, int, int);' 'int f() { return socket(1, 2, 3); }'
  expect impure 'extern "C" long time(long*);' 'long f() { return time(nullptr); }'
  expect impure 'extern "C" int clock_gettime(int, void*);' 'int f() { return clock_gettime(0, nullptr); }'
  expect impure 'extern "C" int pthread_mutex_lock(void*);' 'int f() { return pthread_mutex_lock(nullptr); }'
  echo "self-test: every planted fault was seen"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit 0
fi
source_dir=${1:?usage: pure_rooms.sh SOURCE_DIR ROOM=ARCHIVE...}
shift
failed=0
for pair in "$@"; do
  room=${pair%%=*} archive=${pair#*=}
  arrows=$(allowed "$room")
  if check_room "$source_dir/$room" "$archive" "$arrows"; then echo "pure: $room"; else failed=1; fi
done
exit $failed
