#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the tracer into a directory: libflagfinder.so (the client), libdynamorio.so,
# ff_launch and ff_canary. The directory can be moved.
#
#   build.sh OUT_DIR [WORK_DIR]     WORK_DIR: sources and objects, default OUT_DIR/.build
#
# DYNAMORIO_HOME: use that DynamoRIO release instead of building one.
# JOBS: parallel compilers, default the number of processors.
set -eu

die() {
    printf 'build.sh: %s\n' "$@" >&2
    exit 1
}
say() { printf 'tracer: %s\n' "$*" >&2; }

[ $# -ge 1 ] || die "usage: build.sh OUT_DIR [WORK_DIR]"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1" "${2:-$1/.build}"
out=$(CDPATH='' cd -- "$1" && pwd)
work=$(CDPATH='' cd -- "${2:-$1/.build}" && pwd)
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}

for tool in cmake cc c++ make; do
    command -v "$tool" >/dev/null || die "$tool is not installed." \
        "Install it (Debian: apt install cmake g++ make perl)." \
        "Without it, --tracer frida still records."
done

# Runs a command, its output into a log that is shown only if it fails.
quietly() {
    log=$1
    shift
    "$@" >"$log" 2>&1 || {
        tail -n 40 "$log" >&2
        die "this failed: $*" "The whole output is in $log."
    }
}

fetch_source() {
    command -v cargo >/dev/null || die "cargo is not installed: it fetches DynamoRIO's source." \
        "Install it (Debian 12: apt install cargo-web)," \
        "or point DYNAMORIO_HOME at a DynamoRIO release."
    say "fetching DynamoRIO's source"
    rm -rf "$work/source"
    # Not `cargo vendor`: before cargo 1.86 it leaves files out.
    quietly "$work/fetch.log" cargo metadata --locked --format-version 1 \
        --manifest-path "$here/dynamorio/Cargo.toml"
    crate=$(sed -n 's|.*"manifest_path":"\([^"]*/dynamorio-sys-[^"]*\)/Cargo\.toml".*|\1|p' \
        "$work/fetch.log")
    [ -d "$crate/dynamorio" ] || die "cargo did not say where it put DynamoRIO's source." \
        "Its answer is in $work/fetch.log."
    cp -R "$crate/dynamorio" "$work/source"
    chmod -R u+w "$work/source"
    for change in "$here"/dynamorio/*.patch; do
        say "applying $(basename "$change" .patch)"
        quietly "$work/patch.log" patch -d "$work/source" -p1 --fuzz=0 --forward -i "$change"
        # They have little context, so each must fit exactly where it was made for.
        ! grep offset "$work/patch.log" >&2 || die "$change is for another source."
    done
}

build_dynamorio() {
    command -v perl >/dev/null || die "perl is not installed, which DynamoRIO's build needs." \
        "Install it (Debian: apt install perl)."
    stamp=$(cat "$here/build.sh" "$here"/dynamorio/Cargo.lock "$here"/dynamorio/*.patch | cksum)
    if [ "$(cat "$work/dynamorio.stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -f "$work/dynamorio.stamp"
        fetch_source
        # Configuring asks for zlib, for drsyms. That is not built, so its headers are not needed.
        say "configuring DynamoRIO"
        rm -rf "$work/dynamorio"
        quietly "$work/configure.log" cmake -S "$work/source" -B "$work/dynamorio" \
            -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_CLIENTS=NO -DBUILD_DOCS=NO \
            -DBUILD_SAMPLES=NO -DBUILD_TESTS=NO -DBUILD_TOOLS=NO -DANNOTATIONS=NO \
            "-DZLIB_LIBRARY=$work/not-linked" "-DZLIB_INCLUDE_DIR=$work"
        say "building DynamoRIO (a minute or two)"
        quietly "$work/dynamorio.log" cmake --build "$work/dynamorio" --parallel "$jobs" \
            --target dynamorio drmgr_static drreg_static drcontainers
        printf '%s\n' "$stamp" >"$work/dynamorio.stamp"
    fi
    patched=ON
    dynamorio_cmake=$work/dynamorio/cmake
    dynamorio_library=$work/dynamorio/lib64/release/libdynamorio.so
}

if [ -n "${DYNAMORIO_HOME:-}" ]; then
    patched=OFF
    dynamorio_cmake=$DYNAMORIO_HOME/cmake
    dynamorio_library=$DYNAMORIO_HOME/lib64/release/libdynamorio.so
    [ -f "$dynamorio_library" ] ||
        die "DYNAMORIO_HOME=$DYNAMORIO_HOME holds no lib64/release/libdynamorio.so." \
            "Unset it to have DynamoRIO built, or point it at an unpacked release."
    say "using the DynamoRIO in $DYNAMORIO_HOME"
else
    build_dynamorio
fi

say "building the client and the launcher"
# Configured afresh: its sources may be another installation's than the last time.
rm -rf "$work/client"
quietly "$work/client-configure.log" cmake -S "$here" -B "$work/client" -DCMAKE_BUILD_TYPE=Release \
    "-DDynamoRIO_DIR=$dynamorio_cmake" "-DFF_DYNAMORIO_PATCHED=$patched" \
    "-DCMAKE_RUNTIME_OUTPUT_DIRECTORY=$work/client" \
    "-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$work/client"
quietly "$work/client.log" cmake --build "$work/client" --parallel "$jobs"

# Into place by renaming: a running tracer keeps its old files.
place() {
    cp "$1" "$out/.new" && chmod 755 "$out/.new" && mv -f "$out/.new" "$out/$(basename "$1")"
}
place "$work/client/libflagfinder.so"
place "$work/client/ff_launch"
place "$work/client/ff_canary"
cmp -s "$dynamorio_library" "$out/libdynamorio.so" || place "$dynamorio_library"
say "ready in $out"
