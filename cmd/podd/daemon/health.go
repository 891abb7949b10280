package daemon

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// newHealth registers the gRPC health service (grpc.health.v1), with status NOT_SERVING for each CRI service and for
// "", the daemon as a whole.
func newHealth(r grpc.ServiceRegistrar) *health.Server {
	h := health.NewServer()
	setHealth(h, healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(r, h)
	return h
}

func setHealth(h *health.Server, status healthpb.HealthCheckResponse_ServingStatus) {
	for _, service := range []string{
		"", cri.RuntimeService_ServiceDesc.ServiceName, cri.ImageService_ServiceDesc.ServiceName,
	} {
		h.SetServingStatus(service, status)
	}
}

// selfCheck returns a function that calls the health service over the daemon's own socket, so that it covers the
// listener and the gRPC server.
func selfCheck(socket string) (check func(context.Context) error, done func() error, err error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	client := healthpb.NewHealthClient(conn)
	return func(ctx context.Context) error {
		resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return fmt.Errorf("health is %s", resp.GetStatus())
		}
		return nil
	}, conn.Close, nil
}
