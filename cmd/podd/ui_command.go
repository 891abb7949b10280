package main

import (
	"context"
	"fmt"
	"net"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/cmd/podd/ui"
)

func newUICommand(opts *settings.Flags) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use: "ui", Short: "Serve a page for a browser about the running daemon", Args: noArgs,
		Long: `Serve a page for a browser about the running daemon: pods by state and age, the stages of the last starts,
pulls, stuck operations, disk space. The page changes nothing. It is served until the command is interrupted,
to the one browser that opens the printed address first.

From another machine, forward the port: ssh -L 8000:127.0.0.1:PORT NODE. With --address unix:PATH no user of the node
but root can connect: ssh -L 8000:PATH root@NODE.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			if err := daemon.Get(cmd.Context(), "/log-level", nil); err != nil {
				return err // at once, not in the browser
			}
			l, base, err := listenUI(listen)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			server, token := ui.New(daemon)
			fmt.Fprintf(cmd.OutOrStdout(), "%s/#token=%s\n", base, token)
			fmt.Fprintln(cmd.ErrOrStderr(), "Open this address, which works once. Interrupt (Ctrl-C) ends the page.")
			return server.Serve(ctx, l)
		},
	}
	cmd.Flags().StringVar(&listen, "address", "127.0.0.1:0",
		"serve on this `address` of the loopback interface (port 0: any free one), or on a socket, unix:PATH")
	return cmd
}

// listenUI listens, and returns the beginning of the page's address. That of a socket has the port of the example in
// the help, because a browser cannot open a socket.
func listenUI(address string) (l net.Listener, base string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err := state.Listen(path, state.RootSocketMode, logrus.StandardLogger())
		return l, "http://127.0.0.1:8000", err
	}
	if err := ui.CheckAddress(address); err != nil {
		return nil, "", settings.Error{Err: fmt.Errorf("flag --address: %w", err)}
	}
	l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, "", err
	}
	return l, "http://" + l.Addr().String(), nil
}
