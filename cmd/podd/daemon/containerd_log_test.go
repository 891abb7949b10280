package daemon

import (
	"bytes"
	"testing"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

func TestContainerdLogsToOurLogger(t *testing.T) {
	var out bytes.Buffer
	ours := logrus.New()
	ours.SetOutput(&out)
	ours.SetLevel(logrus.DebugLevel)
	ours.SetFormatter(&logrus.JSONFormatter{})
	defer func(l *log.Entry) { log.L = l }(log.L)
	routeContainerd(ours)
	for _, tt := range []struct {
		log  func(*log.Entry)
		want map[string]string
	}{
		{
			func(l *log.Entry) { l.WithField("stream", 7).Error(lateResponse) },
			map[string]string{"level": "debug", "message": lateResponse},
		},
		{
			func(l *log.Entry) { l.WithField("cgroup", "/x").Error("cannot be read") },
			map[string]string{"level": "error", "message": "cannot be read", "cgroup": "/x"},
		},
		{
			func(l *log.Entry) { l.Warn("odd") },
			map[string]string{"level": "warning", "message": "odd", "msg": "containerd library"},
		},
		{func(l *log.Entry) { l.Trace("too much") }, nil},
	} {
		out.Reset()
		tt.log(log.G(t.Context()))
		wantLogged(t, &out, tt.want)
	}
	ours.SetLevel(logrus.InfoLevel)
	out.Reset()
	log.G(t.Context()).Error(lateResponse)
	if out.Len() > 0 {
		t.Errorf("logged %q at level info, want nothing", out.String())
	}
}
