# Servers as processes: each has a folder with its data, its log and its process id. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # home is native.sh's

# The time for a server to start. It is long, because a busy machine is slow.
start_seconds=90
stop_seconds=60

# Two runs at once would start a server twice. This program holds the lock until its end, and servers don't inherit it.
one_at_a_time() {
    mkdir -p "$home"
    chmod 700 "$home"
    exec 9>"$home/lock"
    flock --nonblock 9 && return
    printf 'native.sh: another native.sh works in %s; waiting for it\n' "$home" >&2
    flock --timeout 120 9 || die "another native.sh still works in $home"
}

# Distinguishes a process from others that had the same number: its start time, and the boot that the time counts from.
# Prints nothing if the process has ended.
identity() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
    # The name, in parentheses, may contain any text. The state follows it, and the twentieth word is the start time.
    read -r -a stat <<<"${stat##*) }"
    # A zombie has ended.
    [ "${stat[0]}" = Z ] || echo "$1 ${stat[19]} $(cat /proc/sys/kernel/random/boot_id)"
}

# Whether the server of a folder runs.
server_runs() {
    local noted pid
    noted=$(cat "$1/pid" 2>/dev/null) || return 1
    pid=${noted%% *}
    [[ $pid =~ ^[0-9]+$ ]] && [ "$(identity "$pid")" = "$noted" ]
}

# start_server FOLDER PROGRAM ARGUMENT…: does nothing if the server already runs.
start_server() {
    local folder=$1
    shift
    server_runs "$folder" && return
    mkdir -p "$folder/data"
    printf '\n==> %s: %s\n' "$(date -Is)" "$*" >>"$folder/log"
    # The process records itself, and then becomes the server. So each server has a record, even if this program is killed.
    # shellcheck disable=SC2016 # the new shell expands it
    setsid bash -c '
        '"$(declare -f identity)"'
        identity $$ >"$1/pid.new" && mv "$1/pid.new" "$1/pid" && cd "$1/data" && shift && exec "$@"
    ' lockkit "$folder" "$@" </dev/null >>"$folder/log" 2>&1 9>&- &
}

# wait_for FOLDER… -- CONDITION…: waits until the condition is true, as long as all of the servers live.
wait_for() {
    local folders=() folder deadline=$((SECONDS + start_seconds))
    while [ "$1" != -- ]; do
        folders+=("$1")
        shift
    done
    shift
    until "$@" >/dev/null 2>&1; do
        for folder in "${folders[@]}"; do
            # It may not have recorded itself yet.
            [ ! -e "$folder/pid" ] || server_runs "$folder" || [ $SECONDS -lt $((deadline - start_seconds + 2)) ] ||
                gone "$folder" "has ended"
        done
        [ $SECONDS -lt $deadline ] || gone "${folders[0]}" "is not ready after $start_seconds s"
        sleep 0.1
    done
}

gone() {
    printf 'native.sh: %s %s; the end of %s:\n' "${1##*/}" "$2" "$1/log" >&2
    tail -n 20 "$1/log" >&2
    exit 1
}

# Asks the servers of the folders on standard input to end, and waits until they have ended. Sentinels end first, because
# they would treat the end of the other servers as a failure.
stop_servers() {
    local folder folders sentinels=() others=()
    readarray -t folders
    for folder in "${folders[@]}"; do
        if [[ ${folder##*/} == sentinel-[0-9]* ]]; then sentinels+=("$folder"); else others+=("$folder"); fi
    done
    end_servers "${sentinels[@]}" && end_servers "${others[@]}"
}

end_servers() {
    local folder pid deadline=$((SECONDS + stop_seconds))
    for folder in "$@"; do
        if server_runs "$folder"; then
            read -r pid _ <"$folder/pid"
            kill "$pid" || true
        fi
    done
    for folder in "$@"; do
        while server_runs "$folder"; do
            read -r pid _ <"$folder/pid"
            [ $SECONDS -lt $deadline ] ||
                die "${folder##*/}, process $pid, did not end within $stop_seconds s; its log is $folder/log"
            sleep 0.1
        done
        rm -f "$folder/pid"
    done
}

listens() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
