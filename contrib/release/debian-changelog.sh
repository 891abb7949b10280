#!/bin/sh
# Prints the Debian changelog of a version. What operators notice is in CHANGELOG.md.
set -eu
number=$(echo "$1" | sed 's/-/~/')
cat <<END
podd ($number-1) unstable; urgency=medium

  * Release $1. changelog.gz says what operators notice.

 -- The podd authors <podd-project@users.noreply.github.com>  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
