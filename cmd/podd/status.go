package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/budget"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
)

// statusTimeout bounds the calls of the daemon, which answers them from memory.
const statusTimeout = 10 * time.Second

// engineStatus is the entry "engine" of the info map in the verbose Status response.
type engineStatus struct {
	Operations  []operation.Operation    `json:"operations"`
	Pending     []sandbox.PendingCleanup `json:"pending_cleanups"`
	Unread      []sandbox.UnreadRecord   `json:"unread"`
	Quarantined []string                 `json:"quarantined"`
	Budgets     []budget.Usage           `json:"budgets"`
}

func engineInfo(e *sandbox.Engine, budgets *budget.Table) engineStatus {
	return engineStatus{
		Operations: e.Operations(), Pending: e.PendingCleanups(), Unread: e.Unread(), Quarantined: e.Quarantined(),
		Budgets: budgets.Usages(),
	}
}

// nodeStatus is the output of `podd status`.
type nodeStatus struct {
	Version string `json:"version"`
	engineStatus
	Conditions []condition `json:"conditions"`
	Pods       []podStatus `json:"pods"`
}

type condition struct {
	Type    string `json:"type"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// podStatus is one pod. Operations are set with --pod only.
type podStatus struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	State      string                `json:"state"`
	Created    time.Time             `json:"created"`
	Operations []operation.Operation `json:"operations,omitempty"`
	Containers []containerStatus     `json:"containers"`
}

type containerStatus struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	State      string                `json:"state"`
	Operations []operation.Operation `json:"operations,omitempty"`
}

func newStatusCommand(opts *options) *cobra.Command {
	var pod string
	var output outputFormat
	cmd := &cobra.Command{
		Use: "status", Short: "Print the operations, pods and pending cleanups of the running daemon", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.load()
			if err != nil {
				return err
			}
			if err := output.validate(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			s, err := fetchStatus(ctx, l.Listen, pod)
			if err != nil {
				return err
			}
			if output == outputJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return s.print(cmd.OutOrStdout(), pod != "")
		},
	}
	cmd.Flags().StringVar(&pod, "pod", "",
		"print only the pod with this `id` or prefix of an id, with its last operations and the duration of each stage")
	outputFlag(cmd, &output)
	return cmd
}

// fetchStatus gets the status of the daemon behind socket, over the CRI.
func fetchStatus(ctx context.Context, socket, pod string) (*nodeStatus, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := criClient{cri.NewRuntimeServiceClient(conn)}
	s, err := c.node(ctx)
	if err != nil {
		return nil, fmt.Errorf("call the daemon at %s: %w", socket, err)
	}
	if s.Pods, err = c.pods(ctx, pod); err != nil {
		return nil, fmt.Errorf("call the daemon at %s: %w", socket, err)
	}
	return s, nil
}

// criClient makes the calls for status.
type criClient struct{ cri.RuntimeServiceClient }

func (c criClient) node(ctx context.Context) (*nodeStatus, error) {
	resp, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return nil, err
	}
	s := &nodeStatus{}
	if err := json.Unmarshal([]byte(resp.GetInfo()["engine"]), &s.engineStatus); err != nil {
		return nil, fmt.Errorf("the server is not podd, or another version: %w", err)
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["version"]), &s.Version); err != nil {
		return nil, fmt.Errorf("the server is not podd, or another version: %w", err)
	}
	for _, cond := range resp.GetStatus().GetConditions() {
		s.Conditions = append(s.Conditions,
			condition{Type: cond.GetType(), Ready: cond.GetStatus(), Message: cond.GetMessage()})
	}
	return s, nil
}

func (c criClient) pods(ctx context.Context, id string) ([]podStatus, error) {
	pods, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	if err != nil {
		return nil, err
	}
	if id != "" && len(pods.GetItems()) != 1 {
		return nil, fmt.Errorf("%d pods have an id with the prefix %q, want 1", len(pods.GetItems()), id)
	}
	containers, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	out := []podStatus{}
	for _, p := range pods.GetItems() {
		m := p.GetMetadata()
		one := podStatus{
			ID: p.GetId(), Name: m.GetNamespace() + "/" + m.GetName(), Created: time.Unix(0, p.GetCreatedAt()).UTC(),
			State: strings.ToLower(strings.TrimPrefix(p.GetState().String(), "SANDBOX_")), Containers: []containerStatus{},
		}
		for _, k := range containers.GetContainers() {
			if k.GetPodSandboxId() == p.GetId() {
				one.Containers = append(one.Containers, containerStatus{
					ID: k.GetId(), Name: k.GetMetadata().GetName(),
					State: strings.ToLower(strings.TrimPrefix(k.GetState().String(), "CONTAINER_")),
				})
			}
		}
		if id != "" {
			if err := c.addOperations(ctx, &one); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func (c criClient) addOperations(ctx context.Context, p *podStatus) error {
	resp, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	if err != nil {
		return err
	}
	if p.Operations, err = decodeOperations(resp.GetInfo()); err != nil {
		return err
	}
	for i := range p.Containers {
		resp, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.Containers[i].ID, Verbose: true})
		if err != nil {
			return err
		}
		if p.Containers[i].Operations, err = decodeOperations(resp.GetInfo()); err != nil {
			return err
		}
	}
	return nil
}

// decodeOperations returns the operations in the info map of a verbose response.
func decodeOperations(info map[string]string) ([]operation.Operation, error) {
	var decoded struct {
		Operations []operation.Operation `json:"operations"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &decoded); err != nil {
		return nil, fmt.Errorf("decode the verbose status: %w", err)
	}
	return decoded.Operations, nil
}

// print writes s as text.
func (s *nodeStatus) print(w io.Writer, detailed bool) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(out, "podd %s\n", s.Version)
	for _, c := range s.Conditions {
		fmt.Fprintf(out, "%s: %t %s\n", c.Type, c.Ready, c.Message)
	}
	s.printOperations(out)
	s.printDebts(out)
	s.printBudgets(out)
	fmt.Fprintf(out, "\nPods: %d\n", len(s.Pods))
	for _, p := range s.Pods {
		fmt.Fprintf(out, "  %.13s\t%s\t%s\t%d containers\n", p.ID, p.Name, p.State, len(p.Containers))
		if !detailed {
			continue
		}
		printWaterfall(out, p.Operations)
		for _, c := range p.Containers {
			fmt.Fprintf(out, "  %.13s\t%s\t%s\t\n", c.ID, c.Name, c.State)
			printWaterfall(out, c.Operations)
		}
	}
	return out.Flush()
}

func (s *nodeStatus) printOperations(w io.Writer) {
	fmt.Fprintf(w, "\nOperations in progress: %d\n", len(s.Operations))
	for _, o := range s.Operations {
		id := o.Pod
		if o.Container != "" {
			id = o.Container
		}
		fmt.Fprintf(w, "  %s\t%.13s\t%s\t%s\t%s\n", o.Verb, id, o.Name, o.Stage(), time.Duration(o.Took))
	}
}

func (s *nodeStatus) printDebts(w io.Writer) {
	fmt.Fprintf(w, "\nPending cleanups: %d\n", len(s.Pending))
	for _, d := range s.Pending {
		fmt.Fprintf(w, "  %s\t%.13s\t%s\n", d.What, d.ID, d.Error)
	}
	if len(s.Unread) > 0 {
		fmt.Fprintln(w, "\nRecords that cannot be read:")
		for _, u := range s.Unread {
			fmt.Fprintf(w, "  %s\tsince %s\t%s\n", u.Path, u.Since.UTC().Format(time.RFC3339), u.Error)
		}
	}
	if len(s.Quarantined) > 0 {
		fmt.Fprintln(w, "\nDamaged records, moved to the directory quarantine:")
		for _, q := range s.Quarantined {
			fmt.Fprintf(w, "  %s\n", q)
		}
	}
}

// printBudgets prints what is in use and what was refused. All amounts are in the budget's unit.
func (s *nodeStatus) printBudgets(w io.Writer) {
	if len(s.Budgets) == 0 {
		return
	}
	fmt.Fprintln(w, "\nBudgets:\tin use\thighest\tlimit\tper owner\trefused")
	for _, b := range s.Budgets {
		owner := ""
		if b.PerOwner > 0 {
			owner = fmt.Sprintf("%d per %s", b.PerOwner, b.Owner)
		}
		fmt.Fprintf(w, "  %s\t%d\t%d\t%d %s\t%s\t%d\n", b.Name, b.InUse, b.Highest, b.Limit, b.Unit, owner, b.Refused)
	}
}

// waterfallWidth is the number of columns of a bar.
const waterfallWidth = 40

// printWaterfall prints the duration of each stage, and a bar with its place in the operation.
func printWaterfall(w io.Writer, operations []operation.Operation) {
	for _, o := range operations {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\n", o.Verb, time.Duration(o.Took), o.Began.UTC().Format(time.RFC3339), o.Error)
		for _, s := range o.Stages {
			fmt.Fprintf(w, "      %s\t%s\t|%s|\t\n", s.Name, time.Duration(s.Took), bar(s, o.Took))
		}
	}
}

// bar represents the operation, with # where the stage was.
func bar(s operation.Stage, whole operation.Duration) string {
	if whole <= 0 {
		return strings.Repeat(" ", waterfallWidth)
	}
	from := min(int(s.After*waterfallWidth/whole), waterfallWidth-1)
	to := min(max(int((s.After+s.Took)*waterfallWidth/whole), from+1), waterfallWidth)
	return strings.Repeat(" ", from) + strings.Repeat("#", to-from) + strings.Repeat(" ", waterfallWidth-to)
}
