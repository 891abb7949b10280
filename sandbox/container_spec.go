package sandbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
)

// containerSpec makes config.json from the request and the facts of the machine.
func (e *Engine) containerSpec(ctx context.Context, c *Container, rt Runtime, b containerBuild) (*specs.Spec, error) {
	in, err := e.specInput(c, rt, b)
	if err != nil {
		return nil, err
	}
	security := c.Config.GetLinux().GetSecurityContext()
	if in.User, err = host.LookupUser(b.rootfs, b.image.Config.User, security); err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	if in.Mounts, err = e.mounts(ctx, c, b.volumes); err != nil {
		return nil, err
	}
	if in.User.Home, err = e.resolver.Home(ctx, in.User, in.Mounts); err != nil {
		return nil, fmt.Errorf("home directory: %w", err)
	}
	if in.Devices, err = host.Devices(c.Config.GetDevices()); err != nil {
		return nil, err
	}
	in.NoHostDevices = !c.pod.handler.Config().HostDevices(rt.Features())
	if security.GetPrivileged() && !in.NoHostDevices {
		if in.Host.Devices, err = host.HostDevices(); err != nil { // now, not at the start of podd: devices come and go
			return nil, err
		}
	}
	//lint:ignore SA1019 kubelets before 1.27 send only this
	in.Seccomp, err = seccompProfile(e.cfg.Load().SeccompRoot, security.GetSeccomp(), security.GetSeccompProfilePath())
	if err != nil {
		return nil, err
	}
	if err := checkAppArmor(security); err != nil {
		return nil, err
	}
	s, warnings, err := spec.Container(in)
	if err != nil {
		return nil, err
	}
	c.logWarnings(warnings)
	if err := injectCDI(e.deps.CDI, s, c); err != nil {
		return nil, err
	}
	return s, host.InjectHooks(s, e.cfg.Load().HooksDirs, c.pod.Config, c.Config)
}

// mounts resolves the container's host paths, and relabels those that request it.
func (e *Engine) mounts(ctx context.Context, c *Container, volumes map[int]string) ([]spec.Mount, error) {
	mounts, err := e.resolver.Mounts(ctx, c.Config.GetMounts(), volumes)
	if err != nil {
		return nil, err
	}
	return mounts, e.resolver.Relabel(ctx, mounts, c.Labels.Mount)
}

func seccompProfile(root string, p *cri.SecurityProfile, deprecated string) (*seccomp.Seccomp, error) {
	request, err := spec.SeccompRequest(p, deprecated)
	if err != nil {
		return nil, err
	}
	return host.SeccompProfile(request, root)
}

// checkAppArmor reports a profile that is not loaded before the runtime does.
func checkAppArmor(security *cri.LinuxContainerSecurityContext) error {
	//lint:ignore SA1019 kubelets before 1.27 send only this
	p, err := spec.AppArmorRequest(security.GetApparmor(), security.GetApparmorProfile())
	if err != nil || p.GetProfileType() != cri.SecurityProfile_Localhost {
		return err
	}
	return host.CheckAppArmor(p.GetLocalhostRef())
}

func injectCDI(cdi *host.CDI, s *specs.Spec, c *Container) error {
	devices, err := host.CDIDevices(c.Config)
	if err != nil || len(devices) == 0 {
		return err
	}
	return cdi.Inject(s, devices)
}

// specInput returns the part of spec.Input that does not depend on the machine.
func (e *Engine) specInput(c *Container, rt Runtime, b containerBuild) (spec.Input, error) {
	pid, err := e.pidNamespace(c)
	if err != nil {
		return spec.Input{}, err
	}
	cgroup, err := e.cgroupsPath(c.pod, c.ID)
	if err != nil {
		return spec.Input{}, err
	}
	ns := podNamespaces(e.pinRequest(c.pod))
	ns.PID = pid
	defaults, err := e.cfg.Load().ContainerSpec(c.pod.handler.Config().Base, c.pod.Config, c.Config)
	if err != nil {
		return spec.Input{}, err
	}
	return spec.Input{
		ID: c.ID, Sandbox: c.pod.ID, Annotations: c.pod.handler.Annotations(), Pod: c.pod.Config, Config: c.Config,
		Image: b.image.Config, Rootfs: b.rootfs, Labels: c.Labels, Namespaces: ns,
		Files: e.files.Paths(c.pod.ID, c.pod.Config), CgroupsPath: cgroup, Handler: handlerFacts(rt),
		Host: e.deps.Facts, Defaults: defaults, WritableCgroups: c.pod.handler.Config().WritableCgroups,
	}, nil
}

func handlerFacts(rt Runtime) spec.Handler {
	f := rt.Features()
	return spec.Handler{
		OCIVersion: f.OCIVersion, RecursiveReadOnly: f.RecursiveReadOnly, UserNamespaces: f.UserNamespaces,
		OwnKernel: f.OwnKernel,
	}
}

// pidNamespace resolves the container's PID namespace: its own, its pod's, the node's, or another container's of
// the same pod (for ephemeral containers, KEP-277).
func (e *Engine) pidNamespace(c *Container) (string, error) {
	options := c.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	switch options.GetPid() {
	case cri.NamespaceMode_NODE:
		return spec.Host, nil
	case cri.NamespaceMode_CONTAINER:
		return "", nil
	case cri.NamespaceMode_TARGET:
		return e.targetNamespace(c, options.GetTargetId())
	}
	if c.pod.OwnKernel && convert.SharesPID(c.pod.Config) {
		return spec.Host, nil // of the sandbox's kernel: that of the infra container
	}
	infra := c.pod.Status().Infra
	if infra.Pid == 0 {
		return "", nil // the pod was created without a shared PID namespace
	}
	return fmt.Sprintf("/proc/%d/ns/pid", infra.Pid), nil
}

func (e *Engine) targetNamespace(c *Container, target string) (string, error) {
	t, err := e.Container(target)
	if err != nil {
		return "", fmt.Errorf("target container: %w", err)
	}
	if t.pod != c.pod {
		return "", fmt.Errorf("%w: target container %s is in another pod sandbox",
			errdefs.ErrInvalidArgument, t.ID)
	}
	if c.pod.OwnKernel {
		return "", fmt.Errorf("%w: containers cannot join each other's PID namespace in the sandbox of runtime handler %q",
			errdefs.ErrFailedPrecondition, c.pod.Handler)
	}
	s := t.Status()
	if s.State != record.ContainerRunning {
		return "", fmt.Errorf("%w: target container %s is %s, not running",
			errdefs.ErrFailedPrecondition, t.ID, s.State)
	}
	return fmt.Sprintf("/proc/%d/ns/pid", s.Process.Pid), nil
}

// mountImageVolumes mounts each image that the container has as volumes (KEP-4639) once, and returns the paths by the
// index of the mount.
func (e *Engine) mountImageVolumes(ctx context.Context, c *Container) (map[int]string, error) {
	uids, gids := convert.UserMappings(c.pod.Config)
	volumes, mounted := map[int]string{}, map[string]string{} // by the id of the image
	for i, m := range c.Config.GetMounts() {
		if m.GetImage().GetImage() == "" {
			continue
		}
		img, err := e.deps.Images.Resolve(ctx, m.GetImage().GetImage())
		if err == nil {
			err = e.deps.Images.Allow(ctx, img.ID, c.pod.Config.GetMetadata().GetNamespace())
		}
		if err != nil {
			return nil, fmt.Errorf("%w: image %q: %w",
				crierrors.ErrImageVolumeMountFailed, m.GetImage().GetImage(), err)
		}
		if path, ok := mounted[img.ID]; ok {
			volumes[i] = path
			continue
		}
		path, err := e.deps.Images.Volume(ctx, image.VolumeRequest{
			ContainerID: c.ID, Index: i, ImageID: img.ID, MountLabel: c.Labels.Mount, UIDs: uids, GIDs: gids,
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", crierrors.ErrImageVolumeMountFailed, err)
		}
		volumes[i], mounted[img.ID] = path, path
	}
	return volumes, nil
}

// mountsImage reports whether the container has the image as a volume.
func (e *Engine) mountsImage(c *Container, imageID string) bool {
	return slices.ContainsFunc(c.Config.GetMounts(), func(m *cri.Mount) bool {
		ref := m.GetImage().GetImage()
		if ref == "" {
			return false
		}
		img, err := e.deps.Images.Resolve(e.life.Context(), ref)
		return err == nil && img.ID == imageID
	})
}

// infraSpec returns config.json of p's infra container.
func (e *Engine) infraSpec(p *Pod, rt Runtime) (*specs.Spec, error) {
	if e.node.PauseRootfs == "" {
		return nil, fmt.Errorf("%w: this podd was built without its pause program, so no pod can have an infra container, "+
			"as for a shared PID namespace: build it with make", errdefs.ErrFailedPrecondition)
	}
	cgroup, err := e.cgroupsPath(p, p.ID)
	if err != nil {
		return nil, err
	}
	security := p.Config.GetLinux().GetSecurityContext()
	//lint:ignore SA1019 kubelets before 1.27 send only this
	profile, err := seccompProfile(e.cfg.Load().SeccompRoot, security.GetSeccomp(), security.GetSeccompProfilePath())
	if err != nil {
		return nil, err
	}
	defaults, err := e.cfg.Load().Spec(p.handler.Config().Base)
	if err != nil {
		return nil, err
	}
	pins := e.pinRequest(p)
	s, warnings, err := spec.Pause(spec.PauseInput{
		ID: p.ID, Pod: p.Config, Rootfs: e.node.PauseRootfs, Seccomp: profile, Labels: p.Labels,
		Namespaces: podNamespaces(pins), CgroupsPath: cgroup, Sysctls: pins.Sysctls,
		Shm: e.files.Paths(p.ID, p.Config).Shm, Rlimits: defaults.Rlimits,
		Annotations: p.handler.Annotations(), Handler: handlerFacts(rt), Host: e.deps.Facts,
	})
	for _, w := range warnings {
		p.log().WithField("warning", w).Debug("infra container differs from its request")
	}
	return s, err
}

func (c *Container) logWarnings(warnings []string) {
	for _, w := range warnings {
		c.log().WithField("warning", w).Warn("container differs from its request")
	}
}
