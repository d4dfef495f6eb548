# Redis, Valkey, sentinels and a cluster. compose.yaml has the reasons of the settings. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # home is native.sh's

redis_settings=(--maxmemory-policy noeviction --appendonly yes --appendfsync always --save "")
redis_replica_settings=(--replica-announce-ip 127.0.0.1 --min-replicas-to-write 1 --min-replicas-max-lag 5)
redis_cluster_settings=(
    --cluster-enabled yes --cluster-announce-ip 127.0.0.1
    --cluster-node-timeout 5000 --cluster-require-full-coverage no
)

# Takes the port of the first primary.
sentinel_settings() {
    cat <<END
protected-mode no
sentinel announce-ip 127.0.0.1
sentinel monitor lockkit 127.0.0.1 $1 2
sentinel down-after-milliseconds lockkit 2000
sentinel failover-timeout lockkit 6000
END
}

up_redis() {
    up_alone redis "$(port 6379)" "$(redis_server)"
}

up_valkey() {
    up_alone valkey "$(port 6380)" "$(valkey_server)"
}

up_alone() {
    start_server "$home/$1-$2" "$3" --port "$2" --bind 127.0.0.1 "${redis_settings[@]}"
    wait_for "$home/$1-$2" -- answers "$2"
}

up_sentinel() {
    local i port first folder servers=() sentinels=() program
    program=$(redis_server)
    first=$(port 6381)
    for i in 1 2 3; do
        port=$(port $((6380 + i)))
        folder=$home/sentinel-server-$i-$port
        servers+=("$folder")
        mkdir -p "$folder/data"
        # A failover writes to this file, so it must outlive the server.
        if [ ! -e "$folder/data/redis.conf" ]; then
            if [ "$i" = 1 ]; then echo; else echo "replicaof 127.0.0.1 $first"; fi >"$folder/data/redis.conf"
        fi
        start_server "$folder" "$program" "$folder/data/redis.conf" --port "$port" --bind 127.0.0.1 \
            "${redis_replica_settings[@]}" "${redis_settings[@]}"
    done
    for i in 1 2 3; do wait_for "${servers[@]}" -- answers "$(port $((6380 + i)))"; done
    for i in 1 2 3; do
        port=$(port $((26378 + i)))
        folder=$home/sentinel-$i-$port
        sentinels+=("$folder")
        mkdir -p "$folder/data"
        [ -e "$folder/data/sentinel.conf" ] ||
            { printf 'port %s\nbind 127.0.0.1\n' "$port" && sentinel_settings "$first"; } >"$folder/data/sentinel.conf"
        start_server "$folder" "$program" "$folder/data/sentinel.conf" --sentinel
    done
    wait_for "${sentinels[@]}" "${servers[@]}" -- sentinels_agree
}

# Whether the sentinels know each other and a primary with a replica. Without a replica it refuses writes.
sentinels_agree() {
    local i primary
    for i in 1 2 3; do
        ask $((26378 + i + offset)) sentinel ckquorum lockkit | grep -q '^OK 3 ' || return 1
    done
    primary=$(ask "$(port 26379)" sentinel get-master-addr-by-name lockkit | tail -n 1)
    ask "$primary" info replication | grep -q '^min_slaves_good_slaves:[1-9]'
}

up_redis_cluster() {
    local i port folder nodes=() program
    program=$(redis_server)
    for i in 1 2 3; do
        port=$(port $((7000 + i)))
        folder=$home/cluster-node-$i-$port
        nodes+=("$folder")
        start_server "$folder" "$program" --port "$port" --bind 127.0.0.1 \
            "${redis_cluster_settings[@]}" "${redis_settings[@]}"
    done
    wait_for "${nodes[@]}" -- cluster_is_formed
}

# Assigns the slots, and connects the nodes. The nodes refuse steps that are already done.
cluster_is_formed() {
    local i first
    first=$(port 7001)
    cluster_is_ok && return
    for i in 1 2 3; do
        ask $((first + i - 1)) cluster addslotsrange $(((i - 1) * 16384 / 3)) $((i * 16384 / 3 - 1)) || true
        ask $((first + i - 1)) cluster set-config-epoch "$i" || true
    done
    for i in 2 3; do
        ask "$first" cluster meet 127.0.0.1 $((first + i - 1)) || true
    done
    cluster_is_ok
}

# A node that knows only its own slots regards them as the whole cluster.
cluster_is_ok() {
    local i
    for i in 1 2 3; do
        [ "$(ask $((7000 + i + offset)) cluster info | grep -c -e '^cluster_state:ok' -e '^cluster_slots_ok:16384')" = 2 ] ||
            return 1
    done
}

# A server that still loads its data gives another answer.
answers() {
    [ "$(ask "$1" ping)" = PONG ]
}

ask() {
    local port=$1
    shift
    timeout 5 "$(redis_cli)" -h 127.0.0.1 -p "$port" "$@"
}
