#!/bin/sh
# Records what three terminals show: one runs a job, two wait for it, the first is killed, and the next starts.
# Needs `lockkit` on the PATH and a store in LOCKKIT_URL; prints the session for README.md.
set -eu

folder=$(mktemp -d)
trap 'kill $(cat "$folder"/*.pid) 2>/dev/null || true; rm -rf "$folder"' EXIT

cat > "$folder/backup.sh" <<'JOB'
#!/bin/sh
echo "backup begins, with token $LOCKKIT_TOKEN"
sleep 5
echo "backup is done"
JOB
chmod +x "$folder/backup.sh"
cd "$folder"

# What a terminal shows, with its name before each line.
terminal() {
    echo "$1\$ lockkit run nightly --ttl 3s --grace 500ms ./backup.sh"
    sh -c 'echo $$ > "$0.pid"; exec lockkit run nightly --ttl 3s --grace 500ms ./backup.sh' "$1" 2>&1 |
        while IFS= read -r line; do echo "$1  $line"; done &
}

# Waits until `lockkit show` says $1.
until_shown() {
    until lockkit --format json show nightly | grep -q "$1"; do sleep 0.05; done
}

terminal one
until_shown '"outcome":"running"'
sleep 0.3 # the job's first word
terminal two
until_shown '"waiting":1'
sleep 0.6 # a wait that is over at once is not worth a word
terminal three
until_shown '"waiting":2'
sleep 1
echo 'four$ lockkit ls'
lockkit ls | sed 's/^/four  /'
echo "four\$ kill -9 $(cat one.pid)"
kill -9 "$(cat one.pid)"
wait
echo 'four$ lockkit history nightly'
lockkit history nightly | sed 's/^/four  /'
