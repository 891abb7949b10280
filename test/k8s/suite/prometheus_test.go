package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// containerRules are the recording rules for containers, and two for pods, that kubernetes-mixin's dashboards and
// alerts are made of. Its network and file system queries are no rules there; here they have names.
var containerRules = map[string]string{
	"node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m": `sum by (namespace, pod, container) (
		rate(container_cpu_usage_seconds_total{job="kubelet", metrics_path="/metrics/cadvisor",
		image!=""}[5m])) ` + onItsNode,
	"node_namespace_pod_container:container_memory_working_set_bytes": memoryRule("working_set_bytes"),
	"node_namespace_pod_container:container_memory_rss":               memoryRule("rss"),
	"node_namespace_pod_container:container_memory_cache":             memoryRule("cache"),
	"namespace_pod:container_network_receive_bytes:sum_rate5m": `sum by (namespace, pod) (
		rate(container_network_receive_bytes_total{job="kubelet", metrics_path="/metrics/cadvisor"}[5m])) ` + onItsNode,
	"node_namespace_pod_container:container_fs_usage_bytes": `container_fs_usage_bytes{job="kubelet",
		metrics_path="/metrics/cadvisor", container!="", container!="POD"} ` + onItsNode,
	"namespace_pod:resource_memory_working_set_bytes": `pod_memory_working_set_bytes{job="kubelet",
		metrics_path="/metrics/resource"} ` + onItsNode,
}

// onItsNode adds the node's name, which kube-state-metrics knows.
const onItsNode = `* on (namespace, pod) group_left (node)
	topk by (namespace, pod) (1, max by (namespace, pod, node) (kube_pod_info{node!=""}))`

func memoryRule(kind string) string {
	return `container_memory_` + kind + `{job="kubelet", metrics_path="/metrics/cadvisor", image!=""} ` + onItsNode
}

// prometheus: Debian's Prometheus scrapes the kubelet of the node and kube-state-metrics, and every rule for containers
// has a row of each pod: with the statistics from the CRI, and then with those from cAdvisor.
func (k *scene) prometheus() {
	k.installPrometheus()
	k.monitored("cri")
	k.useCadvisor()
	k.monitored("cadvisor")
}

// monitored runs three pods and waits until each rule has a row for each of their containers or pods.
func (k *scene) monitored(prefix string) {
	k.Helper()
	var pods []string
	for i := range 3 {
		pods = append(pods, fmt.Sprintf("%s-%d", prefix, i))
		k.pod(pods[i], `
containers:
- {name: a, image: BUSYBOX, command: [sh, -c, "echo x > /file; i=0; while true; do i=$((i+1)); sleep 0.01; done"]}
- {name: b, image: NGINX}
`)
	}
	for _, p := range pods {
		k.ready(p)
	}
	for _, rule := range slices.Sorted(maps.Keys(containerRules)) {
		var containers []string
		if strings.HasPrefix(rule, "node_") {
			containers = []string{"a", "b"}
		} else {
			containers = []string{""}
		}
		k.eventually(rule+" has rows for all pods of "+prefix, func(ctx context.Context) error {
			return k.answers(ctx, rule, pods, containers)
		})
	}
}

// answers returns an error for the first pod or container for which the rule has no row, or one without a value.
func (k *scene) answers(ctx context.Context, rule string, pods, containers []string) error {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any // time and value
			}
		}
	}
	data, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/"+k.ns+
		"/pods/prometheus:9090/proxy/api/v1/query").Param("query", rule+`{namespace="`+k.ns+`"}`).DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	have := map[string]bool{}
	for _, r := range answer.Data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		have[r.Metric["pod"]+"/"+r.Metric["container"]] = err == nil && value >= 0 && r.Metric["node"] == k.node
	}
	for _, p := range pods {
		for _, container := range containers {
			if !have[p+"/"+container] {
				return fmt.Errorf("no row of %s/%s: %s", p, container, data)
			}
		}
	}
	return nil
}

// installPrometheus starts kube-state-metrics by the manifests that it publishes, and Prometheus, both on node1, which
// is not restarted.
func (k *scene) installPrometheus() {
	k.install("kube-state-metrics", k.published("kube-state-metrics.yaml", map[string]string{linux: onNode1}))
	k.install("the roles of Prometheus", fmt.Sprintf(prometheusRoles, k.ns))
	config := fmt.Sprintf(prometheusConfig, c.Node(k.node).Addr)
	_, err := k.tryKubectl("", "create", "configmap", "prometheus", "--from-literal=prometheus.yml="+config,
		"--from-literal=rules.yml="+k.rules())
	k.ok("create the configuration of Prometheus", err)
	k.run("prometheus", `
nodeSelector: {kubernetes.io/hostname: `+node1+`}
serviceAccountName: prometheus
securityContext: {fsGroup: 65534}
volumes:
- {name: config, configMap: {name: prometheus}}
- {name: data, emptyDir: {}}
containers:
- name: prometheus
  image: docker.io/prom/prometheus:debian
  volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /prometheus}]
  readinessProbe: {httpGet: {path: /-/ready, port: 9090}, periodSeconds: 1}
`)
}

// rules returns the file of recording rules.
func (k *scene) rules() string {
	k.Helper()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, name := range slices.Sorted(maps.Keys(containerRules)) {
		rules = append(rules, rule{name, containerRules[name]})
	}
	data, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "containers", "rules": rules}}})
	k.ok("encode the rules", err)
	return string(data)
}

// prometheusConfig has one verb, the kubelet's address: Debian builds Prometheus without discovery by Kubernetes.
const prometheusConfig = `
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: [rules.yml]
scrape_configs:
- job_name: cadvisor
  scheme: https
  metrics_path: /metrics/cadvisor
  static_configs: &kubelet [{targets: ["%[1]s:10250"]}]
  authorization: &token {credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}
  tls_config: &tls {ca_file: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}
  relabel_configs: &labels
  - {target_label: job, replacement: kubelet}
  - {target_label: metrics_path, source_labels: [__metrics_path__]}
- job_name: resource
  scheme: https
  metrics_path: /metrics/resource
  static_configs: *kubelet
  authorization: *token
  tls_config: *tls
  relabel_configs: *labels
- job_name: kube-state-metrics
  honor_labels: true
  static_configs: [{targets: ["kube-state-metrics.kube-system.svc.cluster.local:8080"]}]
`

// prometheusRoles has one verb, the namespace.
const prometheusRoles = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: %[1]s}]
`
