package network_test

import (
	"os"
	"testing"

	"github.com/podd-project/podd/network/networktest"
)

func TestMain(m *testing.M) { os.Exit(networktest.Main(m)) }
