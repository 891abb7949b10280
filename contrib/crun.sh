#!/bin/sh
# crun.sh [FILE]: makes FILE (default bin/crun of <repo>) from the package crun of the Debian release CRUN_SUITE
# (default forky), for machines whose release has a crun before 1.14, which may compile the seccomp filter for each
# container. podd's tests and benchmarks prefer bin/crun to the distribution's; remove it to go back.
#
# Nothing is installed: debian-tree.sh extracts the package to the cache, with the libraries that it needs, and FILE is
# a copy of the program that names its loader and its libraries there. A script that calls the loader, as criu.sh makes
# one, would not do: crun starts itself again as /proc/self/exe, from a read-only mount, so that no container can write
# to it, and /proc/self/exe would be the loader. That mount has no other file, so the libraries' path is absolute.
set -eu
contrib=$(cd "$(dirname "$0")" && pwd)
file=${1:-$(dirname "$contrib")/bin/crun}
tree=$("$contrib/debian-tree.sh" crun "${CRUN_SUITE:-forky}" crun patchelf)
lib=$(dirname "$(find "$tree/usr/lib" -name libc.so.6)")
loader=$(echo "$lib"/ld-linux-*.so.*)

mkdir -p "$(dirname "$file")"
trap 'rm -f "$file.new"' EXIT
cp "$tree/usr/bin/crun" "$file.new"
# RPATH, not RUNPATH: it is for the libraries of libraries, too.
"$loader" --library-path "$lib" "$tree/usr/bin/patchelf" --set-interpreter "$loader" --force-rpath --set-rpath "$lib" \
	"$file.new"
version=$("$file.new" --version)
echo "$version" | head -n 1
mv "$file.new" "$file"
