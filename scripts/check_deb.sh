#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian package in a minimal Debian (a chroot without compilers or build packages), runs it, removes it
# and checks that no files remain. As root; needs debootstrap and a Debian mirror (with apt's settings).
#
#   cmake --build build/release && (cd build/release && cpack -G DEB)
#   scripts/check_deb.sh build/release/qkv_VERSION_amd64.deb [TARBALL]
#
# TARBALL caches the downloads of debootstrap for the next time (created if missing).
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  echo "usage: check_deb.sh PACKAGE.deb [TARBALL]" >&2
  exit 2
fi
package=$(realpath "$1")
work=$(mktemp -d)
root=$work/root
clean_up() {
  umount -q "$root/proc" "$root/dev" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT

echo "== a minimal Debian"
tarball=()
if [[ $# -eq 2 ]]; then
  archive=$(realpath "$2")
  [[ -f "$archive" ]] || debootstrap --variant=minbase --make-tarball="$archive" bookworm "$work/download" >/dev/null
  tarball=(--unpack-tarball="$archive")
fi
debootstrap "${tarball[@]}" --variant=minbase bookworm "$root" >"$work/log" || { tail "$work/log" >&2; exit 1; }
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for setting in /etc/apt/apt.conf.d/*; do
  if grep -q '^Acquire' "$setting"; then cp "$setting" "$root/etc/apt/apt.conf.d/"; fi
done

inside() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot "$root" "$@"
}
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/apt \) -prune -o -print | sort); }

inside apt-get update -q >/dev/null
# Installs dependencies first, so that the file lists before and after differ only by the package.
cp "$package" "$root/tmp/qkv.deb"
depends=$(dpkg-deb -f "$package" Depends)
echo "depends: $depends"
mapfile -t names < <(tr ',' '\n' <<<"$depends" | sed 's/(.*//; s/ //g')
inside apt-get install -q -y --no-install-recommends "${names[@]}" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
for tool in g++ gcc cmake python3 libdnnl-dev libc6-dev; do
  if inside dpkg-query -W "$tool" >/dev/null 2>&1; then echo "$tool is installed: not a minimal Debian" >&2; exit 1; fi
done

echo "== install"
files >"$work/before"
inside dpkg -i /tmp/qkv.deb >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
files >"$work/installed"
echo "$(comm -13 "$work/before" "$work/installed" | wc -l) files and directories"

echo "== run"
inside ldconfig -p | grep -o 'libqkv.so.*'
inside qkv --version
inside sh -eu -c '
  i=0; while [ $i -lt 400 ]; do echo "line $i: the quick brown fox jumps over the lazy dog"; i=$((i + 1)); done >/tmp/text
  qkv train --data /tmp/text --out /tmp/model --tokenizer bytes --n-layer 1 --n-head 2 --d-model 16 --ctx-len 32 --steps 5 >/dev/null 2>&1
  qkv verify /tmp/model
  qkv generate -m /tmp/model -p the -n 5 >/dev/null 2>&1
  qkv explain --preset gpt2 >/dev/null
  test -s /usr/share/man/man1/qkv-train.1 -o -s /usr/share/man/man1/qkv-train.1.gz
  rm -r /tmp/model /tmp/text'

echo "== remove"
inside dpkg --purge qkv >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
files >"$work/after"
if ! diff "$work/before" "$work/after" || [[ -n "$(inside dpkg --audit)" ]]; then
  echo "the package leaves files behind" >&2
  exit 1
fi
if inside ldconfig -p | grep -q libqkv; then echo "libqkv is still in the ldconfig cache" >&2; exit 1; fi
echo "installed, ran and was removed without a trace"
