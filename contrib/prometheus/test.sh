#!/bin/sh
# Tests the alerts and the dashboard with Debian's Prometheus, which is unpacked into the cache and not installed.
# $GO runs Go, $TAGS are its build tags. Needs root, and a Debian mirror the first time.
set -eu
cd "$(dirname "$0")/../.."
cache="${PODD_CACHE:-$HOME/.cache/podd}/prometheus"
if [ ! -x "$cache/usr/bin/promtool" ]; then
	rm -rf "$cache.new"
	mkdir -p "$cache.new"
	(cd "$cache.new" && apt-get update -qq && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm -f ./*.deb)
	rm -rf "$cache"
	mv "$cache.new" "$cache"
fi
"$cache/usr/bin/promtool" check rules contrib/prometheus/rules.yaml
(cd contrib/prometheus && "$cache/usr/bin/promtool" test rules rules_test.yaml)
PROMETHEUS="$cache/usr/bin/prometheus" ${GO:-go} test -race -tags "$TAGS" -count=1 -timeout 10m -run 'TestPrometheus$' -v \
	./test/integration/
