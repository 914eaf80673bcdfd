#!/usr/bin/env bash
# Let type checkers find the sources of an editable install. An editable install is an import hook, which type checkers
# do not run; they do look for a folder qcqpbench-stubs, which Python itself ignores. tools/setup.sh calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=("${VENV:-.venv}"/lib/python3*/site-packages)
stubs=${packages[0]}/qcqpbench-stubs
rm -rf "$stubs"
mkdir "$stubs"
# problems/ and solvers/ are beside the core in the checkout, and inside it once installed.
ln -s "$PWD"/qcqpbench/* "$PWD"/problems "$PWD"/solvers "$stubs"
# mypy expects the first file of such a folder to end in .pyi.
ln -s "$PWD"/qcqpbench/__init__.py "$stubs/__init__.pyi"
