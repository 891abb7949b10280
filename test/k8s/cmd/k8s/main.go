// Command k8s starts and removes a Kubernetes cluster with nodes on podd.
//
//	k8s up DIR BIN [NODES]   start a cluster below DIR with the programs in BIN (default: one node)
//	k8s down DIR             stop and remove it; succeeds if there is none
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/podd-project/podd/test/k8s/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "k8s:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) >= 3 && len(args) <= 4 && args[0] == "up":
		nodes := 1
		if len(args) == 4 {
			var err error
			if nodes, err = strconv.Atoi(args[3]); err != nil || nodes < 1 || nodes > 9 {
				return fmt.Errorf("number of nodes is %q, must be 1 to 9", args[3])
			}
		}
		return up(ctx, args[1], args[2], nodes)
	case len(args) == 2 && args[0] == "down":
		return down(args[1])
	}
	return errors.New("usage: k8s up DIR BIN [NODES] | k8s down DIR")
}

func up(ctx context.Context, dir, bin string, nodes int) error {
	o := cluster.Options{Dir: dir, Bin: bin}
	for i := range nodes {
		o.Nodes = append(o.Nodes, cluster.NodeOptions{Name: fmt.Sprintf("node%d", i+1)})
	}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("A cluster with %d nodes is running. Its logs are in %s/log. To use it:\n\n", nodes, dir)
	fmt.Printf("  export KUBECONFIG=%s\n  %s get nodes -o wide\n\n", c.Kubeconfig(), c.Kubectl())
	for _, n := range c.Nodes {
		fmt.Printf("On %s:  nsenter -t %d -n -m %s/crictl -c %s/crictl.yaml pods\n", n.Name, n.Holder.Pid, bin, n.Path())
	}
	fmt.Println("To remove it:  make k8s-down")
	return nil
}

func down(dir string) error {
	c, err := cluster.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("No cluster is running in", dir)
		return nil
	}
	if err != nil {
		return err
	}
	return c.Close()
}
