#!/usr/bin/env bash
# Create .venv with the project, its development tools, and every solver package that this machine supports.
# Each step may be repeated, so the next call completes an interrupted one. `make setup` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH PYTHONHOME
export VENV=${VENV:-.venv} CONSTRAINTS=${CONSTRAINTS:-constraints.txt}
export PIP_DISABLE_PIP_VERSION_CHECK=1

# On Ctrl-C, pip fails as usual, which the steps below would treat as a missing package.
trap 'exit 130' INT TERM
# Two simultaneous calls would overwrite each other's half-installed packages.
if command -v flock >/dev/null; then exec 9<pyproject.toml && flock 9; fi
# The steps' messages to the user go to descriptor 3; the rest of their output goes to the log.
exec 3>&1

say() { echo "setup: $*"; }
die() { say "$*" >&2; exit 1; }

base_python() {
  local name
  for name in python3.11 python3; do
    # Run it, because a version manager's shim can be on PATH with no Python behind it.
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  die "needs Python 3.11 or newer (python3.11 or python3 on PATH)"
}

# Debian has a separate package for ensurepip, which virtual environments need.
install_ensurepip() {
  local package
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if ! command -v apt-get >/dev/null; then
    die "$1 has no ensurepip: install it with your system's package manager, then run this again"
  elif [ "$(id -u)" != 0 ]; then
    die "$1 has no ensurepip: run 'sudo apt-get install $package', then this again"
  fi
  say "installing $package"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install -qq -y "$package" || { apt-get update -qq && apt-get install -qq -y "$package"; }; } >/dev/null ||
    die "apt-get could not install $package"
}

# pip writes INSTALLER after a package's files and scripts. Without it the installation was interrupted, but pip would
# treat the package as installed. A leading ~ marks files that an interrupted upgrade had set aside.
remove_interrupted() {
  local packages=("$VENV"/lib/python3*/site-packages) info
  for info in "${packages[0]}"/*.dist-info; do
    [ -e "$info/INSTALLER" ] || rm -rf "$info"
  done
  rm -rf "${packages[0]}"/~*
}

make_venv() {
  local base
  base=$(base_python)
  "$base" -c 'import ensurepip, venv' 2>/dev/null || install_ensurepip "$base"
  say "virtual environment with $("$base" --version)"
  "$base" -m venv --clear "$VENV" || die "$base could not make $VENV"
}

install() { "$VENV/bin/python" -m pip install --constraint "$CONSTRAINTS" "$@"; }
export -f install

# step NAME COMMAND...: run the command and print one line about its success.
step() {
  local name=$1 start=$SECONDS before
  shift
  before=$(wc -l <"$log")
  if "$@" >>"$log" 2>&1; then
    say "$name ($((SECONDS - start)) s)"
  else
    say "$name: NOT INSTALLED: $(reason "$before")"
    return 1
  fi
}

# reason LINE: print the last error in the log after that line, or else the last line.
reason() {
  awk -v before="$1" 'NR > before { last = $0 } NR > before && sub(/^ *(ERROR|error): */, "") { error = $0 }
    END { print error ? error : last }' "$log"
}

remove_interrupted
compgen -G "$VENV/lib/python3*/site-packages/pip-*.dist-info" >/dev/null || make_venv
log=$VENV/setup.log
: >"$log"

# No build isolation: it would fetch an unpinned setuptools a second time.
{ step "setuptools" install --upgrade setuptools && step "qcqpbench and its development tools" install --no-build-isolation -e '.[dev]'; } ||
  { tail -n 20 "$log" >&2; exit 1; }
step "types for mypy" tools/types.sh

missing=0
optional() { step "$@" || missing=1; }
optional "compiled steps of gip and branch_and_bound" "$VENV/bin/python" -c 'import sys
from qcqpbench.solvers._library import load
sys.exit(None if load("_gip") and load("_bnb") else "no C compiler (gcc); both take their steps in NumPy")'
optional "cvxpy, Clarabel, SCS" install cvxpy clarabel scs
optional "PySCIPOpt" install pyscipopt
optional "Uno (unopy), MIT licence, no limit" install unopy
optional "Gurobi (gurobipy): its licence allows 200 variables with quadratic terms, 2,000 without" install gurobipy
optional "CasADi, LGPL: IPOPT, Bonmin, fatrop, alpaqa and SLEQP work, its other solvers are not included" install casadi
optional "COPT (coptpy): without a licence, 2,000 variables and constraints" install coptpy
optional "POUNCE (pounce-solver), EPL: no limit" install pounce-solver
optional "Xpress: its licence allows 200 rows and columns together" install xpress
# qcqp requires cvxpy < 1.0 and CVXcanon, which no longer build.
optional "qcqp" install --no-deps qcqp
optional "cyipopt" tools/cyipopt.sh
optional "Pyomo" install pyomo packaging
optional "PyNumero, from Pyomo to cyipopt" tools/pynumero.sh
optional "PyArrow" install pyarrow
optional "Dask" install distributed
optional "Matplotlib" install matplotlib
optional "scikit-learn" install scikit-learn
optional "PYPOWER" install PYPOWER
optional "Chromium, for tests of reports" tools/chromium.sh
[ "$missing" = 0 ] || say "done, without what is named above (details: $log); 'make -B setup' tries again"
