package integration

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/podd-project/podd/test/sample"
)

// long are the tests that take longest and are about one part of podd each, in the order of their time. A commit runs
// every third one; the next commits and "make nightly" run the others. With -run or -skip nothing else is left out.
var long = []string{
	"TestUpgrade", "TestStats", "TestVMVolumes", "TestVMKilled", "TestMixedRestart", "TestMixed", "TestPowerLossOfPods",
	"TestRestore", "TestDamagedRecords", "TestStuckDependencies", "TestPowerLoss", "TestShimKilled", "TestSnapshot",
	"TestLoad", "TestVMHostileGuest", "TestBehindItsBack", "TestWorstPods", "TestLostNamespaces", "TestExecOutputBudget",
	"TestVMUnikernel", "TestCheckpoint", "TestMountRestrictions", "TestIncidents", "TestDaemonAway", "TestLocalUsers",
}

// leaveOut has the long tests skipped that other commits run.
func leaveOut() error {
	flag.Parse()
	if flag.Lookup("test.run").Value.String()+flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	ours := sample.Of(3, long, "long")
	others := slices.DeleteFunc(slices.Clone(long), func(name string) bool { return slices.Contains(ours, name) })
	if len(others) == 0 {
		return nil
	}
	fmt.Println("left to other commits and make nightly:", strings.Join(others, " "))
	return flag.Set("test.skip", "^("+strings.Join(others, "|")+")$")
}
