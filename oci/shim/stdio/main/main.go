// Command stdio holds the output of one container of a shim: see package stdio. It is small, because each container
// has one.
package main

import (
	"os"

	"github.com/podd-project/podd/oci/shim/stdio"
)

func main() { os.Exit(stdio.Main(os.Args)) }
