package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

func TestOneLineForEachCall(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(h *harness) error
		want []string
	}{
		{"a read is debug", func(h *harness) error {
			_, err := h.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
			return err
		}, []string{"level=debug", "method=ListPodSandbox", "request=", "duration="}},
		{"a change is info", func(h *harness) error {
			_, err := h.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: goodPod(), RuntimeHandler: "crun"})
			return err
		}, []string{"level=info", "method=RunPodSandbox", "name=web", "namespace=default", "uid=u-1",
			"handler=crun", "pod=newpod"}},
		{"containers have their ids", func(h *harness) error {
			_, err := h.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: runningID})
			return err
		}, []string{"level=info", "method=StopContainer", "container=" + runningID}},
		{"pods have their ids", func(h *harness) error {
			_, err := h.runtime.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: podID})
			return err
		}, []string{"level=info", "pod=" + podID}},
		{"creation has both", func(h *harness) error {
			_, err := h.runtime.CreateContainer(
				t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: goodContainer()},
			)
			return err
		}, []string{"level=info", "pod=" + podID, "name=main", "container=newcontainer", "image=" + imageID}},
		{"pulls name the image", func(h *harness) error {
			_, err := h.image.PullImage(
				t.Context(),
				&cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag}, SandboxConfig: goodPod()},
			)
			return err
		}, []string{"level=info", `image="` + imageTag, "image_id=" + imageID, "namespace=default"}},
		{"streams too", func(h *harness) error {
			s, err := h.runtime.StreamContainers(t.Context(), &cri.StreamContainersRequest{})
			if err == nil {
				receive(t, s, (*cri.StreamContainersResponse).GetContainers)
			}
			return err
		}, []string{"level=debug", "method=StreamContainers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			if err := tt.do(h); err != nil {
				t.Fatal(err)
			}
			wantLine(t, h, tt.want...)
		})
	}
}

// wantLine checks that the log has one line, which contains parts. It is written before the response is sent.
func wantLine(t *testing.T, h *harness, parts ...string) {
	t.Helper()
	text := h.log.String()
	if n := strings.Count(text, "\n"); n != 1 {
		t.Errorf("log has %d lines, want 1: %s", n, text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("log = %s, want %q in it", text, part)
		}
	}
}

func TestLevelsOfFailures(t *testing.T) {
	for _, tt := range []struct {
		method string
		code   codes.Code
		want   logrus.Level
	}{
		{"RunPodSandbox", codes.Unknown, logrus.ErrorLevel},
		{"ListContainers", codes.Internal, logrus.ErrorLevel},
		{"RunPodSandbox", codes.InvalidArgument, logrus.WarnLevel},
		{"RunPodSandbox", codes.Unavailable, logrus.WarnLevel},
		{"StartContainer", codes.NotFound, logrus.WarnLevel},
		{"ContainerStatus", codes.NotFound, logrus.DebugLevel},
		{"ContainerStatus", codes.InvalidArgument, logrus.WarnLevel},
		{"ExecSync", codes.DeadlineExceeded, logrus.WarnLevel},
		{"GetContainerEvents", codes.Canceled, logrus.DebugLevel},
		{"StopContainer", codes.Canceled, logrus.WarnLevel},
		{"ListMetricDescriptors", codes.Unimplemented, logrus.DebugLevel},
	} {
		if got := failureLevel(tt.method, tt.code); got != tt.want {
			t.Errorf("%s %v: %v, want %v", tt.method, tt.code, got, tt.want)
		}
	}
}

// TestMutations: every RPC changes the node unless its name says that it reads.
func TestMutations(t *testing.T) {
	reads := []string{
		"Version", "Status", "RuntimeConfig", "ExecSync", "GetContainerEvents", "ImageFsInfo", "PodSandboxStats",
		"ContainerStats",
	}
	unary, streams := rpcs()
	for _, full := range slices.Concat(unary, streams) {
		name := bare(full)
		read := strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Stream") ||
			strings.HasSuffix(name, "Status") || slices.Contains(reads, name)
		if mutates(name) == read {
			t.Errorf("mutates(%s) = %v, want %v", name, mutates(name), !read)
		}
	}
}

func TestFailureIsLoggedWithCode(t *testing.T) {
	h := newHarness(t)
	h.engine.fail["StartContainer"] = fmt.Errorf("%w: already running", errdefs.ErrFailedPrecondition)
	_, err := h.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: runningID})
	wantCode(t, err, codes.FailedPrecondition)
	if c := <-h.calls; c.Method != "StartContainer" || c.Code != codes.FailedPrecondition || c.Duration <= 0 {
		t.Errorf("observed call %+v, want StartContainer, FailedPrecondition and its duration", c)
	}
	wantLine(t, h, "level=warning", "code=FailedPrecondition", "already running", "container="+runningID)
}

// TestForeignStatusIsNotPassedOn: the status of another gRPC service, such as a shim's, is not podd's.
func TestForeignStatusIsNotPassedOn(t *testing.T) {
	h := newHarness(t)
	h.engine.fail["StartContainer"] = fmt.Errorf("shim: %w", status.Error(codes.Unauthenticated, "x"))
	_, err := h.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: runningID})
	wantCode(t, err, codes.Unknown, "shim: ")
}

func TestPanic(t *testing.T) {
	for name, boom := range map[string]func(){
		"nil pointer": func() { var p *record.PodView; _ = p.Pod },
		"string":      func() { panic("value with " + secret) },
		"error":       func() { panic(errors.New(secret)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.engine.on = func(string, ...any) { boom() }
			_, err := h.runtime.CreateContainer(
				t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: goodContainer()},
			)
			wantCode(t, err, codes.Internal, "internal error", "CreateContainer")
			text := h.log.String()
			if strings.Contains(text+err.Error(), secret) {
				t.Errorf("log %s or error %v contains the secret, want neither", text, err)
			}
			for _, part := range []string{"RPC panicked", "intercept_test.go", "level=error", "container_create.go"} {
				if !strings.Contains(text, part) {
					t.Errorf("log = %s, want %q in it", text, part)
				}
			}
			h.engine.on = nil
			must[*cri.VersionResponse](t)(h.runtime.Version(t.Context(), &cri.VersionRequest{})) // still serving
		})
	}
}

func TestPanicInAStream(t *testing.T) {
	h := newHarness(t)
	h.engine.pods[0].Pod = nil
	s, err := h.runtime.StreamPodSandboxes(t.Context(), &cri.StreamPodSandboxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantCode(t, err, codes.Internal, "StreamPodSandboxes")
	if text := h.log.String(); !strings.Contains(text, "nil pointer dereference") {
		t.Errorf("log = %s, want a nil pointer dereference", text)
	}
}

// TestNoSecretsInTheLog makes calls with secrets that succeed, fail, are invalid and panic.
func TestNoSecretsInTheLog(t *testing.T) {
	create := func(change func(*cri.ContainerConfig)) func(h *harness) error {
		return func(h *harness) error {
			cfg := goodContainer()
			cfg.Args = []string{"--password", secret}
			cfg.Annotations = map[string]string{"token": secret}
			change(cfg)
			_, err := h.runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: cfg})
			return err
		}
	}
	pull := func(change func(*cri.PullImageRequest)) func(h *harness) error {
		return func(h *harness) error {
			r := &cri.PullImageRequest{Image: &cri.ImageSpec{Image: imageTag}, Auth: &cri.AuthConfig{
				Username: "u", Password: secret, Auth: base64.StdEncoding.EncodeToString([]byte("u:" + secret)),
				IdentityToken: secret, RegistryToken: secret,
			}}
			change(r)
			_, err := h.image.PullImage(t.Context(), r)
			return err
		}
	}
	calls := map[string]func(h *harness) error{
		"create":                   create(func(*cri.ContainerConfig) {}),
		"create, bad env value":    create(func(c *cri.ContainerConfig) { c.Envs[0].Value = []byte(secret + "\x00") }),
		"create, env not UTF-8":    create(func(c *cri.ContainerConfig) { c.Envs[0].Value = []byte(secret + "\xff") }),
		"create, value in the key": create(func(c *cri.ContainerConfig) { c.Envs[0].Key = "A=" + secret }),
		"create, bad argument":     create(func(c *cri.ContainerConfig) { c.Args[1] = secret + "\x00" }),
		"create, annotation":       create(func(c *cri.ContainerConfig) { c.Annotations[secret+"\x00"] = secret }),
		"pull":                     pull(func(*cri.PullImageRequest) {}),
		"pull, bad password":       pull(func(r *cri.PullImageRequest) { r.Auth.Password = secret + "\x00" }),
		"pull, bad token":          pull(func(r *cri.PullImageRequest) { r.Auth.RegistryToken = secret + "\n" }),
		"pull, password in the ref": pull(
			func(r *cri.PullImageRequest) { r.Image.Image = "u:" + secret + "@registry/image" },
		),
		"exec": func(h *harness) error {
			_, err := h.runtime.ExecSync(
				t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"mysql", "-p" + secret}},
			)
			return err
		},
	}
	for name, do := range calls {
		for how, prepare := range map[string]func(h *harness){
			"as it is": func(*harness) {},
			"failing": func(h *harness) {
				h.engine.fail = map[string]error{"CreateContainer": errors.New("boom"), "ExecSync": errors.New("boom")}
				h.images.fail = map[string]error{"Pull": errors.New("boom")}
			},
			"panicking": func(h *harness) {
				h.engine.on = func(_ string, args ...any) { panic(fmt.Sprintf("%+v", args)) }
				h.images.on = func(string, ...any) { panic(fmt.Sprintf("%+v", h.images.pull)) }
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				h := newHarness(t)
				prepare(h)
				err := do(h)
				text := h.log.String()
				if err != nil {
					text += err.Error()
				}
				for _, bad := range []string{secret, base64.StdEncoding.EncodeToString([]byte("u:" + secret))} {
					if strings.Contains(text, bad) {
						t.Errorf("log or error contains the secret, want it in neither: %s", text)
					}
				}
			})
		}
	}
}

// TestRequestFields fills every string of every request with a secret and checks which of them are logged: ids and
// names. A new field must be added to allowed here.
func TestRequestFields(t *testing.T) {
	allowed := []string{"container", "handler", "image", "name", "namespace", "pod", "uid"}
	for _, m := range requests(t) {
		req := m.New().Interface()
		fill(req.ProtoReflect(), 0)
		for field := range requestFields(req) {
			if !slices.Contains(allowed, field) {
				t.Errorf("%s logs %s, want only %v", m.Descriptor().Name(), field, allowed)
			}
		}
	}
	create := &cri.CreateContainerRequest{PodSandboxId: podID, Config: goodContainer()}
	want := []string{"image", "name", "pod"}
	if got := slices.Sorted(maps.Keys(requestFields(create))); !slices.Equal(got, want) {
		t.Errorf("CreateContainer logs %v, want %v", got, want)
	}
}

func TestFieldsAreBounded(t *testing.T) {
	f := requestFields(&cri.StopContainerRequest{ContainerId: "\xff" + strings.Repeat("x", 1<<20)})
	if got := f["container"].(string); len(got) > maxField+3 || strings.Contains(got, "\xff") {
		t.Errorf("field %.20q has %d bytes, want at most %d of valid UTF-8", got, len(got), maxField+3)
	}
}

// requests returns the types of all requests of cri-api.
func requests(t testing.TB) []protoreflect.MessageType {
	t.Helper()
	var all []protoreflect.MessageType
	for _, name := range []protoreflect.FullName{"runtime.v1.RuntimeService", "runtime.v1.ImageService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(i).Input().FullName())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
	}
	return all
}

// fill sets every field of m, and of the messages in it.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString(secret))
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind && depth < 6:
			fill(m.Mutable(fd).List().AppendMutable().Message(), depth+1)
		case fd.IsList() && fd.Kind() == protoreflect.StringKind:
			m.Mutable(fd).List().Append(protoreflect.ValueOfString(secret))
		case fd.IsList():
		case fd.Kind() == protoreflect.MessageKind && depth < 6:
			fill(m.Mutable(fd).Message(), depth+1)
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(secret))
		case fd.Kind() == protoreflect.BytesKind:
			m.Set(fd, protoreflect.ValueOfBytes([]byte(secret)))
		}
	}
}

// TestFillFills checks that fill sets nested fields.
func TestFillFills(t *testing.T) {
	r := &cri.CreateContainerRequest{}
	fill(r.ProtoReflect(), 0)
	if string(r.GetConfig().GetEnvs()[0].GetValue()) != secret ||
		r.GetSandboxConfig().GetLabels()["key"] != secret || proto.Size(r) < 1000 {
		t.Errorf("fill: %v, want every field set", r)
	}
}
