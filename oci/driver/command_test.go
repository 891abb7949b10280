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

func TestCapped(t *testing.T) {
	c := NewCapped(5)
	for _, s := range []string{"abc", "def", "ghi"} {
		if n, err := c.Write([]byte(s)); n != 3 || err != nil {
			t.Errorf("Write = %d, %v, want 3, nil", n, err)
		}
	}
	if got := string(c.Bytes()); got != "abcde" {
		t.Errorf("bytes = %q, want %q", got, "abcde")
	}
}
