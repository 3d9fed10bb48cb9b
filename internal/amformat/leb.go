package amformat

import "math/bits"

// Numbers are LEB128: seven bits a byte, the lowest first. Only the shortest form is read, because only that is written.

// readUint reads an unsigned number from b; n is how many bytes it took, 0 when b is too short and -1 when it isn't a number of 64 bits
// in its shortest form.
func readUint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return readLongUint(b)
}

func readLongUint(b []byte) (v uint64, n int) {
	for i, c := range b {
		if i == 9 && c > 1 {
			return 0, -1
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				return 0, -1
			}
			return v, i + 1
		}
		if i == 9 {
			return 0, -1
		}
	}
	return 0, 0
}

// readInt is readUint for signed numbers.
func readInt(b []byte) (v int64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int64(int8(b[0]<<1)) >> 1, 1
	}
	var u uint64
	for i, c := range b {
		if i == 9 && c != 0 && c != 0x7f {
			return 0, -1
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c >= 0x80 {
			if i == 9 {
				return 0, -1
			}
			continue
		}
		if shift := 7 * (i + 1); shift < 64 {
			v = int64(u<<(64-shift)) >> (64 - shift)
		} else {
			v = int64(u)
		}
		if i+1 != intLen(v) {
			return 0, -1
		}
		return v, i + 1
	}
	return 0, 0
}

func intLen(v int64) int {
	if v < 0 {
		v = ^v
	}
	return bits.Len64(uint64(v))/7 + 1
}

func appendUint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendInt(b []byte, v int64) []byte {
	for v < -0x40 || v >= 0x40 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}
