#!/usr/bin/env bash
# Install cyipopt, which is published as source and without IPOPT. A step of setup.sh.
set -euo pipefail
# As in setup.sh: an interrupted build must not count as a failed one.
trap 'exit 130' INT TERM

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

works() { "$VENV/bin/python" -c 'import cyipopt'; }

# casadi's wheel contains the library and headers of IPOPT with MUMPS.
build() {
  command -v gcc >/dev/null || { echo "no C compiler (gcc)"; return 1; }
  install casadi || return
  local packages
  packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  # A link, because cyipopt splits pkg-config's output at spaces, and the path of a checkout may contain some.
  ln -s "$packages/casadi" "$work/casadi"
  # casadi's ipopt.pc names a prefix that exists only where casadi was built, and pkg-config may not be installed.
  cat >"$work/pkg-config" <<END
#!/bin/sh
echo "-I$work/casadi/include/coin-or -L$work/casadi -lipopt"
END
  chmod +x "$work/pkg-config"
  # LDFLAGS sets the run path, since cyipopt ignores pkg-config's linker flags. pip's cache may hold a cyipopt with
  # another run path.
  PATH=$work:$PATH CFLAGS=-O1 LDFLAGS="-Wl,-rpath,\$ORIGIN/../casadi" \
    install --no-cache-dir --no-binary cyipopt cyipopt || return
  works
}

# A working cyipopt is kept: the user chose its IPOPT and its linear solver.
if works 2>/dev/null; then exit; fi
build && exit
echo "setup: cyipopt cannot be compiled here: taking the third-party package cyipopt-wheels" >&3
install cyipopt-wheels==1.7.0.dev0
works
