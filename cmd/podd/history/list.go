package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/podd-project/podd/sandbox/operation"
)

// Query selects operations. Zero values select all.
type Query struct {
	// About is the start of the id of a pod or container, or a part of namespace/pod/container.
	About string
	// Verb is the CRI's name of an operation, see operation.Operation.
	Verb string
	// Failed selects operations that did not succeed.
	Failed bool
	// Slower selects operations that took that long or longer.
	Slower time.Duration
	// Limit is the number of operations to return, above zero.
	Limit int
}

func (q Query) selects(o operation.Operation) bool {
	return (q.Verb == "" || o.Verb == q.Verb) && (!q.Failed || o.Outcome != operation.OutcomeOK) &&
		time.Duration(o.Took) >= q.Slower && q.about(o)
}

func (q Query) about(o operation.Operation) bool {
	return strings.HasPrefix(o.Pod, q.About) || strings.HasPrefix(o.Container, q.About) ||
		strings.Contains(o.Name, q.About)
}

// List returns the last operations that q selects, the newest first.
func (h *History) List(q Query) ([]operation.Operation, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Read(h.dir, q)
}

// Read is List for the history of a daemon that does not run. A part that cannot be read is left out; the error then
// says why.
func Read(dir string, q Query) (found []operation.Operation, err error) {
	numbers, err := segments(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, n := range slices.Backward(numbers) {
		data, err := readSegment(dir, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		lines := bytes.Split(data, []byte{'\n'})
		for _, line := range slices.Backward(lines) {
			var o operation.Operation
			if json.Unmarshal(line, &o) != nil || !q.selects(o) { // the last line may be incomplete
				continue
			}
			if found = append(found, o); len(found) == q.Limit {
				return found, errors.Join(errs...)
			}
		}
	}
	return found, errors.Join(errs...)
}
