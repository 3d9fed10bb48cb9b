package amformat

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// FuzzDeflate inflates what was deflated.
func FuzzDeflate(f *testing.F) {
	f.Add([]byte("abcabcabcabcabc"), uint16(1))
	f.Add([]byte{}, uint16(300))
	f.Add([]byte{3, 0x80, 0x81, 4, 3, 0x84, 0x81, 4}, uint16(9000))
	f.Fuzz(func(t *testing.T, data []byte, times uint16) {
		if int(times)*len(data) < 1<<20 {
			data = bytes.Repeat(data, int(times))
		}
		again := must(inflate(nil, deflateNumbers(data), int64(len(data))))(t)
		if !bytes.Equal(again, data) {
			t.Fatalf("%x comes out as %x", data, again)
		}
	})
}

func TestDeflateNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	for n := range 300 {
		// Few symbols and many, likely ones and unlikely ones, long and short.
		data := make([]byte, r.IntN(1<<(4+n%14)))
		spread := 1 + r.IntN(256)
		for i := range data {
			data[i] = byte(r.IntN(1 + r.IntN(spread)))
			if i > 1000 && r.IntN(4) == 0 {
				copy(data[i:], data[r.IntN(i):][:r.IntN(300)%(len(data)-i)])
			}
		}
		again := must(inflate(nil, deflateNumbers(data), int64(len(data))))(t)
		if !bytes.Equal(again, data) {
			t.Fatalf("%d bytes come out as others", len(data))
		}
	}
	// Symbols that occur as the Fibonacci numbers have the longest codes.
	var skewed []byte
	for i, a, b := 0, 1, 1; i < 24; i, a, b = i+1, b, a+b {
		skewed = append(skewed, bytes.Repeat([]byte{byte(i)}, a)...)
	}
	r.Shuffle(len(skewed), func(i, j int) { skewed[i], skewed[j] = skewed[j], skewed[i] })
	if again := must(inflate(nil, deflateNumbers(skewed), int64(len(skewed))))(t); !bytes.Equal(again, skewed) {
		t.Fatal("skewed bytes come out as others")
	}
}

// TestSavesAreSmall compares what is written with what others write of the same document.
func TestSavesAreSmall(t *testing.T) {
	for _, name := range []string{"items20k", "items2k", "ks_conf"} {
		data := fixture(t, name+".am")
		d := must(ParseDocument(data, Limits{}))(t)
		saved := must(WriteDocument(t.Context(), d, nil, nil, Limits{}))(t)
		t.Logf("%s: %d bytes, %d by others", name, len(saved), len(data))
		if len(saved)*20 > len(data)*21 {
			t.Errorf("%s: %d bytes, %d by others", name, len(saved), len(data))
		}
	}
}
