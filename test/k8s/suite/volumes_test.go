package suite

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Every kind of volume that needs no driver is mounted, with its content.
func TestVolumes(t *testing.T) {
	k := parallel(t)
	k.create(`
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {key: from the map, other: another}
---
apiVersion: v1
kind: Secret
metadata: {name: sec}
stringData: {password: open sesame}
`)
	k.run("p", `
securityContext: {fsGroup: 4242}
volumes:
- {name: disk, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
- {name: cm, configMap: {name: cm}}
- {name: sec, secret: {secretName: sec, defaultMode: 0440}}
- {name: host, hostPath: {path: /etc, type: Directory}}
- {name: image, image: {reference: registry.k8s.io/podd/data:latest, pullPolicy: IfNotPresent}}
- name: all
  projected:
    sources:
    - {serviceAccountToken: {path: token, audience: tests, expirationSeconds: 600}}
    - {configMap: {name: cm, items: [{key: other, path: sub/other}]}}
    - downwardAPI:
        items:
        - {path: labels, fieldRef: {fieldPath: metadata.labels}}
        - {path: limit, resourceFieldRef: {containerName: c, resource: limits.memory}}
containers:
- name: c
  image: BUSYBOX
  command: [sleep, "10000"]
  resources: {limits: {memory: 64Mi}}
  env:
  - {name: FROM_SECRET, valueFrom: {secretKeyRef: {name: sec, key: password}}}
  - {name: ON_HOST, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
  envFrom: [{configMapRef: {name: cm}, prefix: CM_}, {configMapRef: {name: cm}, prefix: not-for-shells-}]
  volumeMounts:
  - {name: disk, mountPath: /disk}
  - {name: disk, mountPath: /sub, subPath: a/b}
  - {name: memory, mountPath: /memory}
  - {name: cm, mountPath: /cm}
  - {name: cm, mountPath: /etc/one-file, subPath: key}
  - {name: sec, mountPath: /sec}
  - {name: host, mountPath: /host, readOnly: true, recursiveReadOnly: Enabled}
  - {name: image, mountPath: /image}
  - {name: image, mountPath: /image-sub, subPath: data/a}
  - {name: all, mountPath: /all}
`)
	p := k.get("p")
	for what, want := range map[string]string{
		"echo x > /disk/f && stat -c %g /disk/f":                      "4242",
		"echo y > /sub/f && cat /disk/a/b/f":                          "y",
		"df -m /memory | awk 'END {print $2}'":                        "16",
		"cat /cm/key":                                                 "from the map",
		"cat /etc/one-file":                                           "from the map",
		"cat /sec/password; stat -L -c ' %a' /sec/password":           "open sesame 440",
		"cat /all/sub/other":                                          "another",
		"cat /all/labels":                                             `app="p"`,
		"cat /all/limit; echo \" $LIMIT\"":                            "67108864 67108864",
		"wc -c < /all/token | awk '{print ($1 > 100)}'":               "1",
		"echo $FROM_SECRET, $CM_key":                                  "open sesame, from the map",
		"tr '\\0' '\\n' < /proc/1/environ | grep ^not-for-shells-k":   "not-for-shells-key=from the map",
		"echo $ON_HOST $POD_IP":                                       k.node + " " + p.Status.PodIP,
		"touch /host/x 2>&1 | grep -o 'Read-only file system'":        "Read-only file system",
		"cat /image/data/a/b/file":                                    "deep",
		"cat /image-sub/b/file":                                       "deep",
		"touch /image/x 2>&1 | grep -o 'Read-only file system'":       "Read-only file system",
		"cat /var/run/secrets/kubernetes.io/serviceaccount/namespace": k.ns,
		"touch /cm/x 2>&1 | grep -o 'Read-only file system'":          "Read-only file system",
	} {
		k.same(what, k.sh("p", what), want)
	}
	for _, m := range container(p, "c").VolumeMounts {
		if m.Name == "host" && (m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled) {
			t.Errorf("host volume in the status = %+v, want recursive read-only", m)
		}
	}
	if review := k.token(k.sh("p", "cat /all/token")); review != "system:serviceaccount:"+k.ns+":default" {
		t.Errorf("user of the projected token = %q, want the service account default of %s", review, k.ns)
	}
}

// A mount made in a container with bidirectional propagation appears in a container with HostToContainer, and not in
// one without.
func TestPropagation(t *testing.T) {
	k := parallel(t)
	k.run("p", `
volumes: [{name: v, emptyDir: {}}]
containers:
- {name: maker, image: BUSYBOX, command: [sleep, "10000"], securityContext: {privileged: true},
   volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}
- {name: seer, image: BUSYBOX, command: [sleep, "10000"],
   volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]}
- {name: blind, image: BUSYBOX, command: [sleep, "10000"], volumeMounts: [{name: v, mountPath: /v}]}
`)
	k.sh("p", "mkdir /v/m && mount -t tmpfs none /v/m && echo new > /v/m/f")
	defer k.sh("p", "umount /v/m")
	in := func(name string) string {
		out, err := k.tryKubectl("", "exec", "p", "-c", name, "--", "cat", "/v/m/f")
		if err != nil && !strings.Contains(err.Error(), "No such file") {
			t.Errorf("%s: %v", name, err)
		}
		return out
	}
	k.same("the file in the container with propagation", in("seer"), "new\n")
	k.same("the file in the container without", in("blind"), "")
}

// Root in a pod with a user namespace has no privileged uid outside, and owns the pod's volumes.
func TestUserNamespace(t *testing.T) {
	k := parallel(t)
	k.create("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {key: value}\n")
	spec := `
hostUsers: false
volumes: [{name: v, emptyDir: {}}, {name: cm, configMap: {name: cm}}]
containers:
- name: c
  image: BUSYBOX
  command: [sleep, "10000"]
  volumeMounts: [{name: v, mountPath: /v}, {name: cm, mountPath: /cm}]
`
	for _, name := range []string{"a", "b"} {
		k.run(name, spec)
	}
	maps := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		fields := strings.Fields(k.sh(name, "cat /proc/self/uid_map"))
		if len(fields) != 3 || fields[0] != "0" || fields[1] == "0" || fields[2] != "65536" {
			t.Errorf("uid_map of %s = %v, want 0, another uid, 65536", name, fields)
		}
		maps[fields[1]] = true
		k.same("in "+name, k.sh(name, "id -u; touch /v/f && stat -c %u /v/f; echo $(cat /cm/key); touch /etc/x && hostname"),
			"0\n0\nvalue\n"+name)
	}
	k.same("different ranges", len(maps), 2)
}
