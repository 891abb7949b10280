package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Point is the moment in a program's run at which the daemon is killed.
type Point string

const (
	// Before kills the daemon before the program starts. The program runs nevertheless, unless it dies with the daemon.
	Before Point = "before"
	// After kills the daemon when the program has exited, before the daemon sees its exit.
	After Point = "after"
	// Late is Before with a delay: the program starts a second later, when the next daemon already runs.
	Late Point = "late"
)

// Gates are scripts that the daemon runs instead of conmon, the OCI runtimes and the CNI plugins. A gate records the
// call in a diary and executes the program, or kills the daemon at the call, or blocks the call. A call is named by
// program and verb: "conmon-create", "runc-start", "bridge-ADD".
type Gates struct{ dir string }

// gate is the script installed under the name of the program. %[1]q is the directory of the gates, %[2]q the program,
// %[3]q its name.
const gate = `#!/bin/sh
gates=%[1]q program=%[2]q name=%[3]q
verb=$CNI_COMMAND
[ "$name" != conmon ] || verb=create
for a; do
	case $name:$a in
	conmon:--exec) verb=exec; break ;;
	conmon:*) ;;
	*:create | *:start | *:exec | *:kill | *:delete | *:state | *:update | *:checkpoint | *:restore) verb=$a; break ;;
	esac
done
call=$name-$verb
crash() {
	mv "$gates/armed" "$gates/fired"
	kill -9 "$(cat "$gates/pid")"
}
if [ -n "$verb" ]; then
	echo "$call $CNI_CONTAINERID" >>"$gates/diary"
	while [ -e "$gates/held/$call" ]; do
		read -r whose <"$gates/held/$call"
		case "$* $CNI_ARGS" in
		*"$whose"*) : >"$gates/waits-$call" ;;
		*) break ;;
		esac
		sleep 0.1
	done
fi
if [ -e "$gates/armed" ]; then
	read -r at nth point <"$gates/armed"
	if [ "$at" = "$call" ] && [ "$(grep -c "^$call " "$gates/diary")" = "$nth" ]; then
		case $point in
		before) crash ;;
		late) crash; sleep 1 ;;
		after) "$program" "$@"; code=$?; crash; exit $code ;;
		esac
	fi
fi
exec "$program" "$@"
`

// bin returns the directory of the gates' scripts, which replaces that of the programs.
func (g Gates) bin() string { return filepath.Join(g.dir, "bin") }

// newGates writes a gate for conmon, each OCI runtime and each CNI plugin. bin is where the programs are.
func newGates(dir, bin string) (Gates, error) {
	g := Gates{dir}
	if err := errors.Join(os.MkdirAll(g.bin(), 0o755), os.MkdirAll(filepath.Join(dir, "held"), 0o755)); err != nil {
		return g, err
	}
	var programs []string
	for _, name := range []string{"conmon", "runc", "crun"} {
		path := filepath.Join(bin, name)
		if _, err := os.Stat(path); err != nil {
			if path, err = exec.LookPath(name); err != nil {
				return g, err
			}
		}
		programs = append(programs, path)
	}
	plugins, err := filepath.Glob(filepath.Join(bin, "cni", "*"))
	if err != nil {
		return g, err
	}
	for _, p := range append(programs, plugins...) {
		name := filepath.Base(p)
		if err := os.WriteFile(filepath.Join(g.bin(), name), fmt.Appendf(nil, gate, dir, p, name), 0o755); err != nil {
			return g, err
		}
	}
	return g, nil
}

// setDaemon sets the process that the gates kill.
func (g Gates) setDaemon(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "pid"), []byte(strconv.Itoa(pid)), 0o644)
}

// Arm empties the diary and makes the nth call of that name from now on kill the daemon.
func (g Gates) Arm(call string, nth int, p Point) error {
	return errors.Join(g.Forget(),
		os.WriteFile(filepath.Join(g.dir, "armed"), fmt.Appendf(nil, "%s %d %s\n", call, nth, p), 0o644))
}

// Disarm undoes Arm; fired reports whether the daemon has been killed since.
func (g Gates) Disarm() (fired bool, err error) {
	err = os.Remove(filepath.Join(g.dir, "armed"))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(filepath.Join(g.dir, "fired"))
		return err == nil, err
	}
	return false, err
}

// Hold blocks the calls of that name whose arguments or CNI_ARGS contain words, until Release or until the caller kills
// them.
func (g Gates) Hold(call, words string) error {
	return os.WriteFile(filepath.Join(g.dir, "held", call), []byte(words+"\n"), 0o644)
}

// Holds reports whether a call of that name has been blocked since Hold.
func (g Gates) Holds(call string) bool {
	_, err := os.Stat(filepath.Join(g.dir, "waits-"+call))
	return err == nil
}

// Release unblocks the calls.
func (g Gates) Release(call string) error {
	return errors.Join(os.Remove(filepath.Join(g.dir, "held", call)), os.Remove(filepath.Join(g.dir, "waits-"+call)))
}

// Forget empties the diary.
func (g Gates) Forget() error {
	err := os.Remove(filepath.Join(g.dir, "diary"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Diary returns the names of the calls since it was emptied, oldest first, without those that change nothing.
func (g Gates) Diary() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(g.dir, "diary"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var calls []string
	for line := range strings.Lines(string(data)) {
		call, _, _ := strings.Cut(line, " ")
		calls = append(calls, call)
	}
	return slices.DeleteFunc(calls, func(c string) bool {
		return strings.HasSuffix(c, "-state") || strings.HasSuffix(c, "-STATUS") || strings.HasSuffix(c, "-VERSION")
	}), err
}
