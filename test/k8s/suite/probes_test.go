package suite

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A container whose liveness or startup probe fails is killed and started again, with events that give the reason.
func TestFailingProbes(t *testing.T) {
	server := `{name: c, image: BUSYBOX, ` +
		`command: [sh, -c, "mkdir /www; echo ok > /www/ok; httpd -p 8080 -h /www; sleep 10000"], `
	often := `periodSeconds: 1, failureThreshold: 2}}`
	for name, probe := range map[string]string{
		"liveness exec":      `livenessProbe: {exec: {command: [sh, -c, "echo sick; exit 1"]}, ` + often,
		"liveness http":      `livenessProbe: {httpGet: {path: /missing, port: 8080}, ` + often,
		"liveness tcp":       `livenessProbe: {tcpSocket: {port: 9}, ` + often,
		"liveness exec hang": `livenessProbe: {exec: {command: [sleep, "100"]}, timeoutSeconds: 1, ` + often,
		"startup http":       `startupProbe: {httpGet: {path: /missing, port: 8080}, ` + often,
	} {
		t.Run(name, func(t *testing.T) {
			k := parallel(t)
			k.pod("p", "containers: ["+server+probe+"]")
			p := k.until("p", "was restarted", func(p *corev1.Pod) bool {
				s := container(p, "c")
				return s != nil && s.RestartCount >= 1
			})
			k.event("p", "Unhealthy", "")
			k.event("p", "Killing", "")
			if last := container(p, "c").LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
				t.Errorf("last state = %+v, want exit code 137", last)
			}
		})
	}
}

// A container whose probes succeed is not restarted. Readiness follows its probe.
func TestPassingProbes(t *testing.T) {
	k := parallel(t)
	k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "mkdir /www; echo ok > /www/ok; httpd -p 8080 -h /www; sleep 10000"]
  startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 60}
  livenessProbe: {exec: {command: [sh, -c, "pidof httpd"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 3}
  readinessProbe: {httpGet: {path: /ok, port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
`)
	k.sh("p", "mv /www/ok /www/off")
	k.until("p", "is not ready any more", func(p *corev1.Pod) bool { return !isReady(p) })
	k.sh("p", "mv /www/off /www/ok")
	p := k.ready("p")
	k.same("restarts", container(p, "c").RestartCount, int32(0))
}

// A container that keeps failing is restarted with growing back-off; its status has the exit code and the message.
func TestCrashLoop(t *testing.T) {
	k := parallel(t)
	k.pod("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "echo last words > /dev/termination-log; echo in the log; exit 3"]
`)
	p := k.until("p", "backs off", func(p *corev1.Pod) bool {
		s := container(p, "c")
		return s != nil && s.RestartCount >= 2 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
	last := container(p, "c").LastTerminationState.Terminated
	k.same("exit code", last.ExitCode, int32(3))
	k.same("reason", last.Reason, "Error")
	k.same("termination message", last.Message, "last words\n")
	// The kubelet removes the previous container when the next one exits, and for a moment finds no such log.
	k.eventually("the log of the previous container is read", func(context.Context) error {
		out, err := k.tryKubectl("", "logs", "p", "--previous")
		if err == nil && out != "in the log\n" {
			err = fmt.Errorf("log = %q, want %q", out, "in the log\n")
		}
		return err
	})
}

// A container that exceeds its memory limit is killed; its status has the reason.
func TestOutOfMemory(t *testing.T) {
	k := parallel(t)
	k.pod("p", `
restartPolicy: Never
containers:
- {name: c, image: BUSYBOX, command: [sh, -c, "tail /dev/zero"], resources: {limits: {memory: 24Mi}}}
- {name: other, image: BUSYBOX, command: ["true"], resources: {limits: {memory: 24Mi}}} # the pod's limit is the sum
`)
	k.pod("q", `
restartPolicy: Never
resources: {limits: {memory: 24Mi}}
containers: [{name: c, image: BUSYBOX, command: [sh, -c, "tail /dev/zero"]}]
`)
	for name, message := range map[string]string{"p": "the container reached its memory limit",
		"q": "its pod reached its memory limit"} {
		end := container(k.ended(name, corev1.PodFailed), "c").State.Terminated
		k.same("reason", end.Reason, "OOMKilled")
		k.same("exit code", end.ExitCode, int32(137))
		k.contains("the message", end.Message, message)
	}
}

// A container whose process is ended by a signal is restarted, in the same pod with the same address.
func TestKilledProcess(t *testing.T) {
	k := parallel(t)
	before := k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "trap 'exit 5' USR1; touch /armed; while true; do sleep 0.1; done"]
`)
	k.sh("p", "while ! [ -e /armed ]; do sleep 0.1; done")
	_, _ = k.tryKubectl("", "exec", "p", "--", "kill", "-USR1", "1") // the kernel may kill it with its PID namespace
	p := k.until("p", "was restarted", func(p *corev1.Pod) bool {
		return container(p, "c").RestartCount == 1 && isReady(p)
	})
	k.same("exit code", container(p, "c").LastTerminationState.Terminated.ExitCode, int32(5))
	k.same("the pod's address", p.Status.PodIP, before.Status.PodIP)
}

// When a pod is deleted, preStop and the process have until the end of the grace period.
func TestGracefulDeletion(t *testing.T) {
	k := parallel(t)
	k.run("p", `
terminationGracePeriodSeconds: 60
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "trap 'echo got TERM; sleep 1; echo done; exit 0' TERM; while true; do sleep 0.1; done"]
  lifecycle:
    postStart: {exec: {command: [sh, -c, "echo poststart > /proc/1/fd/1"]}}
    preStop: {exec: {command: [sh, -c, "echo prestop > /proc/1/fd/1; sleep 1"]}}
`)
	follow := k.follow("p", true)
	k.remove("p")
	k.same("the log", follow(), "poststart\nprestop\ngot TERM\ndone\n")
}

// A pod that ignores SIGTERM is killed after its grace period, and at once if it is deleted by force.
func TestForcedDeletion(t *testing.T) {
	k := parallel(t)
	spec := `
terminationGracePeriodSeconds: 3
containers: [{name: c, image: BUSYBOX, command: [sh, -c, "trap '' TERM; while true; do sleep 0.1; done"]}]
`
	k.run("stubborn", spec)
	k.remove("stubborn")
	k.run("forced", "terminationGracePeriodSeconds: 600\n"+spec[len("\nterminationGracePeriodSeconds: 3\n"):])
	k.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
	k.gone("forced")
	k.noSandbox("forced")
}
