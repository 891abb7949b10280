package conmon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// answerLimit caps one line of the sync pipe. conmon sends at most 8 KiB of stderr, each byte escaped to six.
const answerLimit = 64 << 10

// syncPipe is the pipe on which conmon reports: one JSON object per line.
type syncPipe struct {
	file *os.File
	buf  *bufio.Reader
	left *io.LimitedReader // below buf: the limit for the rest of the line
}

// answer is one report. The value is called "pid" with API version 0 and "data" with 1: the pid, or a negative number
// and a message if the runtime failed; for an exec session then the exit status.
type answer struct {
	Pid     *int   `json:"pid"`
	Data    *int   `json:"data"`
	Message string `json:"message"`
	value   int
}

func newSyncPipe(f *os.File) *syncPipe {
	left := &io.LimitedReader{R: f}
	return &syncPipe{file: f, buf: bufio.NewReader(left), left: left}
}

func (s *syncPipe) Close() error { return s.file.Close() }

// read waits for the next report: a *Failure without text if conmon exited without one.
func (s *syncPipe) read(ctx context.Context) (answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s.left.N = answerLimit
	line, err := s.buf.ReadBytes('\n')
	switch {
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case errors.Is(err, io.EOF) && s.left.N == 0:
		return answer{}, fmt.Errorf("read sync pipe: a line of %d bytes or more", answerLimit)
	case errors.Is(err, io.EOF):
		return answer{}, &Failure{}
	case err != nil:
		return answer{}, fmt.Errorf("read sync pipe: %w", err)
	}
	return parseAnswer(line)
}

func parseAnswer(line []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, fmt.Errorf("sync pipe: %w", err)
	}
	switch {
	case a.Data != nil:
		a.value = *a.Data
	case a.Pid != nil:
		a.value = *a.Pid
	default:
		return answer{}, fmt.Errorf("sync pipe: answer without a value")
	}
	return a, nil
}
