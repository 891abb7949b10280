package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service creates a service of port 80 of the pods app=<app>.
func (k *scene) service(name, app string, mods ...func(*corev1.ServiceSpec)) *corev1.Service {
	k.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": app},
		Ports:    []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(80)}},
	}}
	for _, m := range mods {
		m(&s.Spec)
	}
	s, err := c.Client.CoreV1().Services(k.ns).Create(k.Context(), s, metav1.CreateOptions{})
	k.ok("create service "+name, err)
	return s
}

// wget gets a page from the pod, and tries again until kube-proxy and CoreDNS know of it.
func (k *scene) wget(pod, url, want string) {
	k.Helper()
	k.eventually("get "+url+" in "+pod, func(context.Context) error {
		out, err := k.tryKubectl("", "exec", pod, "--", "wget", "-q", "-O", "-", url)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("page = %q, want one with %q", out, want)
		}
		return err
	})
}

// Pods reach services by name, by kube-proxy and CoreDNS, which runs on podd: one with an address of its own, one
// without, themselves, the API server, and a port of the node.
func TestServices(t *testing.T) {
	k := parallel(t)
	a := k.run("a", "containers: [{name: c, image: NGINX}]", labelled("web"))
	b := k.run("b", "containers: [{name: c, image: NGINX}]", labelled("web"))
	k.run("client", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
	web := k.service("web", "web", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	k.service("direct", "web", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone })
	k.service("self", "none")

	k.wget("client", "http://web:8080/", "nginx")
	k.wget("client", "http://web."+k.ns+".svc.cluster.local:8080/", "nginx")
	k.eventually("the API server answers", func(context.Context) error {
		const plain = `printf 'GET / HTTP/1.0\r\n\r\n' | nc kubernetes.default 443` // busybox does not speak TLS 1.3
		out, err := k.tryKubectl("", "exec", "client", "--", "sh", "-c", plain)
		if err == nil && !strings.Contains(out, "HTTPS server") {
			err = fmt.Errorf("answer = %q, want that of an HTTPS server to plain HTTP", out)
		}
		return err
	})
	k.eventually("the service without an address has those of its pods", func(context.Context) error {
		out, err := k.tryKubectl("", "exec", "client", "--", "nslookup", "direct."+k.ns+".svc.cluster.local")
		if err == nil && !(strings.Contains(out, a.Status.PodIP) && strings.Contains(out, b.Status.PodIP)) {
			err = fmt.Errorf("answer = %q, want one with %s and %s", out, a.Status.PodIP, b.Status.PodIP)
		}
		return err
	})
	k.kubectl("label", "pod", "a", "only=a")
	k.kubectl("patch", "service", "self", "--type=merge", "-p", `{"spec": {"selector": {"app": null, "only": "a"}}}`)
	k.wget("a", "http://self:8080/", "nginx")
	port := fmt.Sprintf("http://%s:%d/", k.n().Addr, web.Spec.Ports[0].NodePort)
	k.contains("the port of the node", k.fetch(port), "nginx")

	k.remove("a")
	k.remove("b")
	k.eventually("a service without pods refuses connections", func(context.Context) error {
		out, err := k.tryKubectl("", "exec", "client", "--", "wget", "-q", "-O", "-", "http://web:8080/")
		if err == nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("output = %q, %v, want connection refused", out, err)
		}
		return nil
	})
}

// labelled gives a pod the label app.
func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}
