#!/usr/bin/env bash
# The main job: a million lines go in, the broker is killed in the middle of it, every line comes out, once, in order.
#
# Builds Lockgate, starts a server in a temporary directory, produces a text file of a million lines into a topic of
# three partitions, kills the server with -9 several times meanwhile and starts it again, reads everything back and
# compares. Needs this repository, a Rust toolchain and a C compiler. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly lines=1000000 partitions=3 kills=5

echo "building (minutes, the first time)"
cargo build --quiet --release -p lockgate
lockgate=$PWD/target/release/lockgate
work=$(mktemp -d)
server=''

clean_up() {
    [[ -z $server ]] || crash
    rm -rf "$work"
}
trap clean_up EXIT

fail() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}

# Starts the server, on a free port unless one is given, and waits until clients can connect.
start() {
    rm -f "$work/ready"
    "$lockgate" server --data-dir "$work/data" --listen "${1:-127.0.0.1:0}" --admin 127.0.0.1:0 \
        >"$work/ready" 2>>"$work/log" &
    server=$!
    until grep -qs 'is ready' "$work/ready"; do
        kill -0 "$server" 2>/dev/null || { tail "$work/log"; fail "the server did not start"; }
        sleep 0.02
    done
    LOCKGATE_SERVER=$(sed 's/.*clients \([^,]*\),.*/\1/' "$work/ready")
    export LOCKGATE_SERVER
}

crash() {
    kill -9 "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
}

acknowledged() { wc -l <"$work/acks"; }

# Real text, every line different: this repository's own lines, again and again, each with its number in front.
cat README.md docs/*.md crates/*/src/*.rs |
    awk -v n=$lines '{ text[NR] = $0 } END { for (i = 1; i <= n; i++) print i, text[i % NR + 1] }' >"$work/input"
echo "input: $lines lines, $(($(wc -c <"$work/input") / 1000000)) MB"

start
"$lockgate" topic create lines --partitions $partitions

: >"$work/acks"
"$lockgate" produce lines --file "$work/input" --acks "$work/acks" >"$work/report" 2>&1 &
producer=$!
for ((kill = 1; kill <= kills; kill++)); do
    until (($(acknowledged) >= lines * kill / (kills + 2))); do
        kill -0 "$producer" 2>/dev/null || { cat "$work/report"; fail "produce ended before kill $kill"; }
        sleep 0.002
    done
    crash
    echo "killed the broker after at least $(acknowledged) acknowledged lines"
    start "$LOCKGATE_SERVER"
done
wait "$producer" || { cat "$work/report"; fail "produce did not get everything acknowledged"; }
cat "$work/report"
(($(acknowledged) == lines)) || fail "$(acknowledged) of $lines lines were acknowledged"

crash
start "$LOCKGATE_SERVER"
for ((p = 0; p < partitions; p++)); do
    "$lockgate" consume lines --partition $p >"$work/output.$p"
    awk '$1 <= last { exit 1 } { last = $1 }' "$work/output.$p" || fail "partition $p is not in order"
done
echo "read back: $(cat "$work"/output.* | wc -l) lines"
export LC_ALL=C
cmp <(sort "$work/input") <(sort "$work"/output.*) || fail "what came out is not what went in"
echo "PASSED: $lines lines acknowledged, $((kills + 1)) kills, nothing lost, nothing twice, every partition in order"
