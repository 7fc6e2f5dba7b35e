#!/bin/sh
# Installs piton in one way on a system without Rust, hooks up an agent, takes and restores:  sh check.sh WAY
#
# Runs as root of a system made by debootstrap. /dist has the artifacts, /check this file and server.py.
set -eu
way=$1
export HOME="/home/$way" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8
unset PITON PITON_BASE 2>/dev/null || true
fail() { echo "FAILED ($way): $1" >&2; exit 1; }
rm -rf "$HOME"
mkdir -p "$HOME"
cd "$HOME"
for program in cargo rustc rustup cc gcc git; do
  if command -v "$program" >/dev/null; then fail "$program is installed here"; fi
done
if command -v piton >/dev/null; then fail "piton is installed already"; fi

serve() {
  python3 /check/server.py "$1" "$HOME/port" &
  server=$!
  trap 'kill $server 2>/dev/null' EXIT
  tries=0
  until [ -s "$HOME/port" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || fail "the server does not start"
    sleep 0.05
  done
  url="http://127.0.0.1:$(cat "$HOME/port")"
  rm "$HOME/port"
}

case "$way" in
  file) sh /dist/install.sh --from file:///dist; piton=$HOME/.local/bin/piton ;;
  http)
    serve /dist
    curl -fsS "$url/dist/install.sh" | sh -s -- --from "$url/dist" --to "$HOME/prefix"
    piton=$HOME/prefix/bin/piton
    ;;
  tampered)
    mkdir mirror
    cp /dist/SHA256SUMS /dist/*.tar.gz mirror
    for archive in mirror/*.tar.gz; do printf 'x' >> "$archive"; done
    if said=$(sh /dist/install.sh --from "$HOME/mirror" 2>&1); then fail "a changed archive was installed"; fi
    case "$said" in *"checksum mismatch"*) ;; *) fail "$said" ;; esac
    [ ! -e "$HOME/.local" ] || fail "something was installed"
    echo "ok: $way"
    exit 0
    ;;
  deb) dpkg -i /dist/piton_*_"$(dpkg --print-architecture)".deb >/dev/null; piton=/usr/bin/piton ;;
  wheel)
    python3 -m venv venv
    venv/bin/pip install -q --no-index --find-links /dist piton
    piton=$HOME/venv/bin/piton
    ;;
  npm)
    serve /dist
    mkdir app
    cd app
    echo '{"name": "app", "type": "module"}' > package.json
    node /opt/npm/bin/npm-cli.js install --silent --no-audit --no-fund --registry "$url" piton
    [ "$(ls node_modules | tr '\n' ' ')" = "piton $(node -p '`piton-${process.platform}-${process.arch}`') " ] ||
      fail "other packages were installed: $(ls node_modules)"
    cd ..
    piton=$HOME/app/node_modules/.bin/piton
    ;;
  *) fail "no such way" ;;
esac
# All programs of the release are in the same place, in the same version.
[ "$("$piton" --version)" = "piton $VERSION" ] || fail "the version is $("$piton" --version)"
beside=$(dirname "$piton")
[ "$way" != npm ] || beside=$(echo "$HOME"/app/node_modules/piton-*/bin)
for program in $PROGRAMS; do
  [ "$("$beside/$program" --version)" = "$program $VERSION" ] || fail "$program in $beside is not of version $VERSION"
done
case "$way" in
  file) [ -s .local/share/man/man1/piton.1 ] && [ -s .local/share/bash-completion/completions/piton ] || fail "documents" ;;
  deb) [ -s /usr/share/doc/piton/LICENSE-MIT ] && [ -s /usr/share/man/man1/piton-take.1 ] || fail "documents" ;;
esac

# An agent: its settings name the program, by an absolute path that still works in an empty environment.
mkdir .claude
echo '{"model": "x"}' > .claude/settings.json
cp -r .claude claude-before
"$piton" install claude >/dev/null
mkdir project
cd project
mkdir -p src 'with space'
printf 'one\r\n\0' > src/one
ln -s src/one link
printf '#!/bin/sh\n' > run
chmod 755 run
echo kept > 'with space/ü'
cp -a . ../before
command=$(python3 -c 'import json, sys
hooks = json.load(open(sys.argv[1]))["hooks"]["UserPromptSubmit"]
print(hooks[0]["hooks"][0]["command"])' "$HOME/.claude/settings.json")
echo "hook: $command"
printf '{"session_id": "s1", "hook_event_name": "UserPromptSubmit", "cwd": "%s", "prompt": "break everything"}' "$PWD" |
  env -i HOME="$HOME" PATH=/usr/bin:/bin sh -c "$command"
"$piton" list 2>/dev/null | grep -q 'break everything' || "$piton" rollback | grep -q 'break everything' ||
  fail "the prompt has no checkpoint: $("$piton" rollback 2>&1)"
rm -rf src link run
echo changed > 'with space/ü'
echo new > new
cp -a . ../wrecked
"$piton" take -m wrecked >/dev/null
"$piton" restore 2 --yes >/dev/null
diff -r --no-dereference . ../before || fail "not restored"
[ -x run ] && [ "$(readlink link)" = src/one ] || fail "modes and links are not restored"
"$piton" undo --yes >/dev/null
diff -r --no-dereference . ../wrecked || fail "not undone"
"$piton" verify >/dev/null || fail "the store is damaged"
cd ..
"$piton" doctor --self-test "$HOME" > self-test || fail "$(cat self-test)"
"$piton" uninstall claude >/dev/null
diff -r .claude claude-before || fail "uninstall left something"

case "$way" in
  wheel) venv/bin/python -c 'import piton; c = piton.Client(); print(c.take("project")["outcome"]); c.close()' ;;
  npm)
    cd app
    node --input-type=module -e 'import {Client} from "piton";
      const c = await Client.start(); console.log((await c.take("../project")).outcome); await c.close();'
    ;;
  deb) dpkg -r piton >/dev/null; [ ! -e /usr/bin/piton ] || fail "the package cannot be removed" ;;
esac
echo "ok: $way"
