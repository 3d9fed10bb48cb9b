package amformat

import (
	"flag"
	"os"
	"testing"
)

var (
	hostileInputs = flag.Int("amformat.hostile", 20_000, "how many hostile inputs the tests try")
	randomDocs    = flag.Int("amformat.documents", 40, "how many random documents the tests try")
	longTests     = flag.Bool("amformat.long", false, "also run what takes long")
)

// runEngine is the other implementation, in a process of its own, because hostile bytes end it. It is nil without cgo.
var runEngine func()

func TestMain(m *testing.M) {
	if os.Getenv(engineVariable) != "" && runEngine != nil {
		runEngine()
		return
	}
	os.Exit(m.Run())
}
