package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hugePages is the kernel's file with the number of reserved pages of 2 MiB.
const hugePages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

// hugepages: a pod gets the huge pages that it requests, and its cgroup is limited to them. The test reserves some on
// the machine; the kubelet counts them when it starts.
func (k *scene) hugepages() {
	before, err := os.ReadFile(hugePages)
	if errors.Is(err, os.ErrNotExist) {
		k.Skip("the kernel has no huge pages of 2 MiB")
	}
	k.ok("count the huge pages", err)
	had, err := strconv.Atoi(strings.TrimSpace(string(before)))
	k.ok("count the huge pages", err)
	n := k.n()
	restart := func() error { return errors.Join(n.StopKubelet(), n.StartKubelet()) }
	k.Cleanup(func() {
		if err := errors.Join(os.WriteFile(hugePages, before, 0o644), restart()); err != nil {
			k.Errorf("restore the number of huge pages: %v", err)
		}
	})
	k.ok("reserve huge pages", os.WriteFile(hugePages, []byte(strconv.Itoa(had+8)), 0o644))
	k.ok("restart the kubelet", restart())
	k.eventually("the node has huge pages", func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if q := node.Status.Allocatable["hugepages-2Mi"]; q.Value() < 4<<20 {
			return fmt.Errorf("it has %s", q.String())
		}
		return nil
	})
	p := k.run("p", `
volumes: [{name: huge, emptyDir: {medium: HugePages}}]
containers:
- name: c
  image: BUSYBOX
  command: [sleep, "10000"]
  resources: {limits: {hugepages-2Mi: 4Mi, memory: 32Mi, cpu: 100m}}
  volumeMounts: [{name: huge, mountPath: /huge}]
`)
	k.contains("the mounts", k.sh("p", "cat /proc/mounts"), " /huge hugetlbfs rw")
	k.same("limit of the pod", k.cgroupFile(p, "hugetlb/hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"), "4194304")
	id := container(p, "c").ContainerID
	id = id[strings.LastIndex(id, "/")+1:]
	k.same("limit of the container", k.cgroupFile(p, "hugetlb/*"+id+"*/hugetlb.2MB.limit_in_bytes",
		"*"+id+"*/hugetlb.2MB.max"), "4194304")
}
