package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// published returns a manifest of bin/addons as its project publishes it, with changes; each must find its text.
func (k *scene) published(file string, changes map[string]string) string {
	k.Helper()
	data, err := os.ReadFile(filepath.Join(c.Bin, "addons", file))
	k.ok("read a manifest", err)
	text := string(data)
	for old, own := range changes {
		if !strings.Contains(text, old) {
			k.Fatalf("%s has no %q", file, old)
		}
		text = strings.ReplaceAll(text, old, own)
	}
	return text
}

// install applies a manifest and removes it at the end of the scenario.
func (k *scene) install(what, manifest string) {
	k.Helper()
	k.apply(manifest)
	k.Cleanup(func() { k.ok("remove "+what, k.unapply(manifest)) })
}

// applyHere applies a manifest in the scenario's namespace, which takes its objects with it.
func (k *scene) applyHere(manifest string) {
	k.Helper()
	_, err := k.tryKubectl(k.fill(manifest), "apply", "-f", "-")
	k.ok("apply a manifest", err)
}

// linux is the node selector of published manifests. Scenarios put onNode1 in its place: node2 is disturbed.
const linux, onNode1 = "kubernetes.io/os: linux\n", "kubernetes.io/hostname: " + node1 + "\n"

// busy uses 50m of CPU, five times what it requests.
const busy = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: BUSYBOX
        command: [sh, -c, "while true; do :; done"]
        resources: {requests: {cpu: 10m}, limits: {cpu: 50m, memory: 32Mi}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: busy}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`

// With metrics-server, kubectl top prints the usage of pods and nodes, and an autoscaler scales by it.
func TestMetricsServer(t *testing.T) {
	k := parallel(t)
	const args = "- --cert-dir=/tmp\n"
	k.install("metrics-server", k.published("metrics-server.yaml", map[string]string{linux: onNode1,
		args: args + "        - --kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt\n"}))
	k.applyHere(busy)
	k.eventually("kubectl top prints the usage of the pod", func(context.Context) error {
		out, err := k.tryKubectl("", "top", "pods", "--no-headers")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		if len(fields) < 3 {
			return fmt.Errorf("it prints %q", out)
		}
		cpu, cpuErr := resource.ParseQuantity(fields[1])
		memory, err := resource.ParseQuantity(fields[2])
		if cpuErr != nil || err != nil || cpu.MilliValue() < 25 || cpu.MilliValue() > 75 || memory.Value() > 32<<20 {
			return fmt.Errorf("it prints %q, want about 50m, and less than 32Mi", out)
		}
		return nil
	})
	k.contains("kubectl top node", k.kubectl("top", "node", node1), node1, "%", "Mi")
	k.eventually("the autoscaler has scaled up", func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments(k.ns).Get(ctx, "busy", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%d replicas are available, want 3", d.Status.AvailableReplicas)
		}
		return err
	})
}

// nodeExporter has the settings of kube-prometheus.
const nodeExporter = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-exporter}
spec:
  selector: {matchLabels: {app: node-exporter}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {labels: {app: node-exporter}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      tolerations: [{operator: Exists}]
      automountServiceAccountToken: false
      hostNetwork: true
      hostPID: true
      securityContext: {runAsGroup: 65534, runAsNonRoot: true, runAsUser: 65534}
      volumes:
      - {name: sys, hostPath: {path: /sys}}
      - {name: root, hostPath: {path: /}}
      containers:
      - name: node-exporter
        image: docker.io/prom/node-exporter:v1.12.1
        args:
        - --path.sysfs=/host/sys
        - --path.rootfs=/host/root
        - --path.udev.data=/host/root/run/udev/data
        - --no-collector.wifi
        - --no-collector.hwmon
        - --no-collector.btrfs
        ports: [{name: http, containerPort: 9100, hostPort: 9100}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
        resources: {limits: {cpu: 250m, memory: 180Mi}, requests: {cpu: 102m, memory: 180Mi}}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {add: [SYS_TIME], drop: [ALL]}
          readOnlyRootFilesystem: true
        volumeMounts:
        - {name: sys, mountPath: /host/sys, mountPropagation: HostToContainer, readOnly: true}
        - {name: root, mountPath: /host/root, mountPropagation: HostToContainer, readOnly: true}
`

// node_exporter sees the node's processes, disks and network, and its next version takes over the port of the node.
func TestNodeExporter(t *testing.T) {
	k := parallel(t)
	k.applyHere(nodeExporter)
	k.kubectl("rollout", "status", "daemonset/node-exporter", "--timeout="+limit.String())
	page := func() string { return k.fetch("http://" + k.n().Addr + ":9100/metrics") }
	k.contains("the metrics", page(), "\nnode_cpu_seconds_total{", "\nnode_memory_MemTotal_bytes ",
		`mountpoint="/"`, `node_network_receive_bytes_total{device="cni0"}`,
		`node_scrape_collector_success{collector="filesystem"} 1`)
	k.kubectl("rollout", "restart", "daemonset/node-exporter")
	k.kubectl("rollout", "status", "daemonset/node-exporter", "--timeout="+limit.String())
	k.contains("the metrics after an update", page(), "\nnode_cpu_seconds_total{")
}

// stateful appends a line to a file of its volume at each start.
const stateful = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: BUSYBOX
        command: [sh, -c, "hostname >>/data/starts; exec sleep 10000"]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, resources: {requests: {storage: 1Mi}}}
`

// A StatefulSet on volumes of local-path-provisioner keeps its data when it is deleted and applied again; the data goes
// with the claims.
func TestLocalPath(t *testing.T) {
	k := parallel(t)
	dir := k.n().Path("local-path")
	const account = "      serviceAccountName: local-path-provisioner-service-account\n"
	k.install("local-path-provisioner", k.published("local-path-provisioner.yaml", map[string]string{
		account: account + "      nodeSelector: {" + strings.TrimSpace(onNode1) + "}\n", "/opt/local-path-provisioner": dir}))
	k.Cleanup(func() { // the provisioner must still run then
		_, err := k.tryKubectl("", "delete", "statefulsets,persistentvolumeclaims", "--all", "--cascade=foreground")
		k.ok("remove the volumes", err)
	})
	for run := 1; run <= 2; run++ {
		k.applyHere(stateful)
		k.kubectl("rollout", "status", "statefulset/db", "--timeout="+limit.String())
		for _, pod := range []string{"db-0", "db-1", "db-2"} {
			k.same("the starts of "+pod, k.sh(pod, "cat /data/starts"), strings.TrimSpace(strings.Repeat(pod+"\n", run)))
		}
		k.kubectl("delete", "statefulset", "db", "--cascade=foreground")
	}
	k.kubectl("delete", "persistentvolumeclaims", "--all")
	k.eventually("the volumes are gone", func(ctx context.Context) error {
		volumes, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		left, readErr := os.ReadDir(dir)
		if err := errors.Join(err, readErr); err != nil {
			return err
		}
		if len(volumes.Items)+len(left) > 0 {
			return fmt.Errorf("%d volumes and %d directories", len(volumes.Items), len(left))
		}
		return nil
	})
}
