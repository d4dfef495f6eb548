# ZooKeeper, one server or three. compose.yaml has the reasons of the settings. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # home is native.sh's

zookeeper_settings() {
    cat <<END
tickTime=2000
syncLimit=2
initLimit=10
maxClientCnxns=0
4lw.commands.whitelist=srvr,mntr,wchs,cons,dump
autopurge.purgeInterval=1
autopurge.snapRetainCount=3
admin.enableServer=false
END
}

up_zookeeper() {
    local port
    port=$(port 2181)
    start_zookeeper "$home/zookeeper-$port" "$port"
    wait_for "$home/zookeeper-$port" -- serves "$port"
}

up_zookeeper_ensemble() {
    local i port folders=() members
    members=$(for i in 1 2 3; do
        echo "server.$i=127.0.0.1:$(port $((12181 + i))):$(port $((22181 + i)))"
    done)
    for i in 1 2 3; do
        port=$(port $((2181 + i)))
        folders+=("$home/zookeeper-$i-$port")
        mkdir -p "${folders[-1]}/data"
        echo "$i" >"${folders[-1]}/data/myid"
        start_zookeeper "${folders[-1]}" "$port" "$members"
    done
    for i in 1 2 3; do wait_for "${folders[@]}" -- serves "$(port $((2181 + i)))"; done
}

# start_zookeeper FOLDER PORT [LINES OF CONFIGURATION]
start_zookeeper() {
    local folder=$1 address=127.0.0.1
    mkdir -p "$folder/data" "$folder/datalog"
    server_runs "$folder" || {
        zookeeper_settings
        printf '%s\n' "dataDir=$folder/data" "dataLogDir=$folder/datalog" "clientPort=$2" "clientPortAddress=$address"
        printf '%s\n' "${3:-}"
    } >"$folder/zoo.cfg"
    # For a small server that starts quickly: no second compiler, and one thread for garbage collection.
    start_server "$folder" "$(java_runtime)" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dorg.slf4j.simpleLogger.showDateTime=true -cp "${jars[0]}:${jars[1]}" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zoo.cfg"
}

# A server of an ensemble without its quorum also answers, but reports no mode, so this looks for the mode.
serves() {
    local answer
    answer=$(exec 3<>"/dev/tcp/127.0.0.1/$1" && printf srvr >&3 && timeout 4 cat <&3) && [[ $answer == *"Mode: "* ]]
}
