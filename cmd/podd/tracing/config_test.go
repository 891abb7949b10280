package tracing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		rate     int
		want     string // part of the error, "" for none
	}{
		{"", 0, ""}, {"", million, ""}, {"http://127.0.0.1:4317", 1, ""}, {"https://collector.example:4317", 1, ""},
		{"http://[::1]:4317", 1, ""}, {"unix:///run/otel.sock", 1, ""},
		{"127.0.0.1", 1, "endpoint: "}, {"127.0.0.1:4317", 1, "endpoint: "}, {"http://:4317", 1, "endpoint: "},
		{"https://host", 1, "endpoint: "}, {"ftp://host:4317", 1, "endpoint: "},
		{"http://host:4317/v1/traces", 1, "endpoint: "}, {"unix://otel.sock", 1, "endpoint: "},
		{"http://host:4317", -1, "sampling_rate_per_million: "}, {"", million + 1, "sampling_rate_per_million: "},
	} {
		err := validate(Config{Endpoint: c.endpoint, SamplingRatePerMillion: c.rate})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, %d: got %v, want %q", c.endpoint, c.rate, err, c.want)
		}
	}
	if err := validate(Config{Compression: "lz4"}); err == nil || !strings.Contains(err.Error(), "compression: ") {
		t.Errorf("compression lz4: got %v, want an error", err)
	}
	if d := DefaultConfig(); d.Enabled(func(string) string { return "" }) || validate(d) != nil {
		t.Errorf("default %+v", d)
	}
}

// validate returns what Validate reports, each as "key: error".
func validate(c Config) error {
	var errs []error
	c.Validate(func(key string, err error) { errs = append(errs, fmt.Errorf("%s: %w", key, err)) })
	return errors.Join(errs...)
}
