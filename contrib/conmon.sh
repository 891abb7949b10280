#!/bin/sh
# conmon.sh [FILE]: makes FILE (default bin/conmon of <repo>), a statically linked conmon, from the source package of
# the Debian release CONMON_SUITE (default forky). Debian's own program links 12 libraries. Their relocations are most
# of the memory of a container's monitor, and a large part of its CPU time (contrib/decisions/0019). podd's tests and
# benchmarks prefer bin/conmon to the distribution's; remove it to go back.
#
# Nothing but Debian packages for the build is installed. debian-tree.sh extracts the source to the cache, $PODD_CACHE
# (default ${XDG_CACHE_HOME:-~/.cache}/podd), where the built program is kept, too. The key is a hash of what goes into
# it, with the versions of the static libraries: after an update of glib or glibc the next run links it again.
#
# UNPATCHED=1 builds upstream's release without Debian's patches, for a mirror that lacks them; see debian-tree.sh.
set -eu
contrib=$(cd "$(dirname "$0")" && pwd)
file=${1:-$(dirname "$contrib")/bin/conmon}
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
suite=${CONMON_SUITE:-forky}

# gcc brings the linker and readelf; libglib2.0-dev brings the static libraries of glib and PCRE2.
packages='gcc libc6-dev libglib2.0-dev pkg-config dpkg-dev'
# shellcheck disable=SC2086 # a list of words is meant
"$contrib/install-deps.sh" $packages
name=conmon-source
[ "${UNPATCHED:-}" != 1 ] || name=conmon-unpatched # not kept as the other
tree=$("$contrib/debian-tree.sh" $name "$suite" src:conmon)
source=$tree/conmon
# shellcheck disable=SC2086 # a list of words is meant
key=$( { cat "$0" "$source/VERSION" "$source"/src/*.[ch]; dpkg-query -W $packages libpcre2-dev; } | sha256sum |
	cut -c1-16)
out=$cache/conmon/$suite-$key

# build FILE: compile and link in one step, without the Makefile of conmon, which would add libsystemd (the journal as a
# log) and libseccomp (notifications) if the machine has them. podd uses neither.
#
# The linker warns of getpwnam and the like in glib: a static program needs the machine's glibc for them. conmon calls
# none. podd runs it without variables of a locale, and conversions from ASCII are a part of glibc.
#
# Position-independent with the hardening of Debian's program: its input is the output of containers. That is 10 kB of
# memory for each monitor.
build() {
	commit="Debian $suite, upstream's tarball, static"
	[ ! -f "$source/debian/changelog" ] ||
		commit="Debian $(dpkg-parsechangelog -l "$source/debian/changelog" -S Version), static"
	# shellcheck disable=SC2046 # lists of words are meant
	gcc -std=c99 -O2 -static-pie -fPIE -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wl,-z,relro,-z,now \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -s \
		-DVERSION="\"$(cat "$source/VERSION")\"" -DGIT_COMMIT="\"$commit\"" \
		$(pkg-config --static --cflags glib-2.0) -o "$1" "$source"/src/*.c $(pkg-config --static --libs glib-2.0)
}

if [ ! -d "$out" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	if ! build "$new/conmon" 2>"$new/log"; then
		cat "$new/log" >&2
		echo "conmon: the source of Debian $suite does not build here; try another release as CONMON_SUITE" >&2
		exit 1
	fi
	rm "$new/log"
	"$new/conmon" --version | grep -q '^conmon version ' || { echo "conmon: what was built does not run" >&2; exit 1; }
	! readelf -lW "$new/conmon" | grep -q INTERP || { echo "conmon: what was built is not static" >&2; exit 1; }
	mv -T "$new" "$out" 2>/dev/null || [ -d "$out" ] # another process may have built it meanwhile
	# Keep this build and the previous one, for work on two branches.
	find "$cache/conmon" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\0' | sort -zrn | tail -zn +3 |
		cut -zd' ' -f2- | xargs -0r rm -rf
fi
"$out/conmon" --version | paste -sd ' '
mkdir -p "$(dirname "$file")"
# Copy and rename: a binary that is being executed cannot be written to.
cmp -s "$out/conmon" "$file" && exit 0
cp "$out/conmon" "$file.new"
mv "$file.new" "$file"
