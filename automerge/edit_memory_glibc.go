//go:build cgo && linux

package automerge

/*
#include <malloc.h>

static long long in_use(void) {
	struct mallinfo2 m = mallinfo2();
	return (long long)(m.uordblks + m.hblkhd);
}
*/
import "C"

// nativeBytes is how much memory C code has taken.
func nativeBytes() int64 { return int64(C.in_use()) }
