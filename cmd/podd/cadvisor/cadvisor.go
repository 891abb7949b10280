// Package cadvisor describes containers to the kubelet's cAdvisor, over HTTP on a unix socket, as CRI-O does: to which
// pod, image and process the cgroup crio-<id> belongs. cAdvisor knows no other way to learn this from a runtime than
// CRI-O's and containerd's, and a cgroup that it cannot assign has no names in its metrics.
//
// It answers GET of /info and /containers/<id>, from memory, and changes nothing. Only root can connect.
package cadvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// Info is the answer to /info. If StorageDriver is overlay, cAdvisor measures the directory diff in each container's
// Root.
type Info struct {
	StorageDriver string `json:"storage_driver"`
	StorageRoot   string `json:"storage_root"`
}

// Container is the answer to /containers/<id>, for a container or a pod's infra container.
type Container struct {
	// Name is shown as the label name.
	Name string `json:"name"`
	// Pid is the first process, 0 while there is none.
	Pid   int    `json:"pid"`
	Image string `json:"image"`
	// CreatedTime is in nanoseconds since 1970.
	CreatedTime int64             `json:"created_time"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	LogPath     string            `json:"log_path"`
	// Root is a directory with a directory diff, whose usage cAdvisor measures.
	Root string   `json:"root"`
	IPs  []string `json:"ip_addresses"`
}

// Node is the source of the answers. Container must not block; the id is 64 hexadecimal digits.
type Node interface {
	Info() Info
	Container(id string) (Container, bool)
}

const (
	// timeout bounds reading a request and writing its response.
	timeout = 10 * time.Second
	// maxConnections bounds open connections; cAdvisor has one for each container that it asks about at the same time.
	maxConnections = 64
)

// Serve answers on l until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, n Node) error {
	srv := &http.Server{
		Handler: handler{n}, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve cAdvisor: %w", err)
	}
	return nil
}

type handler struct{ node Node }

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ServeHTTP is not a http.ServeMux, which would redirect paths that are not clean.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/info" {
		writeJSON(w, h.node.Info())
		return
	}
	id, ok := strings.CutPrefix(r.URL.Path, "/containers/")
	if ok && containerID.MatchString(id) {
		if c, ok := h.node.Container(id); ok {
			writeJSON(w, c)
			return
		}
	}
	http.Error(w, "no such container", http.StatusNotFound)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}
