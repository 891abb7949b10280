package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// wantLogged checks that out is a JSON line with these fields, or empty if fields is nil.
func wantLogged(t *testing.T, out *bytes.Buffer, fields map[string]string) {
	t.Helper()
	got := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil && fields != nil {
		t.Errorf("logged %q, want JSON: %v", out.String(), err)
	}
	if fields == nil && out.Len() > 0 {
		t.Errorf("logged %q, want nothing", out.String())
	}
	for key, want := range fields {
		if got[key] != want {
			t.Errorf("%s = %v, want %q", key, got[key], want)
		}
	}
}

func TestKlogLogsToOurLogger(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetLevel(logrus.DebugLevel)
	log.SetFormatter(&logrus.JSONFormatter{})
	routeKlog(log)
	defer klog.ClearLogger()
	for _, tt := range []struct {
		say  func()
		want map[string]string
	}{
		{
			func() { klog.Warningf("Stream rejected: %v", "x") },
			map[string]string{"level": "debug", "message": "Stream rejected: x"},
		},
		{
			func() { klog.ErrorS(errors.New("boom"), "it broke", "n", 1) },
			map[string]string{"level": "warning", "message": "it broke", "err": "boom", "n": "1"},
		},
		{func() { klog.V(3).Info("too much") }, nil},
	} {
		out.Reset()
		tt.say()
		wantLogged(t, &out, tt.want)
	}
	log.SetLevel(logrus.InfoLevel)
	out.Reset()
	for range 3 * libraryBurst {
		klog.Error("as often as a client likes")
	}
	if n := strings.Count(out.String(), "as often"); n < libraryBurst-1 || n > libraryBurst+1 {
		t.Errorf("logged %d of %d equal warnings, want about %d", n, 3*libraryBurst, libraryBurst)
	}
	out.Reset()
	log.SetLevel(logrus.DebugLevel)
	klog.Info(strings.Repeat("x", 10*maxLogText))
	if out.Len() > maxLogText+1000 {
		t.Errorf("logged %d bytes, want at most %d of the message", out.Len(), maxLogText)
	}
	log.SetLevel(logrus.InfoLevel)
	out.Reset()
	klog.Info("not at this level")
	if out.Len() > 0 {
		t.Errorf("logged %q at level info, want nothing", out.String())
	}
}
