#!/bin/sh
# Installs into an empty directory and uses what stands there, and nothing else, as a stranger would:
# C++ and C programs built through pkg-config, against the shared library and the static one.
set -eu
build=$1 sources=$2 cxx=$3 cc=$4
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet > "$root/install.log" 2>&1 ||
  { cat "$root/install.log"; fail "meson install"; }
pc=$(find "$root" -name iswitch-agent.pc)
[ -n "$pc" ] || fail "no iswitch-agent.pc was installed"
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$root"
lib=$(pkg-config --variable=libdir iswitch-agent)
case $lib in "$root"*) ;; *) lib=$root$lib ;; esac
version=$(pkg-config --modversion iswitch-agent)
cflags=$(pkg-config --cflags iswitch-agent)
libs=$(pkg-config --libs iswitch-agent)
static=$(pkg-config --static --libs iswitch-agent |
  sed 's/-liswitch-agent/-Wl,-Bstatic -liswitch-agent -Wl,-Bdynamic/')

cd "$root"
strict='-Wall -Wextra -Wpedantic -Wshadow -Werror'
$cxx -std=c++20 $strict $cflags "$sources/installed.cpp" -o cpp_shared $libs
$cxx -std=c++20 $strict $cflags "$sources/installed.cpp" -o cpp_static $static
$cc -std=c11 $strict $cflags "$sources/installed.c" -o c_shared $libs
$cc -std=c11 $strict $cflags "$sources/installed.c" -o c_static $static
readelf -d cpp_shared | grep -q 'NEEDED.*libiswitch-agent.so.0]' || fail "soname is not libiswitch-agent.so.0"
readelf -d c_static | grep -q 'libiswitch-agent' && fail "the static program needs the shared library"
for program in cpp_shared c_shared; do
  said=$(LD_LIBRARY_PATH=$lib ./$program) || fail "$program: $said"
  [ "$said" = "$version" ] || fail "$program says $said, pkg-config $version"
done
for program in cpp_static c_static; do
  said=$(./$program) || fail "$program: $said"
  [ "$said" = "$version" ] || fail "$program says $said, pkg-config $version"
done

# The library shows its interface and nothing else, and ends no process that uses it.
others=$(nm -D --defined-only -C "$lib/libiswitch-agent.so" |
  grep -vE ' (iswitch_[a-z_]+|iswitch::(Agent|Handle|AsyncTrainer|UpdateAssembler|TrainerSnapshot)::.*)$' || true)
[ -z "$others" ] || fail "the shared library exports $others"
nm -D --defined-only -C "$lib/libiswitch-agent.so" | grep '::State::' && fail "the shared library exports its insides"
ends=$(nm -D -u "$lib/libiswitch-agent.so" | grep -wE 'exit|_exit|quick_exit|abort|printf|puts|putchar' || true)
[ -z "$ends" ] || fail "the library calls $ends"
echo "installed, built and run: $version"
