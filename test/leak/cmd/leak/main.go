// Command leak looks for what a program has left on the machine.
//
//	leak take FILE                          write what is there now
//	leak diff FILE [-only TEXT]... [-ignore TEXT]... [-wait D]  say what is new since, waiting up to D for it to go; status 1 if anything is
//
// It is for scripts and the Makefile; tests use the package.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/podd-project/podd/test/leak"
)

// errLeak is what the program says when something is left; the lines themselves are on stdout.
var errLeak = errors.New("something is left over, see above")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leak:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: leak take FILE | leak diff FILE [-only TEXT]... [-ignore TEXT]... [-wait DURATION]")
	}
	var o leak.Options
	flags := flag.NewFlagSet("leak", flag.ContinueOnError)
	flags.DurationVar(&o.Wait, "wait", 5*time.Second, "how long to wait for things to go")
	flags.Func("only", "look only at what mentions this (may be repeated)", func(s string) error {
		o.Match = append(o.Match, s)
		return nil
	})
	flags.Func("ignore", "do not look at what mentions this (may be repeated)", func(s string) error {
		o.Ignore = append(o.Ignore, s)
		return nil
	})
	if err := flags.Parse(args[2:]); err != nil {
		return err
	}
	switch args[0] {
	case "take":
		return take(args[1])
	case "diff":
		return diff(args[1], o)
	}
	return fmt.Errorf("unknown verb %q", args[0])
}

func take(file string) error {
	s, err := leak.Take(leak.Options{})
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func diff(file string, o leak.Options) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var before leak.Snapshot
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	lines, err := before.Only(o).Wait(context.Background(), o)
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		fmt.Println(strings.Join(lines, "\n"))
		return errLeak
	}
	return nil
}
