// Command podd-vm-image builds what pods' virtual machines boot.
//
//	podd-vm-image -driver uml [-kernel FILE] [-virtiofsd FILE] [-modules DIR] [-runtime FILE] [-agent FILE] [-o DIR]
//
// It needs no root. The defaults are the files of Debian's packages user-mode-linux, virtiofsd and crun.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/podd-project/podd/oci/vm/image"
	"github.com/podd-project/podd/oci/vm/vmm"
)

func main() {
	syscall.Umask(0o022) // the monitors, which are not root, read the image
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "podd-vm-image:", err)
		os.Exit(1)
	}
}

func run() error {
	driver := flag.String("driver", vmm.UML, "uml or qemu")
	kernel := flag.String("kernel", "", "kernel (default: linux.uml of package user-mode-linux)")
	modules := flag.String("modules", "", "directory of the kernel's modules (default: those of package user-mode-linux)")
	virtiofsd := flag.String("virtiofsd", "", "for uml: virtiofsd with --tag (default: package virtiofsd below -root)")
	root := flag.String("root", "/", "directory of the extracted packages in which the kernel's shared libraries are")
	runtime := flag.String("runtime", "/usr/bin/crun", "OCI runtime of the guest")
	agent := flag.String("agent", "", "agent (default: podd-vm-agent next to this program)")
	out := flag.String("o", vmm.DefaultImages, "directory of images; <driver>/ in it is written")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := image.Config{
		Agent: cmp.Or(*agent, filepath.Join(filepath.Dir(self), "podd-vm-agent")), Runtime: *runtime,
		Kernel: *kernel, Root: *root, Modules: *modules, Dir: filepath.Join(*out, *driver),
	}
	switch *driver {
	case vmm.UML:
		c.Virtiofsd = cmp.Or(*virtiofsd, filepath.Join(*root, "usr/libexec/virtiofsd"))
		c.Wanted = podModules()
		if c.Kernel == "" {
			c.Kernel = "/usr/bin/linux.uml"
		}
		if c.Modules == "" {
			if c.Modules, err = onlyMatch("/usr/lib/uml/modules/*"); err != nil {
				return err
			}
		}
	case vmm.QEMU:
		c.Root = ""
		c.Wanted = slices.Concat(
			[]string{"virtio_pci", "virtio_console", "virtio_net", "virtio_mem"}, podModules(), netfilter())
		if c.Kernel == "" || c.Modules == "" {
			return errors.New("driver qemu needs -kernel and -modules, for example of package linux-image-cloud-amd64")
		}
	default:
		return fmt.Errorf("driver %q: want %s or %s", *driver, vmm.UML, vmm.QEMU)
	}
	return image.Build(c)
}

// podModules returns the names of modules that the guest and its pods use.
func podModules() []string {
	return []string{"ipv6", "fuse", "virtiofs", "overlay", "bridge", "tun", "dummy", "veth"}
}

// netfilter returns the names of modules for the rules that service meshes, proxies and VPNs set with nft and
// iptables-nft. Debian's User-Mode Linux has neither nf_tables for IP nor the older tables.
func netfilter() []string {
	return []string{
		"nf_tables", "nft_chain_nat", "nft_compat", "nft_ct", "nft_fib_inet", "nft_limit", "nft_log", "nft_masq", "nft_nat",
		"nft_redir", "nft_reject_inet", "nft_tproxy", "nf_conntrack_netlink",
		"xt_addrtype", "xt_comment", "xt_connmark", "xt_conntrack", "xt_limit", "xt_LOG", "xt_mark", "xt_MASQUERADE",
		"xt_multiport", "xt_nat", "xt_owner", "xt_REDIRECT", "ipt_REJECT", "ip6t_REJECT", "xt_socket", "xt_statistic",
		"xt_TCPMSS", "xt_tcpudp", "xt_TPROXY",
	}
}

// onlyMatch returns the last file that matches, for one version of a package.
func onlyMatch(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("nothing matches %s: install package user-mode-linux, or name the files", pattern)
	}
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}
