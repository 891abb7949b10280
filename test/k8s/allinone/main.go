// Package main is all of Kubernetes in one program, which runs the component that it is called as.
//
// One program instead of six takes one link step and a quarter of the disk, because the components share nine tenths of
// their code. Each component is created by its own constructor, as in its own main package. Only podd's tests use it.
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
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// component runs one program of Kubernetes and returns its exit code.
type component func() int

// components returns the components by name. Each is constructed only when it is called: constructing two in one
// process would register flags and features twice.
func components() map[string]component {
	command := func(make func() *cobra.Command) component {
		return func() int { return cli.Run(make()) }
	}
	return map[string]component{
		"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
		"kube-apiserver":          command(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
		"kube-controller-manager": command(func() *cobra.Command { return controllers.NewControllerManagerCommand() }),
		"kube-proxy":              command(func() *cobra.Command { return proxy.NewProxyCommand() }),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kubeadm":                 func() int { kubeadmerrors.HandleError(kubeadm.Run()); return 0 },
		"kubectl":                 kubectl,
	}
}

func kubectl() int {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args)) // first, because the constructor logs
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error as kubectl does, and exits
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
		fmt.Fprintf(os.Stderr, "usage: call this program as a component, or with its name as first argument: %s\n",
			strings.Join(names, " "))
		os.Exit(2)
	}
	os.Exit(run())
}
