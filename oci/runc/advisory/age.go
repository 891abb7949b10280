package advisory

import (
	"fmt"
	"time"
)

// MaxAge is how old the data may be: after half a year it probably lacks advisories.
const MaxAge = 180 * 24 * time.Hour

// Warning returns a sentence if the data is older than MaxAge at now, "" if it is not.
func (d Data) Warning(now time.Time) string {
	made, err := time.Parse(time.DateOnly, d.Date)
	if err != nil {
		return fmt.Sprintf("the list of known vulnerabilities of runtimes has no date: %v", err)
	}
	age := now.Sub(made)
	if age <= MaxAge {
		return ""
	}
	return fmt.Sprintf("the list of known vulnerabilities of runtimes in this podd is of %s, %d days old, and lacks "+
		"newer ones: install a newer podd", d.Date, int(age.Hours()/24))
}
