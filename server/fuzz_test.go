package server

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// FuzzRequests calls an RPC with bytes as the request, without the socket. Nothing may panic, and what reaches the
// engine or the store must be valid in C strings and JSON: UTF-8 without NUL, in any field.
func FuzzRequests(f *testing.F) {
	seeds := map[string]proto.Message{
		"RunPodSandbox":    &cri.RunPodSandboxRequest{Config: goodPod(), RuntimeHandler: "crun"},
		"StopPodSandbox":   &cri.StopPodSandboxRequest{PodSandboxId: podID},
		"PodSandboxStatus": &cri.PodSandboxStatusRequest{PodSandboxId: podID, Verbose: true},
		"ListPodSandbox": &cri.ListPodSandboxRequest{
			Filter: &cri.PodSandboxFilter{Id: "a", State: &cri.PodSandboxStateValue{}},
		},
		"CreateContainer": &cri.CreateContainerRequest{
			PodSandboxId: podID, Config: goodContainer(), SandboxConfig: goodPod(),
		},
		"StopContainer":   &cri.StopContainerRequest{ContainerId: runningID, Timeout: 1},
		"ContainerStatus": &cri.ContainerStatusRequest{ContainerId: runningID, Verbose: true},
		"ListContainers": &cri.ListContainersRequest{
			Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"a": "b"}},
		},
		"UpdateContainerResources": &cri.UpdateContainerResourcesRequest{
			ContainerId: runningID, Linux: goodContainer().GetLinux().GetResources(),
		},
		"ExecSync":    &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"ls"}, Timeout: 1},
		"Exec":        &cri.ExecRequest{ContainerId: runningID, Cmd: []string{"ls"}, Stdout: true},
		"PortForward": &cri.PortForwardRequest{PodSandboxId: podID, Port: []int32{80}},
		"UpdateRuntimeConfig": &cri.UpdateRuntimeConfigRequest{
			RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: "10.0.0.0/8"}},
		},
		"CheckpointContainer": &cri.CheckpointContainerRequest{ContainerId: runningID, Location: "/out", Timeout: 1},
		"CheckpointPod": &cri.CheckpointPodRequest{
			PodSandboxId: podID, OutputPath: "/out", ContainerIds: []string{runningID},
		},
		"RestorePod": &cri.RestorePodRequest{
			CheckpointPath: "/out", Config: goodPod(), ContainerConfigs: []*cri.ContainerConfig{goodContainer()},
		},
		"ImageStatus": &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: imageTag}, Verbose: true},
		"PullImage": &cri.PullImageRequest{
			Image: &cri.ImageSpec{Image: imageTag}, Auth: &cri.AuthConfig{Password: "p"}, SandboxConfig: goodPod(),
		},
	}
	methods := unaryMethods()
	for i, m := range methods {
		data, err := proto.Marshal(orEmpty(seeds[m.MethodName]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		method := methods[int(which)%len(methods)]
		s, engine, images := fuzzServer(t)
		watch := func(name string, args ...any) {
			for _, a := range args {
				wantFit(t, method.MethodName+" -> "+name, a)
			}
		}
		engine.on, images.on = watch, watch
		decode := func(m any) error { return proto.Unmarshal(data, m.(proto.Message)) }
		resp, err := method.Handler(s, context.Background(), decode, nil)
		if err == nil {
			if _, err := proto.Marshal(resp.(proto.Message)); err != nil {
				t.Errorf("%s: marshal response: %v, want no error", method.MethodName, err)
			}
			return
		}
		if text := toStatus(context.Background(), err).Message(); !utf8.ValidString(text) {
			t.Errorf("%s: error %q, want valid UTF-8", method.MethodName, text)
		}
	})
}

func orEmpty(m proto.Message) proto.Message {
	if m == nil {
		return &cri.VersionRequest{}
	}
	return m
}

func unaryMethods() []grpc.MethodDesc {
	var all []grpc.MethodDesc
	for _, d := range serviceDescs() {
		all = append(all, d.Methods...)
	}
	return all
}

func fuzzServer(t *testing.T) (*Server, *fakeEngine, *fakeImages) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	engine, images := newFakeEngine(), newFakeImages()
	return New(Config{Version: "1"}, Deps{
		Engine: engine, Images: images, Network: &fakeNetwork{}, Streamer: &fakeStreamer{}, Log: log,
		RuntimeSpec: func(string) (*specs.Spec, error) { return fakeSpec(), nil },
		PodSpec:     func(*record.Pod) (*specs.Spec, error) { return fakeSpec(), nil },
		Space:       func() error { return nil },
	}), engine, images
}

// wantFit checks every string in an argument of a call.
func wantFit(t *testing.T, where string, arg any) {
	t.Helper()
	text := func(s string) {
		if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
			t.Errorf("%s got %q, want UTF-8 without NUL", where, s)
		}
	}
	switch a := arg.(type) {
	case string:
		text(a)
	case []string:
		for _, s := range a {
			text(s)
		}
	case proto.Message:
		eachString(a.ProtoReflect(), text)
	}
}

// eachString calls visit for every string and byte string in m.
func eachString(m protoreflect.Message, visit func(string)) {
	value := func(kind protoreflect.Kind, v protoreflect.Value) {
		switch kind {
		case protoreflect.StringKind:
			visit(v.String())
		case protoreflect.BytesKind:
			visit(string(v.Bytes()))
		case protoreflect.MessageKind:
			eachString(v.Message(), visit)
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				value(fd.MapKey().Kind(), k.Value())
				value(fd.MapValue().Kind(), v)
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				value(fd.Kind(), v.List().Get(i))
			}
		default:
			value(fd.Kind(), v)
		}
		return true
	})
}

// TestEveryStringIsChecked puts a NUL into every string of valid requests, one at a time. It fails for a string field,
// for example of a newer cri-api, that is in none of the requests.
func TestEveryStringIsChecked(t *testing.T) {
	spoiled := map[string]bool{}
	for _, req := range fullRequests() {
		s, _, _ := fuzzServer(t)
		if err := dispatch(s, req); err != nil {
			t.Fatalf("%T: %v, want no error without a NUL", req, err)
		}
		n := 0
		eachString(req.ProtoReflect(), func(string) { n++ })
		for i := range n {
			bad := proto.Clone(req)
			at := spoil(bad.ProtoReflect(), i)
			spoiled[at] = true
			s, engine, _ := fuzzServer(t)
			if err := dispatch(s, bad); err == nil || len(engine.log()) > 0 {
				t.Errorf("%T with a NUL in %s: %v, calls %v; want invalid argument, no call", req, at, err, engine.log())
			}
		}
	}
	for _, req := range fullRequests() {
		stringFields(req.ProtoReflect().Descriptor(), func(name string) {
			if !spoiled[name] {
				t.Errorf("no request has a string in %s, want one in fullRequests", name)
			}
		})
	}
}

// fullRequests returns requests with a value in every string field.
func fullRequests() []proto.Message {
	pod, byID, byName := goodPod(), goodContainer(), goodContainer()
	pod.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "l"}
	//lint:ignore SA1019 old clients set it
	pod.Linux.SecurityContext.SeccompProfilePath = "unconfined"
	pod.Linux.Resources = goodContainer().GetLinux().GetResources()
	pod.Linux.Overhead = goodContainer().GetLinux().GetResources()
	byID.Image.RuntimeHandler, byID.Image.ImageRef = "runc", imageID
	sc := byID.Linux.SecurityContext
	sc.SelinuxOptions = &cri.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "l"}
	//lint:ignore SA1019 old clients set it
	sc.ApparmorProfile, sc.SeccompProfilePath = "unconfined", "unconfined"
	byName.Linux.SecurityContext.RunAsUser, byName.Linux.SecurityContext.RunAsUsername = nil, "www"
	return []proto.Message{
		&cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "crun"},
		&cri.CreateContainerRequest{PodSandboxId: podID, Config: byID},
		&cri.CreateContainerRequest{PodSandboxId: podID, Config: byName},
		&cri.UpdateContainerResourcesRequest{
			ContainerId: runningID, Linux: byID.GetLinux().GetResources(), Annotations: map[string]string{"a": "b"},
		},
	}
}

// stringFields calls visit for every string and bytes field below d, except those of Windows and of sandbox_config,
// which is not read.
func stringFields(d protoreflect.MessageDescriptor, visit func(string)) {
	fields := d.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.Name() == "windows" || fd.Name() == "sandbox_config":
		case fd.IsMap() || fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind:
			visit(string(fd.FullName()))
		case fd.Kind() == protoreflect.MessageKind:
			stringFields(fd.Message(), visit)
		}
	}
}

func dispatch(s *Server, req proto.Message) error {
	var err error
	switch r := req.(type) {
	case *cri.RunPodSandboxRequest:
		_, err = s.RunPodSandbox(context.Background(), r)
	case *cri.CreateContainerRequest:
		_, err = s.CreateContainer(context.Background(), r)
	case *cri.UpdateContainerResourcesRequest:
		_, err = s.UpdateContainerResources(context.Background(), r)
	}
	return err
}

// spoil puts a NUL into the nth string of m, in the order of the fields, and returns its name.
func spoil(m protoreflect.Message, n int) string {
	at := ""
	left := n
	spoilIn(m, &left, &at)
	return at
}

func spoilIn(m protoreflect.Message, left *int, at *string) {
	fields := m.Descriptor().Fields()
	for i := 0; i < fields.Len() && *at == ""; i++ {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		switch {
		case fd.IsMap():
			spoilMap(m.Mutable(fd).Map(), fd, left, at)
		case fd.IsList():
			list := m.Mutable(fd).List()
			for j := 0; j < list.Len() && *at == ""; j++ {
				if fd.Kind() == protoreflect.MessageKind {
					spoilIn(list.Get(j).Message(), left, at)
				} else if fd.Kind() == protoreflect.StringKind && hit(left, fd, at) {
					list.Set(j, protoreflect.ValueOfString("\x00"))
				}
			}
		case fd.Kind() == protoreflect.MessageKind:
			spoilIn(m.Mutable(fd).Message(), left, at)
		case fd.Kind() == protoreflect.StringKind && hit(left, fd, at):
			m.Set(fd, protoreflect.ValueOfString("\x00"))
		case fd.Kind() == protoreflect.BytesKind && hit(left, fd, at):
			m.Set(fd, protoreflect.ValueOfBytes([]byte{0}))
		}
	}
}

// spoilMap counts a key and a value for each entry, as eachString does.
func spoilMap(entries protoreflect.Map, fd protoreflect.FieldDescriptor, left *int, at *string) {
	for range entries.Len() {
		if hit(left, fd, at) {
			entries.Set(protoreflect.ValueOfString("\x00").MapKey(), protoreflect.ValueOfString(""))
			return
		}
		if hit(left, fd, at) {
			entries.Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("\x00"))
			return
		}
	}
}

func hit(left *int, fd protoreflect.FieldDescriptor, at *string) bool {
	*left--
	if *left < 0 && *at == "" {
		*at = string(fd.FullName())
		return true
	}
	return false
}

// TestNoRequestPanics removes one nested message at a time from full requests of every type.
func TestNoRequestPanics(t *testing.T) {
	byInput := map[protoreflect.FullName]grpc.MethodDesc{}
	for i, m := range requestTypes(t) {
		byInput[m.Descriptor().FullName()] = unaryMethods()[i]
	}
	for _, m := range requestTypes(t) {
		full := m.New()
		fill(full, 0)
		method := byInput[m.Descriptor().FullName()]
		for n := range 200 {
			req := proto.Clone(full.Interface())
			left := n
			if !prune(req.ProtoReflect(), &left) {
				break
			}
			data, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			s, _, _ := fuzzServer(t)
			method.Handler(s, context.Background(), func(m any) error {
				return proto.Unmarshal(bytes.Clone(data), m.(proto.Message))
			}, nil)
		}
	}
}

// requestTypes are the requests of the unary methods, in their order.
func requestTypes(t *testing.T) []protoreflect.MessageType {
	t.Helper()
	var all []protoreflect.MessageType
	byName := map[string]protoreflect.MessageType{}
	for _, m := range requests(t) {
		byName[string(m.Descriptor().Name())] = m
	}
	for _, d := range unaryMethods() {
		m, ok := byName[d.MethodName+"Request"]
		if !ok {
			t.Fatalf("%s: no request type found", d.MethodName)
		}
		all = append(all, m)
	}
	return all
}

// prune clears the nth nested message of m and reports whether there was one.
func prune(m protoreflect.Message, left *int) bool {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Kind() != protoreflect.MessageKind || fd.IsMap() || !m.Has(fd) {
			continue
		}
		if *left == 0 {
			m.Clear(fd)
			return true
		}
		*left--
		if fd.IsList() {
			if list := m.Mutable(fd).List(); list.Len() > 0 && prune(list.Get(0).Message(), left) {
				return true
			}
			continue
		}
		if prune(m.Mutable(fd).Message(), left) {
			return true
		}
	}
	return false
}
