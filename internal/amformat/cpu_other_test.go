//go:build !unix

package amformat

import "time"

func cpu() time.Duration { return 0 }
