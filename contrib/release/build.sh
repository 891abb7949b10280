#!/bin/sh
# Builds a release of the commit that is checked out into bin/release: packages, archives and lists of components for
# amd64 and arm64, and their checksums. What is not committed is left out.
#
#	VERSION=v1.2.3 contrib/release/build.sh [DIRECTORY]
#
# VERSION is the commit's tag unless it is set. The same commit gives the same files, with the same Go, gcc and libc:
# every time in them is the commit's, and no path or name of this machine is. ARCHITECTURES (default: amd64 arm64) is for
# tests.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
out=${1:-$repo/bin/release}
say() { echo "release: $*"; }

"$here/deps.sh"
cd "$repo"
commit=$(git rev-parse HEAD)
version=${VERSION:-$(git describe --exact-match --tags --match 'v[0-9]*' HEAD 2>/dev/null)} || {
	echo "release: the commit has no tag: run git tag -s v<version> first, or set VERSION=v<version>" >&2
	exit 1
}
expr "$version" : 'v[0-9]*\.[0-9]*\.[0-9]*' >/dev/null || {
	echo "release: $version is not a version: want v<major>.<minor>.<patch>" >&2
	exit 1
}
number=${version#v}
SOURCE_DATE_EPOCH=$(git show -s --format=%ct HEAD)
export SOURCE_DATE_EPOCH
# What changes a build without being part of the commit.
unset GOFLAGS GOEXPERIMENT GOAMD64 GOARM64 GODEBUG CFLAGS CPPFLAGS LDFLAGS MAKEFLAGS MAKELEVEL
export LC_ALL=C TZ=UTC GOWORK=off
umask 022

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
src=$work/src
mkdir "$src"
git archive "$commit" | tar -x -C "$src"

say "tools"
for tool in ./bom github.com/goreleaser/nfpm/v2/cmd/nfpm; do
	(cd "$src/contrib/tools/release" && CGO_ENABLED=0 go build -mod=readonly -o "$work/tools/" "$tool")
done
say "manual pages and completions"
(cd "$src" && make embedded && CGO_ENABLED=0 go test -tags containers_image_openpgp,nri_no_wasm,grpcnotrace -count=1 -run '^TestManuals$' \
	./cmd/podd -manuals "$work/manuals") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

# compiler ARCHITECTURE: prints the C compiler of the small static programs that podd embeds.
compiler() {
	case $1 in
	amd64) echo x86_64-linux-gnu-gcc ;;
	arm64) echo aarch64-linux-gnu-gcc ;;
	esac
}

# libc ARCHITECTURE: prints the Debian package and version of the C library that is linked into them.
libc() {
	case $1 in
	"$(dpkg --print-architecture)") package=libc6-dev ;;
	*) package=libc6-dev-$1-cross ;;
	esac
	dpkg-query -W -f '${Package}=${Version}' "$package"
}

# tree DIRECTORY PREFIX ARCHITECTURE: what all packages and archives have, below a prefix such as /usr.
tree() {
	to=$1$2
	install -D -m 755 "$work/$3/podd" "$to/bin/podd"
	install -D -m 644 "$src/contrib/systemd/podd.service" "$to/lib/systemd/system/podd.service"
	install -D -m 644 "$src/contrib/crictl.yaml" "$to/share/podd/crictl.yaml"
	for page in "$work"/manuals/man/*; do
		file=$to/share/man/man${page##*.}/$(basename "$page").gz
		mkdir -p "$(dirname "$file")"
		gzip -9 -n <"$page" >"$file"
	done
	install -D -m 644 "$work/manuals/completions/podd" "$to/share/bash-completion/completions/podd"
	install -D -m 644 "$work/manuals/completions/podd.fish" "$to/share/fish/vendor_completions.d/podd.fish"
	doc=$to/share/doc/podd
	mkdir -p "$doc"
	# The pages and the files that they tell users to copy, under their paths in the repository: links lead to them.
	(cd "$src" && find . -type f \( -name '*.md' ! -path '*/testdata/*' -o -path './contrib/kubernetes/*' \
		-o -path './contrib/kata/*' -o -path './contrib/prometheus/*.yaml' -o -path './contrib/prometheus/*.json' \
		-o -path './contrib/podd.toml' -o -path './contrib/crictl.yaml' -o -path './contrib/docs/*.svg' \) -exec install -D -m 644 {} "$doc/{}" \;)
	install -m 644 "$work/$3/podd.cdx.json" "$doc/"
	gzip -9 -n <"$work/$3/licenses" >"$doc/licenses.gz"
	gzip -9 -n <"$src/CHANGELOG.md" >"$doc/changelog.gz"
}

# same DIRECTORY: gives all files the time of the commit.
same() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

# package FORMAT ARCHITECTURE: builds the deb or the rpm.
package() {
	root=$work/$2/$1
	tree "$root" /usr "$2"
	sed -i 's|/usr/local/bin/podd|/usr/bin/podd|' "$root/usr/lib/systemd/system/podd.service"
	mkdir -p "$root/etc/podd/podd.toml.d"
	case $1 in
	deb)
		install -D -m 644 "$work/manuals/completions/_podd" "$root/usr/share/zsh/vendor-completions/_podd"
		install -m 644 "$here/copyright" "$root/usr/share/doc/podd/copyright"
		install -D -m 644 "$here/lintian-overrides" "$root/usr/share/lintian/overrides/podd"
		"$here/debian-changelog.sh" "$number" | gzip -9 -n >"$root/usr/share/doc/podd/changelog.Debian.gz"
		;;
	rpm)
		install -D -m 644 "$work/manuals/completions/_podd" "$root/usr/share/zsh/site-functions/_podd"
		install -D -m 644 "$src/LICENSE" "$root/usr/share/licenses/podd/LICENSE"
		;;
	esac
	same "$root"
	(cd "$here" && ROOT=$root VERSION=$version ARCH=$2 "$work/tools/nfpm" package --config nfpm.yaml --packager "$1" \
		--target "$new/") >>"$work/log" || { cat "$work/log"; exit 1; }
}

# archive ARCHITECTURE: builds the tar, for /usr/local.
archive() {
	name=podd-$number
	tree "$work/$1/tar" "/$name" "$1"
	install -D -m 644 "$work/manuals/completions/_podd" "$work/$1/tar/$name/share/zsh/site-functions/_podd"
	install -m 644 "$src/LICENSE" "$work/$1/tar/$name/share/doc/podd/LICENSE"
	tar -C "$work/$1/tar" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		-cf - "$name" | gzip -9 -n >"$new/$name-linux-$1.tar.gz"
}

new=$work/new
mkdir "$new"
for arch in ${ARCHITECTURES:-amd64 arm64}; do
	say "podd $version for $arch"
	mkdir "$work/$arch"
	# Without the compiled programs of the architecture before.
	(cd "$src" && make clean && make build GOARCH=$arch CC="$(compiler $arch)" VERSION="$version" COMMIT="$commit") \
		>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	mv "$src/bin/podd" "$work/$arch/podd"
	(cd "$src" && "$work/tools/bom" -binary "$work/$arch/podd" -version "$version" -libc "$(libc $arch)" \
		-sbom "$work/$arch/podd.cdx.json" -licenses "$work/$arch/licenses")
	install -m 644 "$work/$arch/podd.cdx.json" "$new/podd-$number-linux-$arch.cdx.json"
	package deb $arch
	package rpm $arch
	archive $arch
done
(cd "$new" && sha256sum -- * >SHA256SUMS)
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$new" "$out"
say "done: $out"
(cd "$out" && cat SHA256SUMS)
