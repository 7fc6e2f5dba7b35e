#!/bin/sh
# Installs piton for this user:  sh install.sh [--from DIR-OR-URL] [--to PREFIX]
#
# The archive for this machine is taken from a directory or a URL, and installed only if its checksum is the one in
# SHA256SUMS. Without --from, it is the directory that this script is in. PREFIX is ~/.local if it is not given.
set -eu

releases="@RELEASES@"
fail() { echo "install.sh: $1" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

get() { # NAME
  case "$from" in
    http://* | https://*)
      if has curl; then
        curl -fsSL --retry 3 -o "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      elif has wget; then
        wget -q -O "$work/$1" "$from/$1" || fail "cannot download $from/$1"
      else
        fail "neither curl nor wget is installed"
      fi
      ;;
    *) cp "${from#file://}/$1" "$work/$1" || fail "cannot read $1 in $from" ;;
  esac
}

checksum() { # FILE
  if has sha256sum; then
    sha256sum "$1" | cut -d ' ' -f 1
  elif has shasum; then
    shasum -a 256 "$1" | cut -d ' ' -f 1
  else
    fail "neither sha256sum nor shasum is installed, so the download cannot be verified"
  fi
}

# Called by the last line, so that a part of this file does nothing.
main() {
  from="" to=""
  while [ $# -gt 0 ]; do
    case "$1" in
      --from | --to) [ -n "${2:-}" ] || fail "$1 needs a value" ;;
    esac
    case "$1" in
      --from) from=$2; shift 2 ;;
      --to) to=$2; shift 2 ;;
      -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
      *) fail "unknown argument: $1 (--from DIR-OR-URL, --to PREFIX)" ;;
    esac
  done
  if [ -z "$to" ]; then
    [ -n "${HOME:-}" ] || fail "HOME is not set; name the directory with --to PREFIX"
    to=$HOME/.local
  fi
  if [ -z "$from" ]; then
    case "$releases" in
      @*) from=$(dirname "$0") ;;
      *) from=$releases ;;
    esac
  fi

  case "$(uname -m)" in
    x86_64 | amd64) arch=x86_64 ;;
    aarch64 | arm64) arch=aarch64 ;;
    *) fail "there is no program for $(uname -m); build it with: cargo install --path crates/piton-cli" ;;
  esac
  case "$(uname -s)" in
    Linux) system=linux ;;
    Darwin) system=macos ;;
    *) fail "there is no program for $(uname -s)" ;;
  esac

  work=$(mktemp -d)
  trap 'rm -rf "$work"; rm -f "$to"/bin/.*."$$"' EXIT
  trap 'exit 1' HUP INT TERM

  get SHA256SUMS
  line=$(grep -E "^[0-9a-f]{64}  piton-[0-9A-Za-z.+-]*-$arch-$system\.tar\.gz\$" "$work/SHA256SUMS" | head -n 1 || true)
  [ -n "$line" ] || fail "SHA256SUMS in $from names no archive for $arch-$system"
  archive=${line#*  }
  get "$archive"
  actual=$(checksum "$work/$archive")
  [ "$actual" = "${line%% *}" ] || fail "checksum mismatch: $archive has $actual, SHA256SUMS says ${line%% *}. Nothing was installed"

  tar -xzf "$work/$archive" -C "$work"
  dir="$work/${archive%.tar.gz}"
  mkdir -p "$to/bin"
  # Run where they will be: no program may be run in a temporary directory that is mounted noexec.
  for program in "$dir"/bin/*; do
    new="$to/bin/.${program##*/}.$$"
    cp "$program" "$new"
    chmod 755 "$new"
    "$new" --version >/dev/null || fail "${program##*/} does not run on this machine, or in $to/bin. Nothing was installed"
  done
  for program in "$dir"/bin/*; do
    # Renamed over the old program, which may be running.
    mv -f "$to/bin/.${program##*/}.$$" "$to/bin/${program##*/}"
  done
  cp -R "$dir/share" "$to/"
  echo "Installed $("$to/bin/piton" --version) in $to/bin"
  case ":${PATH:-}:" in
    *":$to/bin:"*) ;;
    *) echo "Add it to your path:  export PATH=\"$to/bin:\$PATH\"" ;;
  esac
  echo "Next:  piton install AGENT   (piton install --help names the agents)"
}

main "$@"
