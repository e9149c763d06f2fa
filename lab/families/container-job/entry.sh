# SPDX-License-Identifier: MIT
# The entry point of a container fills a cache by a command, and shows what it says.
# `entry.sh DIR COMMAND ..`
cd "$1" || exit 1
shift
trap 'exit 1' TERM
fill() {
    echo "filling $(date +%s)"
    ("$@") > cache
}
fill "$@" | sed 's/^/cache: /'
sleep 100000
