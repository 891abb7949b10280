// Package main is a whole Kubernetes in one program: it runs as the component whose name it is called by.
//
// One program instead of seven is one link instead of seven, and a quarter of the disk: the components share nine
// tenths of their code. Each of them is made by its own constructor, exactly as in its own main package; nothing else
// is added or left out. Only the tests of podd build it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata" // the controller manager: time zones of CronJobs

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl: the ways to log in
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // all: the JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // all: metrics of their clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // all: the metric of the version
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// component runs one program of Kubernetes to its end and returns its exit code.
type component func() int

// components are constructed only when called: making two of them in one process would register flags and features
// twice.
func components() map[string]component {
	command := func(make func() *cobra.Command) component {
		return func() int { return cli.Run(make()) }
	}
	return map[string]component{
		"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
		"kube-apiserver":          command(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
		"kube-controller-manager": command(func() *cobra.Command { return controllers.NewControllerManagerCommand() }),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kubectl":                 kubectl,
	}
}

func kubectl() int {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args)) // before the command is made, which already logs
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it as kubectl does and exits
	}
	return 0
}

func main() {
	all := components()
	run, known := all[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		run, known = all[os.Args[0]]
	}
	if !known {
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "call me by the name of a component, or with it as the first word: %s\n",
			strings.Join(names, " "))
		os.Exit(2)
	}
	os.Exit(run())
}
