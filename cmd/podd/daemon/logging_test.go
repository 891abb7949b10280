package daemon

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
)

func TestLogging(t *testing.T) {
	defer logrus.SetOutput(os.Stderr)
	var out bytes.Buffer
	for format, want := range map[string]string{"json": `"msg":"hello"`, "text": "level=warning msg=hello"} {
		out.Reset()
		log, err := setUpLogging(settings.LogConfig{Level: "warning", Format: format}, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("quiet")
		log.WithField("n", 1).Warn("hello")
		// What libraries log.
		const url = "https://me:pass-to-hide@h.test/x?sig=query-to-hide"
		got := out.String()
		logrus.WithError(errors.New("Get "+url)).WithField("url", url).Warn(url, strings.Repeat("x", maxLogText))
		if text := out.String(); strings.Contains(text, "to-hide") || strings.Count(text, "h.test/x") != 3 ||
			len(text) > maxLogText+1000 {
			t.Errorf("%s: logged %q, want the URL without secrets", format, text)
		}
		if !strings.Contains(got, want) || strings.Contains(got, "quiet") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: logged %q, want one line with %s", format, got, want)
		}
	}
	if _, err := setUpLogging(settings.LogConfig{Level: "x", Format: "text"}, &out); err == nil {
		t.Error("setUpLogging() with level x succeeded, want an error")
	}
}
