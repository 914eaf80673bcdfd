#!/usr/bin/env bash
# Compile the library that connects Pyomo to cyipopt: Pyomo's wheel has only its source. A step of setup.sh.
# Pyomo finds it when PYOMO_CONFIG_DIR is <environment>/share/qcqpbench/pyomo.
set -euo pipefail

fail() { echo "error: $*"; exit 1; }

source=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyomo/contrib/pynumero/src
library=$VENV/share/qcqpbench/pyomo/lib/libpynumero_ASL.so
[ -e "$source/AmplInterface.cpp" ] || fail "no Pyomo"
if [ "$library" -nt "$source/AmplInterface.cpp" ]; then exit; fi
command -v g++ >/dev/null || fail "no C++ compiler (g++)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

download() { (cd "$work" && apt-get "$@" download libamplsolver-dev); }

# The package is unpacked rather than installed, with separate package lists if the system has none, because neither
# needs root.
fetch_asl() {
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "needs Debian's libamplsolver-dev"
  local lists=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  download || { apt-get "${lists[@]}" update && download "${lists[@]}"; } || fail "cannot download libamplsolver-dev"
  dpkg -x "$work"/libamplsolver-dev_*.deb "$work"
}

root=
[ -e /usr/include/ampl-netlib-solvers/asl.h ] || { fetch_asl; root=$work; }
mkdir -p "$(dirname "$library")"
g++ -O2 -shared -fPIC -DBUILDING_PYNUMERO_ASL -I"$root/usr/include/ampl-netlib-solvers" -o "$library.part" \
  "$source/AmplInterface.cpp" "$root"/usr/lib/*/libamplsolver.a -ldl
mv "$library.part" "$library"
