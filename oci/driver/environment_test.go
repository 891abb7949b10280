package driver

import (
	"strings"
	"testing"
)

// TestEnvironmentIsSmall: what the daemon holds in its environment does not reach hooks.
func TestEnvironmentIsSmall(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("TZ", "UTC")
	env := strings.Join(Environment(), "\n")
	if strings.Contains(env, "secret") || !strings.Contains(env, "TZ=UTC") || !strings.Contains(env, "PATH=") {
		t.Errorf("environment = %q, want TZ and PATH without the secret", env)
	}
}
