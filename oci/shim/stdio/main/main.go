// Command keeper keeps the output of one container of a shim: see package keeper. It is small, so that each
// container can have one.
package main

import (
	"os"

	"github.com/podd-project/podd/oci/shim/stdio"
)

func main() { os.Exit(stdio.Main(os.Args)) }
