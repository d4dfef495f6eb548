#!/usr/bin/env bash
# The servers of compose.yaml without containers, on Linux: `native.sh help`.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${LOCKKIT_NATIVE_HOME:-${XDG_STATE_HOME:-${HOME:?set HOME or LOCKKIT_NATIVE_HOME}/.local/state}/lockkit}
offset=${LOCKKIT_PORT_OFFSET:-0}
profiles=(mariadb mysql redis redis-cluster sentinel valkey zookeeper zookeeper-ensemble)

# shellcheck source=native/programs.sh
. "$here/native/programs.sh"
# shellcheck source=native/process.sh
. "$here/native/process.sh"
# shellcheck source=native/redis.sh
. "$here/native/redis.sh"
# shellcheck source=native/sql.sh
. "$here/native/sql.sh"
# shellcheck source=native/zookeeper.sh
. "$here/native/zookeeper.sh"

usage() {
    cat <<END
The stores of compose/compose.yaml without containers, with the same ports, URLs and settings. Linux only.

  native.sh up PROFILE…|all      installs missing programs (Debian, as root), starts the servers, waits until they are ready
  native.sh down [PROFILE…|all]  stops the servers that it started; --volumes also deletes their data
  native.sh status               lists the servers, with processes and logs
  native.sh urls [PROFILE…|all]  prints the URLs
  native.sh ports [PROFILE…|all] prints the ports that the servers use
  native.sh settings             prints the settings that locks depend on

Profiles: ${profiles[*]}

  LOCKKIT_PORT_OFFSET   a number to add to every port, now ${offset}
  LOCKKIT_NATIVE_HOME   the folder of data, logs and process ids, now ${home}
END
}

die() {
    printf 'native.sh: %s\n' "$*" >&2
    exit 1
}

# The servers of a profile: names, each with its port. If a server listens on more ports, these follow.
servers_of() {
    case $1 in
    mariadb) echo "mariadb $(port 3306)" ;;
    mysql) echo "mysql $(port 3307)" ;;
    redis) echo "redis $(port 6379)" ;;
    valkey) echo "valkey $(port 6380)" ;;
    sentinel)
        for i in 1 2 3; do echo "sentinel-server-$i $(port $((6380 + i)))"; done
        for i in 1 2 3; do echo "sentinel-$i $(port $((26378 + i)))"; done
        ;;
    redis-cluster)
        for i in 1 2 3; do echo "cluster-node-$i $(port $((7000 + i))) $(port $((17000 + i)))"; done
        ;;
    zookeeper) echo "zookeeper $(port 2181)" ;;
    zookeeper-ensemble)
        for i in 1 2 3; do
            echo "zookeeper-$i $(port $((2181 + i))) $(port $((12181 + i))) $(port $((22181 + i)))"
        done
        ;;
    esac
}

url_of() {
    local a=127.0.0.1
    case $1 in
    mariadb) echo "mysql://lockkit:lockkit@$a:$(port 3306)/lockkit" ;;
    mysql) echo "mysql://lockkit:lockkit@$a:$(port 3307)/lockkit" ;;
    redis) echo "redis://$a:$(port 6379)" ;;
    valkey) echo "redis://$a:$(port 6380)" ;;
    sentinel) echo "redis+sentinel://$a:$(port 26379),$a:$(port 26380),$a:$(port 26381)/lockkit" ;;
    redis-cluster) echo "redis+cluster://$a:$(port 7001),$a:$(port 7002),$a:$(port 7003)" ;;
    zookeeper) echo "zk://$a:$(port 2181)" ;;
    zookeeper-ensemble) echo "zk://$a:$(port 2182),$a:$(port 2183),$a:$(port 2184)" ;;
    esac
}

port() {
    echo $(($1 + offset))
}

# Sets `chosen`, and `everything` if it was "all".
choose() {
    chosen=()
    everything=
    local name
    for name in "$@"; do
        if [ "$name" = all ]; then
            chosen=("${profiles[@]}")
            everything=yes
            return
        fi
        [[ " ${profiles[*]} " == *" $name "* ]] || die "no profile is called $name; the profiles are: ${profiles[*]} all"
        [[ " ${chosen[*]} " == *" $name "* ]] || chosen+=("$name")
    done
    [ ${#chosen[@]} -gt 0 ] || die "no profile was given; the profiles are: ${profiles[*]} all"
}

up() {
    local profile server rest pids=() failed=() i
    choose "$@"
    have_programs
    one_at_a_time
    for profile in "${chosen[@]}"; do
        while read -r server rest; do
            server_runs "$home/$server-${rest%% *}" || ports_are_free "$profile" "$rest"
        done < <(servers_of "$profile")
    done
    # Otherwise they would continue after the end of this program.
    trap 'kill "${pids[@]}" 2>/dev/null || true; exit 130' HUP INT TERM
    for profile in "${chosen[@]}"; do
        "up_${profile//-/_}" &
        pids+=($!)
    done
    for i in "${!chosen[@]}"; do
        if wait "${pids[i]}"; then echo "${chosen[i]} $(url_of "${chosen[i]}")"; else failed+=("${chosen[i]}"); fi
    done
    [ ${#failed[@]} -gt 0 ] || return 0
    # Otherwise a second `up` would find an incomplete group.
    for profile in "${failed[@]}"; do stop_servers < <(folders_of "$profile") || true; done
    die "these servers did not start: ${failed[*]}"
}

ports_are_free() {
    local port
    for port in $2; do
        ! listens "$port" || die "$1: another program listens on port $port; find it by \`ss -ltnp\` and \
end it, or set LOCKKIT_PORT_OFFSET, for example to 10000"
    done
}

down() {
    local volumes='' argument arguments=() folders
    for argument in "$@"; do
        if [ "$argument" = --volumes ]; then volumes=yes; else arguments+=("$argument"); fi
    done
    choose "${arguments[@]:-all}"
    one_at_a_time
    # `all` includes servers with other offsets.
    if [ -n "$everything" ]; then
        readarray -t folders < <(all_folders)
    else
        readarray -t folders < <(for profile in "${chosen[@]}"; do folders_of "$profile"; done)
    fi
    stop_servers < <(printf '%s\n' "${folders[@]}")
    [ -z "$volumes" ] || [ ${#folders[@]} -eq 0 ] || rm -rf -- "${folders[@]}"
}

folders_of() {
    servers_of "$1" | while read -r server rest; do echo "$home/$server-${rest%% *}"; done
}

all_folders() {
    local profile server folder
    for profile in "${profiles[@]}"; do
        while read -r server _; do
            for folder in "$home/$server"-[0-9]*; do [[ ! ${folder##*/} =~ ^$server-[0-9]+$ ]] || echo "$folder"; done
        done < <(servers_of "$profile")
    done
}

status() {
    local folder pid
    while read -r folder; do
        if server_runs "$folder"; then
            read -r pid _ <"$folder/pid"
            printf '%-26s runs   process %-8s log %s\n' "${folder##*/}" "$pid" "$folder/log"
        else
            printf '%-26s down   data in %s\n' "${folder##*/}" "$folder"
        fi
    done < <(all_folders)
}

urls() {
    choose "${@:-all}"
    for profile in "${chosen[@]}"; do printf '%s %s\n' "$profile" "$(url_of "$profile")"; done
}

ports() {
    choose "${@:-all}"
    for profile in "${chosen[@]}"; do
        servers_of "$profile" | while read -r _ rest; do printf '%s %s\n' "$profile" "$rest"; done
    done
}

settings() {
    printf 'redis %s %s\n' "${redis_settings[@]}"
    printf 'redis-cluster %s %s\n' "${redis_cluster_settings[@]}"
    printf 'sentinel-server %s %s\n' "${redis_replica_settings[@]}"
    sentinel_settings 6381 | sed 's/^/sentinel /'
    printf 'sql %s\n' "${sql_settings[@]}"
    zookeeper_settings | sed 's/^/zookeeper /'
}

[[ $offset =~ ^[0-9]{1,5}$ ]] || die "LOCKKIT_PORT_OFFSET=$offset is not a number that can be added to a port"
offset=$((10#$offset))
[ $((26381 + offset)) -le 65535 ] || die "LOCKKIT_PORT_OFFSET=$offset is too large, because ports end at 65535"
[[ $home == /* ]] || home=$PWD/$home
command=${1:-help}
shift || true
case $command in
up | down | status | urls | ports | settings) "$command" "$@" ;;
help | -h | --help) usage ;;
*) usage >&2 && die "no command is called $command" ;;
esac
