// Command leak compares the machine with how it was earlier.
//
//	leak take FILE              write a snapshot of the machine
//	leak diff FILE [OPTIONS]    compare with the snapshot; print the differences
//
//	-wait D         wait up to D for leftovers to disappear (default 5s)
//	-only TEXT      compare only things that mention TEXT, and fail for each difference (repeatable)
//	-ignore TEXT    ignore things that mention TEXT (repeatable)
//	-all            fail for each difference, for a machine on which nothing else runs containers
//
// Without -only and -all, diff fails for things that have the names of podd's tests, and only reports the others.
// It is for scripts and the Makefile; tests use the package.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/podd-project/podd/test/leak"
)

// errLeak is returned after the differences have been printed.
var errLeak = errors.New("differences found, see above")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leak:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: leak take FILE | leak diff FILE [-only TEXT]... [-ignore TEXT]... [-all] [-wait DURATION]")
	}
	var o leak.Options
	flags := flag.NewFlagSet("leak", flag.ContinueOnError)
	flags.DurationVar(&o.Wait, "wait", 5*time.Second, "how long to wait for leftovers to disappear")
	all := flags.Bool("all", false, "fail for each difference")
	flags.Func("only", "compare only things that mention this (repeatable)", func(s string) error {
		o.Match = append(o.Match, s)
		return nil
	})
	flags.Func("ignore", "ignore things that mention this (repeatable)", func(s string) error {
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
		return diff(args[1], o, *all)
	}
	return fmt.Errorf("unknown command %q", args[0])
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

// diff fails for each difference if -only or -all is given. Otherwise it fails only for things that podd's tests made,
// and reports what other programs made or removed meanwhile.
func diff(file string, o leak.Options, all bool) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var before leak.Snapshot
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	before = before.Only(o)
	var ours, others []string
	if all || len(o.Match) > 0 {
		ours, err = before.Wait(context.Background(), o)
	} else {
		ours, others, err = before.WaitForOurs(context.Background(), o)
	}
	if err != nil {
		return err
	}
	for _, line := range others {
		fmt.Println("not made by podd's tests, ignored:", line)
	}
	for _, line := range ours {
		fmt.Println(line)
	}
	if len(ours) > 0 {
		return errLeak
	}
	return nil
}
