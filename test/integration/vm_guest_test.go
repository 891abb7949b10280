package integration

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVMGuest: a guest has what pods use of a kernel.
func TestVMGuest(t *testing.T) {
	t.Parallel()
	k := start(t)
	privileged := func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true }
	cfg := k.podConfig(privileged)
	pod := k.runPod(cfg, vmHandler())
	t.Run("cgroup namespace", func(t *testing.T) {
		ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"},
			func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 64 << 20 })
		got := k.exec(ctr, "cat /proc/self/cgroup /sys/fs/cgroup/memory.max")
		if want := "0::/\n67108864\n"; got != want {
			t.Errorf("cgroup and memory limit = %q, want %q", got, want)
		}
	})
	t.Run("netfilter", func(t *testing.T) {
		if vmHandler() == "vm" {
			t.Skip("Debian's User-Mode Linux has no nf_tables for IP, and no older tables")
		}
		ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"}, func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.Privileged = true
			c.Mounts = []*cri.Mount{{HostPath: "/", ContainerPath: "/node", Readonly: true}} // has iptables
		})
		for _, rule := range []string{
			"-t nat -A OUTPUT -p tcp --dport 81 -m owner --uid-owner 1337 -m comment --comment mesh -j REDIRECT --to-ports 80",
			"-t nat -A POSTROUTING -s 10.9.0.0/16 ! -o lo -j MASQUERADE",
			"-t mangle -A PREROUTING -p tcp -m mark --mark 1 -j TPROXY --on-port 80 --tproxy-mark 2",
			"-A INPUT -m conntrack --ctstate INVALID -j DROP",
			"-A INPUT -p tcp -m multiport --dports 1,2 -j REJECT --reject-with tcp-reset",
		} {
			k.exec(ctr, "chroot /node /usr/sbin/iptables-nft "+rule)
		}
		if got := k.exec(ctr, "chroot /node /usr/sbin/iptables-nft-save | grep -c -- ^-A"); got != "5\n" {
			t.Errorf("rules = %q, want 5", got)
		}
	})
	t.Run("drivers", func(t *testing.T) {
		ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"},
			func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true })
		for command, want := range map[string]string{
			"mknod /tmp/fuse c 10 229 && cat /tmp/fuse 2>&1 || :": "cat: read error: Operation not permitted\n",
			"mknod /tmp/tun c 10 200 && cat /tmp/tun 2>&1 || :":   "cat: read error: File descriptor in bad state\n",
			"ip link add d0 type dummy && echo ok":                "ok\n",
			"mkdir -p /mnt && mount -t tmpfs t /mnt && cd /mnt && mkdir u w m && " +
				"mount -t overlay -o upperdir=u,workdir=w,lowerdir=/etc o m && echo ok": "ok\n",
		} {
			if got := k.exec(ctr, command); got != want {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
	})
}
