# Which programs are needed, where they are, and how to get them. Read by native.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # chosen and everything are native.sh's

jars=(/usr/share/java/zookeeper.jar /usr/share/java/slf4j-simple.jar)
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/lockkit

# Makes sure that what was chosen can be started. Of "all", what can't be had here is left out.
have_programs() {
    local profile packages=() kept=() reason
    [ -r /proc/self/stat ] || die "this is for Linux: use compose.yaml here"
    for profile in "${chosen[@]}"; do
        if is_there "$profile"; then
            kept+=("$profile")
        elif reason=$(not_a_package "$profile"); then
            [ -n "$everything" ] || die "$profile: $reason"
            printf 'native.sh: LEFT OUT: %s: %s\n' "$profile" "$reason" >&2
        else
            kept+=("$profile")
            read -r -a packages <<<"${packages[*]} $(packages_for "$profile")"
        fi
    done
    chosen=("${kept[@]}")
    [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
    for profile in "${chosen[@]}"; do
        is_there "$profile" || die "$profile is not there even with $(packages_for "$profile")"
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

# Debian's smallest packages with what a profile needs in them: none of these sets up a service.
packages_for() {
    case $1 in
    mariadb) echo mariadb-server-core mariadb-client-core ;;
    redis | redis-cluster | sentinel) echo redis-tools ;;
    zookeeper | zookeeper-ensemble) echo libzookeeper-java default-jre-headless ;;
    esac
}

# The way to what is in no package of Debian's releases.
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
    apt=$(find_program apt-get) || die "not installed, and this is no Debian: install what is in Debian's $*"
    command="apt-get update && apt-get install -y --no-install-recommends $*"
    [ "$(id -u)" = 0 ] || die "not installed. Run this: sudo sh -c '$command'"
    printf 'native.sh: installing %s\n' "$*"
    { "$apt" -qq update && DEBIAN_FRONTEND=noninteractive "$apt" -qq install -y --no-install-recommends "$@"; } >&2 ||
        die "that failed: $command"
}

# Debian keeps daemons where an ordinary user's PATH doesn't look.
find_program() {
    PATH=$PATH:/usr/sbin:/usr/local/sbin type -P "$1"
}

redis_server() {
    find_program redis-server && return
    # In Debian's redis-tools, which has no service, it goes by this name: it is the server when it is called so.
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

# The program and its first arguments, one a line.
mysql_server() {
    local program folder libraries loader
    # What is called mysqld may be a MariaDB.
    if program=$(find_program mysqld) && [[ $("$program" --no-defaults --version) != *MariaDB* ]]; then
        printf '%s\n' "$program" --no-defaults
        return
    fi
    # Built for another release of the system: with its own libraries, down to the loader, and files at other places.
    folder=$(mysql_home)
    libraries=$(compgen -G "$folder/usr/lib/*-linux-gnu") && loader=$(compgen -G "$libraries/ld-linux*") || return
    printf '%s\n' "${loader%%$'\n'*}" --library-path "$libraries" "$folder/usr/sbin/mysqld" --no-defaults \
        --basedir="$folder/usr" --lc-messages-dir="$folder/usr/share/mysql" \
        --character-sets-dir="$folder/usr/share/mysql/charsets" --plugin-dir="$folder/usr/lib/mysql/plugin"
}
