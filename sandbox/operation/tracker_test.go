package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
)

func TestOperationHasItsStages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, _ := test.NewNullLogger()
		var observed []Operation
		tracker := Tracker{Slow: time.Hour, Log: log, Observe: func(_ context.Context, o Operation) {
			observed = append(observed, o)
		}}
		ctx, active := tracker.Begin(t.Context(), Operation{Verb: RunPod, Pod: "p"})
		for _, stage := range []string{"record", "record", "network", "record"} {
			SetStage(ctx, stage)
			time.Sleep(time.Second)
		}
		if o := active.Snapshot(); o.Stage() != "record" || o.Took != Duration(4*time.Second) || o.Done {
			t.Errorf("Snapshot = %+v, want the stage record after 4 s", o)
		}
		if list := tracker.List(); len(list) != 1 || list[0].Pod != "p" {
			t.Errorf("List = %+v, want the operation", list)
		}
		o := active.End(nil)
		want := []Stage{
			{"record", 0, Duration(2 * time.Second)}, {"network", Duration(2 * time.Second), Duration(time.Second)},
			{"record", Duration(3 * time.Second), Duration(time.Second)},
		}
		for i, stage := range want {
			if len(o.Stages) != len(want) || o.Stages[i] != stage {
				t.Fatalf("Stages = %+v, want %+v", o.Stages, want)
			}
		}
		if !o.Done || o.Outcome != OutcomeOK || len(tracker.List()) != 0 || len(observed) != 1 {
			t.Errorf("End = %+v, %d in progress, %d observed, want one that is done", o, len(tracker.List()), len(observed))
		}
		SetStage(t.Context(), "of no operation") // must do nothing
	})
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Outcome
	}{
		{nil, OutcomeOK}, {errors.New("other"), OutcomeError}, {context.DeadlineExceeded, OutcomeTimeout},
		{context.Canceled, OutcomeCanceled},
	} {
		if got := outcomeOf(c.err); got != c.want {
			t.Errorf("outcomeOf(%v) = %s, want %s", c.err, got, c.want)
		}
	}
}

func TestSlowOperationIsLoggedOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		allow time.Duration
		after time.Duration // 0 for never
	}{
		{"of itself", 0, 10 * time.Second}, {"after its grace period", time.Minute, 70 * time.Second},
		{"unlimited", Unlimited, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log, hook := test.NewNullLogger()
				tracker := Tracker{Slow: 10 * time.Second, Log: log}
				ctx, active := tracker.Begin(t.Context(), Operation{Verb: StopContainer})
				SetStage(ctx, "kill")
				active.Allow(c.allow)
				time.Sleep(c.after - time.Second)
				if n := len(hook.AllEntries()); n != 0 {
					t.Errorf("%d entries before its time, want none", n)
				}
				time.Sleep(time.Hour)
				active.End(nil)
				entries := hook.AllEntries()
				if want := min(1, int(c.after)); len(entries) != want {
					t.Fatalf("%d entries, want %d", len(entries), want)
				}
				if c.after > 0 && (entries[0].Data["stage"] != "kill" || entries[0].Data["age"] != c.after.String()) {
					t.Errorf("entry = %v, want the stage kill and the age %v", entries[0].Data, c.after)
				}
			})
		})
	}
}

func TestHistoryKeepsTheLastOfEachVerb(t *testing.T) {
	t.Parallel()
	var h History
	at := func(verb string, began int64) Operation {
		return Operation{Verb: verb, Began: time.Unix(began, 0)}
	}
	for _, o := range []Operation{at("b", 3), at("a", 1), at("b", 4), at("c", 2)} {
		h.Add(o)
	}
	var got []string
	for _, o := range h.List() {
		got = append(got, fmt.Sprint(o.Verb, o.Began.Unix()))
	}
	if list := strings.Join(got, " "); list != "a1 c2 b4" {
		t.Errorf("List = %s, want a1 c2 b4", list)
	}
}

func TestDurationIsText(t *testing.T) {
	t.Parallel()
	d := Duration(12*time.Millisecond + 345678*time.Nanosecond)
	text, err := d.MarshalText()
	if string(text) != "12.35ms" || err != nil {
		t.Fatalf("MarshalText = %s, %v, want 12.35ms", text, err)
	}
	var back Duration
	if err := back.UnmarshalText(text); err != nil || back != Duration(12350*time.Microsecond) {
		t.Errorf("UnmarshalText = %v, %v, want 12.35 ms", time.Duration(back), err)
	}
	if err := back.UnmarshalText([]byte("soon")); err == nil {
		t.Error("UnmarshalText(soon) = nil, want an error")
	}
}
