#!/bin/sh
# Installs, on the machine that builds the virtual machine, the Debian packages that are missing for that.
set -eu
missing=
for p in mmdebstrap debian-archive-keyring e2fsprogs xz-utils secilc; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' $p 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
echo "vm: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words is meant
apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null
