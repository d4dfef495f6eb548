# MariaDB and MySQL. compose.yaml has the reasons of the settings. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # home is native.sh's

sql_settings=(--innodb-flush-log-at-trx-commit=1 --max-connections=500 --skip-name-resolve)

up_mariadb() {
    local port program
    port=$(port 3306)
    program=$(mariadb_server)
    # Without this, set-up fails on a machine that can resolve neither its own name nor localhost.
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

# make_data FOLDER PROGRAM ARGUMENT…: creates the data once.
make_data() {
    local folder=$1
    shift
    [ -d "$folder/data/mysql" ] && return
    # An interrupted set-up starts again, because the folder gets its name only when it is complete.
    rm -rf -- "$folder/data" "$folder/data.new"
    mkdir -p "$folder"
    "$@" "${as_root[@]}" --datadir="$folder/data.new" >>"$folder/log" 2>&1 || gone "$folder" "can't make its data"
    mv "$folder/data.new" "$folder/data"
}

start_sql() {
    local folder=$1 port=$2
    shift 2
    # A server reads this before it accepts clients. It removes the default users such as root, which have no password.
    cat >"$folder/users.sql" <<'END'
DROP USER IF EXISTS root@localhost, mysql@localhost;
CREATE DATABASE IF NOT EXISTS lockkit CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS lockkit@'%' IDENTIFIED BY 'lockkit';
GRANT ALL PRIVILEGES ON lockkit.* TO lockkit@'%';
END
    # The socket and the other file are in the data folder, because the path of a socket must be short.
    start_server "$folder" "$@" "${as_root[@]}" --datadir="$folder/data" --port="$port" --bind-address=127.0.0.1 \
        --socket=lockkit.sock --pid-file=lockkit.pid --init-file="$folder/users.sql" "${sql_settings[@]}"
    wait_for "$folder" -- greets "$port"
}

# The fifth byte of a greeting is the version of the protocol. In a refusal it is 255.
greets() {
    local byte
    byte=$( (exec 3<>"/dev/tcp/127.0.0.1/$1" && timeout 4 head -c 5 <&3) | tail -c 1 | od -An -tu1) && [ "$byte" -eq 10 ]
}

# Servers refuse to run as root without this option.
as_root=()
[ "$(id -u)" != 0 ] || as_root=(--user=root)
