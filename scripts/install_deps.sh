#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing Debian 12 packages for building and testing qkv, as root or with sudo. On other systems it prints
# the list and fails if a tool is missing.
#
#   scripts/install_deps.sh          for `make demo` and `make test`
#   scripts/install_deps.sh --all    also for `make check` and `make tsan`
#   scripts/install_deps.sh --check  for `make build`: installs nothing, prints missing packages and the command
set -euo pipefail

packages=(g++ cmake ninja-build libdnnl-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev libpcre2-dev libutf8proc-dev
  zlib1g-dev pkg-config python3)
tools=(g++ cmake ninja python3)
check=0
case "${1:-}" in
  --check) check=1 ;;
  "" | --all)
    packages+=(libedit-dev libgtest-dev libgmock-dev python3-numpy python3-dev python3-pip python3-pytest
      python3-hypothesis bible-kjv bible-kjv-text)
    if [[ "${1:-}" == --all ]]; then
      packages+=(clang clang-format clang-tidy libomp-dev libbenchmark-dev qemu-user g++-aarch64-linux-gnu
        chromium chromium-driver python3-selenium firefox-esr)
      tools+=(clang++ clang-format clang-tidy)
    fi
    ;;
  *)
    echo "usage: install_deps.sh [--all | --check]" >&2
    exit 2
    ;;
esac

is_debian_like() { [[ -x /usr/bin/dpkg-query && -x /usr/bin/apt-get ]]; }

if ! is_debian_like; then
  echo "Not a Debian system. qkv needs the contents of these Debian 12 packages:"
  printf '  %s\n' "${packages[@]}"
  missing=0
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; missing=1; }
  done
  exit "$missing"
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ "$state" == *"ok installed" ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then exit 0; fi
if [[ $check == 1 ]]; then
  echo "missing packages: ${missing[*]}" >&2
  echo "Install them, as root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "As root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing these Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
