# MariaDB and MySQL. The reasons of the settings are in compose.yaml. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # home is native.sh's

sql_settings=(--innodb-flush-log-at-trx-commit=1 --max-connections=500 --skip-name-resolve)

up_mariadb() {
    local port program
    port=$(port 3306)
    program=$(mariadb_server)
    # A machine that looks up neither its own name nor localhost would be refused; no names are looked up here.
    make_data "$home/mariadb-$port" "$(find_program mariadb-install-db)" --no-defaults --skip-test-db --force
    start_sql "$home/mariadb-$port" "$port" "$program" --no-defaults
}

up_mysql() {
    local port program
    port=$(port 3307)
    readarray -t program < <(mysql_server)
    make_data "$home/mysql-$port" "${program[@]}" --initialize-insecure
    start_sql "$home/mysql-$port" "$port" "${program[@]}" --mysqlx=OFF --secure-file-priv=NULL
}

# make_data FOLDER PROGRAM ARGUMENT…: once.
make_data() {
    local folder=$1
    shift
    [ -d "$folder/data/mysql" ] && return
    # What was interrupted is done anew: the folder gets its name when it is complete.
    rm -rf -- "$folder/data" "$folder/data.new"
    mkdir -p "$folder"
    "$@" "${as_root[@]}" --datadir="$folder/data.new" >>"$folder/log" 2>&1 || gone "$folder" "can't make its data"
    mv "$folder/data.new" "$folder/data"
}

start_sql() {
    local folder=$1 port=$2
    shift 2
    # A server reads this before it greets anybody. Of its own users, root among them, none is left: they have no password.
    cat >"$folder/users.sql" <<'END'
DROP USER IF EXISTS root@localhost, mysql@localhost;
CREATE DATABASE IF NOT EXISTS lockkit CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS lockkit@'%' IDENTIFIED BY 'lockkit';
GRANT ALL PRIVILEGES ON lockkit.* TO lockkit@'%';
END
    # The socket and the other file are in the data folder: a path to a socket must be short.
    start_server "$folder" "$@" "${as_root[@]}" --datadir="$folder/data" --port="$port" --bind-address=127.0.0.1 \
        --socket=lockkit.sock --pid-file=lockkit.pid --init-file="$folder/users.sql" "${sql_settings[@]}"
    wait_for "$folder" -- greets "$port"
}

# The fifth byte of a greeting is the version of the protocol. That of a refusal would be 255.
greets() {
    local byte
    byte=$( (exec 3<>"/dev/tcp/127.0.0.1/$1" && timeout 4 head -c 5 <&3) | tail -c 1 | od -An -tu1) && [ "$byte" -eq 10 ]
}

# Servers refuse to run as root unless they are told to.
as_root=()
[ "$(id -u)" != 0 ] || as_root=(--user=root)
