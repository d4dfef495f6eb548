# Finds and installs the programs of the servers. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # chosen and everything are native.sh's

jars=(/usr/share/java/zookeeper.jar /usr/share/java/slf4j-simple.jar)
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/lockkit

# Makes sure that the chosen servers can be started. For "all", skips servers that are not available here.
have_programs() {
    local profile packages=() kept=() reason
    [ -r /proc/self/stat ] || die "this program needs Linux; use compose.yaml on this system"
    for profile in "${chosen[@]}"; do
        if is_there "$profile"; then
            kept+=("$profile")
        elif reason=$(not_a_package "$profile"); then
            [ -n "$everything" ] || die "$profile: $reason"
            printf 'native.sh: SKIPPED: %s: %s\n' "$profile" "$reason" >&2
        else
            kept+=("$profile")
            read -r -a packages <<<"${packages[*]} $(packages_for "$profile")"
        fi
    done
    chosen=("${kept[@]}")
    [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
    for profile in "${chosen[@]}"; do
        is_there "$profile" || die "$profile is missing although $(packages_for "$profile") is installed"
    done
}

is_there() {
    case $1 in
    mariadb) find_program mariadbd && find_program mariadb-install-db && find_program my_print_defaults ;;
    mysql) mysql_server ;;
    redis | redis-cluster | sentinel) redis_server && redis_cli ;;
    valkey) valkey_server && redis_cli ;;
    zookeeper | zookeeper-ensemble) java_runtime && [ -r "${jars[0]}" ] && [ -r "${jars[1]}" ] ;;
    esac >/dev/null
}

# Debian's smallest packages that contain the programs of a profile. None of them sets up a service.
packages_for() {
    case $1 in
    mariadb) echo mariadb-server-core mariadb-client-core ;;
    redis | redis-cluster | sentinel) echo redis-tools ;;
    zookeeper | zookeeper-ensemble) echo libzookeeper-java default-jre-headless ;;
    esac
}

# How to get a program that no package of Debian's releases contains.
not_a_package() {
    case $1 in
    mysql) echo "no MySQL on the PATH, and none in $(mysql_home). \`cargo xtask up mysql\` fetches one to there" ;;
    valkey) echo "no valkey-server (with redis-cli or valkey-cli) on the PATH, and none in $cache. \
Debian 13 has the package valkey-server, and \`cargo xtask test\` fetches one to there" ;;
    *) return 1 ;;
    esac
}

install_packages() {
    local apt command
    apt=$(find_program apt-get) ||
        die "programs are missing, and this system is not Debian; install the programs of Debian's packages $*"
    command="apt-get update && apt-get install -y --no-install-recommends $*"
    [ "$(id -u)" = 0 ] || die "programs are missing; run this: sudo sh -c '$command'"
    printf 'native.sh: installing %s\n' "$*"
    { "$apt" -qq update && DEBIAN_FRONTEND=noninteractive "$apt" -qq install -y --no-install-recommends "$@"; } >&2 ||
        die "this command failed: $command"
}

# Debian keeps daemons in folders outside of an ordinary user's PATH.
find_program() {
    PATH=$PATH:/usr/sbin:/usr/local/sbin type -P "$1"
}

redis_server() {
    find_program redis-server && return
    # Debian's redis-tools, which has no service, has the server under this name. It is the server if called redis-server.
    local program
    program=$(find_program redis-check-rdb) || return
    mkdir -p "$home/bin"
    ln -sfn "$program" "$home/bin/redis-server"
    echo "$home/bin/redis-server"
}

redis_cli() {
    find_program redis-cli || find_program valkey-cli
}

valkey_server() {
    local program
    find_program valkey-server && return
    for program in "$cache"/valkey-*/valkey-server; do
        [ -x "$program" ] && echo "$program" && return
    done
    return 1
}

java_runtime() {
    if [ -x "${JAVA_HOME:-}/bin/java" ]; then echo "${JAVA_HOME:-}/bin/java"; else find_program java; fi
}

mariadb_server() {
    find_program mariadbd
}

mysql_home() {
    echo "${LOCKKIT_TEST_MYSQL_HOME:-$cache/mysql}"
}

# The program and its first arguments, one on each line.
mysql_server() {
    local program folder libraries loader
    # A program called mysqld may be MariaDB.
    if program=$(find_program mysqld) && [[ $("$program" --no-defaults --version) != *MariaDB* ]]; then
        printf '%s\n' "$program" --no-defaults
        return
    fi
    # This program was built for another release of the system, so it needs its own loader, libraries and files.
    folder=$(mysql_home)
    libraries=$(compgen -G "$folder/usr/lib/*-linux-gnu") && loader=$(compgen -G "$libraries/ld-linux*") || return
    printf '%s\n' "${loader%%$'\n'*}" --library-path "$libraries" "$folder/usr/sbin/mysqld" --no-defaults \
        --basedir="$folder/usr" --lc-messages-dir="$folder/usr/share/mysql" \
        --character-sets-dir="$folder/usr/share/mysql/charsets" --plugin-dir="$folder/usr/lib/mysql/plugin"
}
