#!/bin/sh
# Installs into an empty directory and uses the Python module that stands there, away from the tree.
# usage: installed.sh BUILD_DIR SOURCES_OF_THE_MODULE PYTHON
set -eu
build=$1 sources=$2 python=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

DESTDIR=$root meson install -C "$build" --no-rebuild --quiet > "$root/install.log" 2>&1 ||
  { cat "$root/install.log"; fail "meson install"; }
module=$(find "$root" -path '*/iswitch/errors.py')
[ -n "$module" ] || fail "no Python module was installed"
module=${module%/errors.py}
for file in "$sources"/*.py; do
  cmp -s "$file" "$module/${file##*/}" || fail "${file##*/} is not installed, or another one"
done
cd "$root"
unset ISWITCH_LIBRARY || true
export PYTHONPATH="${module%/iswitch}" PYTHONDONTWRITEBYTECODE=1

# The library's place is the one of the installation: with the root in front it is there.
library=$("$python" -c 'from iswitch._installed import LIBRARY; print(LIBRARY)')
[ -e "$root$library" ] || fail "the module looks for $library, which was not installed"
said=$(LD_LIBRARY_PATH="$root${library%/*}" "$python" -c '
import iswitch
assert iswitch.__file__.startswith("'"$root"'"), iswitch.__file__
try:
    iswitch.join("127.0.0.1:1", join_timeout=0.2)
except iswitch.SwitchGone as error:
    print("works")
') || fail "the installed module"
[ "$said" = works ] || fail "the installed module says $said"
echo "installed and loaded: ${module#"$root"}, $library"
