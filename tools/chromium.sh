#!/usr/bin/env bash
# Install Chromium from the system's packages, for the tests that open a report in a browser. A step of setup.sh.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name"; then exit; fi
done
command -v apt-get >/dev/null || { echo "error: install Chromium with your system's package manager"; exit 1; }
[ "$(id -u)" = 0 ] || { echo "error: run 'sudo apt-get install chromium'"; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq -y --no-install-recommends chromium ||
  { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }
