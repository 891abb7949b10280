// Command keeper keeps the output of one container of a shim: see package keeper. It is small, so that each
// container can have one.
package main

import (
	"os"

	"github.com/podd-project/podd/oci/shim/keeper"
)

func main() { os.Exit(keeper.Main(os.Args)) }
