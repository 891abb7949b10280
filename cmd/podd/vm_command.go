package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// vmImageProgram builds images of virtual machines. It is a program of the module oci/vm, whose dependencies podd does
// not have.
const vmImageProgram = "podd-vm-image"

func newVMCommand() *cobra.Command {
	return newGroup("vm", "Manage what pods in virtual machines need", &cobra.Command{
		Use: "image [flags of " + vmImageProgram + "]", Short: "Build a guest image of a kernel of the distribution",
		Long: `Build the kernel and the initial file system that pods in virtual machines boot. This runs the program
` + vmImageProgram + `, which is installed next to podd or in PATH, with the same arguments; -h prints its flags.`,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := findProgram(vmImageProgram, filepath.Dir(self))
			if err != nil {
				return err
			}
			return syscall.Exec(path, append([]string{vmImageProgram}, args...), os.Environ())
		},
	})
}

// findProgram returns the path of a program in dir, or else in PATH.
func findProgram(name, dir string) (string, error) {
	path, err := exec.LookPath(filepath.Join(dir, name))
	if err == nil {
		return path, nil
	}
	path, err = exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is neither in %s nor in PATH: build it with make vm, or install podd's package for "+
			"virtual machines", name, dir)
	}
	return path, err
}
