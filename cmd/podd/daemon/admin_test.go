package daemon

import (
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/history"
)

// TestLogLevels: the levels are those of the configuration; fatal and panic would hide errors.
func TestLogLevels(t *testing.T) {
	before := logrus.GetLevel()
	t.Cleanup(func() { logrus.SetLevel(before) })
	var a adminNode
	for _, level := range []string{"trace", "debug", "info", "warning", "error"} {
		if err := a.SetLogLevel(level); err != nil || a.LogLevel() != level {
			t.Errorf("SetLogLevel(%s) = %v, level %s, want it", level, err, a.LogLevel())
		}
	}
	for _, level := range []string{"", "fatal", "panic", "loud"} {
		if err := a.SetLogLevel(level); err == nil || a.LogLevel() != "error" {
			t.Errorf("SetLogLevel(%q) = %v, level %s, want an error and the level before", level, err, a.LogLevel())
		}
	}
}

// TestHistoryNotOpened: without the history's directory the daemon runs, and says so.
func TestHistoryNotOpened(t *testing.T) {
	a := adminNode{d: &daemon{}}
	if _, err := a.History(history.Query{Limit: 1}); err == nil || !strings.Contains(err.Error(), "see its log") {
		t.Errorf("History() = %v, want an error that names the log", err)
	}
}
