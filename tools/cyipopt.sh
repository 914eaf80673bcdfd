#!/usr/bin/env bash
# Installs cyipopt, which is published as source and without IPOPT. A step of setup.sh.
set -euo pipefail
# As in setup.sh: an interrupted build must not pass for one that failed.
trap 'exit 130' INT TERM

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

works() { "$VENV/bin/python" -c 'import cyipopt'; }

# casadi's wheel carries IPOPT with MUMPS, library and headers.
build() {
  command -v gcc >/dev/null || { echo "no C compiler (gcc)"; return 1; }
  install casadi || return
  local packages
  packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  # A link, because cyipopt splits pkg-config's answer at spaces, and the path of a checkout may have some.
  ln -s "$packages/casadi" "$work/casadi"
  # casadi's own ipopt.pc names a prefix that exists only where casadi was built; and pkg-config may not be installed.
  cat >"$work/pkg-config" <<END
#!/bin/sh
echo "-I$work/casadi/include/coin-or -L$work/casadi -lipopt"
END
  chmod +x "$work/pkg-config"
  # The run path goes here, since cyipopt passes on no linker flags from pkg-config; and nothing from pip's cache, which
  # may hold a cyipopt with another run path.
  PATH=$work:$PATH CFLAGS=-O1 LDFLAGS="-Wl,-rpath,\$ORIGIN/../casadi" \
    install --no-cache-dir --no-binary cyipopt cyipopt || return
  works
}

# Whoever put a working cyipopt here chose its IPOPT and its linear solver.
if works 2>/dev/null; then exit; fi
build && exit
echo "setup: cyipopt cannot be compiled here: taking the third-party package cyipopt-wheels" >&3
install cyipopt-wheels==1.7.0.dev0
works
