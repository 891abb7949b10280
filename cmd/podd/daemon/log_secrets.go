package daemon

import (
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image/registry"
)

// maxLogText bounds a message in bytes: libraries log what servers and clients have sent.
const maxLogText = 4 << 10

// secretHider removes secrets of URLs from entries, and bounds messages: libraries log the URLs of requests.
type secretHider struct{}

// Levels returns all levels.
func (secretHider) Levels() []logrus.Level { return logrus.AllLevels }

// Fire changes e before it is written.
func (secretHider) Fire(e *logrus.Entry) error {
	e.Message = hideSecrets(bound(e.Message))
	for key, value := range e.Data {
		switch v := value.(type) {
		case error:
			e.Data[key] = hideSecrets(v.Error())
		case string:
			e.Data[key] = hideSecrets(v)
		}
	}
	return nil
}

func hideSecrets(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return registry.HideSecrets(text)
}

// bound cuts a text to maxLogText.
func bound(text string) string {
	if len(text) > maxLogText {
		return strings.ToValidUTF8(text[:maxLogText], "") + "..."
	}
	return text
}
