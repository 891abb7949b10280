// Command podd-vm-agent is process 1 of a pod's virtual machine.
package main

import "github.com/podd-project/podd/oci/vm/guest"

func main() { guest.Main() }
